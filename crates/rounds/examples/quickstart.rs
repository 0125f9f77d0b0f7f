//! A complete weather server that asks for units. Run it with
//! `cargo run -p rounds --features test --example quickstart`.
//!
//! A real one would end with `server.serve(stdio()).await?`; this one talks to itself, so that you see both sides.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::CallToolResponse,
    schemars, tool, tool_handler, tool_router,
};
use rounds::{FlowError, Given, Round, Rounds, test::Client, text};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
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
    #[tool(description = "Weather for a city")]
    async fn weather(
        &self,
        Parameters(Place { city }): Parameters<Place>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        match round.given::<Units>("units") {
            Given::Accepted(Units::Metric) => Ok(text(format!("{city}: 22°C"))),
            Given::Accepted(Units::Imperial) => Ok(text(format!("{city}: 72°F"))),
            Given::Declined | Given::Cancelled => Ok(text("No units, no weather.")),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Units>("units", "Which units?"),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

#[tokio::main]
async fn main() {
    let server = Rounds::new(Weather { tool_router: Weather::tool_router() });
    let client = Client::modern(server).await;

    let asked = client.call("weather", json!({"city": "Tokyo"})).await.asked();
    println!("question: {}", asked.message("units"));

    let answer = json!({"units": "imperial"});
    println!("answer:   {answer}");

    let result = asked.accept("units", answer).send(&client).await;
    println!("result:   {}", result.text());
}
