//! Handlers written with rmcp alone, over HTTP: through rmcp's service and through the endpoint.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{convert::Infallible, fmt::Debug};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, elicit_safe,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProgressNotificationParam,
        ServerCapabilities, ServerConfig,
    },
    schemars,
    service::RequestContext,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::Rounds;
use rounds_http::Endpoint;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_service::Service;

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct Sure {
    sure: bool,
}

elicit_safe!(Sure);

/// Tells how far it is before and after it asks.
struct Reports;

impl ServerHandler for Reports {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = context.meta.get_progress_token().unwrap();
        let report = |progress| context.peer.notify_progress(ProgressNotificationParam::new(token.clone(), progress));
        report(1.0).await.unwrap();
        let sure = context.peer.elicit::<Sure>("Sure?").await;
        report(2.0).await.unwrap();
        let text = sure.map_or_else(|error| error.to_string(), |sure| sure.is_some_and(|sure| sure.sure).to_string());
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

type Body = BoxBody<Bytes, Infallible>;

/// Sends a call, and returns every message of the response.
async fn send<S>(service: &mut S, mut params: Value, capabilities: Value) -> Vec<Value>
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error: Debug>,
{
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "by hand", "version": "1"});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = Request::post("/mcp")
        .header("host", "localhost:8000")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", params["name"].as_str().unwrap());
    let response = service.call(request.body(Full::from(message.to_string())).unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let messages = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    messages.filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
}

/// The same call, with these answers to what was asked.
fn answered(call: &Value, asked: &Value, answer: Value) -> Value {
    let mut call = call.clone();
    let key = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}")).keys().next().unwrap();
    call["inputResponses"] = json!({ (key.as_str()): answer });
    call["requestState"] = asked["result"]["requestState"].clone();
    call
}

/// Plays the gallery's tool through a service.
async fn deletes<S>(service: &mut S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error: Debug>,
{
    let can = json!({"elicitation": {}});
    let call = json!({"name": "delete_all", "arguments": {}});
    let asked = send(service, call.clone(), can.clone()).await.pop().unwrap();
    assert_eq!(asked["result"]["inputRequests"]["sure"]["params"]["message"], "Delete everything?", "{asked}");
    let yes = answered(&call, &asked, json!({"action": "accept", "content": {"sure": true}}));
    let why = send(service, yes, can.clone()).await.pop().unwrap();
    let because = answered(&call, &why, json!({"action": "accept", "content": {"why": "space"}}));
    let done = send(service, because, can.clone()).await.pop().unwrap();
    assert_eq!(done["result"]["content"][0]["text"], "deleted, because space", "{done}");

    let asked = send(service, call.clone(), can.clone()).await.pop().unwrap();
    let no = answered(&call, &asked, json!({"action": "decline"}));
    let kept = send(service, no, can).await.pop().unwrap();
    assert_eq!(kept["result"]["content"][0]["text"], "kept", "{kept}");

    let refused = send(service, call, json!({})).await.pop().unwrap();
    let message = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(message.contains("capability not declared"), "{message}");
}

#[tokio::test]
async fn a_handler_written_with_rmcp_alone_asks_over_http() {
    let json = StreamableHttpServerConfig::default().with_json_response(true);
    for config in [StreamableHttpServerConfig::default(), json] {
        let server = gallery::rounds().build().unwrap();
        deletes(&mut server.streamable_http(config.clone())).await;
        deletes(&mut Endpoint::new(&server, config)).await;
        assert_eq!(server.waiting_calls(), 0);
    }
}

/// Plays a call that reports its progress, under another token in each leg.
async fn reports<S>(service: &mut S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body>, Error: Debug>,
{
    let can = json!({"elicitation": {}});
    let mut call = json!({"name": "report", "_meta": {"progressToken": "one"}});
    let first = send(service, call.clone(), can.clone()).await;
    let told = |messages: &[Value]| messages[0]["params"].clone();
    assert_eq!(told(&first), json!({"progressToken": "one", "progress": 1.0}), "{first:?}");
    call["_meta"]["progressToken"] = json!("two");
    let yes = answered(&call, &first[1], json!({"action": "accept", "content": {"sure": true}}));
    let second = send(service, yes, can).await;
    assert_eq!(told(&second), json!({"progressToken": "two", "progress": 2.0}), "{second:?}");
    assert_eq!(second[1]["result"]["content"][0]["text"], "true");
}

#[tokio::test]
async fn progress_reaches_the_leg_in_flight_over_http() {
    let server = Rounds::builder(Reports).pushes().build().unwrap();
    reports(&mut server.streamable_http(StreamableHttpServerConfig::default())).await;
    reports(&mut Endpoint::new(&server, StreamableHttpServerConfig::default())).await;
}
