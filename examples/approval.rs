//! An approval: another person than the caller says yes. `cargo run --example approval`.
//!
//! The handler waits for days with nothing in memory. The client here cannot be led to a page, so its call ends with a
//! reference, and it fetches the outcome later.

use std::time::Duration;

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolRoute},
    schemars, tool_handler,
};
use rounds::{
    Durable, Era, FlowError, Principal, Rounds, durable,
    elsewhere::{Approvers, Decision, Elsewhere, Verdict, Way},
    register::{FlowQuery, FlowStatus},
    test::Client,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct Refund {
    order: String,
    amount: u32,
}

struct Shop {
    tool_router: ToolRouter<Self>,
}

async fn refund(flow: Durable<Shop>, Refund { order, amount }: Refund) -> Result<String, FlowError> {
    let decision = flow
        .approval(format!("Refund {amount} of {order}?"))
        .by(Approvers::role("manager").not_requester())
        .within(Duration::from_secs(3 * 24 * 3600))
        .await?;
    match decision {
        Decision::Approved { by, .. } => {
            flow.once("refund", async |_shop: &Shop, _key| println!("  the shop refunds {amount}")).await?;
            Ok(format!("Refunded {amount} of {order}, approved by {by}."))
        }
        Decision::Denied { by, reason, .. } => Ok(format!("Refund of {order} denied by {by}: {reason}.")),
        Decision::Expired => Ok(format!("Refund of {order} not decided in time.")),
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

fn roles(who: &Principal) -> Vec<String> {
    if who.as_str() == "grace" { vec!["manager".to_owned()] } else { vec![] }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let route: ToolRoute<Shop> = durable("refund", "Refunds, if a manager approves", refund);
    let server = Rounds::builder(Shop { tool_router: ToolRouter::new().with_route(route) })
        .principal(|_: &_| Some(Principal::new("ada"))) // who calls; a server takes it from the request
        .register()
        .elsewhere(Elsewhere::new().roles(roles).result_tool())
        .build()?;

    let client = Client::connect(server.clone(), Era::Modern, json!({})).await;
    let told = client.call("refund", json!({"order": "ORD-1", "amount": 900})).await.text();
    let (said, reference) = told.split_once(" The reference of this call is ").ok_or("there is a reference")?;
    println!("to the model: {said}");
    let reference = reference.split('.').next();

    // A page, a chat bot or a command shows the question and records the decision.
    let flows = server.flows();
    let waiting = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await?.flows;
    let question = flows.question(waiting[0].id, "approval").await?.ok_or("it is open")?;
    println!("to the people: {}", question.message);
    for who in ["ada", "linus", "grace"] {
        match flows.decide(&question, Verdict::Approve, &Principal::new(who), Way::Library).await {
            Ok(decision) => println!("  {who}: approved, through the {}", decision.way),
            Err(refused) => println!("  {who}: {refused}"),
        }
    }

    println!("to the model: {}", client.call("flow_result", json!({ "reference": reference })).await.text());
    Ok(())
}
