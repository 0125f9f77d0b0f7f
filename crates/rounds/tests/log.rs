//! Text of a client cannot forge a line of the log.
//!
//! The only test in this file, because `tracing` caches for the whole process which events are enabled.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse},
    service::RequestContext,
};
use rounds::{FlowError, Round, Rounds, test::Client};
use rounds_testkit::Log;
use serde_json::{Value, json};

struct Asker;

impl ServerHandler for Asker {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "fail" {
            return Err(FlowError::retry(format!("cannot look up {FORGED}")).into());
        }
        Ok(Round::from_context(&context)?.ask_form::<String>("name", "Your name?")?)
    }
}

/// A line break, and an escape sequence for terminals.
const FORGED: &str = "x\nforged \u{1b}[2J";

#[tokio::test]
async fn what_clients_choose_stays_within_its_line() {
    let (log, _listening) = Log::listen(tracing::Level::TRACE);
    let client = Client::modern(Rounds::new(Asker)).await;
    let leg = |state: Value| {
        json!({
            "name": FORGED,
            "uri": FORGED,
            "arguments": {FORGED: FORGED},
            "requestState": state,
            "inputResponses": {FORGED: {"action": "accept", "content": {FORGED: FORGED}}},
        })
    };
    let state = client.call(FORGED, json!({FORGED: FORGED})).await.asked().state().to_owned();
    let failed = client.call("fail", json!({})).await;
    let data = &failed.error()["data"];
    assert_eq!(data["reason"], "retry");
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("a leg failed")).collect();
    let [line] = lines[..] else { panic!("one line for the leg that failed: {text}") };
    let flow = format!("flow={}", data["flow"].as_str().unwrap_or("missing"));
    for part in [&*flow, r#"tool="fail""#, "round=0", "code=-32603", r"cannot look up x\nforged"] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    for method in ["tools/call", "prompts/get", "resources/read"] {
        for state in [json!(state), json!(FORGED), json!(1)] {
            let _ = client.request(method, leg(state)).await;
        }
    }
    let text = log.text();
    let ours: Vec<_> = text.lines().filter(|line| line.contains("leg{")).collect();
    assert!(ours.len() > 10, "{text}");
    assert!(ours.iter().any(|line| line.contains(r#"gen_ai.tool.name="x\nforged \u{1b}[2J""#)), "{text}");
    assert!(text.contains(r"cannot look up x\nforged"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("forged")) && !text.contains('\u{1b}'), "{text}");
}
