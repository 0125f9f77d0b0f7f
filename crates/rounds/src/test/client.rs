//! A scripted client.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rmcp::{
    RoleServer, ServerHandler, ServiceExt,
    model::{GetExtensions, JsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{IntoTransport, Transport},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::{mpsc, oneshot},
};

use super::question::AskedQuestion;
use crate::{
    Principal,
    observe::Refusal,
    shared::{
        kind::Era,
        order::{ORDER, arrange, listed},
    },
};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// A client in memory, of either era. Clones are the same client.
#[derive(Clone)]
pub struct Client {
    wire: Arc<MemoryWire>,
    era: Era,
    capabilities: Value,
}

impl Client {
    /// A client of 2026-07-28 that can be asked anything, connected to this server.
    pub async fn modern(server: impl ServerHandler) -> Self {
        Self::connect(server, Era::Modern, Self::every_capability()).await
    }

    /// A client of 2025-11-25 that can be asked anything, connected to this server.
    ///
    /// # Panics
    ///
    /// If the server does not accept its `initialize`.
    pub async fn legacy(server: impl ServerHandler) -> Self {
        Self::connect(server, Era::Legacy, Self::every_capability()).await
    }

    /// A client of either era with these capabilities, connected to this server.
    ///
    /// # Panics
    ///
    /// If the client is of the legacy era and the server does not accept its `initialize`.
    pub async fn connect(server: impl ServerHandler, era: Era, capabilities: Value) -> Self {
        Self::connect_as(server, era, capabilities, None).await
    }

    /// The same for a client that has signed in: its requests carry this principal, as HTTP middleware would set it.
    ///
    /// # Panics
    ///
    /// If the client is of the legacy era and the server does not accept its `initialize`.
    pub async fn signed_in(server: impl ServerHandler, era: Era, principal: Principal) -> Self {
        Self::connect_as(server, era, Self::every_capability(), Some(principal)).await
    }

    async fn connect_as(
        server: impl ServerHandler,
        era: Era,
        capabilities: Value,
        principal: Option<Principal>,
    ) -> Self {
        let (ours, theirs) = duplex(1 << 20);
        let wire = Arc::new(MemoryWire::new(ours));
        let transport = SignedIn { transport: theirs.into_transport(), principal };
        // `serve` returns after the first message of the client, and the server stops when the client is dropped.
        tokio::spawn(async move {
            if let Ok(running) = server.serve(transport).await {
                let _ = running.waiting().await;
            }
        });
        let client = Self { wire, era, capabilities };
        if era == Era::Legacy {
            let params = json!({
                "protocolVersion": LEGACY,
                "capabilities": client.capabilities,
                "clientInfo": {"name": "rounds-test", "version": "1"},
            });
            let answer = client.request("initialize", params).await;
            assert!(answer.response.get("result").is_some(), "initialize failed: {}", answer.response);
            client.wire.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        client
    }

    /// The same connection with other capabilities, which a modern client may declare with each request.
    pub fn declaring(&self, capabilities: Value) -> Self {
        Self { capabilities, ..self.clone() }
    }

    /// The era that it speaks.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Calls a tool. If the tool asks, the leg ends with the question, in either era: a modern client gets it as the
    /// response, and a legacy client as a request that the server pushes while the call is in flight.
    ///
    /// A pushed question is taken only if no other request of this client is in flight, because nothing tells which
    /// request it belongs to. With several, use [`start`](Self::start) and [`pushed`](Self::pushed).
    ///
    /// # Panics
    ///
    /// If the server closes the connection without an answer.
    pub async fn call(&self, tool: &str, arguments: Value) -> Leg {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Gets a prompt.
    ///
    /// # Panics
    ///
    /// If the server closes the connection without an answer.
    pub async fn prompt(&self, name: &str, arguments: Value) -> Leg {
        self.request("prompts/get", json!({"name": name, "arguments": arguments})).await
    }

    /// Reads a resource.
    ///
    /// # Panics
    ///
    /// If the server closes the connection without an answer.
    pub async fn read(&self, uri: &str) -> Leg {
        self.request("resources/read", json!({"uri": uri})).await
    }

    /// Sends any request with any parameters and waits for the response, or for a question as [`call`](Self::call) does.
    ///
    /// # Panics
    ///
    /// If the parameters are not an object, or if the server closes the connection without an answer.
    pub async fn request(&self, method: &str, params: Value) -> Leg {
        self.start(method, params).await.settle().await
    }

    /// Sends a request and does not wait.
    ///
    /// # Panics
    ///
    /// If the parameters are not an object.
    pub async fn start(&self, method: &str, params: Value) -> InFlight {
        let mut sent = params.clone();
        if self.era == Era::Modern {
            let meta = &mut sent["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "rounds-test", "version": "1"});
        }
        let (id, response) = self.wire.expect();
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": sent});
        self.wire.send(&message).await;
        InFlight { wire: self.wire.clone(), era: self.era, id, response, method: method.to_owned(), params }
    }

    /// Waits for the next request that the server pushes to this client.
    pub async fn pushed(&self) -> Option<Pushed> {
        let message = self.wire.pushes.lock().await.recv().await?;
        Some(Pushed { wire: self.wire.clone(), message })
    }

    /// Whether the server has pushed a request that was not received with [`pushed`](Self::pushed) yet.
    pub fn was_pushed(&self) -> bool {
        // A test that waits in `pushed` holds the lock and receives the next request at once.
        self.wire.pushes.try_lock().is_ok_and(|pushes| !pushes.is_empty())
    }

    /// The notifications that the server has sent so far, in order.
    pub fn notifications(&self) -> Vec<Value> {
        self.wire.notifications.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the first notification of this method.
    pub async fn notified(&self, method: &str) -> Value {
        loop {
            if let Some(note) = self.notifications().into_iter().find(|note| note["method"] == method) {
                return note;
            }
            tokio::task::yield_now().await;
        }
    }

    fn every_capability() -> Value {
        json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("era", &self.era)
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

/// The transport of a client that has signed in: each of its requests carries the principal.
struct SignedIn<T> {
    transport: T,
    principal: Option<Principal>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for SignedIn<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut message = self.transport.receive().await?;
        if let (JsonRpcMessage::Request(request), Some(principal)) = (&mut message, &self.principal) {
            request.request.extensions_mut().insert(principal.clone());
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}

/// A request that was sent and not yet answered.
pub struct InFlight {
    wire: Arc<MemoryWire>,
    era: Era,
    id: u64,
    response: oneshot::Receiver<Value>,
    method: String,
    params: Value,
}

impl InFlight {
    /// Waits for the response.
    ///
    /// # Panics
    ///
    /// If the server closes the connection without an answer.
    pub async fn finish(self) -> Leg {
        let response = self.response.await.expect("the server answers before it closes the connection");
        Leg { method: self.method, params: self.params, response, pushed: None }
    }

    /// Waits for the response, or for the next question that the server pushes to a legacy client.
    async fn settle(mut self) -> Leg {
        if self.era == Era::Modern || !self.wire.has_one_request() {
            return self.finish().await;
        }
        let wire = self.wire.clone();
        let pushed = async { wire.pushes.lock().await.recv().await };
        let message = tokio::select! {
            biased;
            response = &mut self.response => {
                let response = response.expect("the server answers before it closes the connection");
                return Leg { method: self.method, params: self.params, response, pushed: None };
            }
            message = pushed => message,
        };
        let Some(message) = message else { return self.finish().await };
        let (method, params) = (self.method.clone(), self.params.clone());
        let pushed = PushedQuestion::new(message, self);
        Leg { method, params, response: pushed.as_round(), pushed: Some(Arc::new(pushed)) }
    }

    /// Cancels the request at the server.
    pub async fn cancel(self) {
        let message = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": self.id, "reason": "the test says so"},
        });
        self.wire.send(&message).await;
    }
}

/// A question that a legacy server has pushed, with the call that waits for its answer.
struct PushedQuestion {
    message: Value,
    /// None once the question is answered.
    call: Mutex<Option<InFlight>>,
}

impl PushedQuestion {
    fn new(message: Value, call: InFlight) -> Self {
        Self { message, call: Mutex::new(Some(call)) }
    }

    /// The key under which the question is found. A pushed question has none: it is the name of the form's only field,
    /// which a modern client would get as the key.
    fn key(&self) -> &str {
        let fields = self.message["params"]["requestedSchema"]["properties"].as_object();
        match fields.map(|fields| fields.keys().collect::<Vec<_>>()).as_deref() {
            Some([only]) => only,
            _ => "question",
        }
    }

    /// The response that a modern client would have got for this question.
    fn as_round(&self) -> Value {
        let request = json!({"method": self.message["method"], "params": self.message["params"]});
        json!({"result": {"resultType": "input_required", "inputRequests": {self.key(): request}}})
    }

    /// Answers the question, and waits for what the call does next.
    #[track_caller]
    fn answer(&self, responses: &Value) -> impl Future<Output = Leg> {
        let responses = responses.as_object().into_iter().flatten().map(|(_, response)| response).collect::<Vec<_>>();
        let [response] = responses[..] else {
            panic!("a legacy client answers the one question that was pushed, not {} of them", responses.len())
        };
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        let call = call.expect("a pushed question can be answered only once: a legacy client has no retry");
        let answer = json!({"jsonrpc": "2.0", "id": self.message["id"], "result": response});
        async move {
            call.wire.send(&answer).await;
            call.settle().await
        }
    }
}

impl std::fmt::Debug for PushedQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushedQuestion").field("message", &self.message).finish_non_exhaustive()
    }
}

/// A request of the server, which only the legacy era has.
pub struct Pushed {
    wire: Arc<MemoryWire>,
    message: Value,
}

impl Pushed {
    /// The method of the request.
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// The parameters of the request.
    pub fn params(&self) -> &Value {
        &self.message["params"]
    }

    /// The id of the request.
    pub fn id(&self) -> &Value {
        &self.message["id"]
    }

    /// Answers the request with an error.
    pub async fn fail(self, code: i32, message: &str) {
        let error = json!({"code": code, "message": message});
        self.wire.send(&json!({"jsonrpc": "2.0", "id": self.message["id"], "error": error})).await;
    }

    /// Answers the request.
    pub async fn answer(self, result: Value) {
        let message = json!({"jsonrpc": "2.0", "id": self.message["id"], "result": result});
        self.wire.send(&message).await;
    }
}

/// One request and its response.
#[derive(Debug, Clone)]
#[must_use = "check the response of the leg"]
pub struct Leg {
    method: String,
    params: Value,
    response: Value,
    /// The question that a legacy server has pushed, if it ended with one.
    pushed: Option<Arc<PushedQuestion>>,
}

impl Leg {
    /// A leg that was sent by other means than a [`Client`], such as HTTP.
    pub fn new(method: impl Into<String>, params: Value, response: Value) -> Self {
        Self { method: method.into(), params, response, pushed: None }
    }

    /// Whether it ended with questions.
    pub fn is_asked(&self) -> bool {
        self.response["result"]["resultType"] == "input_required"
    }

    /// The questions that it ended with. For a legacy client that is the one question that was pushed first. It has no
    /// key on the wire, so every key finds it.
    ///
    /// # Panics
    ///
    /// If it did not end with questions.
    #[track_caller]
    pub fn asked(self) -> AskedRound {
        assert!(self.is_asked(), "expected a question, got {}", self.response);
        AskedRound { leg: self }
    }

    /// The text that it ended with, whether the tool succeeded or not.
    ///
    /// # Panics
    ///
    /// If it did not end with a result.
    #[track_caller]
    pub fn text(&self) -> String {
        let result = self.result();
        let blocks = ["content", "messages", "contents"].iter().find_map(|name| result[name].as_array());
        let text = |block: &Value| {
            let text = [&block["text"], &block["content"]["text"]].into_iter().find_map(Value::as_str);
            text.map(str::to_owned)
        };
        let Some(texts) = blocks.map(|blocks| blocks.iter().filter_map(text).collect::<Vec<_>>()) else {
            panic!("expected text, got {}", self.response);
        };
        texts.join("\n")
    }

    /// The result that it ended with.
    ///
    /// # Panics
    ///
    /// If it ended with questions or an error.
    #[track_caller]
    pub fn result(&self) -> &Value {
        let result = &self.response["result"];
        let complete = result.is_object() && result["resultType"] != "input_required";
        assert!(complete, "expected a result, got {}", self.response);
        result
    }

    /// Whether the result reports a failure of the tool.
    ///
    /// # Panics
    ///
    /// If it ended with a question or a protocol error.
    #[track_caller]
    pub fn is_tool_error(&self) -> bool {
        self.result()["isError"] == json!(true)
    }

    /// The protocol error that it ended with.
    ///
    /// # Panics
    ///
    /// If it ended otherwise.
    #[track_caller]
    pub fn error(&self) -> &Value {
        let error = &self.response["error"];
        assert!(error.is_object(), "expected an error, got {}", self.response);
        error
    }

    /// Expects the frozen error, with which every refused state is answered, exactly.
    ///
    /// # Panics
    ///
    /// If it ended otherwise.
    #[track_caller]
    pub fn frozen(&self) {
        let frozen = serde_json::to_value(Refusal::frozen()).expect("an error is JSON");
        assert_eq!(self.error(), &frozen);
    }

    /// The whole response, unchanged. If a legacy server has pushed a question, the response that a modern client would
    /// have got for it.
    pub fn response(&self) -> &Value {
        &self.response
    }
}

/// A leg that ended with questions.
#[derive(Debug, Clone)]
pub struct AskedRound {
    leg: Leg,
}

impl AskedRound {
    /// The keys of the questions, in the order of asking.
    pub fn keys(&self) -> Vec<&str> {
        let requests = self.result()["inputRequests"].as_object();
        let mut keys: Vec<_> = requests.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        arrange(&mut keys, listed(self.result()["_meta"].get(ORDER)), |key| key);
        keys
    }

    /// A question, for expectations: `asked.question("units").options()`.
    ///
    /// # Panics
    ///
    /// If nothing was asked under this key.
    #[track_caller]
    pub fn question(&self, key: &str) -> AskedQuestion<'_> {
        let requests = &self.result()["inputRequests"];
        let question = match &self.leg.pushed {
            Some(pushed) => &requests[pushed.key()],
            None => &requests[key],
        };
        assert!(question.is_object(), "nothing was asked under `{key}`: {}", self.leg.response);
        AskedQuestion::new(question)
    }

    /// A question's message.
    ///
    /// # Panics
    ///
    /// If nothing was asked under this key.
    #[track_caller]
    pub fn message(&self, key: &str) -> &str {
        self.question(key).message()
    }

    /// The names of a form's fields, in the order in which to show them.
    ///
    /// # Panics
    ///
    /// If nothing was asked under this key.
    #[track_caller]
    pub fn fields(&self, key: &str) -> Vec<&str> {
        self.question(key).fields()
    }

    /// A form's schema.
    ///
    /// # Panics
    ///
    /// If nothing was asked under this key.
    #[track_caller]
    pub fn schema(&self, key: &str) -> &Value {
        self.question(key).schema()
    }

    /// The values of the options that a field of a form has, in the order in which to show them.
    ///
    /// # Panics
    ///
    /// If nothing was asked under this key, or if the form has no such field.
    #[track_caller]
    pub fn options(&self, key: &str, field: &str) -> Vec<&str> {
        self.question(key).options_of(field)
    }

    /// The state to send back.
    ///
    /// # Panics
    ///
    /// If there is none: a server without this library may ask without a state.
    #[track_caller]
    pub fn state(&self) -> &str {
        self.result()["requestState"].as_str().expect("every question has a state")
    }

    /// The whole result, unchanged.
    pub fn result(&self) -> &Value {
        &self.leg.response["result"]
    }

    /// The retry, without any answers yet.
    pub fn retry(&self) -> Retry {
        let mut params = self.leg.params.clone();
        params["inputResponses"] = json!({});
        params["requestState"] = self.result()["requestState"].clone();
        Retry { method: self.leg.method.clone(), params, pushed: self.leg.pushed.clone() }
    }

    /// The retry that accepts a question with this content.
    pub fn accept(&self, key: &str, content: Value) -> Retry {
        self.retry().accept(key, content)
    }

    /// The retry that declines a question.
    pub fn decline(&self, key: &str) -> Retry {
        self.retry().decline(key)
    }

    /// The retry that cancels a question.
    pub fn cancel(&self, key: &str) -> Retry {
        self.retry().cancel(key)
    }
}

/// A retry, ready to be sent: once, twice (a replay), changed (a fork), or to another server.
///
/// For a legacy client it is the answer to the question that was pushed, which is sent once.
#[derive(Debug, Clone)]
#[must_use = "a retry does nothing until it is sent"]
pub struct Retry {
    method: String,
    params: Value,
    pushed: Option<Arc<PushedQuestion>>,
}

impl Retry {
    /// Accepts a question with this content.
    pub fn accept(self, key: &str, content: Value) -> Self {
        self.respond(key, json!({"action": "accept", "content": content}))
    }

    /// Declines a question.
    pub fn decline(self, key: &str) -> Self {
        self.respond(key, json!({"action": "decline"}))
    }

    /// Cancels a question.
    pub fn cancel(self, key: &str) -> Self {
        self.respond(key, json!({"action": "cancel"}))
    }

    /// Responds to a question with any value.
    pub fn respond(mut self, key: &str, response: Value) -> Self {
        self.params["inputResponses"][key] = response;
        self
    }

    /// Changes the state.
    pub fn tamper(self, change: impl FnOnce(&str) -> String) -> Self {
        let state = self.params["requestState"].as_str().unwrap_or_default();
        let changed = change(state);
        self.with("requestState", json!(changed))
    }

    /// Sets any parameter to any value.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.params[name] = value;
        self
    }

    /// Removes a parameter.
    pub fn without(mut self, name: &str) -> Self {
        if let Some(params) = self.params.as_object_mut() {
            params.remove(name);
        }
        self
    }

    /// The method and the parameters, to be sent by other means than a [`Client`].
    pub fn into_parts(self) -> (String, Value) {
        (self.method, self.params)
    }

    /// Changes the method.
    pub fn as_method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    /// Sends it and waits for the response. A legacy client answers the pushed question, and waits for what the call does
    /// next.
    ///
    /// # Panics
    ///
    /// If the server closes the connection without an answer; and if a pushed question has no answer or several, or was
    /// answered before.
    pub async fn send(&self, client: &Client) -> Leg {
        match &self.pushed {
            Some(pushed) => pushed.answer(&self.params["inputResponses"]).await,
            None => client.request(&self.method, self.params.clone()).await,
        }
    }

    /// Sends it as a request of its own and does not wait.
    pub async fn start(&self, client: &Client) -> InFlight {
        client.start(&self.method, self.params.clone()).await
    }
}

/// Newline-delimited JSON-RPC over memory. The connection closes when the last client is dropped.
struct MemoryWire {
    writer: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    next_id: AtomicU64,
    waiting: AwaitedResponses,
    pushes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Value>>,
    notifications: Notifications,
}

/// The senders of awaited responses, by request id.
type AwaitedResponses = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

type Notifications = Arc<Mutex<Vec<Value>>>;

impl MemoryWire {
    fn new(stream: DuplexStream) -> Self {
        let (reader, writer) = split(stream);
        let (pushed, pushes) = mpsc::unbounded_channel();
        let (waiting, notifications) = (AwaitedResponses::default(), Notifications::default());
        tokio::spawn(read(reader, waiting.clone(), pushed, notifications.clone()));
        Self {
            writer: tokio::sync::Mutex::new(writer),
            next_id: AtomicU64::new(1),
            waiting,
            pushes: tokio::sync::Mutex::new(pushes),
            notifications,
        }
    }

    fn has_one_request(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len() <= 1
    }

    fn expect(&self) -> (u64, oneshot::Receiver<Value>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(id, sender);
        (id, receiver)
    }

    async fn send(&self, message: &Value) {
        let line = format!("{message}\n");
        let mut writer = self.writer.lock().await;
        // If the server is gone, waiting for its response fails.
        let _ = writer.write_all(line.as_bytes()).await;
    }
}

impl Drop for MemoryWire {
    fn drop(&mut self) {
        // The halves of a stream keep each other open, so the writing half is closed explicitly.
        let writer = self.writer.get_mut();
        let _ = std::pin::Pin::new(writer).poll_shutdown(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    }
}

async fn read(
    reader: ReadHalf<DuplexStream>,
    waiting: AwaitedResponses,
    pushed: mpsc::UnboundedSender<Value>,
    notifications: Notifications,
) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if message.get("method").is_some() {
            if message.get("id").is_some() {
                let _ = pushed.send(message);
            } else {
                notifications.lock().unwrap_or_else(PoisonError::into_inner).push(message);
            }
        } else if let Some(id) = message["id"].as_u64() {
            let waiter = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(waiter) = waiter {
                let _ = waiter.send(message);
            }
        }
    }
    // Ends all waits, because no response will come.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
