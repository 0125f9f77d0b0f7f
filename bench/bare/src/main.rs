//! A server with one tool, as a user of rmcp writes it. With the feature `server` it is wrapped in `Rounds`; otherwise
//! it is the same.

use std::{io, sync::Arc};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    location: String,
}

#[derive(Clone)]
struct Weather {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Weather {
    #[tool(description = "Weather for a place")]
    async fn weather(&self, Parameters(place): Parameters<Place>) -> String {
        format!("Weather in {}: 22°C, partly cloudy.", place.location)
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

#[tokio::main]
async fn main() -> io::Result<()> {
    let server = Weather { tool_router: Weather::tool_router() };
    #[cfg(feature = "server")]
    let server = rounds::Rounds::new(server);
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), sessions, StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await
}
