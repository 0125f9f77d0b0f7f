//! The smallest tool that asks, with a client in memory that answers: `cargo run --example basic`.
//!
//! Every handler of a multi-round call makes two moves. It asks for what it does not know, and it continues with the
//! answer. Here both are one line: the handler waits at its `.await` while the client carries the question to its user.
//!
//! A real server would end with `server.serve(rounds::transport::stdio()).await?`, as `deploy_server` does.

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

// The question's form. What derives these two can be asked for.
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
        // The first move: the request of a modern client is answered with this question, and a sealed state.
        let units: Units = ask.form("Which units?").await?;
        // The second move: the client's next request has the answer. A decline would have ended the call at the `?`.
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
