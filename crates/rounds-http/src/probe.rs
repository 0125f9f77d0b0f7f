//! What rmcp's service does that its configuration does not show, found out by asking it.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Empty;
use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{SessionManager, StreamableHttpService},
};
use tracing::{Dispatch, dispatcher::with_default};

use crate::dispatch::BoxResponse;

/// Whether its session manager may have a store for events, in which the events of a stream would have to be kept.
pub(crate) fn may_keep_events<H: ServerHandler, M: SessionManager>(service: &StreamableHttpService<H, M>) -> bool {
    let mut service = service.clone();
    service.config.legacy_session_mode = false;
    // Without sessions, GET is for streams that are resumed from such a store.
    let refused = ask(service, None);
    refused.is_none_or(|refused| refused.headers().get(header::ALLOW).is_none_or(|methods| methods != "POST"))
}

/// Whether it serves pages of every origin.
pub(crate) fn serves_any_origin<H: ServerHandler, M: SessionManager>(service: &StreamableHttpService<H, M>) -> bool {
    let refused = ask(service.clone(), Some(HeaderValue::from_static("https://nowhere.invalid")));
    service.config.allowed_origins.is_empty()
        && refused.is_some_and(|refused| refused.status() == StatusCode::METHOD_NOT_ALLOWED)
}

/// What it responds to a method that it has no use for, if it does so at once.
fn ask<H, M>(mut service: StreamableHttpService<H, M>, origin: Option<HeaderValue>) -> Option<BoxResponse>
where
    H: ServerHandler,
    M: SessionManager,
{
    service.config.allowed_hosts.clear();
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::OPTIONS;
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    if let Some(origin) = origin {
        request.headers_mut().insert(header::ORIGIN, origin);
    }
    let mut responding = pin!(service.handle(request));
    // It is not a request of a client, and is not to be seen in the log.
    let polled = with_default(&Dispatch::none(), || responding.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    match polled {
        Poll::Ready(response) => Some(response),
        Poll::Pending => None,
    }
}
