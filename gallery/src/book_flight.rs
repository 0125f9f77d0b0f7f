//! A booking in four steps: a quote, a seat, consent to the payment, a charge. Each leg may reach another instance. The
//! charge runs once, whichever leg is sent again.

use rmcp::{
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::CallToolResult,
    schemars, tool, tool_router,
};
use rounds::{Durable, FlowError, durable};
use serde::Deserialize;

use crate::Gallery;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Trip {
    /// The airport to leave from
    from: String,
    /// The airport to go to
    to: String,
    /// The day, as in 2026-12-01
    date: String,
}

impl Gallery {
    pub(crate) fn book_flight_tools() -> ToolRouter<Self> {
        ToolRouter::new().with_route(durable::tool(Self::book_flight_tool_attr(), Self::book_flight))
    }

    /// Books a flight, asking for a seat and for the payment
    #[tool(title = "Book a flight", annotations(destructive_hint = false, open_world_hint = true))]
    async fn book_flight(
        flow: Durable<Self>,
        Parameters(Trip { from, to, date }): Parameters<Trip>,
    ) -> Result<String, FlowError> {
        let price = flow.try_once("quote", async |gallery, _key| gallery.airline.quote().await).await?;
        flow.progress(1.0, Some(3.0), Some("the flight is priced".to_owned())).await;
        let seat: String = flow.form(format!("{from} to {to} on {date} for {price}. Which seat?")).key("seat").await?;
        flow.progress(2.0, Some(3.0), Some("the seat is chosen".to_owned())).await;
        if !flow.confirm(format!("Pay {price} for seat {seat}?")).await? {
            return Ok("Not booked.".to_owned());
        }
        let flight = format!("{from} to {to} on {date}, seat {seat}");
        flow.try_once("charge", async |gallery, key| gallery.airline.charge(key, &flight).await).await?;
        Ok(format!("Booked {flight}: charged {price}."))
    }
}

#[tool_router(router = airline_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "How many quotes, charges and duplicate charges the airline has counted since the start")]
    async fn airline_ledger(&self) -> Result<CallToolResult, FlowError> {
        Ok(CallToolResult::structured(self.airline.counted().await?.to_json()))
    }
}
