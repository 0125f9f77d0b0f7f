// The weather server at the top of the README, for its example of a test: code blocks there cannot share code.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::CallToolResponse,
    schemars, tool, tool_handler, tool_router,
};
use rounds::{FlowError, Given, Round, text};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    location: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Units {
    Metric,
    Imperial,
}

struct Weather {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Weather {
    #[tool(description = "Weather for a place")]
    async fn weather(&self, Parameters(place): Parameters<Place>, round: Round) -> Result<CallToolResponse, FlowError> {
        let temperature = match round.given::<Units>("units") {
            Given::Accepted(Units::Metric) => "22°C",
            Given::Accepted(Units::Imperial) => "72°F",
            Given::Declined | Given::Cancelled => return Ok(text("As you like.")),
            Given::Missing | Given::Invalid(_) => return round.ask_form::<Units>("units", "Which units?"),
        };
        Ok(text(format!("Weather in {}: {temperature}, partly cloudy.", place.location)))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}
