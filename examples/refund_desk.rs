//! Declared questions: what a tool has to know is its arguments. `cargo run --example refund_desk`.
//!
//! A question may depend on the call's arguments and on other answers, and need not be asked where there is no choice.
//! The handler runs when every answer is there, so nothing in it can happen twice.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Answer, Asked, FlowError, Rounds,
    asked::{DeclaredQuestion, Question},
    test::Client,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct Refund {
    order: String,
}

struct Desk {
    tool_router: ToolRouter<Self>,
}

/// The goods of an order, with their prices.
fn goods(order: &str) -> Result<&'static [(&'static str, u32)], FlowError> {
    match order {
        "ORD-1" => Ok(&[("ebook", 15)]),
        "ORD-2" => Ok(&[("mug", 18), ("tote", 24)]),
        _ => Err(FlowError::failed(format!("There is no order {order}."))),
    }
}

// Which one is refunded. An order of one leaves no choice, and the question is not asked.
#[derive(Deserialize, schemars::JsonSchema)]
struct Item(String);

impl Question for Item {
    type Server = Desk;
    type On = Parameters<Refund>;

    fn ask(_desk: &Desk, Parameters(refund): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        let names: Vec<_> = goods(&refund.order)?.iter().map(|(name, _)| *name).collect();
        Ok(match names[..] {
            [only] => DeclaredQuestion::known(Self(only.to_owned())),
            _ => DeclaredQuestion::form(format!("Refund which one: {}?", names.join(" or "))),
        })
    }
}

// Whether it goes back on the shelf. It depends on the answer above.
#[derive(Deserialize, schemars::JsonSchema)]
struct Restock(bool);

impl Question for Restock {
    type Server = Desk;
    type On = Asked<Item>;

    fn ask(_desk: &Desk, Asked(Item(item)): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        Ok(DeclaredQuestion::form(format!("Put the {item} back on the shelf?")))
    }
}

#[tool_router]
impl Desk {
    #[tool(description = "Refunds a part of an order")]
    async fn refund(
        &self,
        Parameters(Refund { order }): Parameters<Refund>,
        Asked(Item(item)): Asked<Item>,
        Asked(restock): Asked<Answer<Restock>>, // a decline is an answer here, and does not end the call
    ) -> Result<String, FlowError> {
        let price = goods(&order)?.iter().find(|(name, _)| *name == item).map(|(_, price)| price);
        let price = price.ok_or_else(|| FlowError::failed(format!("There is no {item} in {order}.")))?;
        let restocked = if matches!(restock, Answer::Accepted(Restock(true))) { ", restocked" } else { "" };
        Ok(format!("Refunded {price} for the {item}{restocked}."))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Desk {}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = Client::modern(Rounds::new(Desk { tool_router: Desk::tool_router() })).await;
    let asked = client.call("refund", json!({"order": "ORD-2"})).await.asked();
    println!("{}", asked.message("item"));
    let asked = asked.accept("item", json!({"item": "mug"})).send(&client).await.asked();
    println!("{}", asked.message("restock"));
    println!("{}", asked.accept("restock", json!({"restock": true})).send(&client).await.text());

    let asked = client.call("refund", json!({"order": "ORD-1"})).await.asked();
    println!("{}", asked.message("restock"));
    println!("{}", asked.decline("restock").send(&client).await.text());
}
