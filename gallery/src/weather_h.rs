//! H, linear: the handler asks, waits, and continues where it stopped.
//!
//! The handler runs once. An effect above the question runs once, without a guard.

use rmcp::{handler::server::wrapper::Parameters, tool, tool_router};
use rounds::{Answer, Ask, FlowError};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_h_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (linear)")]
    async fn weather_h(&self, Parameters(place): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        self.audit.record("weather_h");
        Ok(match ask.form::<Units>("Which units?").key("units").answer().await? {
            Answer::Accepted(units) => report(&place, units),
            Answer::Declined => "Cancelled (decline).".to_owned(),
            Answer::Cancelled => "Cancelled (cancel).".to_owned(),
        })
    }
}
