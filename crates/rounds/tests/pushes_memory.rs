//! The memory of a call that waits for what it has requested through its peer: a service of rmcp's, and what an `Ask`
//! takes.
//!
//! Alone in its binary, because it counts every allocation of the process.

use std::alloc::System;

use rmcp::{
    Peer, RoleServer, ServerHandler, elicit_safe, handler::server::router::tool::ToolRouter, schemars, tool,
    tool_handler, tool_router,
};
use rounds::{Rounds, test::Client};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct Sure {
    sure: bool,
}

elicit_safe!(Sure);

struct Files {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Files {
    #[tool(description = "Deletes everything")]
    async fn delete_all(&self, peer: Peer<RoleServer>) -> String {
        match peer.elicit::<Sure>("Delete everything?").await {
            Ok(Some(Sure { sure: true })) => "deleted".to_owned(),
            _ => "kept".to_owned(),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Files {}

/// Number of bytes that are allocated now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

#[tokio::test]
async fn a_call_that_waits_takes_what_is_counted_and_gives_it_back() {
    let server = Rounds::builder(Files { tool_router: Files::tool_router() }).pushes().build().unwrap();
    let client = Client::modern(server.clone()).await;
    let park = async |calls: usize| {
        let mut asked = Vec::new();
        for _ in 0..calls {
            asked.push(client.call("delete_all", json!({})).await.asked());
        }
        asked
    };
    // Allocations that are made once, however many calls wait.
    drop(park(50).await);
    let before = allocated();
    let asked = park(200).await;
    let by_the_test: usize = {
        let before = allocated();
        let copy = asked.clone();
        let bytes = allocated() - before;
        drop(copy);
        bytes
    };
    let each = (allocated() - before - by_the_test) / 200;
    let counted = server.waiting_bytes() / 250;
    println!("{each} bytes per call, {counted} of them counted");
    assert_eq!(server.waiting_calls(), 250);
    assert!(counted > each / 2 && counted < each * 5 / 4, "{counted} of {each} bytes are counted");
    for asked in asked {
        assert_eq!(asked.decline("sure").send(&client).await.text(), "kept");
    }
    // rmcp's loops end in their own time.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.waiting_calls(), 50);
    let left = allocated().saturating_sub(before) / 200;
    assert!(left < each / 10, "{left} bytes per call are left");
}
