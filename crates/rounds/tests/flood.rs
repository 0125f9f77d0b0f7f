//! A client cannot fill a disk with log lines.
//!
//! The only test in this file, because `tracing` caches for the whole process which events are enabled.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, CallToolResult},
    service::RequestContext,
};
use rounds::{
    Rounds,
    observe::{Refusal, Station},
    test::{Client, Clock, Events},
};
use rounds_testkit::Log;
use serde_json::json;

struct Echo;

impl ServerHandler for Echo {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            "wrong" => Err(ErrorData::invalid_params("wrong", None)),
            "broken" => Err(ErrorData::internal_error("broken", None)),
            _ => Ok(CallToolResult::success(vec![]).into()),
        }
    }
}

#[tokio::test]
async fn a_client_cannot_flood_the_log() {
    let (log, _listening) = Log::listen(tracing::Level::INFO);
    let (clock, events) = (Clock::new(), Events::new());
    let server =
        Rounds::builder(Echo).clock(clock.clone()).observe(events.clone()).build().expect("the configuration is valid");
    let client = Client::modern(server).await;
    let bad = || client.request("tools/call", json!({"name": "x".repeat(100_000), "requestState": "bad"}));
    for _ in 0..100 {
        let _ = bad().await;
    }
    clock.advance(Duration::from_secs(1));
    let _ = bad().await;
    let refused = |station: &&Station| matches!(station, Station::Refused(Refusal::NotAToken));
    assert_eq!(events.stations().iter().filter(|station| refused(station)).count(), 101, "observers see all refusals");
    let text = log.text();
    let ours: Vec<_> = text.lines().filter(|line| line.contains("refused a state")).collect();
    assert_eq!(ours.len(), 2, "{text}");
    assert!(ours[1].contains("99 more"), "{}", ours[1]);
    assert!(ours.iter().all(|line| line.len() < 1000), "{text}");
    for _ in 0..300 {
        client.call("wrong", json!({})).await.error();
        client.call("broken", json!({})).await.error();
    }
    let text = log.text();
    let failed = |code: &str| text.lines().filter(|line| line.contains("a leg failed") && line.contains(code)).count();
    assert_eq!((failed("code=-32602"), failed("code=-32603")), (1, 100), "{text}");
}
