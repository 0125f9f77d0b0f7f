//! E, guard-first: the handler checks which answers it has, and asks for those that are missing.
//!
//! The handler runs again for every round, and its code shows it: effects are below the guard, where all answers are
//! known.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{Era, FlowError, Given, Round, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_e_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (guard-first)")]
    async fn weather_e(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        let outcome = match round.given::<Units>("units") {
            Given::Accepted(units) => report(&place, units),
            Given::Declined => "Cancelled (decline).".to_owned(),
            Given::Cancelled => "Cancelled (cancel).".to_owned(),
            Given::Missing | Given::Invalid(_) if round.era() == Era::Legacy => report(&place, Units::Metric),
            Given::Missing | Given::Invalid(_) => return round.ask_form::<Units>("units", "Which units?"),
        };
        self.audit.record("weather_e");
        Ok(text(outcome))
    }
}
