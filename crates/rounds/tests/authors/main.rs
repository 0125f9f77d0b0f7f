//! What authors of existing servers use: rmcp's own error type, a gate in front of destructive tools, and the caller.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod durable;
mod gate;
mod gate_http;
mod http;
mod kit;
mod pattern;
mod principal;
mod shutdown;
mod signatures;
mod tools;

use rmcp::{ServerHandler, transport::streamable_http_server::StreamableHttpServerConfig};
use rounds::{Rounds, test::Client};

/// A client of each era.
async fn clients<H: ServerHandler>(server: &Rounds<H>) -> [Client; 2] {
    [Client::modern(server.clone()).await, Client::legacy(server.clone()).await]
}

/// Serves over HTTP until the test ends, and returns the address.
async fn serve<H: ServerHandler>(server: &Rounds<H>) -> String {
    rounds_testkit::install_crypto();
    let mcp = server.streamable_http(StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().nest_service("/mcp", mcp)).await });
    address
}
