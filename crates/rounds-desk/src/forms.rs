//! What a form sends, and the tokens that show that it was a form of ours.

use std::fmt::Display;

use bytes::Bytes;
use http::{HeaderMap, header, request::Parts, uri::Authority};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use ring::hmac;

use crate::{check::Visitor, problem::Problem};

/// The name of the field with the token.
pub(crate) const TOKEN: &str = "form-token";

/// How many bytes a form may send.
const LIMIT: usize = 256 << 10;

/// The fields that a form sent.
#[derive(Debug)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form whose token is that of this visitor and this path.
    pub(crate) async fn read<B>(head: &Parts, path: &str, key: &FormKey, body: B) -> Result<Self, Problem>
    where
        B: Body<Data = Bytes, Error: Display> + Send,
    {
        if is_foreign(&head.headers) {
            return Err(Problem::Forged);
        }
        let kind = head.headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
        if !kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded")) {
            return Err(Problem::NotAForm);
        }
        let body = body.map_err(|error| std::io::Error::other(error.to_string()));
        let bytes = Limited::new(body, LIMIT).collect().await.map_err(|_| Problem::TooLarge)?.to_bytes();
        let form = Self(form_urlencoded::parse(&bytes).into_owned().collect());
        match form.get(TOKEN).is_some_and(|token| key.is_token(&Visitor::of(head), path, token)) {
            true => Ok(form),
            false => Err(Problem::Forged),
        }
    }

    /// The first value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// All values of a field.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether it has a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// The key of the tokens in forms.
///
/// A page of another origin can make a browser send a form here, with the visitor's sign-in, but cannot read our pages.
/// So every form has a token that only a page of ours can know: it is bound to the visitor and to the path that the form
/// is sent to.
pub(crate) struct FormKey(hmac::Key);

impl FormKey {
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the operating system provides randomness");
        Self::new(&key)
    }

    pub(crate) fn new(key: &[u8]) -> Self {
        assert!(key.len() >= 32, "a form key needs at least 32 bytes, and this one has {}", key.len());
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The token of a form of this visitor that is sent to this path.
    pub(crate) fn token(&self, visitor: &Visitor<'_>, path: &str) -> String {
        let tag = hmac::sign(&self.0, &message(visitor, path));
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn is_token(&self, visitor: &Visitor<'_>, path: &str, token: &str) -> bool {
        let digit = |at: usize| token.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let tag: Option<Vec<u8>> = (0..token.len()).step_by(2).take(64).map(digit).collect();
        tag.is_some_and(|tag| hmac::verify(&self.0, &message(visitor, path), &tag).is_ok())
    }
}

/// The path, and the visitor's name or that it has none. A path contains no zero byte.
fn message(visitor: &Visitor<'_>, path: &str) -> Vec<u8> {
    let mut message = path.as_bytes().to_vec();
    message.push(0);
    if let Some(principal) = visitor.principal() {
        message.push(1);
        message.extend_from_slice(principal.as_str().as_bytes());
    }
    message
}

/// Whether a browser says that a request comes from a page of another origin. Clients that are not browsers say nothing.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")?.1.parse::<Authority>().ok());
    match (host, origin) {
        (Some(host), Some(origin)) => host != origin,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::Full;
    use rounds::Principal;

    use super::*;

    fn head(headers: &[(&str, &str)], principal: Option<&str>) -> Parts {
        let mut request = Request::post("/").header("content-type", "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut head = request.body(()).unwrap().into_parts().0;
        if let Some(name) = principal {
            head.extensions.insert(Principal::new(name));
        }
        head
    }

    async fn read(head: &Parts, path: &str, key: &FormKey, body: String) -> Result<Form, Problem> {
        Form::read(head, path, key, Full::new(Bytes::from(body))).await
    }

    #[tokio::test]
    async fn a_token_is_good_for_one_visitor_and_one_path() {
        let key = FormKey::random();
        let ada = head(&[], Some("ada"));
        let body = || format!("a=1&{TOKEN}={}", key.token(&Visitor::of(&ada), "/x"));
        assert_eq!(read(&ada, "/x", &key, body()).await.unwrap().get("a"), Some("1"));
        assert!(read(&ada, "/y", &key, body()).await.is_err(), "another path");
        assert!(read(&head(&[], Some("bob")), "/x", &key, body()).await.is_err(), "another visitor");
        assert!(read(&head(&[], None), "/x", &key, body()).await.is_err(), "no visitor");
        assert!(read(&ada, "/x", &FormKey::random(), body()).await.is_err(), "another key");
        for token in ["", "00", "zz", "ü", &"0".repeat(64), &"0".repeat(1 << 16)] {
            assert!(read(&ada, "/x", &key, format!("{TOKEN}={token}")).await.is_err(), "{token:.8}");
        }
        assert!(read(&ada, "/x", &key, "a=1".to_owned()).await.is_err(), "no token");
    }

    #[tokio::test]
    async fn forms_of_other_origins_are_rejected_even_with_a_token() {
        let key = FormKey::random();
        let accepted = async |headers: &[(&str, &str)]| {
            let head = head(headers, None);
            let body = format!("{TOKEN}={}", key.token(&Visitor::of(&head), "/x"));
            read(&head, "/x", &key, body).await.is_ok()
        };
        let host = ("host", "desk.example:8000");
        assert!(accepted(&[host]).await);
        assert!(accepted(&[host, ("sec-fetch-site", "same-origin")]).await);
        assert!(accepted(&[host, ("origin", "http://desk.example:8000")]).await);
        assert!(!accepted(&[host, ("sec-fetch-site", "cross-site")]).await);
        assert!(!accepted(&[host, ("sec-fetch-site", "same-site")]).await);
        assert!(!accepted(&[host, ("sec-fetch-site", "none")]).await);
        assert!(!accepted(&[host, ("origin", "http://evil.example:8000")]).await);
        assert!(!accepted(&[host, ("origin", "http://desk.example:8001")]).await);
        assert!(!accepted(&[host, ("origin", "null")]).await);
    }

    #[tokio::test]
    async fn what_is_too_large_or_not_a_form_is_rejected() {
        let key = FormKey::random();
        let head = head(&[], None);
        let long = format!("a={}", "x".repeat(LIMIT));
        assert!(matches!(read(&head, "/x", &key, long).await, Err(Problem::TooLarge)));
        let mut json = head.clone();
        json.headers.insert("content-type", "text/plain".parse().unwrap());
        assert!(matches!(read(&json, "/x", &key, String::new()).await, Err(Problem::NotAForm)));
    }
}
