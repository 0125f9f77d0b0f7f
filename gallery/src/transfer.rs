//! Moves money between two accounts, once, in a transaction of the database that has the accounts.

use rmcp::{handler::server::router::tool::ToolRouter, model::CallToolResult, tool, tool_router};
use rounds::{Durable, FlowError, durable};

use crate::{Gallery, Transfer};

impl Gallery {
    pub(crate) fn transfer_tools() -> ToolRouter<Self> {
        ToolRouter::new().with_route(durable(
            "transfer",
            "Moves money between two accounts, if that is confirmed",
            transfer,
        ))
    }
}

async fn transfer(flow: Durable<Gallery>, transfer: Transfer) -> Result<String, FlowError> {
    let Transfer { from, to, amount } = &transfer;
    if !flow.confirm(format!("Transfer {amount} from {from} to {to}?")).key("confirm").await? {
        return Ok("Not transferred.".to_owned());
    }
    let bank = flow.handle_of(|gallery| gallery.bank.clone());
    bank.transfer(&flow, &transfer).await?;
    Ok(format!("Transferred {amount}."))
}

#[tool_router(router = balance_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "The balance of each account of the bank")]
    async fn balances(&self) -> Result<CallToolResult, FlowError> {
        Ok(CallToolResult::structured(serde_json::json!(self.bank.balances().await?)))
    }
}
