// The weather server at the top of the README, for its other examples: code blocks there cannot share code.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{Ask, FlowError};

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
    async fn weather(&self, Parameters(place): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        let units: Units = ask.form("Which units?").await?; // a decline ends the call politely
        let temperature = match units {
            Units::Metric => "22°C",
            Units::Imperial => "72°F",
        };
        Ok(format!("Weather in {}: {temperature}, partly cloudy.", place.location))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}
