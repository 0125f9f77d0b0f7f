//! Responses: pages, files of this crate, redirects and downloads, each with the headers that keep them safe.

use std::{convert::Infallible, fmt};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use maud::Markup;

pub(crate) type BoxResponse = Response<BoxBody<Bytes, Infallible>>;

/// A page may load our style and our script, send forms to us and read our events, and nothing else. No other page may
/// frame it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) fn page(status: StatusCode, page: Markup) -> BoxResponse {
    whole(status, "text/html; charset=utf-8", "no-store", page.into_string())
}

/// A redirect after a form was handled, so that reloading the page does not send the form again.
pub(crate) fn see(path: &str) -> BoxResponse {
    let mut response = whole(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "no-store", String::new());
    match HeaderValue::from_str(path) {
        Ok(path) => {
            response.headers_mut().insert(header::LOCATION, path);
        }
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    response
}

/// A file that the browser saves under this name.
pub(crate) fn download(name: &str, kind: &'static str, contents: String) -> BoxResponse {
    let mut response = whole(StatusCode::OK, kind, "no-store", contents);
    // Names are made of hex digits here.
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    response
}

/// A stream of events.
pub(crate) fn events(body: BoxBody<Bytes, Infallible>) -> BoxResponse {
    with(body, StatusCode::OK, "text/event-stream", "no-store")
}

/// A file of this crate, which a browser keeps until it has changed.
pub(crate) fn file(asset: &'static Asset, sent: &HeaderMap) -> BoxResponse {
    let known = sent.get(header::IF_NONE_MATCH).is_some_and(|tag| tag == asset.tag());
    let (status, contents) = if known { (StatusCode::NOT_MODIFIED, "") } else { (StatusCode::OK, asset.contents) };
    let mut response = whole(status, asset.kind, "no-cache", contents.to_owned());
    response.headers_mut().insert(header::ETAG, HeaderValue::from_static(asset.tag()));
    response
}

/// A file of this crate.
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    kind: &'static str,
    contents: &'static str,
}

impl Asset {
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        ASSETS.iter().find(|asset| asset.path == path)
    }

    /// Files change with the release only.
    fn tag(&self) -> &'static str {
        concat!("\"", env!("CARGO_PKG_VERSION"), "\"")
    }
}

pub(crate) static ASSETS: [Asset; 3] = [
    Asset { path: "/assets/desk.css", kind: "text/css; charset=utf-8", contents: include_str!("assets/desk.css") },
    Asset { path: "/assets/desk.js", kind: "text/javascript; charset=utf-8", contents: include_str!("assets/desk.js") },
    Asset { path: "/assets/icon.svg", kind: "image/svg+xml", contents: include_str!("assets/icon.svg") },
];

impl fmt::Debug for Asset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

fn whole(status: StatusCode, kind: &'static str, cache: &'static str, contents: String) -> BoxResponse {
    with(Full::from(contents).boxed(), status, kind, cache)
}

fn with(body: BoxBody<Bytes, Infallible>, status: StatusCode, kind: &'static str, cache: &'static str) -> BoxResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, cache),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: browsers would then send the origin of a form as `null`.
        (header::REFERRER_POLICY, "same-origin"),
        (http::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (http::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
