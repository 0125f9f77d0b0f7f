//! The client that the MCP conformance suite runs, once for each of its scenarios.
//!
//! Requests that may be answered with a question go through `Call` and `drive`. Lists and authorization are plain rmcp.
//!
//! The suite passes the address of its server in the last argument, and everything else in the environment.

mod access;
mod anybody;
mod scenario;

use std::{env, io, process::ExitCode};

use rmcp::{
    model::{ClientCapabilities, ClientConfig, Implementation},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use rounds::client::{BoxError, Host};
use serde_json::Value;

use crate::{access::Access, anybody::Anybody, scenario::Client};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&*error);
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let url = env::args().next_back().ok_or("the address of the server is missing: pass it as the last argument")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    let context = context()?;
    let access = Access::to(&url, &context)?;
    let client = connect(&url, access.clone()).await?;
    if ["elicitation-sep1034-client-defaults", "sse-retry"].contains(&&*scenario) {
        access.listening().await;
    }
    scenario::play(&scenario, &context, &client).await?;
    client.cancel().await?;
    Ok(())
}

/// The context that a scenario gives to a client.
fn context() -> Result<Value, BoxError> {
    match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(context) => Ok(serde_json::from_str(&context)?),
        Err(_) => Ok(Value::Null),
    }
}

async fn connect(url: &str, access: Access) -> Result<Client, BoxError> {
    let myself = Implementation::new("rounds-conformance", env!("CARGO_PKG_VERSION"));
    let host = Host::new(Anybody).with_handler(ClientConfig::new(ClientCapabilities::default(), myself)).at(url);
    let host = match env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").as_deref() {
        Ok("2026-07-28") => host.modern_only(),
        _ => host.legacy_only(),
    };
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    Ok(host.connect(StreamableHttpClientTransport::with_client(access, config)).await?)
}

/// An error with all its causes.
fn say(error: &dyn std::error::Error) {
    use io::Write;
    let mut next = Some(error);
    while let Some(error) = next {
        // If stderr is closed, the message is lost.
        let _ = writeln!(io::stderr(), "{error}");
        next = error.source();
    }
}
