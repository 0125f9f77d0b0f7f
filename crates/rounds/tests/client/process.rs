//! A call that is asked in one process and answered in another, with a kill in between.
//!
//! The test runs its own program again. In that process a client is asked by an instance of the server, saves the call
//! and waits until it is killed (by SIGKILL, so none of its code runs). In this process another client answers over
//! another connection, to another instance, which shares only its key with the first.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{CallToolRequestParams, CallToolResponse, Implementation, ServerCapabilities, ServerConfig},
    object,
    service::RequestContext,
    transport::stdio,
};
use rounds::{
    Given, KeyRing, Round, Rounds,
    client::{Call, Host, Pending, SendError},
    text,
};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::{Units, asked, connect, said, silent, soon};

const FILE: &str = "ROUNDS_CLIENT_FILE";
const SAVED: &str = "saved";
const SERVE: &str = "ROUNDS_CLIENT_SERVE";

#[tokio::test]
async fn a_call_is_answered_from_another_process_after_a_kill() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pending-{}.json", std::process::id()));
    let mut asking = Command::new(std::env::current_exe().unwrap())
        .args(["process::the_client_that_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said_there = BufReader::new(asking.stdout.take().unwrap()).lines();
    let saved = said_there.map_while(Result::ok).any(|line| line == SAVED);
    asking.kill().unwrap();
    asking.wait().unwrap();
    assert!(saved, "the first process did not reach its question");

    let mut pending = Pending::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(pending.call(), &Call::tool("weather", object!({"location": "Paris"})));
    assert_eq!(pending.questions()[0].message(), "Which units?");
    assert!(pending.expires_in().is_some_and(|left| !left.is_zero()));
    pending.accept("units", object!({"units": "imperial"})).unwrap();
    let client = connect(instance(), Host::new(silent())).await;
    assert_eq!(said(pending.send(&client).await.unwrap()), "Paris in Imperial");
}

#[tokio::test]
async fn a_server_that_is_killed_between_legs_is_answered_once_it_is_back() {
    let call = Call::tool("weather", object!({"location": "Paris"}));
    let mut first = server_process();
    let client = soon(Host::new(silent()).connect(pipes(&mut first))).await.unwrap();
    let mut pending = asked(soon(call.send(&client)).await.unwrap());
    pending.accept("units", object!({"units": "metric"})).unwrap();
    first.kill().await.unwrap();
    let error = soon(pending.send(&client)).await.unwrap_err();
    assert!(matches!(error, SendError::Connection(_)), "{error:?}");

    let mut second = server_process();
    let client = soon(Host::new(silent()).connect(pipes(&mut second))).await.unwrap();
    assert_eq!(said(soon(pending.send(&client)).await.unwrap()), "Paris in Metric");
}

/// The server in a separate process, over its pipes.
fn server_process() -> Child {
    tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["process::the_server", "--exact", "--nocapture", "--test-threads=1", "--quiet"])
        .env(SERVE, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The output of the test runner is not JSON, and rmcp skips it.
fn pipes(process: &mut Child) -> (ChildStdout, ChildStdin) {
    (process.stdout.take().unwrap(), process.stdin.take().unwrap())
}

/// The program that the test above starts, and not a test itself. Without its environment variable it does nothing.
#[test]
fn the_server() {
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        instance().serve(stdio()).await.unwrap().waiting().await.unwrap();
    });
}

/// The program that the first test starts, and not a test itself. Without its file it does nothing.
#[test]
fn the_client_that_is_killed() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pending = runtime.block_on(async {
        let client = connect(instance(), Host::new(silent())).await;
        asked(Call::tool("weather", object!({"location": "Paris"})).send(&client).await.unwrap())
    });
    std::fs::write(file, pending.to_json()).unwrap();
    println!("\n{SAVED}");
    loop {
        std::thread::park();
    }
}

/// An instance of the server. The instances share only a key.
fn instance() -> Rounds<Weather> {
    let keys = KeyRing::from_bytes([[7; 32]]).unwrap();
    Rounds::builder(Weather).keys(keys).audience("weather").build().unwrap()
}

struct Weather;

impl ServerHandler for Weather {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let round: Round<CallToolResponse> = Round::from_context(&context)?;
        let place = request.arguments.unwrap_or_default()["location"].as_str().unwrap().to_owned();
        match round.given::<Units>("units") {
            Given::Accepted(units) => Ok(text(format!("{place} in {units:?}"))),
            _ => Ok(round.ask_form::<Units>("units", "Which units?")?),
        }
    }

    fn get_info(&self) -> ServerConfig {
        let info = Implementation::new("weather", "1");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(info)
    }
}
