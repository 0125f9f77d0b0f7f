//! nginx in front of a fleet, with the configuration of the documents.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::{
    Fleet, PAUSE,
    call::{Call, METRIC, text},
    in_time,
};

/// The configuration of the documents. The test replaces its addresses.
const CONF: &str = include_str!("../../../../docs/nginx.conf");

struct Nginx {
    process: Child,
    directory: PathBuf,
    url: String,
}

impl Nginx {
    /// Starts it on a free port, with a new directory.
    async fn start(fleet: &Fleet) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rounds-nginx-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut conf = CONF.replace("127.0.0.1:8000", &address);
        for (at, named) in ["127.0.0.1:8001", "127.0.0.1:8002", "127.0.0.1:8003"].into_iter().enumerate() {
            assert!(conf.contains(named));
            let url = fleet.url(at);
            conf = conf.replace(named, url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap());
        }
        fs::write(directory.join("rounds.conf"), conf).unwrap();
        fs::write(directory.join("nginx.conf"), main_conf()).unwrap();
        let process = Command::new("nginx")
            .args(["-e", "error.log", "-c", "nginx.conf", "-p"])
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = process
            .unwrap_or_else(|error| panic!("cannot start nginx: {error}. Install it, or let `cargo xtask test` do it"));
        let mut nginx = Self { process, directory, url: format!("http://{address}/mcp") };
        in_time("the start of nginx", async {
            while TcpStream::connect(&address).await.is_err() {
                assert!(nginx.process.try_wait().unwrap().is_none(), "{}", nginx.log());
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
        nginx
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("error.log")).unwrap_or_default()
    }

    async fn send(&self, fleet: &Fleet, call: &Call) -> Value {
        let sent = in_time("a leg through nginx", call.send(&fleet.http, &self.url)).await;
        sent.unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Configured as one process, so that killing it ends all of it, and without files outside of its directory.
fn main_conf() -> String {
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};\n"));
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nevents {{}}\n\
         http {{\naccess_log off;\n{}include rounds.conf;\n}}\n",
        temporary.concat()
    )
}

#[tokio::test]
async fn legs_that_nginx_spreads_over_the_fleet_find_their_flows() {
    let fleet = Fleet::start().await;
    let nginx = Nginx::start(&fleet).await;
    let linear = Call::weather("weather_h");
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(linear.metric(&nginx.send(&fleet, &linear).await));
    }
    for at in 0..3 {
        let audited = fleet.send_to(at, &Call::tool("audit_log", &json!({}))).await.unwrap();
        assert_eq!(audited["result"]["structuredContent"], json!({"weather_h": 1}), "one call each");
    }
    for shape in ["e", "f", "g", "i", "asked"] {
        let call = Call::weather(&format!("weather_{shape}"));
        answers.push(call.metric(&nginx.send(&fleet, &call).await));
    }
    for answer in &answers {
        for _ in ["the answer", "a retry", "another"] {
            assert_eq!(text(&nginx.send(&fleet, answer).await), METRIC, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn an_instance_that_is_gone_costs_nobody_a_call() {
    let fleet = Fleet::start().await;
    let nginx = Nginx::start(&fleet).await;
    let durable = Call::weather("weather_i");
    let asked = nginx.send(&fleet, &durable).await;
    fleet.kill(1).await;
    for _ in 0..6 {
        assert_eq!(text(&nginx.send(&fleet, &durable.metric(&asked)).await), METRIC);
        let call = Call::weather("weather_h");
        let asked = nginx.send(&fleet, &call).await;
        assert_eq!(text(&nginx.send(&fleet, &call.metric(&asked)).await), METRIC);
    }
}

#[tokio::test]
async fn a_client_of_the_legacy_era_finds_its_session_again() {
    let fleet = Fleet::start().await;
    let nginx = Nginx::start(&fleet).await;
    let post = |session: Option<&str>, message: Value| {
        let mut request = fleet.http.post(&nginx.url).header("Accept", "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header("Mcp-Session-Id", session).header("MCP-Protocol-Version", "2025-11-25");
        }
        in_time("a request through nginx", request.json(&message).send())
    };
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "fleet", "version": "1"},
    }});
    let begun = post(None, initialize).await.unwrap();
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert!(post(Some(&session), ready).await.unwrap().status().is_success());
    for id in 2..8 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "weather_e", "arguments": {"location": "Tokyo"},
        }});
        let response = post(Some(&session), call).await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        let said = in_time("the response", response.text()).await.unwrap();
        assert!(said.contains(METRIC), "{said}");
    }
}
