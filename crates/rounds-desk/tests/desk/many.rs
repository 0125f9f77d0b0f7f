//! A hundred thousand waiting flows.

use std::time::Duration;

use rounds::{
    FlowId, Rounds,
    ledger::{Ledger, MemoryLedger, PrincipalShare},
    observe::Method,
    register::{FlowChange, FlowStation, FlowStatus, FlowSummary, TimelineEntry},
    time::Timestamp,
};
use rounds_desk::Recorder;

use crate::stage::Stage;

struct Empty;
impl rmcp::ServerHandler for Empty {}

fn waiting(number: u64) -> FlowChange {
    let now = Timestamp::from(std::time::SystemTime::now());
    let at = Timestamp::from_millis(now.as_millis() - 1_000_000 + number);
    let summary = FlowSummary {
        id: FlowId::from_bytes(u128::from(number).to_be_bytes()),
        method: Method::Tool,
        target: format!("tool_{}", number.min(99_990) % 20),
        principal: None,
        created: at,
        changed: at,
        deadline: now + Duration::from_secs(3600),
        status: FlowStatus::Waiting,
        round: 1,
        open: vec!["units".to_owned()],
        open_until: now + Duration::from_secs(3600),
        kept_until: now + Duration::from_secs(7200),
        owner: None,
        keys: Vec::new(),
    };
    let entry = TimelineEntry { leg: 0, station: FlowStation::Asked, at };
    FlowChange { summary, entry, part: None, share: PrincipalShare::Anonymous }
}

/// How long that takes is measured by `cargo xtask bench`.
#[tokio::test]
async fn the_first_page_counts_all_of_them_by_tool() {
    let ledger = MemoryLedger::new().with_flow_bytes(1 << 30);
    for number in 0..100_000 {
        ledger.register().unwrap().begin(waiting(number), None).await.unwrap();
    }
    let server = Rounds::builder(Empty).ledger(ledger.clone()).register().build().unwrap();
    let stage = Stage::of(server, Recorder::new(), |desk| desk);
    let page = stage.get("/").await;
    page.shows("100,000 flows").shows("Newer");
    page.shows("tool_10 <span class=\"count\">5,009</span>").shows("tool_5 <span class=\"count\">5,000</span>");
    page.shows("and 8 more");
    assert_eq!(page.text.matches("<tr><th scope=\"row\">").count(), 50);
    stage.get("/?tool=tool_10").await.shows("5,009 flows");
    stage.get("/?status=completed").await.shows("0 flows");
    assert!(page.text.len() < 60_000, "{} bytes", page.text.len());
}
