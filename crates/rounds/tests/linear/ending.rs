//! How a waiting handler ends without an answer: by idleness, deadline, limits, cancellation or panic.

use std::{sync::Arc, time::Duration};

use rmcp::{RoleServer, service::RequestContext};
use rounds::{
    Ask, FlowError, KeyRing, Limits, Principal, Rounds,
    observe::{Outcome, Refusal, Station},
    test::{Client, Clock, Events},
};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{Count, Stage, Tool, Units, stage, stage_with, units, without_grace};

const MINUTE: Duration = Duration::from_secs(60);

/// A handler that counts its drops.
fn counted(
    dropped: &Count,
) -> impl Fn(Ask) -> rounds::time::BoxFuture<'static, Result<String, FlowError>> + Send + Sync + use<> {
    let dropped = dropped.clone();
    move |ask| {
        let guard = dropped.on_drop();
        Box::pin(async move {
            let _guard = guard;
            let units = units(ask.clone()).await?;
            let again = ask.form::<Units>("Sure?").key("sure").await?;
            Ok(format!("{units} {again:?}"))
        })
    }
}

#[tokio::test]
async fn a_handler_that_nobody_comes_back_to_is_dropped_when_its_round_is_over() {
    let dropped = Count::default();
    let stage = stage(counted(&dropped));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    stage.clock.advance(MINUTE * 10 - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert_eq!((dropped.get(), stage.server.waiting_calls()), (0, 1));
    stage.clock.advance(Duration::from_millis(1));
    dropped.reaches(1).await;
    asked.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
    assert_eq!(stage.server.waiting_calls(), 0);
    assert!(stage.events.outcomes().contains(&Outcome::Expired));
}

#[tokio::test]
async fn every_round_has_its_own_time_and_the_flow_has_a_deadline() {
    let dropped = Count::default();
    let stage = stage_with(counted(&dropped), |builder| builder.flow_deadline(MINUTE * 15));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    stage.clock.advance(MINUTE * 9);
    let asked = asked.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    assert_eq!(asked.result()["_meta"]["rounds/expiresInMs"], json!(6 * 60 * 1000), "not longer than the flow");
    stage.clock.advance(MINUTE * 6);
    dropped.reaches(1).await;
    asked.accept("sure", json!({"sure": "metric"})).send(&client).await.frozen();
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_middle_of_a_leg_ends_it_in_words() {
    let (gate, dropped, reached) = (Arc::new(Semaphore::new(0)), Count::default(), Count::default());
    let (closed, at_gate, on_drop) = (gate.clone(), reached.clone(), dropped.clone());
    let stage = stage(move |ask: Ask| {
        let (gate, reached, guard) = (closed.clone(), at_gate.clone(), on_drop.on_drop());
        async move {
            let _guard = guard;
            let units = units(ask).await?;
            reached.up();
            drop(gate.acquire().await);
            Ok(units)
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    reached.reaches(1).await;
    stage.clock.advance(MINUTE * 60);
    let ended = leg.finish().await;
    assert!(ended.is_tool_error());
    assert_eq!(ended.text(), "the deadline of this call has passed: start the call again");
    assert_eq!(dropped.get(), 1);
}

#[tokio::test]
async fn as_many_handlers_wait_as_may_and_no_more() {
    let dropped = Count::default();
    let stage = stage_with(counted(&dropped), |builder| builder.limits(Limits::default().with_frames(2, 1)));
    let client = Client::modern(stage.server.clone()).await;
    let first = client.call("x", json!({})).await.asked();
    let _second = client.call("x", json!({})).await.asked();
    let third = client.call("x", json!({})).await;
    assert!(
        third.is_tool_error() && third.text().starts_with("too many calls are waiting for an answer (limit 2)"),
        "{}",
        third.text()
    );
    assert_eq!((dropped.get(), stage.server.waiting_calls()), (1, 2), "its destructors ran");
    let asked = first.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    let _ = asked.accept("sure", json!({"sure": "metric"})).send(&client).await.text();
    let _fourth = client.call("x", json!({})).await.asked();
}

#[tokio::test]
async fn one_principal_cannot_take_all_the_places() {
    // The principal that the test sets.
    let who = Arc::new(std::sync::Mutex::new("alice"));
    let caller = who.clone();
    let identify = move |_: &RequestContext<RoleServer>| Some(Principal::new(*caller.lock().unwrap()));
    let dropped = Count::default();
    let limits = Limits::default().with_frames(100, 1);
    let stage = stage_with(counted(&dropped), |builder| builder.limits(limits).principal(identify));
    let client = Client::modern(stage.server.clone()).await;
    let first = client.call("x", json!({})).await.asked();
    let refused = client.call("x", json!({})).await;
    assert!(refused.text().starts_with("too many calls are waiting for an answer (limit 1)"), "{}", refused.text());
    *who.lock().unwrap() = "bob";
    let _bobs = client.call("x", json!({})).await.asked();
    first.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
    *who.lock().unwrap() = "alice";
    let sure = first.accept("units", json!({"units": "metric"})).send(&client).await.asked();
    let _ = sure.accept("sure", json!({"sure": "metric"})).send(&client).await.text();
    let _again = client.call("x", json!({})).await.asked();
}

/// A handler that, once answered, waits at a gate until the test lets it through.
fn gated() -> (Stage<impl rmcp::ServerHandler>, Arc<Semaphore>, Count, Count) {
    let (gate, reached, dropped) = (Arc::new(Semaphore::new(0)), Count::default(), Count::default());
    let (closed, at_gate, on_drop) = (gate.clone(), reached.clone(), dropped.clone());
    let tool = move |ask: Ask| {
        let (gate, reached, guard) = (closed.clone(), at_gate.clone(), on_drop.on_drop());
        async move {
            let _guard = guard;
            let units = units(ask).await?;
            reached.up();
            drop(gate.acquire().await);
            Ok(units)
        }
    };
    (stage_with(tool, without_grace), gate, reached, dropped)
}

#[tokio::test]
async fn a_leg_that_is_cancelled_while_its_handler_runs_ends_the_flow() {
    let (stage, _gate, reached, dropped) = gated();
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    let leg = retry.start(&client).await;
    reached.reaches(1).await;
    leg.cancel().await;
    dropped.reaches(1).await;
    retry.send(&client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::Dead]);
}

#[tokio::test]
async fn a_leg_that_is_cancelled_while_an_equal_one_waits_goes_on_for_it() {
    let (stage, gate, reached, _dropped) = gated();
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    let first = retry.start(&client).await;
    reached.reaches(1).await;
    let second = retry.start(&client).await;
    while !stage.events.stations().contains(&Station::Waiting) {
        tokio::task::yield_now().await;
    }
    first.cancel().await;
    // An answered request after the cancellation shows that the cancellation was read.
    let _ = client.request("tools/list", json!({})).await;
    gate.add_permits(1);
    assert_eq!(second.finish().await.text(), "Metric");
    assert_eq!(reached.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_answered_and_ends_the_flow_whenever_it_happens() {
    let stage = stage(|ask: Ask| async move {
        let when: String = ask.form("When?").key("when").await?;
        assert_ne!(when, "in the leg", "as the test wants it");
        tokio::time::timeout(Duration::from_millis(1), ask.form::<Units>("Unanswered?"))
            .await
            .expect("as the test wants it")?;
        Ok(String::new())
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("when", json!({"when": "in the leg"}));
    let ended = retry.send(&client).await;
    assert_eq!((&ended.error()["code"], &ended.error()["message"]), (&json!(-32603), &json!("the handler panicked")));
    retry.send(&client).await.frozen();

    let asked = client.call("x", json!({})).await.asked();
    let asked = asked.accept("when", json!({"when": "between legs"})).send(&client).await.asked();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ended = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(ended.error()["code"], -32603);
    assert_eq!(stage.server.waiting_calls(), 0);
    assert_eq!(stage.events.outcomes().iter().filter(|outcome| **outcome == Outcome::Panicked).count(), 2);
}

#[tokio::test]
async fn a_restart_ends_the_flow_with_the_frozen_error_and_another_instance_leaves_it_be() {
    let (clock, events) = (Clock::new(), Events::new());
    let ledger = rounds::ledger::MemoryLedger::new();
    let instance = || {
        let keys = KeyRing::from_bytes([[7; 32]]).unwrap();
        let builder = Rounds::builder(Tool(units)).keys(keys).audience("fleet").ledger(ledger.clone());
        builder.clock(clock.clone()).observe(events.clone()).build().unwrap()
    };
    let (here, elsewhere) = (Client::modern(instance()).await, Client::modern(instance()).await);
    let asked = here.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    retry.send(&elsewhere).await.frozen();
    assert_eq!(events.refusals(), [Refusal::FrameGone]);
    assert_eq!(retry.send(&here).await.text(), "Metric", "the instance that has the handler can still continue");
    assert_eq!(retry.send(&elsewhere).await.text(), "Metric", "its reply is known everywhere");
}

#[tokio::test]
async fn what_a_handler_started_is_told_when_it_has_ended() {
    let told = Count::default();
    let counted = told.clone();
    struct Plain(Count);
    impl rmcp::ServerHandler for Plain {
        async fn call_tool(
            &self,
            _request: rmcp::model::CallToolRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::CallToolResponse, rmcp::ErrorData> {
            let ask = Ask::from_context(&context)?;
            let (token, told) = (context.ct.clone(), self.0.clone());
            tokio::spawn(async move {
                token.cancelled().await;
                told.up();
            });
            let units: Units = ask.form("Which units?").await?;
            assert!(!context.ct.is_cancelled(), "the first leg has ended, and the handler has not");
            Ok(rounds::text(format!("{units:?}")))
        }
    }
    let client = Client::modern(Rounds::new(Plain(counted))).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!(told.get(), 0);
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    told.reaches(1).await;
}

#[tokio::test]
async fn a_handler_that_cannot_go_on_does_not_ask_for_a_retry_that_would_be_in_vain() {
    let stage = stage(|ask: Ask| async move {
        units(ask).await?;
        Err(FlowError::retry("the bank is closed"))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    assert_eq!(retry.send(&client).await.error()["message"], "the call cannot go on: start it again");
    retry.send(&client).await.frozen();
}

#[tokio::test]
async fn a_handlers_own_error_that_looks_like_a_retry_is_passed_on_as_it_is() {
    let stage = stage(|ask: Ask| async move {
        units(ask).await?;
        Err(rmcp::ErrorData::internal_error("mine", Some(json!({"reason": "retry"}))).into())
    });
    let client = Client::modern(stage.server.clone()).await;
    let retry = client.call("x", json!({})).await.asked().accept("units", json!({"units": "metric"}));
    for _ in 0..2 {
        assert_eq!(
            retry.send(&client).await.error()["message"],
            "mine",
            "the error is the reply, and a retry gets it again"
        );
    }
}
