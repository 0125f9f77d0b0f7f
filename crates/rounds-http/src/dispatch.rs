//! From an accepted request to its response, by way of the handler.

use std::{
    any::Any,
    borrow::Cow,
    collections::BTreeMap,
    convert::Infallible,
    fmt::Display,
    future::{Future, pending, ready},
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
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitationCreateRequestMethod, ElicitationSchema,
        ErrorCode, Extensions, Implementation, InitializeRequestParams, InputRequest, InputRequests,
        InputRequiredResult, JsonRpcMessage, JsonRpcResponse, MetaObject, ObjectTypeConst, PrimitiveSchemaDefinition,
        ProtocolVersion, RequestId, RequestMetaObject, ResultType, ServerJsonRpcMessage, ServerResult,
    },
    service::{Peer, RequestContext, RunningService, RxJsonRpcMessage, Service, TxJsonRpcMessage, serve_directly},
    transport::Transport,
};
use rounds::order::ORDER;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::{Dispatch, dispatcher::with_default};

use crate::{
    accept::Accepted,
    log::{Cut, Rare},
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

fn print(body: &mut Vec<u8>, message: &ServerJsonRpcMessage) -> serde_json::Result<()> {
    match message {
        JsonRpcMessage::Response(JsonRpcResponse { id, result: ServerResult::InputRequiredResult(asks), .. })
            if ALL_IS_PRINTED =>
        {
            print_asks(body, id, asks)
        }
        _ => serde_json::to_writer(body, message),
    }
}

/// Whether what is printed of questions here is all that they have. A field that a later rmcp adds makes a type larger, unless it has
/// no size itself, and its questions rmcp's to print.
const ALL_IS_PRINTED: bool = size_of::<InputRequiredResult>()
    == size_of::<(ResultType, Option<InputRequests>, Option<String>, Option<MetaObject>)>()
    && size_of::<ElicitRequest>() == size_of::<(ElicitationCreateRequestMethod, ElicitRequestParams, Extensions)>()
    && size_of::<ElicitationSchema>()
        == size_of::<(
            Option<Cow<'_, str>>,
            ObjectTypeConst,
            Option<Cow<'_, str>>,
            BTreeMap<String, PrimitiveSchemaDefinition>,
            Option<Vec<String>>,
            Option<Vec<String>>,
            Option<Cow<'_, str>>,
        )>();

/// Prints questions as rmcp does, but for the order of members. rmcp prints a request by way of a `Value`, and a schema by way of a
/// copy, which costs more than all else of the message.
fn print_asks(to: &mut Vec<u8>, id: &RequestId, asks: &InputRequiredResult) -> serde_json::Result<()> {
    let mut message = Object::begin(to);
    text(message.member("jsonrpc"), "2.0");
    serde_json::to_writer(message.member("id"), id)?;
    let mut result = Object::begin(message.member("result"));
    serde_json::to_writer(result.member("resultType"), &asks.result_type)?;
    if let Some(asked) = &asks.input_requests {
        let mut requests = Object::begin(result.member("inputRequests"));
        let order = asks.meta.as_ref().and_then(|meta| meta.get(ORDER));
        let order: Vec<_> = order.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, request) in in_order(asked, &order) {
            print_request(requests.member(key), request)?;
        }
        requests.end();
    }
    if let Some(state) = &asks.request_state {
        text(result.member("requestState"), state);
    }
    if let Some(meta) = &asks.meta {
        serde_json::to_writer(result.member("_meta"), meta)?;
    }
    result.end();
    message.end();
    Ok(())
}

fn print_request(to: &mut Vec<u8>, request: &InputRequest) -> serde_json::Result<()> {
    match request {
        InputRequest::Elicitation(ElicitRequest {
            method,
            params: ElicitRequestParams::FormElicitationParams { meta, message, requested_schema },
            extensions,
            ..
        }) if extensions.is_empty() => {
            let mut request = Object::begin(to);
            serde_json::to_writer(request.member("method"), method)?;
            let mut params = Object::begin(request.member("params"));
            text(params.member("mode"), "form");
            if let Some(meta) = meta {
                serde_json::to_writer(params.member("_meta"), meta)?;
            }
            text(params.member("message"), message);
            print_schema(params.member("requestedSchema"), requested_schema)?;
            params.end();
            request.end();
            Ok(())
        }
        // By rmcp's own way, which also finds metadata in extensions.
        other => serde_json::to_writer(to, other),
    }
}

fn print_schema(to: &mut Vec<u8>, schema: &ElicitationSchema) -> serde_json::Result<()> {
    let mut object = Object::begin(to);
    if let Some(schema) = &schema.schema {
        text(object.member("$schema"), schema);
    }
    serde_json::to_writer(object.member("type"), &schema.type_)?;
    if let Some(title) = &schema.title {
        text(object.member("title"), title);
    }
    let mut properties = Object::begin(object.member("properties"));
    for (name, field) in in_order(&schema.properties, schema.property_order.as_deref().unwrap_or_default()) {
        serde_json::to_writer(properties.member(name), field)?;
    }
    properties.end();
    if let Some(required) = &schema.required {
        serde_json::to_writer(object.member("required"), required)?;
    }
    if let Some(description) = &schema.description {
        text(object.member("description"), description);
    }
    object.end();
    Ok(())
}

/// The members that have a place first, each in its first one, and then the others.
fn in_order<'a, T, S: AsRef<str>>(
    members: &'a BTreeMap<String, T>,
    order: &'a [S],
) -> impl Iterator<Item = (&'a String, &'a T)> {
    let is_placed = |places: &[S], name: &str| places.iter().any(|place| place.as_ref() == name);
    let placed = order.iter().enumerate().filter(move |(at, name)| !is_placed(&order[..*at], name.as_ref()));
    let placed = placed.filter_map(|(_, name)| members.get_key_value(name.as_ref()));
    placed.chain(members.iter().filter(move |(name, _)| !is_placed(order, name)))
}

/// An object that is being printed.
struct Object<'a> {
    to: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    fn begin(to: &'a mut Vec<u8>) -> Self {
        to.push(b'{');
        Self { to, is_empty: true }
    }

    /// Where the value of this member is to be printed.
    fn member(&mut self, name: &str) -> &mut Vec<u8> {
        if !mem::replace(&mut self.is_empty, false) {
            self.to.push(b',');
        }
        text(self.to, name);
        self.to.push(b':');
        self.to
    }

    fn end(self) {
        self.to.push(b'}');
    }
}

/// Prints a text.
fn text(to: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // Most are plain, and to look at all bytes of them is quicker than to stop where one is not.
    if text.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
        to.reserve(text.len() + 2);
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        to.push(b'"');
    } else {
        // A text can be printed, and memory takes it.
        let _ = serde_json::to_writer(to, text);
    }
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

#[cfg(test)]
#[expect(deprecated, reason = "SEP-2577 deprecates sampling and roots, and a server may still ask for them")]
mod tests {
    use rmcp::model::{CreateMessageRequest, CreateMessageRequestParams, ListRootsRequest};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_printed_with_what_has_to_be_escaped() -> Result<(), Box<dyn std::error::Error>> {
        for character in (0..0x200).filter_map(char::from_u32) {
            let (given, mut printed) = (format!("so{character}"), Vec::new());
            text(&mut printed, &given);
            assert_eq!(String::from_utf8(printed)?, serde_json::to_string(&given)?);
        }
        Ok(())
    }

    #[test]
    fn questions_are_printed_as_rmcp_prints_them() -> Result<(), Box<dyn std::error::Error>> {
        const { assert!(ALL_IS_PRINTED, "print what is new in rmcp, too") };
        let mut schema = ElicitationSchema::builder().required_email("to").optional_bool("a copy", false).build()?;
        schema.schema = Some("https://json-schema.org/draft/2020-12/schema".into());
        (schema.title, schema.description) = (Some("A letter".into()), Some("of one page".into()));
        let meta = |from: &str| RequestMetaObject::from(serde_json::Map::from_iter([("from".to_owned(), json!(from))]));
        let form = |meta| ElicitRequestParams::FormElicitationParams {
            meta,
            message: "To \"whom\"?".to_owned(),
            requested_schema: schema.clone(),
        };
        let url = ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: "Sign in".to_owned(),
            url: "https://here.example/".to_owned(),
            elicitation_id: "1".to_owned(),
        };
        let mut extended = ElicitRequest::new(form(Some(meta("the parameters"))));
        extended.extensions.insert(meta("the extensions"));
        let requests = InputRequests::from([
            ("form".to_owned(), InputRequest::Elicitation(ElicitRequest::new(form(None)))),
            ("form_meta".to_owned(), InputRequest::Elicitation(ElicitRequest::new(form(Some(meta("the parameters")))))),
            ("extended".to_owned(), InputRequest::Elicitation(extended)),
            ("url".to_owned(), InputRequest::Elicitation(ElicitRequest::new(url))),
            ("roots".to_owned(), InputRequest::ListRoots(ListRootsRequest::default())),
            (
                "sampling".to_owned(),
                InputRequest::CreateMessage(CreateMessageRequest::new(CreateMessageRequestParams::new(vec![], 100))),
            ),
        ]);
        let mut all = InputRequiredResult::new(Some(requests), Some("a state".to_owned()));
        all.meta = Some(MetaObject(serde_json::Map::from_iter([("rounds/expiresInMs".to_owned(), json!(1))])));
        // A `Value` knows no order.
        for order in [None, Some(vec![]), Some(vec!["to", "a copy"]), Some(vec!["to", "no such", "to"])] {
            schema.property_order = order.map(|order| order.into_iter().map(str::to_owned).collect());
            let mut printed = Vec::new();
            print_schema(&mut printed, &schema)?;
            assert_eq!(String::from_utf8(printed)?, serde_json::to_string(&schema)?);
        }
        for asks in [all, InputRequiredResult::from_request_state("a state"), InputRequiredResult::new(None, None)] {
            let result = ServerResult::InputRequiredResult(asks);
            let message = ServerJsonRpcMessage::response(result, RequestId::String("1".into()));
            let mut printed = Vec::new();
            print(&mut printed, &message)?;
            assert_eq!(serde_json::from_slice::<Value>(&printed)?, serde_json::to_value(&message)?);
        }
        Ok(())
    }
}
