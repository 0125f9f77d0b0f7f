//! One function answers the servers of both eras: one that asks by its results, and one that knows only 2025-11-25 and
//! asks over the live connection. The application's part is `ask`, and the one call in `weather`.

use std::{convert::Infallible, error::Error};

use gallery::Gallery;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, model::*, object, service::RequestContext};
use rounds::{Rounds, client::*};

/// Whatever is asked, by whomever. Here the first choice will do; a real one shows the question to somebody.
async fn ask(question: AskedQuestion) -> Result<UserAnswer, Infallible> {
    println!("{} asks: {}", question.origin(), question.message());
    Ok(UserAnswer::Form(object!({"units": "metric"})))
}

pub(crate) async fn weather(server: impl ServerHandler) -> Result<String, Box<dyn Error>> {
    let client = Host::new(ask).connect(beside(server)).await?;
    let call = Call::tool("weather_h", object!({"location": "Paris"}));
    match drive(&client, call, &ask, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => Ok(done.text()),
        other => Err(format!("not what was called for: {other:?}").into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Rounds::new(Gallery::new());
    println!("{}", weather(server.clone()).await?);
    println!("{}", weather(Old(server)).await?);
    Ok(())
}

/// A connection to a server that runs here, beside the client.
fn beside(server: impl ServerHandler) -> tokio::io::DuplexStream {
    let (ours, theirs) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve(theirs).await.map(|server| server.waiting()).ok()?.await.ok() });
    ours
}

/// The gallery as a server of 2025-11-25: it has never heard of `server/discover`.
pub(crate) struct Old(pub(crate) Rounds<Gallery>);

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
