//! Durable tools and steps with everything that a tool has.

use rmcp::{
    Json, ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{Icon, JsonObject, Tool, ToolAnnotations},
    schemars, tool_handler,
};
use rounds::{Durable, FlowError, Rounds, Steps, asked::DeclaredQuestion, durable, test::accept};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clients;

struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

#[derive(Deserialize, schemars::JsonSchema)]
struct Order {
    item: String,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Receipt {
    item: String,
    sure: bool,
}

fn described(name: &'static str) -> Tool {
    Tool::new(name, "Buys something", JsonObject::new())
        .with_title("Buy")
        .with_annotations(ToolAnnotations::new().destructive(true))
        .with_icons(vec![Icon::new("https://example.com/icon.png")])
        .with_output_schema::<Receipt>()
}

async fn buy(flow: Durable<Shop>, order: Order) -> Result<Json<Receipt>, FlowError> {
    let sure = flow.form::<bool>("Sure?").key("sure").await?;
    Ok(Json(Receipt { item: order.item, sure }))
}

fn shop() -> Shop {
    let steps = Steps::<Shop, Order>::of(described("step_by_step"))
        .step("sure", async |_, ()| Ok(DeclaredQuestion::<bool>::form("Sure?")))
        .finish(async |at, (sure,): (bool,)| Ok(Json(Receipt { item: at.arguments().item.clone(), sure })));
    let router = ToolRouter::new().with_route(durable::tool(described("buy"), buy));
    Shop { tool_router: router.with_route(steps.build().unwrap()) }
}

#[tokio::test]
async fn durable_tools_and_steps_have_everything_that_a_tool_has() {
    let server = Rounds::builder(shop()).legacy(rounds::Legacy::push()).build().unwrap();
    for client in clients(&server).await {
        let listed = client.request("tools/list", json!({})).await.result().clone();
        for name in ["buy", "step_by_step"] {
            let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
            assert_eq!((&tool["title"], &tool["description"]), (&json!("Buy"), &json!("Buys something")));
            assert_eq!(tool["annotations"], json!({"destructiveHint": true}));
            assert_eq!(tool["icons"][0]["src"], "https://example.com/icon.png");
            assert_eq!(tool["inputSchema"]["required"], json!(["item"]));
            assert_eq!(tool["outputSchema"]["required"], json!(["item", "sure"]));
            let played = client.play(name, json!({"item": "mug"}), [accept(json!({"sure": true}))]).await;
            let result: &Value = &played.end().result()["structuredContent"];
            assert_eq!(*result, json!({"item": "mug", "sure": true}));
        }
    }
}
