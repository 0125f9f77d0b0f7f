//! Declared: the question is an argument, and is asked before the handler runs.
//!
//! The handler runs once, with the answer. No code of the handler can run before the question.

use rmcp::{handler::server::wrapper::Parameters, tool, tool_router};
use rounds::{Answer, Asked};

use crate::{Gallery, Place, Units, report};

#[tool_router(router = weather_asked_tools, vis = "pub(crate)")]
impl Gallery {
    #[tool(description = "Weather for a place, asking for units (declared)")]
    async fn weather_asked(&self, Parameters(place): Parameters<Place>, Asked(units): Asked<Answer<Units>>) -> String {
        self.audit.record("weather_asked");
        match units {
            Answer::Accepted(units) => report(&place, units),
            Answer::Declined => "Cancelled (decline).".to_owned(),
            Answer::Cancelled => "Cancelled (cancel).".to_owned(),
        }
    }
}
