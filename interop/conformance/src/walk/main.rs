//! Our client with a server that is written with another SDK, or by hand: every flow of `interop/servers.json`. The server
//! that is written by hand is called with rmcp's own loop too.
//!
//! Its arguments are the server, the era and its address: `typescript`, `python`, `lowlevel` or `fastmcp`, whose calls become
//! tasks; `modern` or `legacy`; and then `http URL`, or `stdio PROGRAM ARGUMENT...`, which starts the server.

mod flows;
mod person;

use std::{
    env,
    io::{self, Write},
    process::Stdio,
    sync::Arc,
};

use rmcp::{
    RoleClient, model::CallToolRequestParams, service::RunningService, transport::StreamableHttpClientTransport,
};
use rounds::{
    Era,
    client::{BoxError, Call, Done, DriveLimits, DriveOutcome, Host, Pending, SendError, Sent, Server, drive},
};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{
    flows::{Flow, flows},
    person::Person,
};

type Client = RunningService<RoleClient, Host<Arc<Person>>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [server, era, transport, first, rest @ ..] = &args[..] else {
        return Err("usage: typescript|python|lowlevel|fastmcp modern|legacy http URL|stdio PROGRAM ARGUMENT...".into());
    };
    let tasks = server == "fastmcp";
    let person = Arc::new(Person::new(tasks));
    let (client, process) = connect(person.clone(), transport, first, rest).await?;
    let spoken = Server::from(&client).era();
    let modern = spoken == Era::Modern;
    expect(&if modern { "modern" } else { "legacy" }, &era.as_str(), "the era")?;
    let flows = flows(server, era)?;
    for flow in &flows {
        drive_through(&client, &person, flow).await?;
        if modern {
            by_hand(&client, Person::new(tasks), flow).await?;
        }
        if server == "lowlevel" {
            by_rmcp(&client, &person, flow).await?;
        }
        writeln!(io::stdout(), "  {flow}")?;
    }
    client.cancel().await?;
    drop(process);
    let (how, further) = match (modern, tasks) {
        (_, true) => ("`drive` of tasks", "; the same by hand, with each poll saved and loaded; changed ids refused"),
        (true, _) => ("`drive`", "; the same by hand, with each question saved and loaded; changed states refused"),
        (false, _) => ("pushed questions", ""),
    };
    writeln!(io::stdout(), "exercised: {how}, {} flows through {} tools{further}", flows.len(), tools(&flows))?;
    Ok(())
}

fn tools(flows: &[Flow]) -> usize {
    let mut tools: Vec<_> = flows.iter().map(|flow| &flow.tool).collect();
    tools.sort();
    tools.dedup();
    tools.len()
}

/// Connects, and detects the server's era. The process, if there is one, is killed when it is dropped.
async fn connect(
    person: Arc<Person>,
    transport: &str,
    first: &str,
    rest: &[String],
) -> Result<(Client, Option<Child>), BoxError> {
    let tasks = person.is_asked_through_tasks();
    let host = Host::new(person).at(first);
    let host = if tasks { host.with_tasks() } else { host };
    if transport == "http" {
        rounds_testkit::install_crypto();
        return Ok((host.connect(StreamableHttpClientTransport::from_uri(first)).await?, None));
    }
    let mut server = Command::new(first);
    server.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = server.spawn()?;
    let pipes = server.stdout.take().zip(server.stdin.take()).ok_or("the server has no pipes")?;
    Ok((host.connect(pipes).await?, Some(server)))
}

/// One function answers both returned and pushed questions.
async fn drive_through(client: &Client, person: &Person, flow: &Flow) -> Result<(), BoxError> {
    person.meets(flow);
    let call = Call::tool(&flow.tool, flow.arguments.clone());
    match drive(client, call, person, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => check(flow, &done)?,
        other => return Err(format!("{flow}: expected a result, got {other:?}").into()),
    }
    person.was_asked_everything()
}

/// Like a process that keeps a question for later: every round is saved and loaded.
async fn by_hand(client: &Client, person: Person, flow: &Flow) -> Result<(), BoxError> {
    person.meets(flow);
    let mut polled = false;
    let mut sent = Call::tool(&flow.tool, flow.arguments.clone()).send(client).await?;
    loop {
        let saved = match sent {
            Sent::Done(done) => {
                check(flow, &done)?;
                expect(&polled, &person.is_asked_through_tasks(), "whether it was a task")?;
                return person.was_asked_everything();
            }
            Sent::Asks(pending) | Sent::Later(pending) => pending.to_json(),
            other => return Err(format!("{flow}: expected a result, got {other:?}").into()),
        };
        let mut pending = Pending::from_json(&saved)?;
        polled |= pending.task_id().is_some();
        if let Some(pause) = pending.poll_after().filter(|_| pending.questions().is_empty()) {
            tokio::time::sleep(pause).await;
        }
        for question in pending.questions().to_vec() {
            pending.answer(question.key(), person.says(&question)?)?;
        }
        is_refused(client, flow, &pending).await?;
        sent = pending.send(client).await?;
    }
}

/// rmcp's own loop, which answers each round through the handler of its client.
async fn by_rmcp(client: &Client, person: &Person, flow: &Flow) -> Result<(), BoxError> {
    person.meets(flow);
    let call = CallToolRequestParams::new(flow.tool.clone()).with_arguments(flow.arguments.clone());
    let result = client.call_tool(call).await?;
    let text = result.content.first().and_then(|block| block.as_text()).map(|text| text.text.clone());
    expect(&text.as_ref(), &Some(&flow.text), &flow.tool)?;
    expect(&(result.is_error == Some(true)), &flow.is_error, &flow.tool)?;
    person.was_asked_everything()
}

/// A changed state, or a changed id of a task, must be rejected, and the client must recognise the rejection.
async fn is_refused(client: &Client, flow: &Flow, pending: &Pending) -> Result<(), BoxError> {
    let mut saved: Value = serde_json::from_str(&pending.to_json())?;
    let kept = if pending.task_id().is_some() { &mut saved["task"]["id"] } else { &mut saved["state"] };
    let text = kept.as_str().ok_or_else(|| format!("{flow}: there is no state, and no task"))?;
    // In the middle, because the last character of a base64 text may have unused bits.
    let (before, rest) = text.split_at(text.len() / 2);
    *kept = format!("{before}{}{}", if rest.starts_with('A') { 'B' } else { 'A' }, &rest[1..]).into();
    match Pending::from_json(&saved.to_string())?.send(client).await {
        Err(SendError::StateRefused(_)) => Ok(()),
        other => Err(format!("{flow}: a changed state or id: {other:?}").into()),
    }
}

fn check(flow: &Flow, done: &Done) -> Result<(), BoxError> {
    expect(&done.text(), &flow.text, &flow.tool)?;
    expect(&done.is_error(), &flow.is_error, &flow.tool)
}

fn expect<T: PartialEq + std::fmt::Debug>(actual: &T, expected: &T, of: &str) -> Result<(), BoxError> {
    if actual == expected { Ok(()) } else { Err(format!("{of}: expected {expected:?}, got {actual:?}").into()) }
}
