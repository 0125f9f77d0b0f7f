//! Durable handlers: what the client can be asked, and progress.

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler};
use rounds::{Durable, Era, FlowError, Rounds, durable, test::Client};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

pub(crate) struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

async fn can(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    Ok(format!("{} {} {} {}", flow.can_form(), flow.can_url(), flow.can_sample(), flow.can_roots()))
}

async fn progresses(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    flow.progress(1.0, Some(2.0), Some("halfway".to_owned())).await;
    flow.confirm("Go on?").await?;
    flow.progress(2.0, Some(2.0), None).await;
    Ok("done".to_owned())
}

pub(crate) fn server() -> Rounds<Shop> {
    let router = ToolRouter::new().with_route(durable("can", "Looks", can));
    Rounds::new(Shop { tool_router: router.with_route(durable("progresses", "Tells", progresses)) })
}

#[tokio::test]
async fn a_durable_handler_knows_what_the_client_can_be_asked() {
    for era in [Era::Modern, Era::Legacy] {
        for (declared, can) in [
            (json!({}), "false false false false"),
            (json!({"elicitation": {}}), "true false false false"),
            (json!({"elicitation": {"url": {}}, "roots": {}}), "false true false true"),
            (json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}}), "true true true false"),
        ] {
            let client = Client::connect(server(), era, declared).await;
            assert_eq!(client.call("can", json!({})).await.text(), can, "{era:?}");
        }
    }
}

#[tokio::test]
async fn a_durable_handler_reports_progress_on_each_leg() {
    let client = Client::modern(server()).await;
    let call = |token: &str| json!({"name": "progresses", "arguments": {}, "_meta": {"progressToken": token}});
    let asked = client.request("tools/call", call("first")).await.asked();
    let done = asked.accept("confirm", json!({"confirm": true})).with("_meta", json!({"progressToken": "second"}));
    assert_eq!(done.send(&client).await.text(), "done");
    let told: Vec<_> = client.notifications().into_iter().map(|told| told["params"].clone()).collect();
    let said = |told: &Value| (told["progressToken"].clone(), told["progress"].clone());
    let expected = [("first", 1.0), ("second", 1.0), ("second", 2.0)].map(|(token, n)| (json!(token), json!(n)));
    assert_eq!(told.iter().map(said).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_durable_handler_reports_progress_to_a_legacy_client() {
    let client = Client::legacy(server()).await;
    let call = json!({"name": "progresses", "arguments": {}, "_meta": {"progressToken": "t"}});
    let call = client.start("tools/call", call).await;
    let pushed = client.pushed().await.unwrap();
    pushed.answer(json!({"action": "accept", "content": {"confirm": true}})).await;
    assert_eq!(call.finish().await.text(), "done");
    assert_eq!(client.notifications().len(), 2);
}
