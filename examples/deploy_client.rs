//! Calls the deploy server twice: with the automatic loop, and by hand.
//! `cargo run --example deploy_client -- [--stdio | --http] [--server deploy_lowlevel]`
//!
//! It starts the server as a child process, over stdio or on a free port, and ends it afterwards. By hand it shows what
//! a client can do with the state that it carries: nothing but send it back, unchanged, once.

use std::{convert::Infallible, env, error::Error, path::PathBuf, process::Stdio};

use rmcp::{object, transport::StreamableHttpClientTransport};
use rounds::client::{
    AskedQuestion, Call, DriveLimits, DriveOutcome, Host, Pending, SendError, Sent, UserAnswer, drive,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

/// Answers every question. This one always agrees; a real application shows the question to its user.
async fn ask(question: AskedQuestion) -> Result<UserAnswer, Infallible> {
    println!("automatic: asked {:?}", question.message());
    Ok(UserAnswer::Form(object!({"confirm": true})))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let named = args.iter().position(|arg| arg == "--server").and_then(|at| args.get(at + 1));
    let mut server = Command::new(program(named.map_or("deploy_server", String::as_str))?);
    server.kill_on_drop(true);
    let (client, mut server) = if args.iter().any(|arg| arg == "--http") {
        let mut server = server.arg("--http").stderr(Stdio::piped()).spawn()?;
        let said = BufReader::new(server.stderr.take().ok_or("no stderr")?).lines().next_line().await?;
        let url = said.as_deref().and_then(|said| said.strip_prefix("listening on ")).ok_or("no address")?;
        // reqwest needs a provider if it was built with TLS; an error says that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        (Host::new(ask).at(url).connect(StreamableHttpClientTransport::from_uri(url)).await?, server)
    } else {
        let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = server.stdout.take().zip(server.stdin.take()).ok_or("no pipes")?;
        (Host::new(ask).connect(pipes).await?, server)
    };

    let call = Call::tool("deploy", object!({"env": "prod"}));
    match drive(&client, call, &ask, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => println!("automatic: {}", done.text()),
        other => return Err(format!("unexpected outcome: {other:?}").into()),
    }

    let mut asked = asks(Call::tool("deploy", object!({"env": "staging"})).send(&client).await?)?;
    asked.accept("confirm", object!({"confirm": true}))?;
    assert!(!asked.to_json().contains("awaiting-confirm"), "the server's own text is not on the wire");
    println!("by hand:   the state is sealed");
    let (before, state, after) = split(&asked)?;
    let flipped = if state.starts_with('A') { "B" } else { "A" };
    let forged = Pending::from_json(&[before, flipped.to_owned(), state[1..].to_owned(), after].concat())?;
    println!("by hand:   one character changed: {}", refused(forged.send(&client).await)?);
    match asked.send(&client).await? {
        Sent::Done(done) => println!("by hand:   as it came: {}", done.text()),
        other => return Err(format!("unexpected reply: {other:?}").into()),
    }
    asked.decline("confirm")?;
    println!("by hand:   again, with another answer: {}", refused(asked.send(&client).await)?);

    client.cancel().await?;
    Ok(server.kill().await?)
}

fn asks(sent: Sent) -> Result<Pending, String> {
    if let Sent::Asks(pending) = sent { Ok(pending) } else { Err(format!("expected a question, got {sent:?}")) }
}

/// The saved call, cut in the middle of its state.
fn split(asked: &Pending) -> Result<(String, String, String), Box<dyn Error>> {
    let saved = asked.to_json();
    let value: serde_json::Value = serde_json::from_str(&saved)?;
    let state = value["state"].as_str().ok_or("no state")?;
    let from = saved.find(state).ok_or("no state")? + state.len() / 2;
    let to = from + state.len() - state.len() / 2;
    Ok((saved[..from].to_owned(), saved[from..to].to_owned(), saved[to..].to_owned()))
}

/// The one error that every state gets with which something is wrong.
fn refused(sent: Result<Sent, SendError>) -> Result<String, String> {
    match sent {
        Err(SendError::StateRefused(error)) => {
            Ok(format!("{} {:?} {}", error.code.0, error.message, error.data.unwrap_or_default()))
        }
        other => Err(format!("expected a refusal, got {other:?}")),
    }
}

/// The program of another example. Cargo builds it first, if cargo runs this one.
fn program(example: &str) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(cargo) = env::var_os("CARGO") {
        std::process::Command::new(cargo).args(["build", "--quiet", "--example", example]).status()?;
    }
    Ok(env::current_exe()?.with_file_name(example))
}
