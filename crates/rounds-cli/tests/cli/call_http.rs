//! `call` over HTTP with servers of all kinds: responses that are too long, and the ways in which a server rejects the
//! modern era.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Response, StatusCode},
    routing::post,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::AbortHandle};

use crate::{
    process::{Ended, run},
    raw::says,
};

/// A server that answers with this function of the message and its headers.
struct Odd {
    url: String,
    serving: AbortHandle,
}

impl Odd {
    async fn start(reply: impl Fn(&Value) -> Response<Body> + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let handler = async move |body: Bytes| reply(&serde_json::from_slice(&body).unwrap());
        let router = Router::new().route("/mcp", post(handler));
        let serving = tokio::spawn(async { axum::serve(listener, router).await.unwrap() }).abort_handle();
        Self { url, serving }
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn response(status: u16, kind: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).header("content-type", kind).body(body.into()).unwrap()
}

fn discovered() -> Value {
    json!({"result": {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        "ttlMs": 0, "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "odd", "version": "1"}},
    }})
}

/// A reply to this message.
fn to(message: &Value, mut reply: Value) -> String {
    reply["jsonrpc"] = json!("2.0");
    reply["id"] = message["id"].clone();
    reply.to_string()
}

/// A response body that never ends, without a length.
struct Endless(&'static str);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        static MORE: [u8; 4096] = [b'x'; 4096];
        let first = std::mem::take(&mut self.0);
        let piece = if first.is_empty() { Bytes::from_static(&MORE) } else { Bytes::from_static(first.as_bytes()) };
        Poll::Ready(Some(Ok(http_body::Frame::data(piece))))
    }
}

#[track_caller]
fn is_too_long(ended: &Ended, most: &str) {
    ended.failed(&format!("the server sent more than {most} in one message; allow more with --response-limit"));
}

#[tokio::test]
async fn a_response_without_an_end_is_not_read_for_ever() {
    for (status, kind) in
        [(200, "application/json"), (200, "text/event-stream"), (400, "application/json"), (404, "text/plain")]
    {
        for long in ["server/discover", "tools/call"] {
            let odd = Odd::start(move |message| match message["method"].as_str() {
                Some(method) if method == long => response(status, kind, Body::new(Endless("data: "))),
                Some("server/discover") => response(200, "application/json", to(message, discovered())),
                _ => response(202, "text/plain", ""),
            })
            .await;
            is_too_long(&run(&["call", &odd.url, "tool", "--era", "modern"]).await, "16 MiB");
        }
    }
}

#[tokio::test]
async fn a_response_may_be_as_long_as_the_option_says() {
    let text = "a".repeat(1 << 20);
    for kind in ["application/json", "text/event-stream"] {
        let reply = says(&text);
        let odd = Odd::start(move |message| match message["method"].as_str() {
            Some("server/discover") => response(200, "application/json", to(message, discovered())),
            _ if kind == "application/json" => response(200, kind, to(message, reply.clone())),
            _ => response(200, kind, format!("data: {}\n\n", to(message, reply.clone()))),
        })
        .await;
        is_too_long(&run(&["call", &odd.url, "tool", "--response-limit", "1MiB"]).await, "1 MiB");
        let ended = run(&["call", &odd.url, "tool", "--response-limit", "2MiB"]).await;
        assert_eq!(ended.printed().trim_end(), text, "{kind}");
    }
}

/// One line above rmcp's own limit, and one below it.
#[tokio::test]
async fn a_line_of_a_command_may_be_as_long_as_the_option_says() {
    let answer = |id: u32, reply: Value| to(&json!({"id": id}), reply);
    let long = r#"head -c 17000000 /dev/zero | tr '\0' a"#;
    let said = answer(1, says("HERE"));
    let (before, after) = said.split_once("HERE").unwrap();
    let script = format!(
        "read discover\necho '{}'\nread call\nprintf %s '{before}'\n{long}\necho '{after}'\ncat > /dev/null\n",
        answer(0, discovered())
    );
    let script = crate::process::Written::new(&script);
    let command = format!("sh {}", script.path());
    let call = ["call", "--stdio", &command, "tool", "--era", "modern"];
    is_too_long(&run(&call).await, "16 MiB");
    let ended = run(&[&call[..], &["--response-limit", "17MiB"]].concat()).await;
    assert_eq!(ended.printed().trim_end().len(), 17_000_000);
}

#[tokio::test]
async fn a_command_that_writes_without_an_end_is_not_read_for_ever() {
    // The shell keeps running and holds the other end of the pipe.
    let endless = "tr '\\0' x < /dev/zero; true";
    for script in [endless.to_owned(), format!("read discover; {endless}")] {
        let command = format!("sh -c {}", shlex::try_quote(&script).unwrap());
        is_too_long(&run(&["call", "--stdio", &command, "tool"]).await, "16 MiB");
    }
}

/// Some legacy servers reject `server/discover` with a response that is not a valid answer to it.
#[tokio::test]
async fn a_server_of_the_legacy_era_is_found_however_it_refuses_to_be_discovered() {
    let unknown = json!({"code": -32601, "message": "no such method"});
    let session = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
    for (status, kind, refusal) in [
        (200, "application/json", json!({"error": unknown, "id": 0})),
        (400, "application/json", json!({"error": session, "id": "server-error"})),
        (400, "application/json", json!({"error": session, "id": null})),
        (404, "application/json", json!({"error": unknown, "id": null})),
        (400, "text/plain", json!("Bad Request")),
        (405, "text/html", json!("")),
        (422, "application/json", json!({"detail": "odd"})),
    ] {
        let said = refusal.to_string();
        let odd = Odd::start(move |message| {
            let initialized = json!({"result": {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
            }});
            let mut refusal = refusal.clone();
            if status == 200 {
                refusal["id"] = message["id"].clone();
            }
            if refusal.is_object() {
                refusal["jsonrpc"] = json!("2.0");
            }
            match message["method"].as_str() {
                Some("server/discover") => response(status, kind, refusal.to_string()),
                Some("initialize") => response(200, "application/json", to(message, initialized)),
                Some("tools/call") => response(200, "application/json", to(message, says("found"))),
                _ => response(StatusCode::ACCEPTED.as_u16(), "text/plain", ""),
            }
        })
        .await;
        let ended = run(&["call", &odd.url, "tool"]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "found\n"), "{status} {said}: {ended:?}");
    }
}

#[tokio::test]
async fn what_a_server_says_by_its_status_is_told_in_a_sentence() {
    let error = json!({"error": {"code": -32603, "message": "out of order"}});
    for (status, kind, words) in [
        (401, "text/plain", "requires authentication: pass a token with --bearer"),
        (403, "text/plain", "the token does not permit this"),
        (429, "application/json", "HTTP 429"),
        (503, "text/html", "HTTP 503"),
        (500, "application/json", "error -32603: out of order"),
        (418, "application/json", "error -32603: out of order"),
        (418, "text/plain", "HTTP 418"),
        (200, "text/html", "text/html"),
    ] {
        let error = error.clone();
        let odd = Odd::start(move |message| match message["method"].as_str() {
            Some("server/discover") => response(200, "application/json", to(message, discovered())),
            Some("tools/call") => {
                let mut response = response(status, kind, to(message, error.clone()));
                if matches!(status, 401 | 403) {
                    response.headers_mut().insert("www-authenticate", "Bearer".parse().unwrap());
                }
                response
            }
            _ => response(202, "text/plain", ""),
        })
        .await;
        let ended = run(&["call", &odd.url, "tool"]).await;
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.lines().count()), (Some(1), "", 1), "{ended:?}");
        assert!(ended.stderr.contains(words), "{status} {kind}: {words} is not in {ended:?}");
    }
}

#[tokio::test]
async fn a_request_is_sent_on_to_the_same_server_only() {
    let elsewhere = Odd::start(|message| response(200, "application/json", to(message, says("stolen")))).await;
    let stolen = elsewhere.url.clone();
    for (status, location, found) in [
        (308, "/mcp?moved", true),
        (307, "/mcp?moved", true),
        (302, "/mcp?moved", false),
        (308, stolen.as_str(), false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let location = location.to_owned();
        let handler = async move |uri: axum::http::Uri, body: Bytes| {
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            if uri.query().is_none() {
                let mut response = response(status, "text/plain", "");
                response.headers_mut().insert("location", location.parse().unwrap());
                return response;
            }
            match message["method"].as_str() {
                Some("server/discover") => response(200, "application/json", to(&message, discovered())),
                _ => response(200, "application/json", to(&message, says("found"))),
            }
        };
        let router = Router::new().route("/mcp", axum::routing::any(handler));
        let serving = tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        let ended = run(&["call", &url, "tool"]).await;
        assert_eq!(ended.stdout == "found\n", found, "{status}: {ended:?}");
        assert!(!ended.stdout.contains("stolen"), "{ended:?}");
        serving.abort();
    }
}
