//! Two rounds, the second depending on the first: `cargo run --example basic_multiround`.
//!
//! The handler is called again for every round, looks at what was given, and asks for what is missing. The earlier
//! answer travels with the client, sealed, so that any instance with the same keys could serve the next round.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::CallToolResponse,
    schemars, tool, tool_handler, tool_router,
};
use rounds::{FlowError, Given, Round, Rounds, test::Client, text};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct WorkItem {
    id: u32,
}

#[derive(Deserialize, schemars::JsonSchema)]
enum Resolution {
    Fixed,
    Duplicate,
}

struct Tracker {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Tracker {
    #[tool(description = "Resolves a work item, asking how, and of a duplicate of which one")]
    async fn resolve(
        &self,
        Parameters(WorkItem { id }): Parameters<WorkItem>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        let open = || Ok(text(format!("#{id} stays open.")));
        match round.given("resolution") {
            Given::Accepted(Resolution::Fixed) => Ok(text(format!("#{id} is fixed."))),
            Given::Accepted(Resolution::Duplicate) => match round.given::<u32>("duplicate_of") {
                Given::Accepted(other) => Ok(text(format!("#{id} is a duplicate of #{other}."))),
                Given::Declined | Given::Cancelled => open(),
                Given::Missing | Given::Invalid(_) => {
                    round.ask_form::<u32>("duplicate_of", "A duplicate of which one?")
                }
            },
            Given::Declined | Given::Cancelled => open(),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Resolution>("resolution", "How was it resolved?"),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tracker {}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Rounds::new(Tracker { tool_router: Tracker::tool_router() });
    let client = Client::modern(server).await;

    let asked = client.call("resolve", json!({"id": 4522})).await.asked();
    println!("question: {}", asked.message("resolution"));
    let asked = asked.accept("resolution", json!({"resolution": "Duplicate"})).send(&client).await.asked();
    println!("question: {}", asked.message("duplicate_of"));
    let result = asked.accept("duplicate_of", json!({"duplicate_of": 4301})).send(&client).await;
    println!("result:   {}", result.text());

    let asked = client.call("resolve", json!({"id": 4523})).await.asked();
    let result = asked.accept("resolution", json!({"resolution": "Fixed"})).send(&client).await;
    println!("result:   {}", result.text());
}
