//! What authors of existing servers use: rmcp's own error type, a gate in front of destructive tools, and the caller.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod durable;
mod gate;
mod gate_http;
mod principal;
mod shutdown;
mod signatures;
mod tools;

use rmcp::ServerHandler;
use rounds::{Rounds, test::Client};

/// A client of each era.
async fn clients<H: ServerHandler>(server: &Rounds<H>) -> [Client; 2] {
    [Client::modern(server.clone()).await, Client::legacy(server.clone()).await]
}
