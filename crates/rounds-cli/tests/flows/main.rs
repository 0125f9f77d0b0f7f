//! `rounds flows`: listing, showing and cancelling the flows of running servers.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]
#![cfg(unix)]

use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use rounds_testkit::{Postgres, Redis};
use serde_json::Value;

/// A server with its store, and a folder with its keys.
struct Stage {
    store: String,
    folder: PathBuf,
    server: Child,
    url: String,
}

fn rounds(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rounds"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

impl Stage {
    /// Starts a server with the store of this URL. `{folder}` in it is the folder.
    fn set(name: &str, store: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rounds-flows-{name}-{}", std::process::id()));
        let store = store.replace("{folder}", &folder.display().to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("keys"), rounds(&["keygen"]).output().unwrap().stdout).unwrap();
        std::fs::set_permissions(folder.join("keys"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let (server, url) = serve(&store, &folder.join("keys").display().to_string());
        Self { store, folder, server, url }
    }

    /// Ends the server without a warning.
    fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// Starts a server in its place.
    fn restart(&mut self) {
        (self.server, self.url) = serve(&self.store, &self.file("keys"));
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Calls a tool until it asks, and saves the call.
    fn ask(&self, tool: &str, saved: &str) {
        let saved = self.file(saved);
        let output = rounds(&["call", &self.url, tool, "location=canary-city", "--save", &saved]).output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{}", said(&output));
    }

    fn flows(&self, args: &[&str]) -> Output {
        let keys = self.file("keys");
        let all = [&["flows"], args, &["--store", &self.store, "--key-file", &keys]].concat();
        rounds(&all).output().unwrap()
    }

    fn listed(&self, args: &[&str]) -> Vec<Value> {
        let output = self.flows(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Starts a server, and returns its address.
fn serve(store: &str, keys: &str) -> (Child, String) {
    let mut server = rounds(&["serve", "--http", "127.0.0.1:0", "--lease", "1s", "--store", store, "--key-file", keys])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let url = loop {
        let line = lines.next().expect("the server says where it listens").unwrap();
        if let Some(url) = line.strip_prefix("listening on ") {
            break url.to_owned();
        }
    };
    std::thread::spawn(move || lines.for_each(drop));
    (server, url)
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn flows_in_redis_are_listed_shown_and_cancelled() {
    let redis = Redis::start();
    list_show_and_cancel(&Stage::set("redis", &redis.url()));
}

#[test]
fn flows_in_sqlite_are_listed_shown_and_cancelled() {
    list_show_and_cancel(&Stage::set("sqlite", "sqlite:{folder}/rounds.db"));
}

#[test]
fn flows_in_postgres_are_listed_shown_and_cancelled() {
    list_show_and_cancel(&Stage::set("postgres", &Postgres::shared().database()));
}

#[test]
fn a_file_that_does_not_exist_is_not_created() {
    let folder = std::env::temp_dir().join(format!("rounds-flows-none-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (keys, file) = (folder.join("keys"), folder.join("rounds.db"));
    std::fs::write(&keys, rounds(&["keygen"]).output().unwrap().stdout).unwrap();
    let store = format!("sqlite:{}", file.display());
    let output = rounds(&["flows", "--store", &store, "--key-file", &keys.display().to_string()]).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("No such file"), "{}", said(&output));
    assert!(!file.exists());
    std::fs::remove_dir_all(folder).unwrap();
}

fn list_show_and_cancel(stage: &Stage) {
    assert_eq!(said(&stage.flows(&[])), "no flows\n");
    stage.ask("weather_e", "guard");
    stage.ask("weather_h", "linear");
    let all = stage.listed(&[]);
    assert_eq!(all.len(), 2, "{all:?}");
    for name in ["id", "tool", "status", "round", "created"] {
        assert!(!all[0][name].is_null(), "{name}: {:?}", all[0]);
    }
    assert!(!format!("{all:?}").contains("canary"), "a list opens nothing");
    assert_eq!(stage.listed(&["--status", "completed"]).len(), 0);
    let waiting = stage.listed(&["--status", "waiting", "--tool", "weather_h"]);
    assert_eq!((waiting.len(), &waiting[0]["tool"], &waiting[0]["round"]), (1, &"weather_h".into(), &1.into()));
    let id = waiting[0]["id"].as_str().unwrap();

    let shown = said(&stage.flows(&["show", id]));
    assert!(shown.contains("asked") && shown.contains("canary-city"), "{shown}");
    let json: Value = serde_json::from_slice(&stage.flows(&["show", id, "--json"]).stdout).unwrap();
    assert_eq!(json["details"]["arguments"]["location"], "canary-city");
    let by_name = said(&stage.flows(&["show", json["details"]["flow"].as_str().unwrap()]));
    assert_eq!(by_name, shown, "a flow is found by its name as well");

    assert_eq!(said(&stage.flows(&["cancel", id])), format!("cancelled {id}\n"));
    assert_eq!(stage.listed(&["--status", "cancelled"]).len(), 1);
    let again = stage.flows(&["cancel", id]);
    assert!(!again.status.success() && said(&again).contains("it is cancelled"), "{}", said(&again));
    let resumed = rounds(&["resume", &stage.file("linear"), "--answer", "units=metric"]).output().unwrap();
    assert!(!resumed.status.success() && said(&resumed).contains("no longer accepts"), "{}", said(&resumed));
    let unknown = stage.flows(&["cancel", &"0".repeat(32)]);
    assert!(!unknown.status.success() && said(&unknown).contains("there is no flow"), "{}", said(&unknown));
}

#[test]
fn a_question_is_decided_from_another_process_once_and_by_its_rule() {
    let stage = Stage::set("decide", "sqlite:{folder}/rounds.db");
    let call = |tool: &str, arguments: &[&str]| {
        said(&rounds(&[&["call", &stage.url, tool], arguments].concat()).output().unwrap())
    };
    let told = call("refund_large", &["order_id=ORD-7002", "amount:=900"]);
    let (_, reference) = told.split_once("The reference of this call is ").expect(&told);
    let reference = format!("reference={}", reference.split('.').next().unwrap());
    let waiting = stage.listed(&["--status", "waiting"]);
    let id = waiting[0]["id"].as_str().unwrap();

    let decide = |args: &[&str]| said(&stage.flows(&[&["decide", id], args].concat()));
    assert!(decide(&["--as", "grace"]).contains("--approve"), "a verdict is required");
    let denied = decide(&["--deny", "--reason", "too much", "--as", "grace"]);
    assert_eq!(denied, "denied by grace: Refund 900 of ORD-7002?\n");
    let second = decide(&["--approve", "--as", "alan"]);
    assert!(second.contains("was decided before, by grace"), "{second}");
    let fetched = call("flow_result", &[&reference]);
    assert!(fetched.contains("Refund of ORD-7002 denied by grace: too much."), "{fetched}");
    let unknown = said(&stage.flows(&["decide", &"0".repeat(32), "--approve", "--as", "grace"]));
    assert!(unknown.contains("there is no flow"), "{unknown}");
}

#[test]
fn an_approved_refund_happens_after_a_restart_although_no_client_comes_back() {
    let mut stage = Stage::set("alone", "sqlite:{folder}/rounds.db");
    let call = |stage: &Stage, tool: &str, arguments: &[&str]| {
        said(&rounds(&[&["call", &stage.url, tool], arguments].concat()).output().unwrap())
    };
    let told = call(&stage, "refund_large", &["order_id=ORD-7002", "amount:=900"]);
    let (_, reference) = told.split_once("The reference of this call is ").expect(&told);
    let reference = format!("reference={}", reference.split('.').next().unwrap());
    let id = stage.listed(&["--status", "waiting"])[0]["id"].as_str().unwrap().to_owned();
    stage.kill();
    let approved = said(&stage.flows(&["decide", &id, "--approve", "--as", "grace"]));
    assert_eq!(approved, "approved by grace: Refund 900 of ORD-7002?\n");
    stage.restart();
    let began = std::time::Instant::now();
    while stage.listed(&["--status", "completed"]).is_empty() {
        assert!(began.elapsed().as_secs() < 40, "it does not go on");
    }
    stage.kill();
    stage.restart();
    let fetched = call(&stage, "flow_result", &[&reference]);
    assert!(fetched.contains("Refunded 900 of ORD-7002, approved by grace."), "{fetched}");
    let shown: Value = serde_json::from_slice(&stage.flows(&["show", &id, "--json"]).stdout).unwrap();
    assert_eq!(shown["details"]["rounds"][0]["effects"].as_array().unwrap().len(), 1, "{shown}");
}

#[test]
fn what_is_missing_is_named() {
    for (args, word) in [
        (&["flows"][..], "--store URL"),
        (&["flows", "--store", "redis://127.0.0.1/"], "--key-file FILE"),
        (&["flows", "show", "12"], "32 hexadecimal digits"),
        (&["flows", "--status", "sleeping"], "use working, waiting"),
    ] {
        let output = rounds(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
    }
}
