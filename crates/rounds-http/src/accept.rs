//! What the fast lane takes: a request of which there is no doubt that rmcp would accept it.
//!
//! Nothing here answers. Whatever is missing, doubled, encoded or merely unusual is rmcp's to look at, and what is wrong with
//! it is rmcp's to say.

use std::{
    borrow::Cow,
    fmt,
    future::poll_fn,
    marker::PhantomData,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Method};
use http_body::{Body, Frame};
use rmcp::{
    ServerHandler,
    model::{
        ArgumentInfo, CallToolRequest, CallToolRequestParams, CancelTaskParams, CancelTaskRequest, ClientRequest,
        CompleteRequest, CompleteRequestParams, CompletionContext, DiscoverRequest, DiscoverRequestParams,
        GetPromptRequest, GetPromptRequestParams, GetTaskParams, GetTaskRequest, InputResponses, JsonObject,
        ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
        PaginatedRequestParams, ProtocolVersion, ReadResourceRequest, ReadResourceRequestParams, Reference, RequestId,
        RequestMetaObject, UpdateTaskParams, UpdateTaskRequest,
    },
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use crate::line::PROGRESS_TOKEN;

/// A request as its handler is to get it.
pub(crate) struct Accepted {
    pub(crate) id: RequestId,
    pub(crate) meta: RequestMetaObject,
    pub(crate) request: ClientRequest,
}

/// The method of a request whose head leaves it to the body. Whether its origin is served, the caller decides, if it names one.
pub(crate) fn head(
    head: &http::Request<impl Body>,
    config: &StreamableHttpServerConfig,
    is_served: impl FnOnce(&str) -> bool,
) -> Option<&'static str> {
    let Counting { version, method, content_type, accept, host, origin, name: _ } = Counting::of(head.headers())?;
    // As HTTP/2 has it, where no header does.
    let host = host.or_else(|| Some(head.uri().authority()?.as_str()))?;
    let is_accepted = head.method() == Method::POST
        && version? == ProtocolVersion::V_2026_07_28.as_str()
        && content_type?.starts_with(JSON)
        && accept.is_some_and(|given| given.contains(JSON) && given.contains(EVENT_STREAM))
        && is_allowed(host, &config.allowed_hosts)
        && origin.is_none_or(is_served);
    METHODS.into_iter().find(|known| method == Some(known)).filter(|_| is_accepted)
}

/// The request in a body. If it `may_stream`, it may ask for notifications.
pub(crate) fn body(
    body: &[u8],
    method: &'static str,
    headers: &HeaderMap,
    handler: &impl ServerHandler,
    may_stream: bool,
) -> Option<Accepted> {
    // That it is text is found out for all of it at once: the parser would do it string by string.
    let Object(message): Object<Message<'_>> = serde_json::from_str(str::from_utf8(body).ok()?).ok()?;
    let mut params = message.params.0;
    let meta = RequestMetaObject::from(mem::take(&mut params.meta));
    if message.jsonrpc != "2.0" || message.method != method || !is_self_contained(&meta, may_stream) {
        return None;
    }
    // It was seen in the head that there is no second one.
    let is_named = |of: &str| headers.get(&NAME).is_some_and(|name| name == of) && !of.starts_with(ENCODED);
    let request = params.into_request(method, is_named, handler)?;
    Some(Accepted { id: message.id, meta, request })
}

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// How a header begins whose value had to be encoded.
const ENCODED: &str = "=?base64?";
static NAME: HeaderName = HeaderName::from_static("mcp-name");
const METHODS: [&str; 12] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "completion/complete",
];

/// Every method in one shape, so that a body is read once and from front to back. A field that is not here, or twice in the
/// body, is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'a, str>,
    params: Object<Params>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Params {
    #[serde(rename = "_meta")]
    meta: JsonObject,
    name: Option<String>,
    uri: Option<String>,
    task_id: Option<String>,
    arguments: Option<JsonObject>,
    input_responses: Option<InputResponses>,
    request_state: Option<String>,
    cursor: Option<String>,
    r#ref: Option<Reference>,
    argument: Option<ArgumentInfo>,
    context: Option<CompletionContext>,
}

impl Params {
    /// The request of a method, if there is nothing that the method has no use for. That is rmcp's to ignore.
    fn into_request(
        self,
        method: &str,
        is_named: impl Fn(&str) -> bool,
        handler: &impl ServerHandler,
    ) -> Option<ClientRequest> {
        match method {
            "tools/call" | "prompts/get" | "resources/read" => self.into_flow(method, is_named, handler),
            "completion/complete" => self.into_completion(),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.into_task(method, is_named),
            _ => self.into_page(method),
        }
    }

    fn into_flow(
        self,
        method: &str,
        is_named: impl Fn(&str) -> bool,
        handler: &impl ServerHandler,
    ) -> Option<ClientRequest> {
        let Self {
            meta: _,
            name,
            uri,
            task_id: None,
            arguments,
            input_responses,
            request_state,
            cursor: None,
            r#ref: None,
            argument: None,
            context: None,
        } = self
        else {
            return None;
        };
        match (method, name, uri) {
            ("tools/call", Some(name), None) if is_named(&name) && !takes_headers(handler, &name) => {
                let mut params = CallToolRequestParams::new(name);
                (params.arguments, params.input_responses, params.request_state) =
                    (arguments, input_responses, request_state);
                Some(CallToolRequest::new(params).into())
            }
            ("prompts/get", Some(name), None) if is_named(&name) => {
                let mut params = GetPromptRequestParams::new(name);
                (params.arguments, params.input_responses, params.request_state) =
                    (arguments, input_responses, request_state);
                Some(GetPromptRequest::new(params).into())
            }
            ("resources/read", None, Some(uri)) if is_named(&uri) && arguments.is_none() => {
                let mut params = ReadResourceRequestParams::new(uri);
                (params.input_responses, params.request_state) = (input_responses, request_state);
                Some(ReadResourceRequest::new(params).into())
            }
            _ => None,
        }
    }

    fn into_page(self, method: &str) -> Option<ClientRequest> {
        let Self {
            meta: _,
            name: None,
            uri: None,
            task_id: None,
            arguments: None,
            input_responses: None,
            request_state: None,
            cursor,
            r#ref: None,
            argument: None,
            context: None,
        } = self
        else {
            return None;
        };
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        Some(match method {
            "tools/list" => ListToolsRequest::with_param(page).into(),
            "prompts/list" => ListPromptsRequest::with_param(page).into(),
            "resources/list" => ListResourcesRequest::with_param(page).into(),
            "resources/templates/list" => ListResourceTemplatesRequest::with_param(page).into(),
            "server/discover" if page.cursor.is_none() => DiscoverRequest::new(DiscoverRequestParams {}).into(),
            _ => return None,
        })
    }

    fn into_task(self, method: &str, is_named: impl Fn(&str) -> bool) -> Option<ClientRequest> {
        let Self {
            meta: _,
            name: None,
            uri: None,
            task_id: Some(id),
            arguments: None,
            input_responses,
            request_state: None,
            cursor: None,
            r#ref: None,
            argument: None,
            context: None,
        } = self
        else {
            return None;
        };
        match (method, input_responses) {
            _ if !is_named(&id) => None,
            ("tasks/get", None) => Some(GetTaskRequest::new(GetTaskParams::new(id)).into()),
            ("tasks/update", Some(answers)) => Some(UpdateTaskRequest::new(UpdateTaskParams::new(id, answers)).into()),
            ("tasks/cancel", None) => Some(CancelTaskRequest::new(CancelTaskParams::new(id)).into()),
            _ => None,
        }
    }

    fn into_completion(self) -> Option<ClientRequest> {
        let Self {
            meta: _,
            name: None,
            uri: None,
            task_id: None,
            arguments: None,
            input_responses: None,
            request_state: None,
            cursor: None,
            r#ref: Some(of),
            argument: Some(argument),
            context,
        } = self
        else {
            return None;
        };
        let mut params = CompleteRequestParams::new(of, argument);
        params.context = context;
        Some(CompleteRequest::new(params).into())
    }
}

/// What is read from an object, and from nothing else: derived code also takes an array of its fields in their order, which rmcp does not, and
/// which a proxy that inspects bodies may read differently.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }

        from.deserialize_map(Members(PhantomData))
    }
}

/// Whether a request says of itself all that has to be known, and asks for notifications only if it may.
fn is_self_contained(meta: &RequestMetaObject, may_stream: bool) -> bool {
    let [version, _] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    let is_left_out_or = |key: &str, is_valid: &dyn Fn() -> bool| !meta.contains_key(key) || (may_stream && is_valid());
    meta.get(version).and_then(Value::as_str) == Some(ProtocolVersion::V_2026_07_28.as_str())
        && is_left_out_or(PROGRESS_TOKEN, &|| meta.get_progress_token().is_some())
        && is_left_out_or(LOG_LEVEL, &|| meta.log_level().is_some())
        && meta.client_capabilities().is_some()
}

/// Whether arguments of a tool have to be repeated in headers (SEP-2243). A server's tools can change, and are asked for each time.
fn takes_headers(handler: &impl ServerHandler, tool: &str) -> bool {
    fn any(properties: Option<&Value>) -> bool {
        let Some(Value::Object(properties)) = properties else { return false };
        properties.values().any(|schema| schema.get("x-mcp-header").is_some() || any(schema.get("properties")))
    }
    handler.get_tool(tool).is_some_and(|tool| any(tool.input_schema.get("properties")))
}

/// The headers that count.
#[derive(Default)]
struct Counting<'a> {
    version: Option<&'a str>,
    method: Option<&'a str>,
    name: Option<&'a str>,
    content_type: Option<&'a str>,
    accept: Option<&'a str>,
    host: Option<&'a str>,
    origin: Option<&'a str>,
}

impl<'a> Counting<'a> {
    /// Each once at most, and as text.
    fn of(headers: &'a HeaderMap) -> Option<Self> {
        let mut counting = Self::default();
        for (name, value) in headers {
            let place = match name.as_str() {
                "mcp-protocol-version" => &mut counting.version,
                "mcp-method" => &mut counting.method,
                "mcp-name" => &mut counting.name,
                "content-type" => &mut counting.content_type,
                "accept" => &mut counting.accept,
                "host" => &mut counting.host,
                "origin" => &mut counting.origin,
                _ => continue,
            };
            if place.replace(value.to_str().ok()?).is_some() {
                return None;
            }
        }
        Some(counting)
    }
}

/// Whether a host is on the list as it is written there, with its port or without. An empty list is every host.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_plain && is_port && (allowed.is_empty() || allowed.iter().any(|allowed| allowed == name || allowed == host))
}

/// A body that was read, to be read again by rmcp: all of it, or up to the limit or the failure that made an end of reading.
pub(crate) struct Read<B: Body> {
    read: Bytes,
    failure: Option<B::Error>,
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body> Read<B> {
    pub(crate) async fn up_to(limit: usize, body: B) -> Self {
        let mut body = Box::pin(body);
        let mut read = BytesMut::new();
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let mut data = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(failure) => return Self { read: read.freeze(), failure: Some(failure), rest: None },
            };
            let fits = data.remaining() <= limit - read.len();
            if fits && read.is_empty() && body.is_end_stream() {
                return Self { read: data.copy_to_bytes(data.remaining()), failure: None, rest: None };
            }
            read.put(data);
            if !fits {
                return Self { read: read.freeze(), failure: None, rest: Some(body) };
            }
        }
        Self { read: read.freeze(), failure: None, rest: None }
    }

    /// The bytes, if they are all of them.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        (self.failure.is_none() && self.rest.is_none()).then_some(&self.read)
    }
}

// What is pinned is in a box of its own.
impl<B: Body> Unpin for Read<B> {}

impl<B: Body> Body for Read<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.read)))));
        }
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(rest.as_mut().poll_frame(cx));
        let in_bytes = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        Poll::Ready(frame.map(|frame| frame.map(in_bytes)))
    }
}
