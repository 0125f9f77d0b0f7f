//! Durable tools and steps with everything that a tool has.

use rmcp::{
    Json, ServerHandler,
    handler::server::{
        router::{prompt::PromptRouter, tool::ToolRouter},
        wrapper::Parameters,
    },
    model::{Icon, JsonObject, PromptMessage, Role, Tool, ToolAnnotations},
    prompt, prompt_handler, schemars, tool, tool_handler,
};
use rounds::{Durable, FlowError, Rounds, Steps, asked::DeclaredQuestion, durable, durable_prompt, test::accept};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clients;

pub(crate) struct Shop {
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
#[prompt_handler(router = self.prompt_router)]
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

/// Durable handlers as rmcp's macros describe them: functions without `&self`, so that effects stay out of reach.
impl Shop {
    /// Buys something
    #[tool(
        title = "Buy",
        annotations(destructive_hint = true),
        icons = vec![Icon::new("https://example.com/icon.png")]
    )]
    async fn described(flow: Durable<Self>, Parameters(order): Parameters<Order>) -> Result<Json<Receipt>, FlowError> {
        let sure = flow.form::<bool>("Sure?").key("sure").await?;
        Ok(Json(Receipt { item: order.item, sure }))
    }

    /// Recommends something
    #[prompt(title = "Recommend")]
    async fn recommend(
        flow: Durable<Self>,
        Parameters(order): Parameters<Order>,
    ) -> Result<Vec<PromptMessage>, FlowError> {
        let pace: String = flow.form("For whom?").key("whom").await?;
        Ok(vec![PromptMessage::new_text(Role::User, format!("Recommend {} for {pace}.", order.item))])
    }
}

pub(crate) fn shop() -> Shop {
    let steps = Steps::<Shop, Order>::of(described("step_by_step"))
        .step("sure", async |_, ()| Ok(DeclaredQuestion::<bool>::form("Sure?")))
        .finish(async |at, (sure,): (bool,)| Ok(Json(Receipt { item: at.arguments().item.clone(), sure })));
    let router = ToolRouter::new()
        .with_route(durable::tool(described("buy"), buy))
        .with_route(durable::tool(Shop::described_tool_attr(), Shop::described));
    let prompts = PromptRouter::new().with_route(durable_prompt(Shop::recommend_prompt_attr(), Shop::recommend));
    Shop { tool_router: router.with_route(steps.build().unwrap()), prompt_router: prompts }
}

#[tokio::test]
async fn durable_tools_and_steps_have_everything_that_a_tool_has() {
    let server = Rounds::builder(shop()).legacy(rounds::Legacy::push()).build().unwrap();
    for client in clients(&server).await {
        let listed = client.request("tools/list", json!({})).await.result().clone();
        for name in ["buy", "described", "step_by_step"] {
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

#[tokio::test]
async fn durable_prompts_have_everything_that_a_prompt_has() {
    for client in clients(&Rounds::new(shop())).await {
        let listed = client.request("prompts/list", json!({})).await.result().clone();
        let prompt = &listed["prompts"][0];
        assert_eq!((&prompt["name"], &prompt["title"]), (&json!("recommend"), &json!("Recommend")));
        assert_eq!(prompt["description"], "Recommends something");
        assert_eq!(prompt["arguments"], json!([{"name": "item", "required": true}]));
        let asked = client.prompt("recommend", json!({"item": "a mug"})).await.asked();
        let got = asked.accept("whom", json!({"whom": "Ada"})).send(&client).await;
        assert_eq!(got.text(), "Recommend a mug for Ada.");
    }
}
