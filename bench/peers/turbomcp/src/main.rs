//! The benchmark's weather tool, served by turbomcp.
//!
//! It signs and binds the state by itself, but a first question has a state only if the handler stores something.

use std::{error::Error, net::Ipv4Addr};

use axum::serve::ListenerExt;
use serde_json::json;
use tokio::net::TcpListener;
use turbomcp::{
    http::{HttpConfig, router},
    prelude::*,
};

#[derive(Clone)]
struct Weather;

#[server(name = "turbomcp", version = "4.0.0-alpha.5")]
impl Weather {
    #[tool(description = "Weather for a place")]
    async fn weather(&self, ctx: &CallToolContext, location: String) -> McpResult<String> {
        ctx.client.store_state(&location)?;
        let schema = json!({
            "type": "object",
            "properties": { "units": { "type": "string", "enum": ["metric", "imperial"] } },
            "required": ["units"],
        });
        let answer = ctx.client.elicit("units", neutral::ElicitParams::new("Which units?", schema)).await?;
        if !answer.accepted() {
            return Ok("Cancelled.".to_owned());
        }
        let metric = answer.content.get("units").is_some_and(|units| units == "metric");
        let temperature = if metric { "22°C" } else { "72°F" };
        Ok(format!("Weather in {location}: {temperature}, partly cloudy."))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    // Its own `run_http` uses axum as well, without TCP_NODELAY.
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(listener, router(Weather.into_server().build(), HttpConfig::new())).await?;
    Ok(())
}
