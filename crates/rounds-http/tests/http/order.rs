//! The order of questions and of their fields in the bytes that leave, by both lanes and in both eras.

use http_body_util::BodyExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse},
    schemars,
    service::RequestContext,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::{Ask, FlowError, Rounds};
use rounds_http::Endpoint;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_service::Service;

use crate::send::{BY_HAND, Sent};

#[derive(Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "only their order is looked at")]
struct Letter {
    to: String,
    subject: String,
    body: String,
}

const FIELDS: [&str; 3] = ["to", "subject", "body"];

/// Asks two forms together, and says first which lane it was asked by.
struct Post;

impl ServerHandler for Post {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ask = Ask::from_context(&context)?;
        let lane = if BY_HAND.try_with(|()| ()).is_ok() { "fast" } else { "slow" };
        // Each leg but the first has this in its past.
        if !ask.confirm(format!("By the {lane} lane?")).await? {
            return FlowError::failed("then not").into_call_tool_result();
        }
        let (one, other) = tokio::join!(
            ask.form::<Letter>("Which letter?").key("one").into_future(),
            ask.form::<Letter>("Which other letter?").key("another").into_future(),
        );
        one.and(other).map(|_| "posted".to_owned()).into_call_tool_result()
    }
}

#[tokio::test]
async fn questions_and_fields_leave_in_order_by_both_lanes_also_when_they_are_replayed() {
    for config in
        [StreamableHttpServerConfig::default(), StreamableHttpServerConfig::default().with_json_response(true)]
    {
        let mut endpoint = Endpoint::new(&Rounds::new(Post), config);
        for lane in ["fast", "slow"] {
            let sent = |params: Value| {
                let sent = Sent::new("tools/call", params);
                if lane == "fast" { sent } else { sent.putting("/params/_meta/progressToken", json!(1.5)) }
            };
            let asked = message(&said(&mut endpoint, &sent(json!({"name": "post", "arguments": {}})), "}\n\n").await);
            let confirm = &asked["result"]["inputRequests"]["confirm"]["params"]["message"];
            assert_eq!(confirm, &json!(format!("By the {lane} lane?")), "{asked}");
            let yes = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
            let state = &asked["result"]["requestState"];
            let retry = sent(json!({"name": "post", "arguments": {}, "inputResponses": yes, "requestState": state}));
            for time in ["first", "again"] {
                let text = said(&mut endpoint, &retry, "}\n\n").await;
                assert_in_order(&text, &["\"one\"", "\"another\""], &format!("{lane}, {time}"));
                for form in text.split("\"properties\":").skip(1) {
                    assert_in_order(form, &FIELDS.map(|name| format!("{name:?}")), &format!("{lane}, {time}"));
                }
                assert_eq!(text.split("\"properties\":").count(), 3, "{lane}, {time}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn fields_are_pushed_in_order() {
    let mut endpoint = Endpoint::new(&Rounds::new(Post), StreamableHttpServerConfig::default());
    let client = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "a test", "version": "1"},
    });
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client});
    let initialized = endpoint.call(Sent::legacy(&initialize).request()).await.unwrap();
    let session = initialized.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let in_session = |message: &Value| Sent::legacy(message).with("mcp-session-id", &session);
    let noted = in_session(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(endpoint.call(noted.request()).await.unwrap().status(), 202);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "post"}});
    let mut stream = endpoint.call(in_session(&call).request()).await.unwrap().into_body();
    let mut text = String::new();
    while text.matches("requestedSchema").count() < 3 {
        let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(str::from_utf8(&frame).unwrap());
        if text.contains("By the slow lane?") && text.matches("requestedSchema").count() == 1 {
            let pushed = message(text.lines().find(|line| line.contains("By the slow lane?")).unwrap());
            let yes = json!({"action": "accept", "content": {"confirm": true}});
            let answer = in_session(&json!({"jsonrpc": "2.0", "id": pushed["id"], "result": yes}));
            assert_eq!(endpoint.call(answer.request()).await.unwrap().status(), 202);
        }
    }
    let forms: Vec<_> = text.split("\"properties\":").skip(2).collect();
    assert_eq!(forms.len(), 2);
    for form in forms {
        assert_in_order(form, &FIELDS.map(|name| format!("{name:?}")), "pushed");
    }
    assert!(text.find("Which letter?") < text.find("Which other letter?"));
}

/// All of a response, or what has come when it ends like this.
async fn said(endpoint: &mut Endpoint<Rounds<Post>>, sent: &Sent, end: &str) -> String {
    let response = BY_HAND.scope((), endpoint.call(sent.request())).await.unwrap();
    let mut body = response.into_body();
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        text.push_str(str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        if text.ends_with(end) && text.contains("\"result\"") {
            break;
        }
    }
    text
}

fn message(text: &str) -> Value {
    let begin = text.find('{').unwrap_or_else(|| panic!("no message: {text}"));
    serde_json::from_str(text[begin..].trim_end()).unwrap_or_else(|_| panic!("no message: {text}"))
}

/// As members, not as what is said of their order.
#[track_caller]
fn assert_in_order(text: &str, names: &[impl AsRef<str>], when: &str) {
    let places: Vec<_> = names.iter().map(|name| text.find(&format!("{}:{{", name.as_ref()))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{when}: {places:?} in {text}");
}
