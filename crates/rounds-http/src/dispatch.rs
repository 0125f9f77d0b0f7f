//! From an accepted request to its response, by way of the handler.

use std::{
    any::Any,
    convert::Infallible,
    fmt::Display,
    future::Future,
    mem,
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
use http_body::Body;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::{
    ErrorData, ServerHandler,
    model::{ErrorCode, RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerResult},
    service::{RequestContext, Service},
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

use crate::{
    accept::Accepted,
    events::{Batch, Reader},
    line::Line,
    log::{Cut, Rare},
    print::{BEGIN, END, event},
    stream::Stream,
};

/// How rmcp answers, and so how it is answered here.
pub(crate) type BoxResponse = Response<BoxBody<Bytes, Infallible>>;

/// What a response is that is one message.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Json,
    /// A stream of one event.
    EventStream,
}

/// Runs the handler, and makes a response of what it says: one message, or a stream from the first notification on. When the server stops first, it is
/// the response that rmcp gives then.
pub(crate) fn answer<H: ServerHandler>(
    handler: Arc<H>,
    line: Line,
    accepted: Accepted,
    head: Parts,
    config: &StreamableHttpServerConfig,
    form: Form,
) -> impl Future<Output = BoxResponse> + Send {
    let Accepted { id, meta, request } = accepted;
    tracing::debug!(id = ?Cut(&id), method = request.method(), "received request");
    let mut context = RequestContext::new(id.clone(), line.peer().clone());
    context.meta = meta;
    context.extensions.insert(head);
    // What rmcp leaves behind when it takes the metadata out.
    context.extensions.insert(RequestMetaObject::default());
    let cancelled = context.ct.clone();
    let reader = line.events.clone().map(Reader::of);
    let asked = id.clone();
    // It can outlive the connection, and so it owns what it needs.
    let handler = boxed(|| async move {
        let _line = line;
        let result = Service::handle_request(&*handler, request, context).await;
        Said::new(result, asked)
    });
    let running = Running { cancelled, handler: Some(handler) };
    // The future has room for these, and not for what the handler was given.
    async move {
        tokio::select! {
            biased;
            begun = Beginning::new(running, reader, id.clone()) => match begun {
                Begun::Answered(said, before) => {
                    response(said.unwrap_or_else(|panicked| Said::new(Err(panicked), id)), before, form)
                }
                Begun::Moved(reader, left) => stream(reader, left, config),
            },
            () = config.cancellation_token.cancelled() => {
                failure("empty response", "no response message received from handler")
            }
        }
    }
}

/// A future in a box, made in its place: `Box::pin` may copy all the room that it has.
#[inline(always)]
pub(crate) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// A running handler. When its client is gone, its token is cancelled, and it runs to its end: work in progress is not cut off.
struct Running {
    handler: Option<Pin<Box<dyn Future<Output = Said> + Send>>>,
    cancelled: CancellationToken,
}

impl Future for Running {
    /// What it says, or that it panicked.
    type Output = Result<Said, ErrorData>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(handler) = &mut self.handler else { return Poll::Pending };
        // Other requests of this connection have nothing to do with it.
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
        let said = match polled {
            Ok(polled) => Ok(ready!(polled)),
            Err(panic) => Err(panicked(&*panic)),
        };
        self.handler = None;
        Poll::Ready(said)
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

/// How a response begins.
enum Begun {
    /// The handler has ended where it was called, and this was sent before.
    Answered(Result<Said, ErrorData>, Vec<u8>),
    /// Something was sent. The handler goes on in a task of its own, or has ended there. It is told when the guard is dropped.
    Moved(Reader, DropGuard),
}

/// A handler, up to the point where it is known how the response begins.
///
/// It is polled where it was called until it has sent something. From then on it has a task of its own: what it does next must neither keep back what
/// it has sent, nor wait for a client to read.
struct Beginning {
    at: At,
    reader: Option<Reader>,
    id: Option<RequestId>,
    batch: Batch,
}

enum At {
    Here(Running),
    Moved(DropGuard),
    Begun,
}

impl Beginning {
    fn new(running: Running, reader: Option<Reader>, id: RequestId) -> Self {
        Self { at: At::Here(running), reader, id: Some(id), batch: Batch::default() }
    }

    /// How many bytes wait.
    fn waiting(&self, cx: &Context<'_>) -> usize {
        self.reader.as_ref().map_or(0, |reader| reader.waiting(cx))
    }

    /// Moves the handler to a task.
    fn move_on(&mut self) {
        let (At::Here(running), Some(reader), Some(id)) =
            (mem::replace(&mut self.at, At::Begun), &self.reader, self.id.take())
        else {
            return;
        };
        let (left, events) = (running.cancelled.clone().drop_guard(), reader.events().clone());
        let ends = async move {
            let said = running.await.unwrap_or_else(|panicked| Said::new(Err(panicked), id));
            match said.event {
                Ok(event) => events.end(&event),
                Err(error) => {
                    tracing::error!(%error, "cannot write a result as JSON: its stream ends without it");
                    events.end(&[]);
                }
            }
        };
        tokio::spawn(ends.in_current_span());
        self.at = At::Moved(left);
    }
}

impl Future for Beginning {
    type Output = Begun;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Begun> {
        if self.waiting(cx) == 0
            && let At::Here(running) = &mut self.at
        {
            if let Poll::Ready(said) = Pin::new(running).poll(cx) {
                self.at = At::Begun;
                let before = self.reader.as_ref().map(Reader::end).unwrap_or_default();
                return Poll::Ready(Begun::Answered(said, before));
            }
            if self.waiting(cx) == 0 {
                return Poll::Pending;
            }
        }
        if matches!(self.at, At::Here(_)) {
            self.move_on();
        }
        let Some(reader) = &self.reader else { return Poll::Pending };
        let (bytes, is_all) = (reader.waiting(cx), reader.is_all_there());
        if !is_all && self.batch.may_grow(bytes) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match (mem::replace(&mut self.at, At::Begun), self.reader.take()) {
            (At::Moved(left), Some(reader)) => Poll::Ready(Begun::Moved(reader, left)),
            _ => Poll::Pending,
        }
    }
}

/// What a handler says in the end, as an event of a stream.
struct Said {
    status: StatusCode,
    event: serde_json::Result<Vec<u8>>,
}

impl Said {
    fn new(result: Result<ServerResult, ErrorData>, id: RequestId) -> Self {
        let (status, message) = match result {
            Ok(result) => (StatusCode::OK, ServerJsonRpcMessage::response(result, id)),
            Err(error) => {
                static ERRORS: Rare = Rare::new();
                if let Some(more) = ERRORS.passes() {
                    tracing::warn!(id = ?Cut(&id), error = ?Cut(&error), more, "response error");
                }
                (status(error.code), ServerJsonRpcMessage::error(error, Some(id)))
            }
        };
        let mut printed = Vec::with_capacity(ROOM);
        let event = event(&mut printed, &message).map(|()| printed);
        Self { status, event }
    }
}

/// Most answers fit.
const ROOM: usize = 1024;

/// The response to a request whose handler has ended, after it has sent these events.
fn response(said: Said, before: Vec<u8>, form: Form) -> BoxResponse {
    let event = match said.event {
        Ok(event) => event,
        Err(error) => return failure("serialize json response", error),
    };
    if !before.is_empty() {
        return events(Full::from([before, event].concat()));
    }
    if matches!(form, Form::EventStream) && said.status == StatusCode::OK {
        return events(Full::from(event));
    }
    let end = event.len() - END.len();
    let mut response = Response::new(Full::new(Bytes::from(event).slice(BEGIN.len()..end)).boxed());
    *response.status_mut() = said.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a request whose handler has sent something.
fn stream(reader: Reader, left: DropGuard, config: &StreamableHttpServerConfig) -> BoxResponse {
    if reader.is_all_there() {
        return events(Full::from(reader.end()));
    }
    events(Stream::new(reader, left, config))
}

/// A response that is a stream of events.
fn events(body: impl Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static) -> BoxResponse {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    let mut response = Response::new(body.boxed());
    *response.headers_mut() = headers;
    response
}

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
