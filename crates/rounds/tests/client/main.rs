//! The client side: calls as values, responders, and servers of every kind.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod alone;
mod bad;
mod calls;
mod duties;
mod form;
mod host;
mod http;
mod limits;
mod mutated;
mod pending;
mod process;
mod responders;
mod saved;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, DiscoverRequestMethod, DiscoverResult, Implementation,
        ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, RunningService},
};
use rounds::{
    Ask, FlowError, Rounds,
    client::{Host, Pending, Responder, Scripted, Sent, UserAnswer, only, scripted},
};
use rounds_testkit::{Tool, Units, units};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};

/// A client that is connected to a server.
type Client<R> = RunningService<RoleClient, Host<R>>;

/// Fails a test that would hang.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the call ends by itself")
}

/// A responder that declares every kind and answers nothing, for tests that answer by hand.
fn silent() -> impl Responder + 'static {
    use rounds::observe::QuestionKind::{Form, Roots, Sample, Url};
    only(scripted()).kinds([Form, Url, Sample, Roots])
}

/// What the server does with one request.
enum Act {
    Result(Value),
    Error(Value),
    /// Sends no response.
    Hang,
    /// Closes the connection.
    Close,
    /// Pushes these requests first, and then responds with their answers, as text.
    Push(Vec<Value>),
}

/// A server that sends scripted messages in their wire format.
struct Raw {
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Raw {
    /// A modern server with this name, and a client that is connected to it.
    async fn named<R: Responder + 'static>(
        name: &str,
        host: Host<R>,
        act: impl FnMut(&Value) -> Act + Send + 'static,
    ) -> (Self, Client<R>) {
        Self::connect(Some(name), host, act).await
    }

    /// A modern server, and a client that answers by hand.
    async fn modern(act: impl FnMut(&Value) -> Act + Send + 'static) -> (Self, Client<impl Responder + 'static>) {
        Self::connect(Some("raw"), Host::new(silent()), act).await
    }

    /// A server that supports only `initialize`.
    async fn legacy<R: Responder + 'static>(
        host: Host<R>,
        act: impl FnMut(&Value) -> Act + Send + 'static,
    ) -> (Self, Client<R>) {
        Self::connect(None, host, act).await
    }

    async fn connect<R: Responder + 'static>(
        modern: Option<&str>,
        host: Host<R>,
        act: impl FnMut(&Value) -> Act + Send + 'static,
    ) -> (Self, Client<R>) {
        let (ours, theirs) = duplex(1 << 16);
        let seen = Arc::default();
        tokio::spawn(play(theirs, modern.map(str::to_owned), Arc::clone(&seen), act));
        (Self { seen }, soon(host.connect(ours)).await.unwrap())
    }

    /// The requests of this method, in order.
    fn requests(&self, method: &str) -> Vec<Value> {
        self.seen.lock().unwrap().iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Waits for the first message of this method.
    async fn heard(&self, method: &str) -> Value {
        soon(async {
            loop {
                if let Some(message) = self.requests(method).into_iter().next() {
                    return message;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

async fn play(
    stream: tokio::io::DuplexStream,
    modern: Option<String>,
    seen: Arc<Mutex<Vec<Value>>>,
    mut act: impl FnMut(&Value) -> Act,
) {
    let (reader, mut writer) = split(stream);
    let mut lines = BufReader::new(reader).lines();
    let mut pushed: Option<(Value, usize, Vec<Value>)> = None;
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        seen.lock().unwrap().push(message.clone());
        let (id, result) = (message["id"].clone(), |result: Value| json!({"result": result}));
        let mut replies = Vec::new();
        match (message["method"].as_str(), &modern) {
            (None, _) => {
                let Some((call, wanted, answers)) = &mut pushed else { continue };
                answers.push(message);
                if answers.len() == *wanted {
                    let text = json!(answers).to_string();
                    replies.push((call.clone(), result(json!({"content": [{"type": "text", "text": text}]}))));
                }
            }
            (Some(_), _) if id.is_null() => {}
            (Some("server/discover"), Some(name)) => replies.push((
                id,
                result(json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                    "ttlMs": 0, "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": name, "version": "1"}},
                })),
            )),
            (Some("initialize"), None) => replies.push((
                id,
                result(json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"},
                })),
            )),
            (Some("server/discover" | "initialize"), _) => {
                replies.push((id, json!({"error": {"code": -32601, "message": "no such method"}})));
            }
            (Some(_), _) => match act(&message) {
                Act::Result(value) => replies.push((id, result(value))),
                Act::Error(error) => replies.push((id, json!({"error": error}))),
                Act::Hang => {}
                Act::Close => return,
                Act::Push(requests) => {
                    pushed = Some((id, requests.len(), Vec::new()));
                    let pushes = requests.into_iter().enumerate();
                    replies.extend(pushes.map(|(at, request)| (json!(format!("push-{at}")), request)));
                }
            },
        }
        for (id, mut reply) in replies {
            (reply["jsonrpc"], reply["id"]) = (json!("2.0"), id);
            if writer.write_all(format!("{reply}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// A form that asks for units.
fn units_form() -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form", "message": "Which units?",
        "requestedSchema": {
            "type": "object", "required": ["units"],
            "properties": {"units": {"type": "string", "enum": ["metric", "imperial"]}},
        },
    }})
}

/// A result that asks for units, with this state.
fn asks_units(state: &str) -> Act {
    Act::Result(json!({
        "resultType": "input_required", "inputRequests": {"units": units_form()}, "requestState": state,
    }))
}

fn text(text: &str) -> Act {
    Act::Result(json!({"resultType": "complete", "content": [{"type": "text", "text": text}]}))
}

fn metric() -> UserAnswer {
    UserAnswer::Form(rmcp::object!({"units": "metric"}))
}

fn knows_units() -> Scripted {
    scripted().answer("units", metric())
}

/// The questions of a leg that asked.
#[track_caller]
fn asked(sent: Sent) -> Pending {
    match sent {
        Sent::Asks(pending) => pending,
        other => panic!("expected questions, got {other:?}"),
    }
}

/// The text of a leg's result.
#[track_caller]
fn said(sent: Sent) -> String {
    match sent {
        Sent::Done(done) => done.text(),
        other => panic!("expected a result, got {other:?}"),
    }
}

/// A real server whose every tool is this function, in both eras or only in the legacy era.
struct Real<F> {
    tool: Tool<F>,
    name: &'static str,
    legacy_only: bool,
}

impl<F, Fut> ServerHandler for Real<F>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.tool.call_tool(request, context).await
    }

    /// A server from before 2026-07-28 does not know this method.
    async fn discover(&self, _context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if self.legacy_only {
            return Err(ErrorData::method_not_found::<DiscoverRequestMethod>());
        }
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info()))
    }

    fn get_info(&self) -> ServerConfig {
        let info = Implementation::new(self.name, "1");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(info)
    }
}

/// A real server, wrapped as its author would wrap it.
fn server<F, Fut>(run: F) -> Rounds<Real<F>>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    Rounds::new(Real { tool: Tool(run), name: "real", legacy_only: false })
}

/// A real server that speaks only 2025-11-25.
fn old_server<F, Fut>(run: F) -> Rounds<Real<F>>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    Rounds::new(Real { tool: Tool(run), name: "old", legacy_only: true })
}

/// Connects a client to a real server, in memory.
async fn connect<R: Responder + 'static>(server: impl ServerHandler, host: Host<R>) -> Client<R> {
    let (ours, theirs) = duplex(1 << 16);
    tokio::spawn(async move {
        if let Ok(running) = server.serve(theirs).await {
            let _ = running.waiting().await;
        }
    });
    soon(host.connect(ours)).await.unwrap()
}
