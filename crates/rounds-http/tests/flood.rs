//! What waits for clients that do not read: a bounded number of bytes for each, whatever their handlers send and whatever they asked for.
//!
//! Alone in its binary, because it counts every allocation of the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    alloc::System,
    convert::Infallible,
    future::Future,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::{Full, combinators::BoxBody};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, ProgressNotificationParam},
    service::RequestContext,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::Rounds;
use rounds_http::Endpoint;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Far more than may wait for a client.
const SENT: usize = 5_000;

/// Floods its client with progress, each notification when the one before it was taken, or without waiting for that.
struct Flood;

impl ServerHandler for Flood {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = context.meta.get_progress_token().unwrap();
        let mut progress = ProgressNotificationParam::new(token, 1.0);
        progress.message = Some("x".repeat(1000));
        for _ in 0..SENT {
            let mut sending = Box::pin(context.peer.notify_progress(progress.clone()));
            if request.name == "waits" {
                sending.await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                continue;
            }
            // It was sent, and no reader waits for it.
            let _ = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(sending);
            tokio::task::yield_now().await;
        }
        context.ct.cancelled().await;
        Err(ErrorData::internal_error("told", None))
    }
}

async fn begin(endpoint: &mut Endpoint<Rounds<Flood>>, tool: &str, token: &Value) -> BoxBody<Bytes, Infallible> {
    let params = json!({
        "name": tool,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": token,
        },
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(Full::<Bytes>::from(body))
        .unwrap();
    let response = endpoint.call(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body()
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_clients_that_do_not_read_is_bounded() {
    let long = json!("t".repeat(1 << 20));
    for (tool, token, clients, most) in [
        // What may wait is 16 KiB, or one event if that is longer, and the buffer may be twice as large as what is in it.
        ("waits", json!(1), 100, 64 << 10),
        ("waits", long.clone(), 3, 6 << 20),
        // 1 MiB, and again one event.
        ("does not", json!(1), 4, 4 << 20),
        ("does not", long, 3, 8 << 20),
    ] {
        let server = Rounds::new(Flood);
        let config = StreamableHttpServerConfig::default().with_json_response(true).with_sse_keep_alive(None);
        let mut endpoint = Endpoint::new(&server, config);
        drop(begin(&mut endpoint, "waits", &json!(1)).await);
        let before = allocated();
        let mut unread = Vec::new();
        for _ in 0..clients {
            unread.push(begin(&mut endpoint, tool, &token).await);
        }
        let mut peak = 0;
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            peak = peak.max(allocated().saturating_sub(before));
        }
        assert!(peak / clients < most, "{tool}: {} bytes wait for each client", peak / clients);
        drop(unread);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let left = allocated().saturating_sub(before);
        assert!(left < 200_000, "{tool}: {left} bytes stay when all of {clients} are gone");
    }
}
