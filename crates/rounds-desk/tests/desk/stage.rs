//! A server with a desk, and a browser without scripts.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gallery::Gallery;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rmcp::ServerHandler;
use rounds::{Principal, Rounds, test::Client};
use rounds_desk::{Action, Desk, DeskService, Recorder};
use tower_service::Service;

/// A server, its desk, and the actions that were recorded.
pub(crate) struct Stage<H = Gallery> {
    pub(crate) server: Rounds<H>,
    pub(crate) desk: DeskService,
    pub(crate) actions: Arc<Mutex<Vec<Action>>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(|desk| desk)
    }

    pub(crate) fn with(configure: impl FnOnce(Desk) -> Desk) -> Self {
        let recorder = Recorder::new();
        let server = gallery::rounds().register().observe(recorder.clone()).build().unwrap();
        Self::of(server, recorder, configure)
    }
}

impl<H: ServerHandler> Stage<H> {
    pub(crate) fn of(server: Rounds<H>, recorder: Recorder, configure: impl FnOnce(Desk) -> Desk) -> Self {
        let actions = Arc::<Mutex<Vec<Action>>>::default();
        let recorded = actions.clone();
        let desk = Desk::new(&server).recorder(&recorder).try_it();
        let desk = configure(desk).record(move |action| recorded.lock().unwrap().push(action.clone()));
        let desk = desk.service("127.0.0.1:8000".parse().unwrap()).unwrap();
        Self { server, desk, actions }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::modern(self.server.clone()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.visit(Request::get(path).body(String::new()).unwrap(), None).await
    }

    pub(crate) async fn get_as(&self, name: &str, path: &str) -> Page {
        self.visit(Request::get(path).body(String::new()).unwrap(), Some(name)).await
    }

    /// Sends the form on a page that is sent to this path, with these fields.
    pub(crate) async fn submit(&self, page: &Page, action: &str, fields: &[(&str, &str)]) -> Page {
        let mut all = page.hidden(action);
        all.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self.post(action, &all, page.visitor.as_deref()).await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(String, String)], name: Option<&str>) -> Page {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
        let page = self.visit(request.body(body).unwrap(), name).await;
        match page.headers.get("location") {
            Some(location) => {
                self.visit(Request::get(location.to_str().unwrap()).body(String::new()).unwrap(), name).await
            }
            None => page,
        }
    }

    pub(crate) async fn visit(&self, mut request: Request<String>, name: Option<&str>) -> Page {
        if !request.headers().contains_key("host") {
            request.headers_mut().insert("host", "localhost:8000".parse().unwrap());
        }
        if let Some(name) = name {
            request.extensions_mut().insert(Principal::new(name));
        }
        let response = self.desk.clone().call(request.map(|body| Full::new(Bytes::from(body)))).await.unwrap();
        let (head, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Page { status: head.status, headers: head.headers, text, visitor: name.map(str::to_owned) }
    }
}

/// A page as it was received.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    visitor: Option<String>,
}

impl Page {
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> &Self {
        assert!(self.text.contains(text), "{text:?} is not on the page:\n{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn hides(&self, text: &str) -> &Self {
        assert!(!self.text.contains(text), "{text:?} is on the page:\n{}", self.text);
        self
    }

    /// The target of the link with this text.
    #[track_caller]
    pub(crate) fn link(&self, text: &str) -> String {
        let end = self.text.find(&format!(">{text}<")).unwrap_or_else(|| panic!("no link {text:?}:\n{}", self.text));
        let start = self.text[..end].rfind("href=\"").unwrap() + "href=\"".len();
        self.text[start..].split('"').next().unwrap().replace("&amp;", "&")
    }

    /// The hidden fields of the form that is sent to this path.
    #[track_caller]
    fn hidden(&self, action: &str) -> Vec<(String, String)> {
        let begin = self
            .text
            .find(&format!("action=\"{action}\""))
            .unwrap_or_else(|| panic!("no form for {action}:\n{}", self.text));
        let form = self.text[begin..].split("</form>").next().unwrap();
        let value = |input: &str, name: &str| {
            let escaped = input.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap();
            escaped.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        };
        form.split("<input type=\"hidden\"")
            .skip(1)
            .map(|input| (value(input, "name"), value(input, "value")))
            .collect()
    }

    /// The path of the form of a call on "Try it".
    #[track_caller]
    pub(crate) fn call(&self) -> String {
        let begin = self.text.find("action=\"/try/").expect("a form of a call") + "action=\"".len();
        self.text[begin..].split('"').next().unwrap().to_owned()
    }
}
