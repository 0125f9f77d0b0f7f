//! A, guard-first for all clients: the handler is E without its branch for legacy clients, and the server pushes the
//! question to them.
//!
//! The handler runs again for every round, for clients of both eras, and its code shows it. That the server pushes is
//! configured in `lib.rs`.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{FlowError, Given, Round, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_a_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (guard-first, pushed to old clients)")]
    async fn weather_a(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        let outcome = match round.given::<Units>("units") {
            Given::Accepted(units) => report(&place, units),
            Given::Declined => "Cancelled (decline).".to_owned(),
            Given::Cancelled => "Cancelled (cancel).".to_owned(),
            Given::Missing | Given::Invalid(_) => return round.ask_form::<Units>("units", "Which units?"),
        };
        self.audit.record("weather_a");
        Ok(text(outcome))
    }
}
