//! Real processes, really killed: at every moment, a client that comes back gets its booking, and nothing is paid
//! twice.
//!
//! The test runs its own program again as a server over stdio. That server stops at a given moment, says so, and is
//! killed there (by SIGKILL, so none of its code runs). The next process has only the ledger's file. The airline is a
//! file that belongs to no process.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

mod ledger;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rmcp::{
    ServerHandler, ServiceExt as _,
    handler::server::router::tool::ToolRouter,
    model::{ServerCapabilities, ServerConfig},
    schemars, tool_handler,
    transport::stdio,
};
use rounds::{
    Durable, FlowError, KeyRing, Limits, Rounds, durable,
    test::{Leg, Retry},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ledger::FileLedger;

/// The moments at which a process may be killed. Each leg with a token has one effect, so these are eight moments of
/// every leg.
const MOMENTS: [&str; 8] = [
    "claimed round",
    "claimed effect",
    "before the effect",
    "after the effect",
    "settling effect",
    "settled effect",
    "settling round",
    "settled round",
];

/// The moments at which the effect has run and only the airline knows: it runs again, under the same key.
const UNKNOWN: [&str; 2] = ["after the effect", "settling effect"];

#[test]
fn killed_at_any_moment_of_the_leg_that_holds_a_seat_it_goes_on() {
    MOMENTS.iter().for_each(|moment| survives("hold", moment));
}

#[test]
fn killed_at_any_moment_of_the_leg_that_charges_it_goes_on() {
    MOMENTS.iter().for_each(|moment| survives("charge", moment));
}

fn survives(effect: &str, moment: &str) {
    let directory = directory(&format!("{effect} {moment}"));
    let airline = Books { file: directory.join("airline") };

    let mut first = Server::start(&directory, None);
    let asked = first.call("book", json!({"to": "Rome"}));
    let mut retry = asked.asked().retry(); // from the checkpoint
    assert_eq!(airline.attempts().len(), 0, "{moment}");
    if effect == "charge" {
        retry = first.send(&retry).asked().accept("seat", json!({"seat": "4C"}));
    }
    first.kill();

    let unlucky = Server::start(&directory, Some(moment));
    unlucky.killed_while(&retry);

    let mut last = Server::start(&directory, None);
    let mut done = last.send(&retry);
    if effect == "hold" {
        done = last.send(&done.asked().accept("seat", json!({"seat": "4C"})));
    }
    assert_eq!(done.text(), "seat 4C, hold 0, charge 1", "killed at {effect}, {moment}");
    last.kill();

    let attempts = airline.attempts();
    for name in ["hold", "charge"] {
        let keys: Vec<_> = attempts.iter().filter(|(of, _)| of == name).map(|(_, key)| key).collect();
        let expected = if name == effect && UNKNOWN.contains(&moment) { 2 } else { 1 };
        assert_eq!(keys.len(), expected, "{name}, killed at {effect}, {moment}: {attempts:?}");
        assert!(keys.iter().all(|key| *key == keys[0]), "an effect runs again only with the same key: {attempts:?}");
    }
    assert_eq!(airline.confirmed(), [("hold".to_owned(), 0), ("charge".to_owned(), 1)].into(), "{moment}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn an_equal_retry_after_the_last_reply_gets_it_from_the_next_process() {
    let directory = directory("last reply");
    let mut server = Server::start(&directory, None);
    let held = server.call("book", json!({"to": "Rome"})).asked().retry();
    let paid = server.send(&held).asked().accept("seat", json!({"seat": "4C"}));
    let told = server.send(&paid).text();
    server.kill();
    let mut server = Server::start(&directory, None);
    assert_eq!(server.send(&paid).text(), told);
    let other = paid.accept("seat", json!({"seat": "1A"}));
    server.send(&other).frozen();
    server.kill();
    assert_eq!(Books { file: directory.join("airline") }.attempts().len(), 2);
    fs::remove_dir_all(directory).unwrap();
}

/// A new directory for each case.
fn directory(case: &str) -> PathBuf {
    let name = format!("crash {} {case}", std::process::id()).replace(' ', "-");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A server in a separate process.
struct Server {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Server {
    fn start(directory: &Path, stop_at: Option<&str>) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["the_server", "--exact", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .env(STOP_AT, stop_at.unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut server = Self { process, said };
        // The output of the test runner comes first.
        while server.hear() != READY {}
        server
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the server has ended");
        line.trim_end().to_owned()
    }

    fn tell(&mut self, method: &str, params: &Value) {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
            "io.modelcontextprotocol/clientInfo": {"name": "crash", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.process.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Leg {
        self.tell(method, &params);
        let response = serde_json::from_str(&self.hear()).unwrap();
        Leg::new(method, params, response)
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Leg {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn send(&mut self, retry: &Retry) -> Leg {
        let (method, params) = retry.clone().into_parts();
        self.request(&method, params)
    }

    /// Sends a retry to a server that stops at a moment, and kills it there.
    fn killed_while(mut self, retry: &Retry) {
        let (method, params) = retry.clone().into_parts();
        self.tell(&method, &params);
        assert_eq!(self.hear(), STOPPED, "the server did not reach the moment at which it should be killed");
        self.kill();
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

// The rest runs in the server's process.

const DIRECTORY: &str = "ROUNDS_CRASH_DIRECTORY";
const STOP_AT: &str = "ROUNDS_CRASH_STOP_AT";
const READY: &str = "ready";
const STOPPED: &str = "stopped";

/// The program that the tests above start, and not a test itself. Without its directory it does nothing.
#[test]
fn the_server() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let airline = Airline {
            tool_router: ToolRouter::new().with_route(durable("book", "Books a trip", book)),
            books: Books { file: directory.join("airline") },
        };
        let server = Rounds::builder(airline)
            .keys(KeyRing::from_bytes([[7; 32]]).unwrap())
            .audience("crash")
            .ledger(FileLedger::open(&directory.join("ledger"), reach).await)
            .limits(Limits::default().with_lease(Duration::from_millis(200)))
            .build()
            .unwrap();
        println!("\n{READY}");
        server.serve(stdio()).await.unwrap().waiting().await.unwrap();
    });
}

/// Reports that the process has reached the moment, and waits to be killed.
fn reach(moment: &str) {
    if std::env::var(STOP_AT).is_ok_and(|stop_at| stop_at == moment) {
        println!("{STOPPED}");
        loop {
            std::thread::park();
        }
    }
}

/// The checkpoint gives the flow an identity before its first effect.
async fn book(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
    flow.checkpoint().await?;
    let hold = flow.once("hold", async |airline, key| airline.have("hold", key)).await?;
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let charge = flow.once("charge", async |airline, key| airline.have("charge", key)).await?;
    Ok(format!("seat {seat}, hold {hold}, charge {charge}"))
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Trip {
    #[expect(dead_code, reason = "a trip goes somewhere")]
    to: String,
}

struct Airline {
    tool_router: ToolRouter<Self>,
    books: Books,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Airline {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

impl Airline {
    fn have(&self, name: &str, key: &str) -> usize {
        reach("before the effect");
        let number = self.books.enter(name, key);
        reach("after the effect");
        number
    }
}

/// The airline's records: a line for every attempt. Two attempts with the same key count as one.
struct Books {
    file: PathBuf,
}

impl Books {
    fn enter(&self, name: &str, key: &str) -> usize {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
        writeln!(file, "{name} {key}").unwrap();
        self.confirmed()[name]
    }

    fn attempts(&self) -> Vec<(String, String)> {
        let lines = fs::read_to_string(&self.file).unwrap_or_default();
        let attempt = |line: &str| line.split_once(' ').map(|(name, key)| (name.to_owned(), key.to_owned()));
        lines.lines().filter_map(attempt).collect()
    }

    /// The confirmed actions, with their numbers.
    fn confirmed(&self) -> BTreeMap<String, usize> {
        let mut keys = Vec::new();
        let mut confirmed = BTreeMap::new();
        for (name, key) in self.attempts() {
            if !keys.contains(&key) {
                confirmed.insert(name, keys.len());
                keys.push(key);
            }
        }
        confirmed
    }
}
