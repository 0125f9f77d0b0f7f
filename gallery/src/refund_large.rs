//! A refund that another person has to approve if it is large.

use std::time::Duration;

use rmcp::{handler::server::router::tool::ToolRouter, schemars};
use rounds::{
    Durable, FlowError, durable,
    elsewhere::{Approvers, Decision},
};
use serde::Deserialize;

use crate::Gallery;

/// The largest refund that needs no approval.
const SMALL: u32 = 500;

/// How long an approval is waited for: three days.
const WITHIN: Duration = Duration::from_secs(3 * 24 * 3600);

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct LargeRefund {
    /// The order, as in ORD-7002
    order_id: String,
    /// How much
    amount: u32,
}

impl Gallery {
    pub(crate) fn refund_large_tools() -> ToolRouter<Self> {
        let description = "Refunds an amount of an order. Above 500, another person has to approve it";
        ToolRouter::new().with_route(durable("refund_large", description, refund_large))
    }
}

async fn refund_large(flow: Durable<Gallery>, refund: LargeRefund) -> Result<String, FlowError> {
    let LargeRefund { order_id, amount } = refund;
    let mut approved = String::new();
    if amount > SMALL {
        let approval = flow.approval(format!("Refund {amount} of {order_id}?")).within(WITHIN);
        match approval.by(Approvers::anyone().not_requester()).await? {
            Decision::Approved { by, .. } => approved = format!(", approved by {by}"),
            Decision::Denied { by, reason, .. } => {
                return Ok(format!("Refund of {order_id} denied by {by}: {reason}."));
            }
            Decision::Expired => return Ok(format!("Refund of {order_id} not decided in time.")),
        }
    }
    flow.once("refund", async |gallery: &Gallery, _| gallery.audit.record("refund_large")).await?;
    Ok(format!("Refunded {amount} of {order_id}{approved}."))
}
