//! What stays of a request while its call waits for an answer, in both lanes: nothing whose size the client chooses, but for the
//! arguments, which are kept as text and count.
//!
//! Alone in its binary, because it counts every allocation of the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{alloc::System, convert::Infallible};

use bytes::Bytes;
use gallery::Gallery;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::Rounds;
use rounds_http::Endpoint;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many bytes are allocated just now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Objects that take eighty times their text as a tree, and a long text.
fn bulk() -> Value {
    json!({"objects": vec![json!({"a": {}}); 4_000], "text": "x".repeat(400_000)})
}

/// A call with a great deal of something.
fn call(of: &str) -> Bytes {
    let mut params = json!({
        "name": "weather_h",
        "arguments": {"location": "Tokyo"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "attacker", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        },
    });
    match of {
        "capabilities" => {
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["experimental"] = json!({"x": bulk()});
        }
        "meta" => params["_meta"]["example/more"] = bulk(),
        "token" => params["_meta"]["progressToken"] = json!("x".repeat(400_000)),
        "answers" => params["inputResponses"] = json!({"units": {"action": "accept", "content": bulk()}}),
        "arguments" => params["arguments"]["more"] = bulk(),
        _ => {}
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string().into()
}

async fn post<S>(service: &mut S, body: Bytes) -> Value
where
    S: Service<Request<Full<Bytes>>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible>,
{
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "weather_h")
        .body(Full::from(body))
        .unwrap();
    let response = service.call(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Lets a service have seven such requests, and says what stays of them, and what is counted.
async fn kept<S>(mut service: S, server: &Rounds<Gallery>, of: &str) -> (usize, usize)
where
    S: Service<Request<Full<Bytes>>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible>,
{
    // What is there once, however many wait.
    post(&mut service, call("nothing")).await;
    let body = call(of);
    let before = allocated();
    for _ in 0..7 {
        let asked = post(&mut service, body.clone()).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    }
    // Tasks of rmcp's that served them end.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    (allocated() - before, server.waiting_bytes())
}

#[tokio::test]
async fn a_call_that_waits_keeps_nothing_that_was_not_counted() {
    for of in ["capabilities", "meta", "token", "answers", "arguments"] {
        for lane in ["the endpoint", "rmcp"] {
            let server = Rounds::new(Gallery::new());
            let config = StreamableHttpServerConfig::default().with_json_response(true);
            let (kept, counted) = match lane {
                "rmcp" => kept(server.streamable_http(config), &server, of).await,
                _ => kept(Endpoint::new(&server, config), &server, of).await,
            };
            let most = if of == "arguments" { 7 * 450_000 } else { 100_000 };
            assert!(kept < most, "{kept} bytes stay of {of}, by {lane}");
            assert!(kept < counted + 100_000, "{kept} bytes stay of {of}, by {lane}, and {counted} count");
        }
    }
}
