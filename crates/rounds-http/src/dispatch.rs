//! From an accepted request to its response, by way of the handler.

use std::{
    any::Any,
    convert::Infallible,
    fmt::Display,
    future::{Future, pending, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        ClientCapabilities, ErrorCode, Implementation, InitializeRequestParams, ProtocolVersion, RequestId,
        RequestMetaObject, ServerJsonRpcMessage, ServerResult,
    },
    service::{Peer, RequestContext, RunningService, RxJsonRpcMessage, Service, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::{Dispatch, dispatcher::with_default};

use crate::{
    accept::Accepted,
    log::{Cut, Rare},
    print::print,
};

/// How rmcp answers, and so how it is answered here.
pub(crate) type BoxResponse = Response<BoxBody<Bytes, Infallible>>;

/// What one message is sent as.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Json,
    /// A stream of one event.
    EventStream,
}

/// Runs the handler, and makes a response of what it says. When `stop` comes first, it is the one that rmcp gives then.
pub(crate) fn answer<H: ServerHandler>(
    handler: Arc<H>,
    peer: Peer<RoleServer>,
    accepted: Accepted,
    head: Parts,
    stop: &CancellationToken,
    form: Form,
) -> impl Future<Output = BoxResponse> + Send {
    let Accepted { id, meta, request } = accepted;
    tracing::debug!(id = ?Cut(&id), method = request.method(), "received request");
    let mut context = RequestContext::new(id.clone(), peer);
    context.meta = meta;
    context.extensions.insert(head);
    // What rmcp leaves behind when it takes the metadata out.
    context.extensions.insert(RequestMetaObject::default());
    let cancelled = context.ct.clone();
    let asked = id.clone();
    // It can outlive the connection, and so it owns what it needs.
    let handler = boxed(|| async move {
        let said = Service::handle_request(&*handler, request, context).await;
        response(said, asked, form)
    });
    let running = Running { cancelled, handler: Some(handler) };
    // The future has room for these, and not for what the handler was given.
    async move {
        tokio::select! {
            biased;
            answered = running => answered.unwrap_or_else(|panicked| response(Err(panicked), id, form)),
            () = stop.cancelled() => failure("empty response", "no response message received from handler"),
        }
    }
}

/// A future in a box, made in its place: `Box::pin` may copy all the room that it has.
#[inline(always)]
pub(crate) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// A handler at work. It is told when nobody waits for it any more, and goes on to its end: what it has begun is not broken off.
struct Running {
    handler: Option<Pin<Box<dyn Future<Output = BoxResponse> + Send>>>,
    cancelled: CancellationToken,
}

impl Future for Running {
    /// What it answers, or that it panicked.
    type Output = Result<BoxResponse, ErrorData>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(handler) = &mut self.handler else { return Poll::Pending };
        // Other requests of this connection have nothing to do with it.
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
        let answered = match polled {
            Ok(polled) => Ok(ready!(polled)),
            Err(panic) => Err(panicked(&*panic)),
        };
        self.handler = None;
        Poll::Ready(answered)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancelled.cancel();
        // Without a runtime there is nothing left that could go on.
        if let (Some(handler), Ok(runtime)) = (self.handler.take(), Handle::try_current()) {
            runtime.spawn(handler);
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> ErrorData {
    let why = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(why, "the handler panicked");
    ErrorData::internal_error("the handler panicked", None)
}

fn response(said: Result<ServerResult, ErrorData>, id: RequestId, form: Form) -> BoxResponse {
    let (status, message) = match said {
        Ok(result) => (StatusCode::OK, ServerJsonRpcMessage::response(result, id)),
        Err(error) => {
            static ERRORS: Rare = Rare::new();
            if let Some(more) = ERRORS.passes() {
                tracing::warn!(id = ?Cut(&id), error = ?Cut(&error), more, "response error");
            }
            (status(error.code), ServerJsonRpcMessage::error(error, Some(id)))
        }
    };
    let event_stream = matches!(form, Form::EventStream) && status == StatusCode::OK;
    let mut body = Vec::with_capacity(ROOM);
    if event_stream {
        body.extend_from_slice(b"data: ");
    }
    if let Err(error) = print(&mut body, &message) {
        return failure("serialize json response", error);
    }
    let mut headers = HeaderMap::new();
    if event_stream {
        body.extend_from_slice(b"\n\n");
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let mut response = Response::new(Full::from(body).boxed());
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// Most answers fit.
const ROOM: usize = 1024;

/// The status of a request that was accepted. Its metadata is complete, and so parameters that are wrong are the handler's to judge.
fn status(error: ErrorCode) -> StatusCode {
    match error {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

fn failure(when: &str, why: impl Display) -> BoxResponse {
    tracing::error!("Internal server error when {when}: {why}");
    let mut response = Response::new(Full::from(format!("Encounter an error when {when}: {why}")).boxed());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// A service that nobody calls, for the sake of its peer, which every context has to have.
///
/// The peer speaks 2026-07-28, so that rmcp refuses whatever a server would ask of it. A request that is answered with one
/// message has no place for notifications, and those that a handler sends all the same go nowhere.
pub(crate) fn idle() -> RunningService<RoleServer, Nobody> {
    let client = InitializeRequestParams::new(ClientCapabilities::default(), Implementation::default())
        .with_protocol_version(ProtocolVersion::V_2026_07_28);
    // It outlives the request that comes first, and is not to keep that request's span.
    with_default(&Dispatch::none(), || serve_directly(Nobody, Drain, Some(client)))
}

pub(crate) struct Nobody;

impl ServerHandler for Nobody {}

struct Drain;

impl Transport<RoleServer> for Drain {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        tracing::debug!(message = ?Cut(&message), "a message of a request that is answered with one message goes nowhere");
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        pending().await
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Infallible>> + Send {
        ready(Ok(()))
    }
}
