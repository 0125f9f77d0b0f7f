//! Which handler serves a request at an endpoint: a legacy session has its own, and so may a flow of a modern client.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http_body_util::BodyExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse},
    service::RequestContext,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::{Ask, Rounds};
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tower_service::Service;

use crate::send::Sent;

/// A handler that knows its own name, and how often it was called.
#[derive(Default)]
struct Numbered {
    name: usize,
    calls: AtomicUsize,
}

impl ServerHandler for Numbered {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if request.name == "ask" {
            let ask = Ask::from_context(&context)?;
            drop(context);
            if let Err(error) = ask.confirm("On?").key("on").await {
                return error.into_call_tool_result();
            }
        }
        Ok(rounds::text(format!("call {call} of handler {}", self.name)))
    }
}

fn factory() -> impl Fn() -> Numbered + Send + Sync + 'static {
    let made = AtomicUsize::new(0);
    move || Numbered { name: made.fetch_add(1, Ordering::Relaxed) + 1, calls: AtomicUsize::new(0) }
}

fn configs() -> [StreamableHttpServerConfig; 2] {
    let config = StreamableHttpServerConfig::default();
    [config.clone(), config.with_json_response(true)]
}

type At = Endpoint<Rounds<Numbered>>;

async fn said(endpoint: &mut At, sent: &Sent) -> (Option<String>, Value) {
    let response = endpoint.call(sent.request()).await.unwrap();
    let session = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let event = body.lines().filter_map(|line| line.strip_prefix("data: ")).find(|data| data.starts_with('{'));
    (session, serde_json::from_str(event.unwrap_or(&body)).unwrap_or_default())
}

/// A session of a legacy client.
async fn session(endpoint: &mut At) -> String {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" } });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    said(endpoint, &Sent::legacy(&initialize)).await.0.unwrap()
}

async fn in_session(endpoint: &mut At, session: &str) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "plain" } });
    let sent = Sent::legacy(&call).with("mcp-session-id", session);
    said(endpoint, &sent).await.1["result"]["content"][0]["text"].take()
}

async fn called(endpoint: &mut At, params: Value) -> Value {
    said(endpoint, &Sent::new("tools/call", params)).await.1["result"].take()
}

#[tokio::test]
async fn each_legacy_session_has_a_handler_of_its_own() {
    for config in configs() {
        let server = Rounds::builder(Numbered::default()).per_session(factory()).build().unwrap();
        let mut endpoint = Endpoint::new(&server, config);
        let (one, other) = (session(&mut endpoint).await, session(&mut endpoint).await);
        assert_eq!(in_session(&mut endpoint, &one).await, "call 1 of handler 1");
        assert_eq!(in_session(&mut endpoint, &other).await, "call 1 of handler 2");
        assert_eq!(in_session(&mut endpoint, &one).await, "call 2 of handler 1");
        let modern = called(&mut endpoint, json!({ "name": "plain" })).await;
        assert_eq!(modern["content"][0]["text"], "call 1 of handler 0");
    }
}

#[tokio::test]
async fn modern_flows_share_a_handler_or_have_one_each_and_are_answered_either_way() {
    for config in configs() {
        for (per_flow, first, second) in [
            (false, "call 1 of handler 0", "call 3 of handler 0"),
            (true, "call 1 of handler 1", "call 1 of handler 3"),
        ] {
            let builder = Rounds::builder(Numbered::default());
            let builder = if per_flow { builder.per_flow(factory()) } else { builder.per_session(factory()) };
            let mut endpoint = Endpoint::new(&builder.build().unwrap(), config.clone());
            let asked = called(&mut endpoint, json!({ "name": "ask" })).await;
            let _another = called(&mut endpoint, json!({ "name": "plain" })).await;
            let plain = called(&mut endpoint, json!({ "name": "plain" })).await;
            assert_eq!(plain["content"][0]["text"], second);
            let answers = json!({ "on": { "action": "accept", "content": { "on": true } } });
            let answer = json!({ "name": "ask", "requestState": asked["requestState"], "inputResponses": answers });
            assert_eq!(called(&mut endpoint, answer).await["content"][0]["text"], first);
        }
    }
}

#[tokio::test]
async fn a_request_that_only_looks_a_tool_up_makes_no_handler() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let factory = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Numbered::default()
    };
    let server = Rounds::builder(Numbered::default()).per_session(factory).build().unwrap();
    let mut endpoint = Endpoint::new(&server, StreamableHttpServerConfig::default());
    let one = session(&mut endpoint).await;
    for _ in 0..3 {
        in_session(&mut endpoint, &one).await;
        called(&mut endpoint, json!({ "name": "plain" })).await;
    }
    assert_eq!(made.load(Ordering::Relaxed), 1);
}
