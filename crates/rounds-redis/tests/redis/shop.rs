//! A server with tools that ask and have effects, with its ledger in Redis.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{Ask, Durable, FlowError, Given, KeyRing, Round, Rounds, RoundsBuilder, durable, test::Client};
use rounds_redis::RedisLedger;
use serde::{Deserialize, Serialize};

#[derive(Clone)]
pub(crate) struct Shop {
    tool_router: ToolRouter<Self>,
    /// Number of payments.
    pub(crate) charges: Arc<AtomicUsize>,
}

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Order {
    item: String,
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Size {
    size: String,
}

#[tool_router]
impl Shop {
    pub(crate) fn new() -> Self {
        let tool_router = Self::tool_router().with_route(durable("buy", "Buys", buy));
        Self { tool_router, charges: Arc::default() }
    }

    pub(crate) fn charges(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    fn charge(&self) -> usize {
        self.charges.fetch_add(1, Ordering::SeqCst)
    }

    /// A guard-first tool, with an effect and a state that grows with the item's name.
    #[tool(description = "Orders")]
    async fn order(&self, Parameters(order): Parameters<Order>, round: Round) -> Result<CallToolResponse, FlowError> {
        let Given::Accepted(Size { size }) = round.given::<Size>("size") else {
            return round.questions().form::<Size>("size", "Which size?").state(&order.item.repeat(1000)).send();
        };
        let kept: String = round.state()?.unwrap_or_default();
        let number = round.once("canary-effect", async || format!("canary-value {}", self.charge())).await?;
        let text = format!("canary-result {size}, {number}, {} kept", kept.len());
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    /// A linear tool.
    #[tool(description = "Wraps")]
    async fn wrap(&self, Parameters(order): Parameters<Order>, ask: Ask) -> Result<String, FlowError> {
        let Size { size } = ask.form("Which size?").key("size").await?;
        Ok(format!("wrapped {} {size}", order.item))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// A durable tool, with an effect before and after its question.
async fn buy(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    flow.checkpoint().await?;
    let quote: String = flow.once("canary-effect-1", async |_, _| format!("canary-value for {}", order.item)).await?;
    let Size { size } = flow.form(format!("canary-question {quote}: which size?")).key("size").await?;
    let number = flow.once("canary-effect-2", async |shop, _| shop.charge()).await?;
    Ok(format!("canary-result {size}, charge {number}"))
}

pub(crate) fn keys(keys: &[u8]) -> KeyRing {
    KeyRing::from_bytes(keys.iter().map(|byte| [*byte; 32])).unwrap()
}

/// An instance of a fleet with this ledger.
pub(crate) fn builder(shop: &Shop, ledger: RedisLedger) -> RoundsBuilder<Shop> {
    Rounds::builder(shop.clone()).keys(keys(&[1])).audience("shop").ledger(ledger)
}

pub(crate) async fn client(shop: &Shop, ledger: RedisLedger) -> Client {
    Client::modern(builder(shop, ledger).build().unwrap()).await
}
