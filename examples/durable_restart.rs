//! A booking that survives its process: `cargo run --example durable_restart`.
//!
//! The server is killed after every question, and another process continues. It needs two things for that: keys in a
//! file, and a handler whose journal travels sealed with the client. An effect in a `once` that has run does not run
//! again. There is no store: with a shared ledger a token would also be usable only once across restarts.

use std::{env, error::Error, fs, path::Path, process::Stdio};

use rmcp::{
    RoleClient, ServerHandler, ServiceExt, handler::server::router::tool::ToolRouter, object, schemars,
    service::RunningService, tool_handler,
};
use rounds::{
    Durable, FlowError, KeyRing, Rounds,
    client::{Call, DefaultsOnly, Host, Pending, SendError, Sent, defaults_only},
    durable,
    transport::stdio,
};
use serde::Deserialize;
use tokio::process::Command;

type Client = RunningService<RoleClient, Host<DefaultsOnly>>;

#[derive(Deserialize, schemars::JsonSchema)]
struct Trip {
    to: String,
}

struct Agency {
    tool_router: ToolRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Agency {}

impl Agency {
    fn effect(&self, what: &str) -> u32 {
        eprintln!("effect:   {what}"); // in the server's log, which this example shows
        140
    }
}

async fn book(flow: Durable<Agency>, Trip { to }: Trip) -> Result<String, FlowError> {
    let price = flow.once("quote", async |agency, _key| agency.effect("quote")).await?;
    let seat: String = flow.form(format!("To {to} for {price}. Which seat?")).key("seat").await?;
    if !flow.confirm(format!("Pay {price} for seat {seat}?")).await? {
        return Ok("Not booked.".to_owned());
    }
    let paid = flow.once("charge", async |agency, _key| agency.effect("charge")).await?;
    Ok(format!("Booked seat {seat} to {to} for {paid}."))
}

async fn serve(keys: &str) -> Result<(), Box<dyn Error>> {
    let tool_router = ToolRouter::new().with_route(durable("book", "Books a trip", book));
    let server = Rounds::builder(Agency { tool_router }).keys(KeyRing::from_file(keys)?).audience("agency").build()?;
    server.serve(stdio()).await?.waiting().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(keys) = env::args().nth(1) {
        return serve(&keys).await; // the process that this one starts
    }
    let keys = env::temp_dir().join(format!("keys-{}", std::process::id()));
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    fs::write(&keys, key.map(|byte| format!("{byte:02x}")).concat())?;

    let call = Call::tool("book", object!({"to": "Rome"}));
    let mut seat = asks(leg(&keys, async |client| call.send(client).await).await?)?;
    seat.accept("seat", object!({"seat": "12A"}))?;
    let mut payment = asks(leg(&keys, async |client| seat.send(client).await).await?)?;
    payment.accept("confirm", object!({"confirm": true}))?;
    match leg(&keys, async |client| payment.send(client).await).await? {
        Sent::Done(done) => println!("result:   {}", done.text()),
        other => return Err(format!("expected a result, got {other:?}").into()),
    }
    Ok(fs::remove_file(keys)?)
}

/// Sends one request to a server that is started for it, and killed after it.
async fn leg(keys: &Path, send: impl AsyncFnOnce(&Client) -> Result<Sent, SendError>) -> Result<Sent, Box<dyn Error>> {
    println!("a server starts");
    let mut server = Command::new(env::current_exe()?);
    server.arg(keys).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = server.spawn()?;
    let pipes = server.stdout.take().zip(server.stdin.take()).ok_or("no pipes")?;
    let sent = send(&Host::new(defaults_only()).modern_only().connect(pipes).await?).await?;
    server.start_kill()?;
    print!("{}", String::from_utf8(server.wait_with_output().await?.stderr)?);
    Ok(sent)
}

fn asks(sent: Sent) -> Result<Pending, Box<dyn Error>> {
    let Sent::Asks(pending) = sent else { return Err(format!("expected a question, got {sent:?}").into()) };
    pending.questions().iter().for_each(|question| println!("question: {}", question.message()));
    Ok(pending)
}
