//! How long a leg waits for another one: until the lease of a lost owner lapses, and never longer than its own deadline.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult},
    service::RequestContext,
};
use rounds::{
    Ask, FlowError,
    observe::Station,
    test::{Client, Clock, Events, InFlight, Leg},
};
use rounds_testkit::{Fleet, Tool, Units, in_time};
use serde_json::json;
use tokio::sync::Notify;

const SECOND: Duration = Duration::from_secs(1);

/// A tool that asks to be called again, and then replies or, on an instance that is about to be lost, does not.
struct Again {
    replies: bool,
}

impl ServerHandler for Again {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.request_state.is_none() {
            return Ok(InputRequiredResult::from_request_state("once more").into());
        }
        if !self.replies {
            std::future::pending::<()>().await;
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("replied")]).into())
    }
}

/// Lets a clock run, and the tasks that it wakes.
async fn pass(clock: &Clock, seconds: u64) {
    for _ in 0..seconds {
        clock.advance(SECOND);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

/// The response of a leg that has to be over by now: no clock moves while this waits.
async fn over(leg: InFlight) -> Leg {
    tokio::time::timeout(5 * SECOND, leg.finish()).await.expect("the leg still waits")
}

#[tokio::test]
async fn a_leg_that_came_late_takes_over_when_the_lease_lapses_and_not_a_lease_after_it_came() {
    let fleet = Fleet::new();
    let events = [Events::new(), Events::new()];
    // The clock of the lost instance stands still, so it never renews its lease of 30 seconds.
    let lost = fleet.builder(Again { replies: false }).clock(Clock::new()).observe(events[0].clone()).build().unwrap();
    let live = fleet.builder(Again { replies: true }).observe(events[1].clone()).build().unwrap();
    let (lost, live) = (Client::modern(lost).await, Client::modern(live).await);
    let asked = lost.call("again", json!({})).await.asked();
    let _lost = asked.retry().start(&lost).await;
    in_time(events[0].until(1, |station| matches!(station, Station::Claimed { .. }))).await;

    pass(&fleet.clock, 20).await;
    let leg = asked.retry().start(&live).await;
    in_time(events[1].until(1, |station| *station == Station::Waiting)).await;
    in_time(fleet.clock.until_asleep(1)).await;
    pass(&fleet.clock, 9).await;
    assert!(!events[1].stations().iter().any(|station| matches!(station, Station::Claimed { .. })), "taken too early");
    pass(&fleet.clock, 4).await;
    assert_eq!(over(leg).await.text(), "replied");
}

#[tokio::test]
async fn a_routed_leg_that_hears_nothing_more_of_the_owner_keeps_the_deadline_that_it_had() {
    let fleet = Fleet::new();
    let (begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let tool = {
        let (begun, release) = (begun.clone(), release.clone());
        move |ask: Ask| {
            let (begun, release) = (begun.clone(), release.clone());
            async move {
                let units: Units = ask.form("Which units?").await?;
                begun.notify_one();
                release.notified().await;
                Ok::<_, FlowError>(format!("{units:?}"))
            }
        }
    };
    let a = Client::modern(fleet.routed("a", Tool(tool.clone())).build().unwrap()).await;
    let b = Client::modern(fleet.routed("b", Tool(tool)).build().unwrap()).await;
    let asked = a.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&b).await;
    in_time(begun.notified()).await;
    // The owner works on it, and renews its lease. What the two say to each other gets lost.
    fleet.hub.wires().deaf = vec!["a".to_owned(), "b".to_owned()];
    pass(&fleet.clock, 31).await;
    let error = over(leg).await;
    assert_eq!(error.error()["data"]["reason"], "retry", "{:?}", error.response());
    release.notify_one();
}
