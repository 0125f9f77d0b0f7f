//! Begin here: the simplest tool that asks. It asks, waits for the answer, and continues.

use rmcp::{handler::server::wrapper::Parameters, tool, tool_router};
use rounds::{Answer, Ask, FlowError};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = basic_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units")]
    async fn get_weather(&self, Parameters(place): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        // A modern client gets the question as a result, and sends the answer with its next request. A legacy client is
        // asked while its call is in flight.
        Ok(match ask.form::<Units>("Which units?").answer().await? {
            Answer::Accepted(units) => report(&place, units),
            Answer::Declined | Answer::Cancelled => "Cancelled.".to_owned(),
        })
    }
}
