//! What a call takes that waits for its user, all told: the handler's future, the frame, the question, the timer, and the round in
//! the ledger.
//!
//! Alone in its binary, as it counts every allocation of the process.

use std::alloc::System;

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{Ask, FlowError, Rounds, test::Client};
use serde::Deserialize;
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

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
    async fn weather(&self, Parameters(Place { city }): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        Ok(match ask.form("Which units?").await? {
            Units::Metric => format!("{city}: 22°C"),
            Units::Imperial => format!("{city}: 72°F"),
        })
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

/// How many bytes are allocated just now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// As many as leave room in four kibibytes of resident memory for what the allocator adds. A debug build and a release build
/// differ by a few bytes only.
const MOST: usize = 3328;

#[tokio::test]
async fn a_call_that_waits_takes_less_than_four_kibibytes() {
    let server = Rounds::new(Weather { tool_router: Weather::tool_router() });
    let client = Client::modern(server.clone()).await;
    let park = async |calls: usize| {
        for n in 0..calls {
            let asked = client.call("weather", json!({"city": format!("City {n}")})).await.asked();
            assert_eq!(asked.message("units"), "Which units?");
        }
    };
    // What is there once, however many wait.
    park(100).await;
    let before = allocated();
    park(1000).await;
    let each = (allocated() - before) / 1000;
    assert_eq!(server.waiting(), 1100);
    assert!(each < MOST, "{each} bytes a call");
}
