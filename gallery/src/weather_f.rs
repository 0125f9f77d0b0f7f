//! F, guard-first with `once`: the effect is above the guard, and runs once.
//!
//! The handler runs again for every round, like E. An effect inside `once` does not.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{Era, FlowError, Given, Round, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_f_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (guard-first, with once)")]
    async fn weather_f(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        round.once("audit", async || self.audit.record("weather_f")).await?;
        let outcome = match round.given::<Units>("units") {
            Given::Accepted(units) => report(&place, units),
            Given::Declined => "Cancelled (decline).".to_owned(),
            Given::Cancelled => "Cancelled (cancel).".to_owned(),
            Given::Missing | Given::Invalid(_) if round.era() == Era::Legacy => report(&place, Units::Metric),
            Given::Missing | Given::Invalid(_) => return round.ask_form::<Units>("units", "Which units?"),
        };
        Ok(text(outcome))
    }
}
