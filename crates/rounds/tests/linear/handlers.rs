//! Which handler serves a request: one for all requests, one for each legacy session, or one for each flow as well.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::CallToolResponse,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use rounds::{Ask, Durable, FlowError, Given, Round, Rounds, durable, test::Client, text};
use serde_json::{Value, json};

use super::http::{Http, next};

/// A handler with a name and a notepad.
struct Pad {
    tool_router: ToolRouter<Self>,
    name: usize,
    notes: Mutex<Vec<String>>,
}

/// Number of handlers.
#[derive(Clone, Default)]
struct Made(Arc<AtomicUsize>);

impl Made {
    fn pad(&self) -> Pad {
        let name = self.0.fetch_add(1, Ordering::SeqCst);
        let durable = durable("durable", "Notes what was done, in every run", noting);
        Pad { tool_router: Pad::tool_router().with_route(durable), name, notes: Mutex::default() }
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Pad {
    /// Writes a note, and returns all notes and the handler's name.
    fn note(&self, note: &str) -> String {
        let mut notes = self.notes.lock().unwrap();
        notes.push(note.to_owned());
        format!("{}: {}", self.name, notes.join(", "))
    }
}

async fn noting(flow: Durable<Pad>, _: rmcp::model::JsonObject) -> Result<String, FlowError> {
    let before = flow.once("before", async |pad, _| pad.note("before")).await?;
    flow.confirm("On?").key("on").await?;
    let after = flow.once("after", async |pad, _| pad.note("after")).await?;
    Ok(format!("{before} | {after}"))
}

#[tool_router]
impl Pad {
    #[tool]
    async fn plain(&self) -> String {
        self.note("plain")
    }

    #[tool]
    async fn linear(&self, ask: Ask) -> Result<String, FlowError> {
        self.note("begun");
        for _ in 0..2 {
            ask.confirm("On?").key("on").await?;
        }
        Ok(self.note("done"))
    }

    #[tool]
    async fn guard(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        let said = self.note("run");
        match round.given::<bool>("on") {
            Given::Accepted(_) => Ok(text(said)),
            _ => round.ask_form::<bool>("on", "On?"),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Pad {}

fn per_session() -> (Rounds<Pad>, Made) {
    let made = Made::default();
    let factory = made.clone();
    (Rounds::builder(made.pad()).per_session(move || factory.pad()).build().unwrap(), made)
}

fn per_flow() -> (Rounds<Pad>, Made) {
    let made = Made::default();
    let factory = made.clone();
    (Rounds::builder(made.pad()).per_flow(move || factory.pad()).build().unwrap(), made)
}

/// The text of a tool's result in a session.
async fn said(session: &Http<Pad>, tool: &str) -> String {
    let call = json!({"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}});
    let mut stream = session.legacy(call).await;
    let mut message = next(&mut stream).await;
    while message["method"] == "elicitation/create" {
        let answer = json!({"action": "accept", "content": {"on": true}});
        let _ = session.legacy(json!({"id": message["id"], "result": answer})).await;
        message = next(&mut stream).await;
    }
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {message}")).to_owned()
}

/// The text of a tool's result for a modern client, which accepts every question.
async fn flow(http: &Http<Pad>, tool: &str) -> String {
    let mut leg = begin(http, tool).await;
    while leg["resultType"] == "input_required" {
        leg = go_on(http, tool, &leg).await;
    }
    leg["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {leg}")).to_owned()
}

async fn begin(http: &Http<Pad>, tool: &str) -> Value {
    next(&mut http.modern(1, json!({"name": tool, "arguments": {}})).await).await["result"].take()
}

async fn go_on(http: &Http<Pad>, tool: &str, asked: &Value) -> Value {
    let answers = json!({"on": {"action": "accept", "content": {"on": true}}});
    let params =
        json!({"name": tool, "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
    next(&mut http.modern(2, params).await).await["result"].take()
}

#[tokio::test]
async fn what_a_handler_keeps_for_one_legacy_session_is_not_seen_in_another() {
    for (server, _) in [per_session(), per_flow()] {
        let http = Http::to(&server, StreamableHttpServerConfig::default());
        let (one, other) = (http.initialized("2025-11-25").await, http.initialized("2025-11-25").await);
        assert_eq!(said(&one, "plain").await, "1: plain");
        assert_eq!(said(&other, "plain").await, "2: plain");
        assert_eq!(said(&one, "linear").await, "1: plain, begun, done", "a session keeps its own handler");
        assert_eq!(said(&one, "durable").await, "1: plain, begun, done, before | 1: plain, begun, done, before, after");
        assert_eq!(said(&other, "linear").await, "2: plain, begun, done");
        assert!(server.handler().notes.lock().unwrap().is_empty(), "no session uses the shared handler");
    }
}

#[tokio::test]
async fn a_session_has_its_handler_from_the_first_message_whatever_version_that_names() {
    let (server, made) = per_session();
    let http = Http::to(&server, StreamableHttpServerConfig::default());
    let session = http.initialized("2026-07-28").await;
    assert_eq!(made.count(), 2, "the shared handler, and that of the session");
    assert_eq!(said(&session, "plain").await, "1: plain");
    assert_eq!(made.count(), 2, "no request of the session creates another");
}

#[tokio::test]
async fn connections_of_legacy_clients_to_clones_of_a_server_are_sessions_too() {
    let (server, _) = per_session();
    let (one, other) = (Client::legacy(server.clone()).await, Client::legacy(server.clone()).await);
    assert_eq!(one.call("plain", json!({})).await.text(), "1: plain");
    assert_eq!(other.call("plain", json!({})).await.text(), "2: plain");
    assert_eq!(one.call("plain", json!({})).await.text(), "1: plain, plain");
}

#[tokio::test]
async fn modern_clients_share_the_handler_that_the_builder_was_given_unless_each_flow_has_its_own() {
    let (server, made) = per_session();
    let http = Http::to(&server, StreamableHttpServerConfig::default());
    assert_eq!(flow(&http, "linear").await, "0: begun, done");
    assert_eq!(flow(&http, "guard").await, "0: begun, done, run, run");
    assert_eq!(flow(&http, "plain").await, "0: begun, done, run, run, plain");
    assert_eq!(made.count(), 1);
}

#[tokio::test]
async fn a_linear_flow_keeps_the_handler_that_it_began_with() {
    let (server, made) = per_flow();
    let http = Http::to(&server, StreamableHttpServerConfig::default());
    let (one, other) = (begin(&http, "linear").await, begin(&http, "linear").await);
    let (one, other) = (go_on(&http, "linear", &one).await, go_on(&http, "linear", &other).await);
    assert_eq!(go_on(&http, "linear", &other).await["content"][0]["text"], "2: begun, done");
    assert_eq!(go_on(&http, "linear", &one).await["content"][0]["text"], "1: begun, done");
    assert_eq!(made.count(), 3, "a leg that wakes a handler creates none");
}

#[tokio::test]
async fn flows_that_begin_again_with_each_leg_have_a_new_handler_each_time() {
    let (server, made) = per_flow();
    let http = Http::to(&server, StreamableHttpServerConfig::default());
    let asked = begin(&http, "guard").await;
    assert_eq!(go_on(&http, "guard", &asked).await["content"][0]["text"], "2: run");
    assert_eq!(go_on(&http, "guard", &asked).await["content"][0]["text"], "2: run");
    assert_eq!(made.count(), 3, "a leg that gets the reply of an equal one creates none");
    assert_eq!(flow(&http, "durable").await, "3: before | 4: after", "the recorded reply does not change");
    assert_eq!(made.count(), 5);
}

#[tokio::test]
async fn a_modern_connection_in_memory_has_a_handler_for_each_flow_as_well() {
    let (server, _) = per_flow();
    let client = Client::modern(server).await;
    assert_eq!(client.call("plain", json!({})).await.text(), "1: plain");
    let asked = client.call("linear", json!({})).await.asked();
    assert_eq!(client.call("plain", json!({})).await.text(), "3: plain");
    let asked = asked.accept("on", json!({"on": true})).send(&client).await.asked();
    assert_eq!(asked.accept("on", json!({"on": true})).send(&client).await.text(), "2: begun, done");
}

#[tokio::test]
async fn a_factory_by_hand_gives_the_same_server_another_handler() {
    let made = Made::default();
    let server = Rounds::new(made.pad());
    let factory = {
        let (server, made) = (server.clone(), made.clone());
        move || Ok(server.with_handler(made.pad()))
    };
    let sessions = Arc::new(server.sessions());
    let service = StreamableHttpService::new(factory, sessions, StreamableHttpServerConfig::default());
    let http = Http::over(&service);
    let (one, other) = (http.initialized("2025-11-25").await, http.initialized("2025-11-25").await);
    assert_eq!(said(&one, "linear").await, "1: begun, done");
    assert_eq!(said(&other, "plain").await, "2: plain");
    // Every leg has another handler, and all of them use the same keys.
    for tool in ["linear", "guard", "durable"] {
        let text = flow(&http, tool).await;
        assert!(text.ends_with("done") || text.ends_with("run") || text.ends_with("after"), "{tool}: {text}");
    }
    // The server itself continues the flows that were begun there.
    let asked = begin(&http, "guard").await;
    let here = Http::to(&server, StreamableHttpServerConfig::default());
    assert_eq!(go_on(&here, "guard", &asked).await["content"][0]["text"], "0: run");
}

#[tokio::test]
async fn a_factory_by_hand_that_clones_gives_each_session_its_handler() {
    let (server, _) = per_session();
    let sessions = Arc::new(server.sessions());
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), sessions, StreamableHttpServerConfig::default());
    let http = Http::over(&service);
    let (one, other) = (http.initialized("2025-11-25").await, http.initialized("2025-11-25").await);
    assert_eq!(said(&one, "plain").await, "1: plain");
    assert_eq!(said(&other, "plain").await, "2: plain");
    assert_eq!(flow(&http, "linear").await, "0: begun, done");
}
