//! The mistake that guard-first invites: an effect above the guard.
//!
//! Every round runs the handler from the top, so a call with one question is audited twice. There is no warning, and
//! the result is correct. Compare this file with `weather_e.rs`.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{Era, FlowError, Given, Round, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_naive_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (audits twice: do not write it like this)")]
    async fn weather_naive(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        self.audit.record("weather_naive");
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
