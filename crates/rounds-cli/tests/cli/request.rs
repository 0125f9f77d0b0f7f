//! Requests as a client of 2026-07-28 sends them over HTTP, and checks of their responses.

use reqwest::Response;
use serde_json::{Value, json};

use crate::process::{Server, in_time};

pub(crate) const METRIC: &str = "Weather in Tokyo: 22°C, partly cloudy.";

/// The message of a `tools/call` with these parameters.
pub(crate) fn message(id: u64, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "rounds-cli-test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// The parameters of the first leg of a call of this tool.
pub(crate) fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"location": "Tokyo"}})
}

/// The parameters of its second leg.
pub(crate) fn retry(tool: &str, state: &str) -> Value {
    let mut params = call(tool);
    params["requestState"] = json!(state);
    params["inputResponses"] = json!({"units": metric()});
    params
}

/// The user's answer.
pub(crate) fn metric() -> Value {
    json!({"action": "accept", "content": {"units": "metric"}})
}

/// The first leg of a flow that needs only its token and the keys.
pub(crate) fn first() -> Value {
    call("weather_e")
}

/// Its second leg.
pub(crate) fn second(state: &str) -> Value {
    retry("weather_e", state)
}

/// Sends a `tools/call` with these parameters and further headers.
pub(crate) async fn post(server: &Server, params: Value, headers: &[(&str, &str)]) -> Response {
    send(server, &message(1, params), headers).await
}

/// Sends such a message.
pub(crate) async fn send(server: &Server, message: &Value, headers: &[(&str, &str)]) -> Response {
    let mut request = rounds_testkit::http_client()
        .post(&server.url)
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", message["params"]["name"].as_str().unwrap())
        .header("Accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    in_time("the request", request.json(message).send()).await.unwrap()
}

/// Plays the first leg and returns its state.
pub(crate) async fn ask(server: &Server, headers: &[(&str, &str)]) -> String {
    let response: Value = post(server, first(), headers).await.json().await.unwrap();
    state_of(&response)
}

/// Plays the second leg and returns the response.
pub(crate) async fn answer(server: &Server, state: &str, headers: &[(&str, &str)]) -> Value {
    post(server, second(state), headers).await.json().await.unwrap()
}

/// How often the effect of each tool ran.
pub(crate) async fn audit(server: &Server) -> Value {
    let params = json!({"name": "audit_log", "arguments": {}});
    let log: Value = post(server, params, &[]).await.json().await.unwrap();
    log["result"]["structuredContent"].clone()
}

/// Expects the reason in the log, and nowhere else.
pub(crate) async fn refused_for(server: Server, reason: &str) {
    let log = server.stop().await;
    assert!(log.contains(&format!("reason={reason}")), "{reason} is not in\n{log}");
}

#[track_caller]
pub(crate) fn state_of(response: &Value) -> String {
    assert_eq!(response["result"]["resultType"], "input_required", "{response}");
    assert_eq!(response["result"]["inputRequests"]["units"]["params"]["message"], "Which units?");
    response["result"]["requestState"].as_str().unwrap().to_owned()
}

#[track_caller]
pub(crate) fn is_metric(response: &Value) {
    assert_eq!(response["result"]["content"][0]["text"], METRIC, "{response}");
}

/// Expects the frozen error, which answers every rejected state.
#[track_caller]
pub(crate) fn is_frozen(response: &Value) {
    let frozen = json!({
        "code": -32602,
        "message": "Invalid or expired requestState",
        "data": {"reason": "invalid_request_state"},
    });
    assert_eq!(response["error"], frozen);
}
