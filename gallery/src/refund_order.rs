//! A refund with declared questions: what is asked depends on the order and on earlier answers.

use rmcp::{handler::server::wrapper::Parameters, schemars, tool, tool_router};
use rounds::{
    Answer, Asked, FlowError,
    asked::{DeclaredQuestion, Question},
};
use serde::Deserialize;

use crate::{
    Gallery,
    orders::{Line, Order},
};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Refund {
    /// The order, as in ORD-7002
    order_id: String,
    /// Why
    reason: String,
}

// Everything, or one sku. An order of one line leaves no choice.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Scope(String);

impl Question for Scope {
    type Server = Gallery;
    type On = Parameters<Refund>;

    fn ask(_gallery: &Gallery, Parameters(refund): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        let order = Order::find(&refund.order_id)?;
        let skus: Vec<_> = order.lines.iter().map(|line| line.sku).collect();
        Ok(match skus[..] {
            [sku] => DeclaredQuestion::known(Self(sku.to_owned())),
            _ => DeclaredQuestion::form(format!("Refund everything, or one of {}?", skus.join(", "))),
        })
    }
}

// What is refunded follows from the scope, so it is never asked for.
pub(crate) struct Refunded(&'static [Line]);

impl Question for Refunded {
    type Server = Gallery;
    type On = (Parameters<Refund>, Asked<Scope>);

    fn ask(
        _gallery: &Gallery,
        (Parameters(refund), Asked(scope)): Self::On,
    ) -> Result<DeclaredQuestion<Self>, FlowError> {
        let sku = Some(scope.0.as_str()).filter(|scope| *scope != "everything");
        Ok(DeclaredQuestion::known(Self(Order::find(&refund.order_id)?.part(sku)?)))
    }
}

// Whether to put the goods back on the shelf. It is asked only for physical goods.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct Restock(bool);

impl Question for Restock {
    type Server = Gallery;
    type On = Asked<Refunded>;

    fn ask(_gallery: &Gallery, Asked(Refunded(lines)): Self::On) -> Result<DeclaredQuestion<Self>, FlowError> {
        let physical: Vec<_> = lines.iter().filter(|line| line.physical).map(|line| line.sku).collect();
        Ok(match physical[..] {
            [] => DeclaredQuestion::known(Self(false)),
            _ => DeclaredQuestion::form(format!("Put {} back on the shelf?", physical.join(", "))),
        })
    }
}

#[tool_router(router = refund_order_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Refunds an order, asking how much of it, and whether it goes back on the shelf")]
    async fn refund_order(
        &self,
        Parameters(Refund { order_id, reason }): Parameters<Refund>,
        Asked(Refunded(lines)): Asked<Refunded>,
        Asked(restock): Asked<Answer<Restock>>,
    ) -> String {
        self.audit.record("refund_order");
        let amount: u32 = lines.iter().map(|line| line.price).sum();
        let restocked = if matches!(restock, Answer::Accepted(Restock(true))) { ", restocked" } else { "" };
        format!("Refunded {amount} of {order_id} ({reason}){restocked}.")
    }
}
