//! The desk as a tower service: from a request to the page, file, stream or redirect that answers it.

use std::{
    convert::Infallible,
    fmt::{self, Display},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, header, request::Parts, uri::Authority};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use maud::{Markup, html};
use rounds::{FlowId, register::Flows};

use crate::{
    action::{Action, ActionKind, Record},
    check::{Check, Permission, Visitor},
    content::Text,
    counts::Counting,
    forms::{self, Form, FormKey, TOKEN},
    live::Live,
    pages::{self, Page},
    problem::Problem,
    recorder::Recorder,
    response::{self, Asset, BoxResponse},
    served::Served,
    tried::Calls,
};

/// A desk as a tower service, for axum, hyper and a [`Port`](rounds_http). Clones are the same desk.
///
/// It never fails: what goes wrong is a page that says so.
#[derive(Clone)]
pub struct DeskService {
    shared: Arc<Shared>,
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) flows: Flows,
    pub(crate) served: Arc<dyn Served>,
    pub(crate) check: Box<dyn Check>,
    /// Whether requests for other hosts than loopback names are rejected. Otherwise a page on the internet could have
    /// its own name resolve to this machine and read the desk.
    pub(crate) loopback_only: bool,
    pub(crate) base: String,
    pub(crate) recorder: Option<Recorder>,
    /// The calls of "Try it", if the desk has that page.
    pub(crate) calls: Option<Calls>,
    pub(crate) live: Live,
    pub(crate) counting: Counting,
    pub(crate) form_key: FormKey,
    pub(crate) record: Vec<Record>,
}

impl DeskService {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for DeskService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeskService").field("base", &self.shared.base).finish_non_exhaustive()
    }
}

impl<B> tower_service::Service<Request<B>> for DeskService
where
    B: Body<Data = Bytes, Error: Display> + Send + 'static,
{
    type Response = BoxResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<BoxResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        // One type of body, so that the pages are compiled once.
        let (head, body) = request.map(|body| body.map_err(|error| error.to_string()).boxed_unsync()).into_parts();
        Box::pin(async move {
            let visit = Visit { shared: &shared, head: &head };
            Ok(match visit.respond(body).await {
                Ok(response) => response,
                Err(problem) => visit.sorry(&problem),
            })
        })
    }
}

type Received = UnsyncBoxBody<Bytes, String>;

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Visit<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) head: &'a Parts,
}

impl<'a> Visit<'a> {
    async fn respond(self, body: Received) -> Result<BoxResponse, Problem> {
        if self.shared.loopback_only && !is_for_loopback(&self.head.uri, &self.head.headers) {
            return Err(Problem::NotLoopback);
        }
        let path = self.path();
        let is_read = matches!(self.head.method, Method::GET | Method::HEAD);
        if let Some(asset) = Asset::find(path).filter(|_| is_read) {
            return Ok(response::file(asset, &self.head.headers));
        }
        // An approver sees only the questions that it may answer.
        let is_question = path.starts_with("/questions/") && self.may(Permission::Answer);
        if !is_question && !self.may(Permission::Read) {
            return Err(Problem::MayNotRead);
        }
        if is_read {
            return self.get(path).await;
        }
        if self.head.method != Method::POST {
            return Err(Problem::Method);
        }
        let form = Form::read(self.head, path, &self.shared.form_key, body).await?;
        if !is_question && !self.may(Permission::Act) {
            return Err(Problem::MayNotAct);
        }
        self.post(path, &form).await
    }

    async fn get(self, path: &str) -> Result<BoxResponse, Problem> {
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        match steps.as_slice() {
            [""] => pages::waiting::show(self).await,
            ["flows", id] => pages::flow::show(self, flow_id(id)?).await,
            ["flows", id, "journal"] => pages::journal::download(self, flow_id(id)?).await,
            ["questions", id, key] => pages::question::show(self, flow_id(id)?, &decoded(key)).await,
            ["events"] => self.events(),
            ["try"] => pages::tries::show(self).await,
            ["try", id] => pages::tries::show_call(self, id).await,
            ["try", id, "journal"] => pages::tries::journal(self, id),
            _ => Err(Problem::NotFound),
        }
    }

    async fn post(self, path: &str, form: &Form) -> Result<BoxResponse, Problem> {
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        match steps.as_slice() {
            ["flows", id, "cancel"] => pages::flow::cancel(self, flow_id(id)?).await,
            ["questions", id, key] => pages::question::decide(self, flow_id(id)?, &decoded(key), form).await,
            ["try"] => pages::tries::call(self, form).await,
            ["try", id] => pages::tries::next_leg(self, id, form).await,
            _ => Err(Problem::NotFound),
        }
    }

    /// The events of one flow, or of all flows.
    fn events(self) -> Result<BoxResponse, Problem> {
        // A page of another site cannot read the stream, and must not take the place of one that can.
        if forms::is_foreign(&self.head.headers) {
            return Err(Problem::Foreign);
        }
        let only = self.query("flow").map(|id| flow_id(&id)).transpose()?;
        Ok(response::events(self.shared.live.stream(only)?))
    }

    /// The path within the desk. Some routers remove the prefix and some do not.
    fn path(self) -> &'a str {
        let path = self.head.uri.path();
        match path.strip_prefix(&*self.shared.base) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// A parameter of the query, if it is there and not empty.
    pub(crate) fn query(self, name: &str) -> Option<String> {
        let query = self.head.uri.query()?;
        let found = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned()).filter(|value| !value.is_empty())
    }

    pub(crate) fn visitor(self) -> Visitor<'a> {
        Visitor::of(self.head)
    }

    pub(crate) fn may(self, permission: Permission) -> bool {
        self.shared.check.allows(&self.visitor(), permission)
    }

    /// A link to a path of the desk.
    pub(crate) fn link(self, path: &str) -> String {
        format!("{}{path}", self.shared.base)
    }

    /// The hidden field without which a form that is sent to this path is rejected.
    pub(crate) fn token(self, path: &str) -> Markup {
        html! { input type="hidden" name=(TOKEN) value=(self.shared.form_key.token(&self.visitor(), path)); }
    }

    /// Records what the visitor did.
    pub(crate) fn did(self, kind: ActionKind, flow: Option<FlowId>, target: &str) {
        let action = self.action(kind, flow, target);
        action.log();
        self.shared.record.iter().for_each(|record| record(&action));
    }

    pub(crate) fn action(self, kind: ActionKind, flow: Option<FlowId>, target: &str) -> Action {
        Action { actor: self.visitor().principal().cloned(), kind, flow, target: target.to_owned() }
    }

    /// The page for what went wrong.
    fn sorry(self, problem: &Problem) -> BoxResponse {
        let status = problem.status();
        if status.is_server_error() {
            tracing::warn!(target: "rounds::desk", error = problem as &dyn std::error::Error, "a page failed");
        }
        let title = status.canonical_reason().unwrap_or("Error");
        let body = html! {
            h1 { (title) }
            // It may name a principal.
            p .lead { (Text(&problem.to_string())) }
            p { a href=(self.link("/")) { "Back to the first page" } }
        };
        // A visitor who may not read learns nothing about the server here.
        let page = Page::new(title).plain(matches!(problem, Problem::MayNotRead | Problem::NotLoopback));
        response::page(status, page.render(self, body))
    }
}

fn flow_id(text: &str) -> Result<FlowId, Problem> {
    text.parse().map_err(|_| Problem::NotFound)
}

/// A part of a path without its percent-encoding. Unlike in a form, a plus sign is one.
fn decoded(part: &str) -> String {
    let part = format!("part={}", part.replace('+', "%2B"));
    form_urlencoded::parse(part.as_bytes()).next().map(|(_, part)| part.into_owned()).unwrap_or_default()
}

/// Whether a request is for a loopback name.
fn is_for_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let named = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let Some(host) = named.or_else(|| uri.authority().cloned()) else { return false };
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}
