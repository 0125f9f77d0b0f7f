//! A booking that survives its process: `cargo run --example durable_restart --features sql`.
//!
//! The server is killed after every leg, and another process continues. The handler's journal travels sealed with the
//! client, and a folder has the rest: the keys, and a SQLite file with what was claimed and replied. So an effect in a
//! `once` does not run again, and an answer that is sent again gets the same reply.

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
use rounds_sql::SqliteLedger;
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

fn effect(what: &str) -> u32 {
    eprintln!("effect:   {what}"); // in the server's log, which this example shows
    140
}

async fn book(flow: Durable<Agency>, Trip { to }: Trip) -> Result<String, FlowError> {
    let price = flow.once("quote", async |_agency, _key| effect("quote")).await?;
    let seat: String = flow.form(format!("To {to} for {price}. Which seat?")).key("seat").await?;
    if !flow.confirm(format!("Pay {price} for seat {seat}?")).await? {
        return Ok("Not booked.".to_owned());
    }
    let paid = flow.once("charge", async |_agency, _key| effect("charge")).await?;
    Ok(format!("Booked seat {seat} to {to} for {paid}."))
}

async fn serve(data: &Path) -> Result<(), Box<dyn Error>> {
    let tool_router = ToolRouter::new().with_route(durable("book", "Books a trip", book));
    let (keys, store) = (KeyRing::from_file(data.join("keys"))?, SqliteLedger::open(data.join("rounds.db")).await?);
    let server = Rounds::builder(Agency { tool_router }).keys(keys).audience("agency").ledger(store).build()?;
    server.serve(stdio()).await?.waiting().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(data) = env::args().nth(1) {
        return serve(Path::new(&data)).await; // the process that this one starts
    }
    let data = env::temp_dir().join(format!("durable-restart-{}", std::process::id()));
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    fs::create_dir(&data)?;
    fs::write(data.join("keys"), key.map(|byte| format!("{byte:02x}")).concat())?;

    let call = Call::tool("book", object!({"to": "Rome"}));
    let mut seat = asks(leg(&data, async |client| call.send(client).await).await?)?;
    seat.accept("seat", object!({"seat": "12A"}))?;
    let mut payment = asks(leg(&data, async |client| seat.send(client).await).await?)?;
    payment.accept("confirm", object!({"confirm": true}))?;
    for _ in ["the answer", "the same again, as after a lost reply"] {
        let Sent::Done(done) = leg(&data, async |client| payment.send(client).await).await? else { continue };
        println!("result:   {}", done.text());
    }
    Ok(fs::remove_dir_all(data)?)
}

/// Sends one request to a server that is started for it, and killed after it.
async fn leg(data: &Path, send: impl AsyncFnOnce(&Client) -> Result<Sent, SendError>) -> Result<Sent, Box<dyn Error>> {
    println!("a server starts");
    let mut server = Command::new(env::current_exe()?);
    let mut server = server.arg(data).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
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
