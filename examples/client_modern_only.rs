//! A client that serves modern servers only: `cargo run --example client_modern_only`.
//!
//! Its user is never asked over the live connection, so a question can always be saved and answered later. A server of
//! 2025-11-25 is refused when the client connects, and not in the middle of a call.

use std::{convert::Infallible, error::Error};

use gallery::Gallery;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, model::*, object, service::RequestContext};
use rounds::{Rounds, client::*};

async fn ask(question: AskedQuestion) -> Result<UserAnswer, Infallible> {
    println!("asked: {}", question.message());
    Ok(UserAnswer::Form(object!({"units": "metric"})))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Host::new(ask).modern_only().connect(beside(Rounds::new(Gallery::new()))).await?;
    let call = Call::tool("weather_h", object!({"location": "Paris"}));
    match drive(&client, call, &ask, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => println!("{}", done.text()),
        other => return Err(format!("unexpected outcome: {other:?}").into()),
    }

    match Host::new(ask).modern_only().connect(beside(Old)).await {
        Ok(_) => return Err("a server of 2025-11-25 was accepted".into()),
        Err(error) => println!("refused: {error}"),
    }
    Ok(())
}

/// A connection to a server that runs in this process.
fn beside(server: impl ServerHandler) -> tokio::io::DuplexStream {
    let (ours, theirs) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve(theirs).await.map(|server| server.waiting()).ok()?.await.ok() });
    ours
}

/// A server of 2025-11-25, which does not know `server/discover`.
struct Old;

impl ServerHandler for Old {
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        Err(ErrorData::method_not_found::<DiscoverRequestMethod>())
    }
}
