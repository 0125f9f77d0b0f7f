//! What one request takes of the server's memory, whatever is in it. Each is sent in a process of its own, whose peak the operating system knows.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{convert::Infallible, env, fs, process::Command};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::{Limits, Rounds};
use rounds_http::Endpoint;
use tower_service::Service;

/// What a request may add to the peak, in KiB.
const MOST: u64 = 96 * 1024;
/// How large a body may be.
const BODY: usize = 4 * 1024 * 1024;
/// How many values it may have.
const VALUES: usize = 50_000;

/// Names what a process of its own is to send.
const SENT: &str = "ROUNDS_SENT";

#[test]
fn no_request_that_is_served_takes_more_than_96_mib() {
    for way in WAYS {
        for shape in ["nested objects", "nested arrays", "objects", "numbers", "text"] {
            let sent = sent(way, shape, VALUES);
            assert_eq!(sent.status, way.status, "{way:?} {shape}: {sent:?}");
            assert!(sent.peak < MOST, "{way:?} {shape}: {sent:?}");
        }
    }
}

#[test]
fn a_request_with_more_values_is_refused_before_any_is_built() {
    for way in WAYS {
        for shape in ["nested objects", "objects", "numbers"] {
            let sent = sent(way, shape, usize::MAX);
            assert_eq!(sent.status, 413, "{way:?} {shape}: {sent:?}");
            // The body itself, twice while it grows, and some for the runtime.
            assert!(sent.peak < 24 * 1024, "{way:?} {shape}: {sent:?}");
        }
    }
}

#[test]
fn sessions_beyond_their_limit_take_nothing() {
    let way = Way { name: "sessions", status: 200 };
    let sent = sent(&way, "numbers", 0);
    assert_eq!(sent.status, way.status);
    // Of 2,000 that were opened there may be 100, each of which takes 72 KiB at the most, and memory that was freed is not given back at once.
    assert!(sent.peak < 100 * 72 + 8 * 1024, "{sent:?}");
}

/// A way through the endpoint.
#[derive(Debug)]
struct Way {
    name: &'static str,
    status: u16,
}

const WAYS: &[Way] = &[
    Way { name: "fast", status: 200 },
    Way { name: "token", status: 200 },
    Way { name: "rmcp", status: 200 },
    Way { name: "answers", status: 200 },
    Way { name: "custom", status: 404 },
    Way { name: "initialize", status: 200 },
    Way { name: "notification", status: 202 },
];

#[derive(Debug)]
struct Sent {
    status: u16,
    /// What was added to the peak, in KiB.
    peak: u64,
}

/// Sends a request in a process of its own.
fn sent(way: &Way, shape: &str, values: usize) -> Sent {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "one_request", "--nocapture"])
        .env(SENT, format!("{}/{shape}/{values}", way.name))
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("sent "))
        .unwrap_or_else(|| panic!("{printed}{}", String::from_utf8_lossy(&output.stderr)));
    let (status, peak) = line.split_once(' ').unwrap();
    Sent { status: status.parse().unwrap(), peak: peak.parse().unwrap() }
}

/// Does nothing unless it is a process of its own.
#[test]
fn one_request() {
    let Ok(sent) = env::var(SENT) else { return };
    let [way, shape, values] = sent.split('/').collect::<Vec<_>>().try_into().unwrap();
    let request = (way != "sessions").then(|| request(way, &value(shape, values.parse().unwrap())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (status, peak) = runtime.block_on(async {
        let mut endpoint = endpoint();
        if way == "sessions" {
            respond(&mut endpoint, self::request("initialize", "0")).await;
            let before = status_of("VmRSS:");
            for _ in 0..2_000 {
                assert_eq!(respond(&mut endpoint, self::request("initialize", "0")).await, 200);
            }
            return (StatusCode::OK, status_of("VmHWM:").saturating_sub(before));
        }
        respond(&mut endpoint, self::request(way, "0")).await;
        // The request is here already, and is not what is measured.
        let before = status_of("VmRSS:");
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let status = respond(&mut endpoint, request.unwrap()).await;
        (status, status_of("VmHWM:").saturating_sub(before))
    });
    println!("\nsent {} {peak}", status.as_u16());
}

type BoxResponse = Response<BoxBody<Bytes, Infallible>>;

fn endpoint() -> Endpoint<Rounds<gallery::Gallery>> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let limits = Limits::default().with_sessions(100, 100);
    Endpoint::new(&gallery::rounds().limits(limits).build().unwrap(), config)
}

async fn respond(endpoint: &mut Endpoint<Rounds<gallery::Gallery>>, request: Request<Full<Bytes>>) -> StatusCode {
    let response: BoxResponse = endpoint.call(request).await.unwrap();
    let status = response.status();
    // Not to its end, which a stream may not have.
    let _first = response.into_body().frame().await;
    status
}

/// A line of what the operating system knows of this process, in KiB.
fn status_of(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A value with this many in it, or with as many as fit, and text for the rest of a body.
fn value(shape: &str, values: usize) -> String {
    let (unit, each) = match shape {
        "nested objects" => (format!("{}0{}", r#"{"":"#.repeat(100), "}".repeat(100)), 201),
        "nested arrays" => (format!("{}{}", "[".repeat(100), "]".repeat(100)), 100),
        "objects" => (r#"{"":0}"#.to_owned(), 3),
        "numbers" => ("0".to_owned(), 1),
        "text" => (format!("\"{}\"", "x".repeat(70)), 1),
        other => panic!("no shape {other}"),
    };
    // Some for the message around it.
    let room = BODY - 1000;
    let units = (values.saturating_sub(50) / each).min(room / (unit.len() + 1) - 4);
    let mut value = format!("[{}", [unit.as_str()].repeat(units).join(","));
    let rest = room - value.len() - 4;
    value.push_str(&format!(",\"{}\"]", "y".repeat(rest)));
    value
}

fn request(way: &str, value: &str) -> Request<Full<Bytes>> {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}"#;
    let call = |more: &str, meta_more: &str| {
        let params = format!(r#"{{"name":"weather_e","arguments":{{"location":"a"{more},{meta}{meta_more}}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let (method, body) = match way {
        "fast" => ("tools/call", call(&format!(r#","more":{value}}}"#), "")),
        "token" => ("tools/call", call(&format!(r#","more":{value}}}"#), r#","progressToken":1"#)),
        // A token that is none is left to rmcp.
        "rmcp" => ("tools/call", call(&format!(r#","more":{value}}}"#), r#","progressToken":1.5"#)),
        "answers" => {
            ("tools/call", call(&format!(r#"}},"inputResponses":{{"units":{value}}}"#), r#","progressToken":1.5"#))
        }
        "custom" => {
            ("a/b", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a/b","params":{{"more":{value},{meta}}}}}}}"#))
        }
        "notification" => ("a/b", format!(r#"{{"jsonrpc":"2.0","method":"a/b","params":{{"more":{value}}}}}"#)),
        "initialize" => {
            let params = format!(
                r#"{{"protocolVersion":"2025-11-25","capabilities":{{"experimental":{{"a":{{"more":{value}}}}}}},"clientInfo":{{"name":"a","version":"1"}}}}"#
            );
            ("initialize", format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#))
        }
        other => panic!("no way {other}"),
    };
    assert!(body.len() <= BODY, "{}", body.len());
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    let request = match method {
        "initialize" => request,
        "tools/call" => request.header("mcp-name", "weather_e"),
        _ => request,
    };
    let request = match method {
        "initialize" => request,
        method => request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method),
    };
    request.body(Full::from(body)).unwrap()
}
