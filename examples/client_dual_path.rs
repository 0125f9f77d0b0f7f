//! One function answers the servers of both eras: a modern server, which asks in its results, and a server of
//! 2025-11-25, which asks over the live connection. `cargo run --example client_dual_path`.
//!
//! The application's own part is `ask`, and the one call in `weather`. The servers are the gallery, in this process.

use std::{convert::Infallible, error::Error};

use gallery::Gallery;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, model::*, object, service::RequestContext};
use rounds::{Rounds, client::*};

/// Answers every question of every server. This one always chooses metric; a real application shows the question to its
/// user.
async fn ask(question: AskedQuestion) -> Result<UserAnswer, Infallible> {
    println!("{} asks: {}", question.origin(), question.message());
    Ok(UserAnswer::Form(object!({"units": "metric"})))
}

async fn weather(server: impl ServerHandler) -> Result<String, Box<dyn Error>> {
    let client = Host::new(ask).connect(beside(server)).await?;
    let call = Call::tool("weather_h", object!({"location": "Paris"}));
    match drive(&client, call, &ask, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => Ok(done.text()),
        other => Err(format!("unexpected outcome: {other:?}").into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Rounds::new(Gallery::new());
    println!("{}", weather(server.clone()).await?);
    println!("{}", weather(Old(server)).await?);
    Ok(())
}

/// A connection to a server that runs in this process.
fn beside(server: impl ServerHandler) -> tokio::io::DuplexStream {
    let (ours, theirs) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve(theirs).await.map(|server| server.waiting()).ok()?.await.ok() });
    ours
}

/// The gallery as a server of 2025-11-25, which does not know `server/discover`.
struct Old(Rounds<Gallery>);

impl ServerHandler for Old {
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Err(ErrorData::method_not_found::<DiscoverRequestMethod>())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.0.call_tool(request, context).await
    }
}
