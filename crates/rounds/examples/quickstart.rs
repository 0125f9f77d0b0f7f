//! A complete weather server that asks for units. Run it with
//! `cargo run -p rounds --features test --example quickstart`.
//!
//! A real one would end with `server.serve(stdio()).await?`. This one talks to itself, so that you see both sides.

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{Ask, FlowError, Rounds, test::Client};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct Place {
    location: String,
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
    #[tool(description = "Weather for a place")]
    async fn weather(&self, Parameters(place): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        let units: Units = ask.form("Which units?").await?; // a decline ends the call with a tool error
        let temperature = match units {
            Units::Metric => "22°C",
            Units::Imperial => "72°F",
        };
        Ok(format!("Weather in {}: {temperature}, partly cloudy.", place.location))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Rounds::new(Weather { tool_router: Weather::tool_router() });
    let client = Client::modern(server).await;

    let asked = client.call("weather", json!({"location": "Tokyo"})).await.asked();
    println!("question: {}", asked.message("units"));

    let answer = json!({"units": "imperial"});
    println!("answer:   {answer}");

    let result = asked.accept("units", answer).send(&client).await;
    println!("result:   {}", result.text());
}
