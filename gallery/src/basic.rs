//! Begin here: the simplest tool that asks. It looks at what it was given, and asks for what is missing.

use rmcp::{handler::server::wrapper::Parameters, model::CallToolResponse, tool, tool_router};
use rounds::{FlowError, Given, Round, text};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = basic_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units")]
    async fn get_weather(
        &self,
        Parameters(place): Parameters<Place>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        match round.given::<Units>("units") {
            Given::Accepted(units) => Ok(text(report(&place, units))),
            Given::Declined | Given::Cancelled => Ok(text("Cancelled.")),
            // The first leg ends here. The next begins at the top again, with the answer.
            Given::Missing | Given::Invalid(_) => round.ask_form::<Units>("units", "Which units?"),
        }
    }
}
