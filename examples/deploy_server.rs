//! A server that asks before it deploys, over stdio or HTTP: `cargo run --example deploy_client -- --http` starts it.
//!
//! There are no security settings. What travels through the client is encrypted under a key that this process made at
//! its start, bound to its request, and usable once. A fleet shares keys instead: see `http_axum`.

use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    schemars, tool, tool_handler, tool_router,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::{Ask, FlowError, Rounds, transport::stdio};
use rounds_http::Endpoint;
use serde::Deserialize;
use tokio::net::TcpListener;

#[derive(Deserialize, schemars::JsonSchema)]
struct Deployment {
    env: String,
}

struct Deploy {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Deploy {
    #[tool(description = "Deploys, after asking whether to")]
    async fn deploy(
        &self,
        Parameters(Deployment { env }): Parameters<Deployment>,
        ask: Ask,
    ) -> Result<String, FlowError> {
        // True only for an accepted "yes": a decline is a "no".
        if ask.confirm(format!("Deploy to {env}?")).await? {
            Ok(format!("deployed to {env}"))
        } else {
            Ok(format!("deployment to {env} cancelled"))
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Deploy {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Rounds::new(Deploy { tool_router: Deploy::tool_router() });
    if std::env::args().any(|arg| arg == "--http") {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        eprintln!("listening on http://{}/mcp", listener.local_addr()?);
        let endpoint = Endpoint::new(&server, StreamableHttpServerConfig::default());
        axum::serve(listener, axum::Router::new().route_service("/mcp", endpoint)).await?;
    } else {
        server.serve(stdio()).await?.waiting().await?;
    }
    Ok(())
}
