//! D, two handlers: one for modern clients, one for legacy clients, and the library chooses.
//!
//! Each is simple, and the two have to be kept in step.

use rmcp::{
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        wrapper::Parameters,
    },
    model::CallToolResponse,
    tool,
};
use rounds::{Answer, Ask, FlowError, Given, Round, by_era, text};

use crate::{Gallery, Place, Units, report};

impl Gallery {
    pub(crate) fn weather_d_tools() -> ToolRouter<Self> {
        let modern = ToolRoute::new(Self::weather_d_tool_attr(), Self::weather_d);
        let legacy = ToolRoute::new(Self::weather_d_legacy_tool_attr(), Self::weather_d_legacy);
        ToolRouter::new().with_route(by_era(modern, legacy))
    }

    #[tool(description = "Weather for a place, asking for units (two handlers)")]
    async fn weather_d(
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
        self.audit.record("weather_d");
        Ok(text(outcome))
    }

    #[tool(description = "The same for clients from before 2026-07-28")]
    async fn weather_d_legacy(&self, Parameters(place): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        self.audit.record("weather_d");
        Ok(match ask.form::<Units>("Which units?").key("units").answer().await? {
            Answer::Accepted(units) => report(&place, units),
            Answer::Declined => "Cancelled (decline).".to_owned(),
            Answer::Cancelled => "Cancelled (cancel).".to_owned(),
        })
    }
}
