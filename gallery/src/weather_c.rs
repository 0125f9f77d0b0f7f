//! C, one handler with a branch: guard-first for modern clients, an await for legacy clients.
//!
//! Both paths are visible in the code, and both have to be maintained.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{Answer, Ask, Era, FlowError, Given, Round, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_c_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (one handler with a branch)")]
    async fn weather_c(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
        ask: Ask,
    ) -> Result<CallToolResponse, FlowError> {
        let outcome = if round.era() == Era::Legacy {
            match ask.form::<Units>("Which units?").key("units").answer().await? {
                Answer::Accepted(units) => report(&place, units),
                Answer::Declined => "Cancelled (decline).".to_owned(),
                Answer::Cancelled => "Cancelled (cancel).".to_owned(),
            }
        } else {
            match round.given::<Units>("units") {
                Given::Accepted(units) => report(&place, units),
                Given::Declined => "Cancelled (decline).".to_owned(),
                Given::Cancelled => "Cancelled (cancel).".to_owned(),
                Given::Missing | Given::Invalid(_) => return round.ask_form::<Units>("units", "Which units?"),
            }
        };
        self.audit.record("weather_c");
        Ok(text(outcome))
    }
}
