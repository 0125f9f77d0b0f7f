//! Requests by the thousand, good ones and broken ones, through the endpoint and through rmcp's service: the answers are equal.
//!
//! What is different on purpose is not among the requests here, and is tested for in `lanes`:
//!
//! - `a_panic_is_answered`
//! - `a_stray_notification_goes_nowhere`
//! - `a_peer_that_was_kept_stays_open`
//! - `a_handler_gets_a_progress_token_that_no_other_request_has`
//!
//! The order of members in a question is different, too, and is not looked at: `questions_are_printed_as_rmcp_prints_them`, in
//! `print`, compares what they mean.

use std::{cell::Cell, iter};

use http::{HeaderName, HeaderValue, Method};
use proptest::{
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, TestRunner},
};
use rmcp::{
    ServerHandler,
    model::ProtocolVersion,
    transport::streamable_http_server::{SessionManager, StreamableHttpServerConfig, StreamableHttpService},
};
use rounds::Rounds;
use rounds_http::Endpoint;
use serde_json::{Value, json};

use crate::{
    desk::{Desk, meta},
    lanes::{endpoint, rmcp},
    send::{Piece, Sent},
};

#[test]
fn answers_in_json_are_equal() {
    let fast = compare(Desk::default(), StreamableHttpServerConfig::default().with_json_response(true));
    assert!(fast > CASES / 5, "{fast} of {CASES} took the fast lane");
}

#[test]
fn answers_without_legacy_sessions_are_equal() {
    let config = StreamableHttpServerConfig::default().with_json_response(true).with_legacy_session_mode(false);
    let fast = compare(Desk::default(), config);
    assert!(fast > CASES / 5, "{fast} of {CASES} took the fast lane");
}

#[test]
fn answers_are_equal_where_metadata_origins_and_hosts_are_looked_at() {
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_legacy_session_mode(false)
        .with_stateless_protocol_metadata_required(true)
        .with_allowed_origins(["https://here.example:443"])
        .with_allowed_hosts(["localhost", "Here.example:8000"]);
    let fast = compare(Desk::default(), config);
    assert!(fast > CASES / 5, "{fast} of {CASES} took the fast lane");
}

#[test]
fn answers_are_equal_where_any_host_is_served_and_bodies_are_small() {
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .disable_allowed_hosts()
        .enforce_origin_validation()
        .with_max_request_body_bytes(330);
    let fast = compare(Desk::default(), config);
    assert!(fast > CASES / 10, "{fast} of {CASES} took the fast lane");
}

#[test]
fn answers_of_a_server_that_speaks_no_modern_version_are_equal() {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    compare(Desk::of(&[ProtocolVersion::V_2025_11_25]), config);
}

#[test]
fn streams_over_a_service_that_was_made_elsewhere_are_equal() {
    let fast = compare(Desk::default(), StreamableHttpServerConfig::default());
    assert!(fast > CASES / 5, "{fast} of {CASES} took the fast lane");
}

#[test]
fn streams_of_a_server_with_rounds_are_equal() {
    let desk = Desk::default();
    let server = Rounds::new(desk.clone());
    let config = StreamableHttpServerConfig::default().with_sse_keep_alive(None);
    let fast = compare_both(&desk, Endpoint::new(&server, config.clone()), server.streamable_http(config));
    assert!(fast > CASES / 5, "{fast} of {CASES} took the fast lane");
}

const CASES: u32 = 1500;

fn compare(desk: Desk, config: StreamableHttpServerConfig) -> u32 {
    // rmcp's keep-alive looks at another clock than the one that stands still here.
    let config = config.with_sse_keep_alive(None);
    compare_both(&desk, endpoint(&desk, config.clone()), rmcp(&desk, config))
}

/// Sends everything both ways, and counts what took the fast lane.
fn compare_both<H: ServerHandler, M: SessionManager>(
    desk: &Desk,
    mut endpoint: Endpoint<H, M>,
    mut rmcp: StreamableHttpService<H, M>,
) -> u32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let fast = Cell::new(0);
    let (endpoint, rmcp) = (Cell::new(Some(&mut endpoint)), Cell::new(Some(&mut rmcp)));
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let compared = runner.run(&sent(), |sent| {
        let (one, other) = (endpoint.take().unwrap(), rmcp.take().unwrap());
        let before = desk.fast();
        let (ours_said, theirs) = runtime.block_on(async { (sent.to(one).await, sent.to(other).await) });
        fast.set(fast.get() + u32::from(desk.fast() > before));
        endpoint.set(Some(one));
        rmcp.set(Some(other));
        prop_assert_eq!(ours_said, theirs, "{}", String::from_utf8_lossy(&sent.body()));
        Ok(())
    });
    compared.unwrap_or_else(|failure| panic!("{failure}"));
    fast.get()
}

/// A request, with up to three things about it that are not as they should be.
fn sent() -> impl Strategy<Value = Sent> {
    let twists = prop_oneof![
        2 => prop::collection::vec(twist(), 0),
        3 => prop::collection::vec(twist(), 1),
        2 => prop::collection::vec(twist(), 2..=3),
    ];
    (base(), twists, frames()).prop_map(|(base, twists, frames)| {
        let mut draft = base;
        for twist in &twists {
            draft.apply(twist);
        }
        draft.finish(&frames)
    })
}

/// A request that can still be changed.
#[derive(Clone, Debug)]
struct Draft {
    sent: Sent,
    message: Value,
    /// JSON that no `Value` can hold, by where it goes.
    raw: Vec<String>,
    /// What happens to the text in the end.
    text: Vec<Twist>,
}

#[derive(Clone, Debug)]
enum Twist {
    Method(Method),
    Uri(&'static str),
    /// A header, set, added or taken away.
    Header(&'static str, How, &'static [u8]),
    /// Whatever is at a place in the message becomes this.
    Field(&'static str, String),
    Without(&'static str),
    /// A name, in the header too.
    Name(&'static str, &'static str),
    /// Another version, in the header too.
    Version(&'static str),
    /// A key that is there is there once more, before or after.
    Twice(&'static str, String),
    /// Bytes where there were others.
    Splice(Index, &'static [u8]),
    Truncate(Index),
    Around(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug)]
enum How {
    Set,
    Add,
    Remove,
}

impl Draft {
    fn new(method: &str, params: Value) -> Self {
        let sent = Sent::new(method, params);
        let message = serde_json::from_slice(&sent.body()).unwrap();
        Self { sent, message, raw: Vec::new(), text: Vec::new() }
    }

    /// A request as it was sent before 2026-07-28.
    fn legacy(method: &str, params: Value) -> Self {
        let mut draft = Self::new(method, params);
        for header in ["mcp-method", "mcp-name", "mcp-protocol-version"] {
            draft.sent.headers.remove(header);
        }
        draft.message["params"].as_object_mut().unwrap().remove("_meta");
        draft
    }

    /// Any message.
    fn message(message: Value) -> Self {
        Self { message, ..Self::new("tools/list", json!({})) }
    }

    fn apply(&mut self, twist: &Twist) {
        let mut header = |name: &'static str, how, value: &[u8]| {
            let (name, value) = (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
            match how {
                How::Set => drop(self.sent.headers.insert(name, value)),
                How::Add => drop(self.sent.headers.append(name, value)),
                How::Remove => drop(self.sent.headers.remove(name)),
            }
        };
        match twist {
            Twist::Method(method) => self.sent.method = method.clone(),
            Twist::Uri(uri) => self.sent.uri = uri,
            Twist::Header(name, how, value) => header(name, *how, value),
            Twist::Name(name, encoded) => {
                header("mcp-name", How::Set, encoded.as_bytes());
                self.put("/params/name", json!(name));
            }
            Twist::Version(version) => {
                header("mcp-protocol-version", How::Set, version.as_bytes());
                self.put("/params/_meta/io.modelcontextprotocol~1protocolVersion", json!(version));
            }
            Twist::Field(place, raw) => {
                self.put(place, json!(format!("@{}@", self.raw.len())));
                self.raw.push(raw.clone());
            }
            Twist::Without(place) => {
                let (parent, key) = place.rsplit_once('/').unwrap();
                if let Some(Value::Object(parent)) = self.message.pointer_mut(parent) {
                    parent.remove(&key.replace("~1", "/"));
                }
            }
            Twist::Twice(..) | Twist::Splice(..) | Twist::Truncate(..) | Twist::Around(..) => {
                self.text.push(twist.clone());
            }
        }
    }

    fn put(&mut self, place: &str, value: Value) {
        let (parent, key) = place.rsplit_once('/').unwrap();
        if let Some(Value::Object(parent)) = self.message.pointer_mut(parent) {
            parent.insert(key.replace("~1", "/"), value);
        }
    }

    fn finish(self, frames: &Frames) -> Sent {
        let mut text = self.message.to_string();
        for (at, raw) in self.raw.iter().enumerate() {
            text = text.replace(&format!("\"@{at}@\""), raw);
        }
        let mut bytes = text.into_bytes();
        for twist in &self.text {
            match twist {
                Twist::Twice(key, raw) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let key = format!("\"{key}\":");
                    bytes = text.replacen(&key, &format!("{key}{raw},{key}"), 1).into_bytes();
                }
                Twist::Splice(at, new) if !bytes.is_empty() => {
                    let at = at.index(bytes.len());
                    bytes.splice(at..at + 1, new.iter().copied());
                }
                Twist::Truncate(at) => bytes.truncate(at.index(bytes.len() + 1)),
                Twist::Around(before, after) => bytes = [before.as_bytes(), &bytes, after.as_bytes()].concat(),
                _ => {}
            }
        }
        Sent { frames: frames.cut(&bytes), ..self.sent }
    }
}

/// How a body comes in.
#[derive(Clone, Debug)]
struct Frames {
    cuts: Vec<Index>,
    end: Option<Piece>,
}

fn frames() -> impl Strategy<Value = Frames> {
    let cuts =
        prop_oneof![3 => prop::collection::vec(any::<Index>(), 0), 1 => prop::collection::vec(any::<Index>(), 1..4)];
    let end = prop_oneof![8 => Just(None), 1 => Just(Some(Piece::Trailers)), 1 => Just(Some(Piece::Failure))];
    (cuts, end).prop_map(|(cuts, end)| Frames { cuts, end })
}

impl Frames {
    fn cut(&self, bytes: &[u8]) -> Vec<Piece> {
        let mut cuts: Vec<_> = self.cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let from = iter::once(0).chain(cuts.iter().copied());
        let to = cuts.iter().copied().chain(iter::once(bytes.len()));
        let data = from.zip(to).map(|(from, to)| Piece::Data(bytes[from..to].to_vec().into()));
        data.chain(self.end.clone()).collect()
    }
}

fn base() -> impl Strategy<Value = Draft> {
    let call = |name: &str, arguments: Value| Draft::new("tools/call", json!({ "name": name, "arguments": arguments }));
    let task = |method: &str, params: Value| {
        let mut draft = Draft::new(method, params);
        draft.put(CAPABILITIES, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }));
        draft
    };
    let fast = vec![
        call("echo", json!({ "value": "a", "größe": [1, 2.5, null, { "\u{0}": "\u{1f600}" }] })),
        call("slow", json!({})),
        call("fail", json!({ "value": "a" })),
        call("refuse", json!({ "code": -32601 })),
        call("refuse", json!({ "code": -32602 })),
        call("refuse", json!({ "code": -32020 })),
        call("refuse", json!({ "code": -32021 })),
        call("refuse", json!({ "code": -32002 })),
        call("ask", json!({ "value": "a" })),
        call("task", json!({})),
        call("push", json!({})),
        call("nowhere", json!({})),
        Draft::new("tools/call", json!({ "name": "echo" })),
        Draft::new(
            "tools/call",
            json!({ "name": "ask", "requestState": "s", "inputResponses": { "a": { "action": "accept" } } }),
        ),
        Draft::new("prompts/get", json!({ "name": "echo", "arguments": { "a": "b" } })),
        Draft::new("prompts/get", json!({ "name": "ask", "requestState": "s", "inputResponses": {} })),
        Draft::new("prompts/get", json!({ "name": "nowhere" })),
        Draft::new("resources/read", json!({ "uri": "echo" })),
        Draft::new("resources/read", json!({ "uri": "ask", "requestState": "s", "inputResponses": {} })),
        Draft::new("resources/read", json!({ "uri": "nowhere" })),
        Draft::new("tools/list", json!({})),
        Draft::new("prompts/list", json!({ "cursor": "2" })),
        Draft::new("resources/list", json!({ "cursor": null })),
        Draft::new("resources/templates/list", json!({})),
        Draft::new("server/discover", json!({})),
        Draft::new(
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "echo" }, "argument": { "name": "a", "value": "b" } }),
        ),
        Draft::new(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": "{echo}" },
                "argument": { "name": "a", "value": "b" },
                "context": { "arguments": { "c": "d" } },
            }),
        ),
        task("tasks/get", json!({ "taskId": "1" })),
        task("tasks/update", json!({ "taskId": "1", "inputResponses": { "a": { "action": "accept" } } })),
        task("tasks/update", json!({ "taskId": "2", "inputResponses": {} })),
        task("tasks/cancel", json!({ "taskId": "1" })),
        Draft::new("tasks/get", json!({ "taskId": "1" })),
    ];
    let notified = [
        json!({}),
        json!({ "before": 1 }),
        json!({ "before": 1, "wait": 300 }),
        json!({ "wait": 300, "after": 1 }),
        json!({ "before": 2, "wait": 300, "after": 2, "refuse": 601 }),
        json!({ "before": 2, "refuse": 601 }),
        json!({ "refuse": 601 }),
        json!({ "before": 1000, "wait": 1, "after": 100 }),
    ];
    let notified = (select(notified.to_vec()), any::<bool>(), any::<bool>()).prop_map(move |(how, token, log)| {
        let mut draft = call("notify", how);
        let meta = draft.message["params"]["_meta"].as_object_mut().unwrap();
        if token {
            meta.insert("progressToken".to_owned(), json!("p"));
        }
        if log {
            meta.insert("io.modelcontextprotocol/logLevel".to_owned(), json!("info"));
        }
        draft
    });
    let mut region = call("region", json!({ "value": "here" }));
    let mut nested = call("nested", json!({ "value": { "value": "here" } }));
    // What is read as an object is not also read as an array, in the order in which its reader happens to have the members.
    let mut listed = call("echo", json!({ "value": "a" }));
    let members = ["_meta", "name", "uri", "arguments", "inputResponses", "requestState", "cursor"];
    listed.message["params"] = members.iter().map(|member| listed.message["params"][member].clone()).collect();
    let mut wholly = listed.clone();
    wholly.message =
        ["jsonrpc", "id", "method", "params"].iter().map(|member| listed.message[member].clone()).collect();
    let slow = vec![
        listed,
        wholly,
        region.clone(),
        nested.clone(),
        {
            region.sent = region.sent.with("mcp-param-region", "here");
            region
        },
        {
            nested.sent = nested.sent.with("mcp-param-region", "there");
            nested
        },
        Draft::new("ping", json!({})),
        Draft::new("logging/setLevel", json!({ "level": "debug" })),
        Draft::new("resources/subscribe", json!({ "uri": "echo" })),
        Draft::new("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } })),
        Draft::new("tasks/list", json!({})),
        Draft::new("unknown/method", json!({ "a": 1 })),
        Draft::new(
            "initialize",
            json!({ "protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" } }),
        ),
        Draft::legacy(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" } }),
        ),
        Draft::legacy("tools/call", json!({ "name": "echo" })),
        Draft::legacy("tools/list", json!({})),
        Draft::message(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })),
        Draft::message(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })),
        Draft::message(json!({ "jsonrpc": "2.0", "id": 1, "result": {} })),
        Draft::message(json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "a" } })),
        Draft::message(json!({})),
        Draft::message(json!([])),
        Draft::message(json!(null)),
    ];
    prop_oneof![8 => select(fast), 2 => notified, 2 => select(slow)]
}

fn twist() -> impl Strategy<Value = Twist> {
    let header = (select(HEADERS), select(&[How::Set, How::Set, How::Add, How::Remove]))
        .prop_flat_map(|((name, values), how)| select(values).prop_map(move |value| Twist::Header(name, how, value)));
    let field = (select(PLACES), raw()).prop_map(|(place, raw)| Twist::Field(place, raw));
    let twice = (select(KEYS), raw()).prop_map(|(key, raw)| Twist::Twice(key, raw));
    let splice = (any::<Index>(), select(BYTES)).prop_map(|(at, bytes)| Twist::Splice(at, bytes));
    prop_oneof![
        1 => select(vec![Method::GET, Method::DELETE, Method::PUT, Method::OPTIONS, Method::HEAD]).prop_map(Twist::Method),
        2 => select(URIS).prop_map(Twist::Uri),
        10 => header,
        14 => field,
        4 => select(PLACES).prop_map(Twist::Without),
        3 => select(NAMES).prop_map(|(name, encoded)| Twist::Name(name, encoded)),
        1 => select(VERSIONS).prop_map(Twist::Version),
        4 => twice,
        3 => splice,
        1 => any::<Index>().prop_map(Twist::Truncate),
        2 => select(AROUND).prop_map(|(before, after)| Twist::Around(before, after)),
    ]
}

/// Headers, each with what could be in it, good and bad.
const HEADERS: &[(&str, &[&[u8]])] = &[
    (
        "accept",
        &[
            b"application/json, text/event-stream",
            b"text/event-stream;q=0.1,application/json;q=0.9",
            b"application/json",
            b"*/*",
            b"APPLICATION/JSON, TEXT/EVENT-STREAM",
            b"application/json, text/event-stream \xff",
            b"",
        ],
    ),
    (
        "content-type",
        &[
            b"application/json",
            b"application/json; charset=utf-8",
            b"application/jsonp",
            b"Application/Json",
            b" application/json",
            b"text/plain",
            b"",
        ],
    ),
    (
        "mcp-protocol-version",
        &[b"2026-07-28", b"2026-07-28 ", b"2025-11-25", b"2025-03-26", b"2099-01-01", b"0", b"", b"\xff"],
    ),
    ("mcp-method", &[b"tools/call", b"tools/list", b"Tools/Call", b"resources/read", b"initialize", b"", b"\xff"]),
    (
        "mcp-name",
        &[
            b"echo",
            b"ask",
            b"fail",
            b"=?base64?ZWNobw==?=",
            b"=?base64?!?=",
            b"=?base64?ZWNobw==",
            b"Echo",
            b"",
            b"\xff",
        ],
    ),
    (
        "host",
        &[
            b"localhost",
            b"localhost:1",
            b"LOCALHOST:8000",
            b"127.0.0.1:8000",
            b"[::1]:8000",
            b"::1",
            b"here.example:8000",
            b"Here.example:8000",
            b"Here.example",
            b"evil.example",
            b"localhost.evil.example",
            b"me@localhost",
            b"localhost:",
            b"localhost:99999",
            b"localhost:+80",
            b"localhost:8000:8000",
            b"local host",
            b"-",
            b"",
            b"\xff",
        ],
    ),
    (
        "origin",
        &[
            b"https://here.example",
            b"https://here.example:443",
            b"http://localhost",
            b"HTTPS://LocalHost:6274",
            b"http://127.0.0.1:6274",
            b"http://[::1]:1",
            b"http://127.0.0.2",
            b"http://localhost.evil.example",
            b"http://localhost@evil.example",
            b"ftp://localhost",
            b"localhost",
            b"null",
            b"https://evil.example",
            b"x",
            b"",
            b"\xff",
        ],
    ),
    ("mcp-session-id", &[b"unknown", b""]),
    ("mcp-param-region", &[b"here", b"there", b"=?base64?aGVyZQ==?="]),
    ("last-event-id", &[b"1"]),
];

const URIS: &[&str] =
    &["/", "/mcp?a=b", "http://localhost:8000/mcp", "http://evil.example/mcp", "http://[::1]:8000/mcp"];

const VERSIONS: &[&str] = &["2025-11-25", "2025-03-26", "2099-01-01", "0"];

/// Names, and what is to stand in the header.
const NAMES: &[(&str, &str)] = &[
    ("größe", "=?base64?Z3LDtsOfZQ==?="),
    ("größe", "größe"),
    ("=?base64?ZWNobw==?=", "=?base64?ZWNobw==?="),
    ("=?base64?ZWNobw==?=", "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?="),
    ("=?base64?", "=?base64?"),
    ("", ""),
    (" echo", "echo"),
    ("a\u{0}", "a"),
    ("echo", "=?base64?ZWNobw==?="),
    ("slow", "slow"),
];

const CAPABILITIES: &str = "/params/_meta/io.modelcontextprotocol~1clientCapabilities";

/// Places in a message, whether or not there is anything yet.
const PLACES: &[&str] = &[
    "/jsonrpc",
    "/id",
    "/id",
    "/method",
    "/params",
    "/result",
    "/error",
    "/extra",
    "/params/name",
    "/params/uri",
    "/params/cursor",
    "/params/arguments",
    "/params/arguments/value",
    "/params/arguments/value/value",
    "/params/arguments/more",
    "/params/inputResponses",
    "/params/inputResponses/a",
    "/params/requestState",
    "/params/task",
    "/params/taskId",
    "/params/ref",
    "/params/ref/name",
    "/params/argument",
    "/params/argument/value",
    "/params/context",
    "/params/context/arguments",
    "/params/extra",
    "/params/_meta",
    "/params/_meta/extra",
    "/params/_meta/progressToken",
    "/params/_meta/progressToken",
    "/params/_meta/io.modelcontextprotocol~1logLevel",
    "/params/_meta/io.modelcontextprotocol~1protocolVersion",
    "/params/_meta/io.modelcontextprotocol~1clientInfo",
    CAPABILITIES,
    "/params/_meta/io.modelcontextprotocol~1clientCapabilities/elicitation",
    "/params/_meta/io.modelcontextprotocol~1clientCapabilities/extensions",
];

const KEYS: &[&str] = &[
    "jsonrpc",
    "id",
    "method",
    "params",
    "name",
    "uri",
    "arguments",
    "value",
    "_meta",
    "requestState",
    "inputResponses",
    "cursor",
    "taskId",
    "ref",
    "argument",
    "progressToken",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "elicitation",
];

const BYTES: &[&[u8]] = &[b"", b" ", b"\"", b"\\", b"{", b"}", b",", b"\xff", b"\xc3", b"\x00", b"\n", b"\xef\xbb\xbf"];

const AROUND: &[(&str, &str)] = &[
    ("[", "]"),
    (" \n\t", "\r\n "),
    ("\u{feff}", ""),
    ("", "x"),
    ("", "{}"),
    ("", "\u{0}"),
    ("{\"a\":", "}"),
    ("//\n", ""),
];

/// JSON as it could be written, and some that could not.
fn raw() -> impl Strategy<Value = String> {
    let deep = (118usize..132, select(vec![("[", "]"), ("{\"a\":", "}")]))
        .prop_map(|(depth, (open, close))| format!("{}1{}", open.repeat(depth), close.repeat(depth)));
    let written = select(WRITTEN).prop_map(str::to_owned);
    let whole = Just(serde_json::to_string(&meta()).unwrap());
    prop_oneof![20 => written, 3 => deep, 1 => whole, 2 => any::<i64>().prop_map(|n| n.to_string()), 2 => any::<f64>().prop_map(|n| n.to_string())]
}

const WRITTEN: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "01",
    "+1",
    "1.0",
    "1.5",
    "1e2",
    "1E400",
    "-1e-400",
    "9007199254740992.0",
    "9007199254740991.0",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
    "\"\"",
    "\"a\"",
    "\"1\"",
    "\"2.0\"",
    "\"2\\u002e0\"",
    "\"echo\"",
    "\"ech\\u006f\"",
    "\"ask\"",
    "\"tools/call\"",
    "\"tools\\/call\"",
    "\"tools/list\"",
    "\"2026-07-28\"",
    "\"2025-11-25\"",
    "\"debug\"",
    "\"loud\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\"\\x\"",
    "\"\t\"",
    "\"größe\"",
    "[]",
    "[1, \"a\"]",
    "[\"a\", \"b\"]",
    "[\"ref/prompt\", \"echo\"]",
    "{\"type\": \"ref/prompt\", \"name\": \"a\", \"name\": \"b\"}",
    "{}",
    "{\"a\": 1, \"a\": 2}",
    "{\"name\": \"echo\", \"_meta\": {}}",
    "{\"form\": {}}",
    "{\"io.modelcontextprotocol/tasks\": {}}",
    "{\"$serde_json::private::Number\": \"1\"}",
    "{\"$serde_json::private::RawValue\": \"[1]\"}",
    "NaN",
    "'a'",
    "",
];
