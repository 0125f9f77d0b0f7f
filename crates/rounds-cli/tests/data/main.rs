//! `rounds serve --data` and `--store sqlite:`: one process, killed and started again.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]
#![cfg(unix)]

#[path = "../fleet/call.rs"]
#[expect(dead_code, reason = "the tests of fleets use the rest")]
mod call;
#[path = "../fleet/task.rs"]
mod task;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use call::{Call, METRIC, is_frozen, text};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// A folder that is removed when the test ends. It is not created.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("data-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rounds(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rounds"));
    command.args(args).env_remove("RUST_LOG").env_remove("NO_COLOR").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A server that is killed with SIGKILL when it is dropped.
struct Server {
    url: String,
    http: reqwest::Client,
    process: Child,
}

impl Server {
    async fn start(args: &[&str]) -> Self {
        let mut process =
            rounds(&[&["serve", "--http", "127.0.0.1:0", "--lease", "1s"], args].concat()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = tokio::time::timeout(Duration::from_secs(40), lines.next_line()).await.unwrap().unwrap().unwrap();
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url, http: rounds_testkit::http_client(), process }
    }

    async fn send(&self, call: &Call) -> Value {
        call.send(&self.http, &self.url).await.unwrap()
    }

    fn kill_now(&self) {
        let id = self.process.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
    }

    /// A page of its desk.
    async fn desk(&self, path: &str) -> String {
        let url = format!("{}{path}", self.url.strip_suffix("/mcp").unwrap());
        self.http.get(url).send().await.unwrap().text().await.unwrap()
    }

    async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    async fn balances(&self) -> Value {
        self.send(&Call::tool("balances", &json!({}))).await["result"]["structuredContent"].clone()
    }
}

fn sum(balances: &Value) -> i64 {
    balances.as_object().unwrap().values().map(|balance| balance.as_i64().unwrap()).sum()
}

#[tokio::test]
async fn a_folder_is_all_that_a_restart_needs() {
    let folder = Folder::new();
    let args = ["--data", folder.path()];
    let server = Server::start(&args).await;
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0), 0o700);
    for file in ["keys", "rounds.db"] {
        assert_eq!(mode(&folder.0.join(file)), 0o600, "{file}");
    }
    let mut answers = Vec::new();
    for shape in ["a", "e", "f", "g", "i", "asked"] {
        let call = Call::weather(&format!("weather_{shape}"));
        answers.push((call.clone(), server.send(&call).await));
    }
    let used = Call::weather("weather_i");
    let asked = server.send(&used).await;
    assert_eq!(text(&server.send(&used.metric(&asked)).await), METRIC);
    server.kill().await;

    let server = Server::start(&args).await;
    for (call, asked) in &answers {
        assert_eq!(text(&server.send(&call.metric(asked)).await), METRIC, "{call:?}");
    }
    assert_eq!(text(&server.send(&used.metric(&asked)).await), METRIC, "a retry gets the reply of before");
    let other = used.accepted(&asked, "units", json!("imperial"));
    assert!(is_frozen(&server.send(&other).await), "a token that was used before the restart is used");
}

#[tokio::test]
async fn what_the_desk_shows_survives_a_restart() {
    let folder = Folder::new();
    let args = ["--data", folder.path()];
    let server = Server::start(&args).await;
    server.send(&Call::weather("weather_i")).await;
    let page = server.desk("/").await;
    assert!(page.contains(">weather_i</a>") && page.contains("Which units?"), "{page}");
    let flow = page.split("href=\"/flows/").nth(1).unwrap().split('"').next().unwrap();
    let journal = server.desk(&format!("/flows/{flow}/journal")).await;
    server.kill().await;

    let server = Server::start(&args).await;
    let page = server.desk("/").await;
    assert!(page.contains(">weather_i</a>") && page.contains("Which units?"), "{page}");
    let page = server.desk(&format!("/flows/{flow}")).await;
    assert!(page.contains("Round 1 asks") && page.contains("The handler ran once from its beginning."), "{page}");
    assert_eq!(server.desk(&format!("/flows/{flow}/journal")).await, journal);
}

#[tokio::test]
async fn money_moves_once_over_restarts_and_its_sum_never_changes() {
    let folder = Folder::new();
    let args = ["--data", folder.path()];
    let mut server = Server::start(&args).await;
    let before = server.balances().await;
    let call = Call::tool("transfer", &json!({"from": "alice", "to": "bob", "amount": 7}));
    let declined = call.answered(&server.send(&call).await, json!({"confirm": {"action": "decline"}}));
    assert_eq!(text(&server.send(&declined).await), "Not transferred.");
    for transfer in 1..=5 {
        let answer = call.accepted(&server.send(&call).await, "confirm", json!(true));
        assert_eq!(text(&server.send(&answer).await), "Transferred 7.");
        server.kill().await;
        server = Server::start(&args).await;
        assert_eq!(text(&server.send(&answer).await), "Transferred 7.");
        let after = server.balances().await;
        assert_eq!(after["alice"].as_i64().unwrap(), before["alice"].as_i64().unwrap() - 7 * transfer);
        assert_eq!(sum(&after), sum(&before));
    }
    for (arguments, said) in [
        (json!({"from": "alice", "to": "dave", "amount": 1}), "There is no account dave."),
        (json!({"from": "alice", "to": "bob", "amount": 4_000_000}), "There is no account alice with 4000000."),
    ] {
        let call = Call::tool("transfer", &arguments);
        let answer = call.accepted(&server.send(&call).await, "confirm", json!(true));
        assert_eq!(text(&server.send(&answer).await), said);
        assert_eq!(sum(&server.balances().await), sum(&before));
    }
}

#[tokio::test]
async fn a_store_without_its_keys_is_not_used() {
    let folder = Folder::new();
    Server::start(&["--data", folder.path()]).await.kill().await;
    fs::remove_file(folder.0.join("keys")).unwrap();
    let output = rounds(&["serve", "--stdio", "--data", folder.path()]).output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("restore the key file, or remove the store"), "{said}");
    assert!(!folder.0.join("keys").exists());
}

#[tokio::test]
async fn two_servers_that_create_the_folder_at_once_share_it() {
    let folder = Folder::new();
    let args = ["--data", folder.path()];
    let (one, two) = tokio::join!(Server::start(&args), Server::start(&args));
    let call = Call::weather("weather_i");
    let asked = one.send(&call).await;
    assert_eq!(text(&two.send(&call.metric(&asked)).await), METRIC);
}

#[tokio::test]
async fn the_store_shows_nothing_of_what_was_said() {
    let folder = Folder::new();
    let server = Server::start(&["--data", folder.path()]).await;
    let call = Call::tool("weather_f", &json!({"location": "Canaryville"}));
    let asked = server.send(&call).await;
    assert!(text(&server.send(&call.metric(&asked)).await).contains("Canaryville"));
    let mut bytes = Vec::new();
    for file in fs::read_dir(&folder.0).unwrap() {
        bytes.extend(fs::read(file.unwrap().path()).unwrap());
    }
    let shows = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    assert!(shows("rounds_claims"), "these are the files of the store");
    for secret in ["Canaryville", "metric", "Which units", "cloudy"] {
        assert!(!shows(secret), "{secret}");
    }
}

/// A thousand flights as tasks, while the only process is killed and started again after every fifty of them.
#[tokio::test]
async fn a_thousand_tasks_over_restarts_are_charged_once_each_and_none_is_lost() {
    const FLIGHTS: usize = 1000;
    let folder = Folder::new();
    let args = ["--data", folder.path(), "--tasks-after", "0s"];
    let server = Arc::new(tokio::sync::RwLock::new(Server::start(&args).await));
    let (next, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut people = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (server, next, ended) = (server.clone(), next.clone(), ended.clone());
        people.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= FLIGHTS {
                    return;
                }
                task::book(number, &*server).await;
                ended.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    for kill in 1..FLIGHTS / 50 {
        while ended.load(Ordering::SeqCst) < kill * 50 && !people.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.read().await.kill_now();
        let again = Server::start(&args).await;
        *server.write().await = again;
    }
    while let Some(person) = people.join_next().await {
        person.unwrap();
    }
    let counted = persistently(&server, &Call::tool("airline_ledger", &json!({}))).await;
    // A charge that was attempted again under its key, because of a kill before it was recorded, counts once.
    assert_eq!(counted["result"]["structuredContent"]["charges"], FLIGHTS, "{counted}");
}

impl task::Airline for tokio::sync::RwLock<Server> {
    async fn send(&self, call: Call) -> Value {
        persistently(self, &call).await
    }
}

/// Sends a request until it is answered.
async fn persistently(server: &tokio::sync::RwLock<Server>, call: &Call) -> Value {
    let sending = async {
        loop {
            let (http, url) = {
                let server = server.read().await;
                (server.http.clone(), server.url.clone())
            };
            match call.send(&http, &url).await {
                Ok(response) if !call::asks_for_a_retry(&response) => return response,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), sending).await.expect("a request takes too long")
}
