//! The life of a claim: which leg waits, continues or is released when a leg is cancelled or takes long.

use crate::common::{
    Desk, Visit, asks_for_a_retry,
    gate::{Gate, Gone},
    ledger::{Faulty, Step},
    ring, secs, sell, shop, small,
};
use rounds::{
    Limits,
    observe::{Outcome, Station},
    test::{Client, Clock},
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A shop that waits at the gate on the leg of this number, and holds a guard that reports when it is dropped.
fn held(at: u32, gate: &Gate, gone: &Gone) -> Desk {
    let (gate, gone) = (gate.clone(), gone.clone());
    Desk::new(move |turn| {
        let (gate, gone) = (gate.clone(), gone.clone());
        async move {
            if turn.round()?.number() == at && turn.effects.count() == 0 {
                let _guard = gone.guard();
                gate.pass().await;
            }
            sell(&turn)
        }
    })
}

const WAITING: fn(&Station) -> bool = |station| *station == Station::Waiting;
const CANCELLED: fn(&Station) -> bool = |station| *station == Station::Ended(Outcome::Cancelled);

#[tokio::test]
async fn an_equal_leg_waits_for_the_one_at_work_and_gets_its_reply() {
    let gate = Gate::new();
    let stage = Visit::of(gate.shop()).await;
    let accepted = stage.order().await.accept("size", small());
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    let second = accepted.start(&stage.client).await;
    stage.events.until(1, WAITING).await;
    gate.open();
    let (first, second) = (first.finish().await, second.finish().await);
    assert_eq!(first.text(), "Small order number 1");
    assert_eq!(first.response()["result"], second.response()["result"]);
    assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
}

#[tokio::test]
async fn other_answers_do_not_wait_for_the_one_at_work() {
    let gate = Gate::new();
    let stage = Visit::of(gate.shop()).await;
    let asked = stage.order().await;
    let first = asked.accept("size", small()).start(&stage.client).await;
    gate.reached().await;
    asked.decline("size").send(&stage.client).await.frozen();
    gate.open();
    assert_eq!(first.finish().await.text(), "Small order number 1");
}

#[tokio::test]
async fn nobody_waits_longer_than_the_limit() {
    let gate = Gate::new();
    let stage = Visit::with(gate.shop(), |builder| builder.limits(Limits::default().with_wait(secs(20)))).await;
    let accepted = stage.order().await.accept("size", small());
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    let second = accepted.start(&stage.client).await;
    for _ in 0..2 {
        // Two timers are waiting: that of the running leg, which renews its lease, and that of the waiting leg.
        stage.clock.until_asleep(2).await;
        stage.clock.advance(secs(10));
    }
    asks_for_a_retry(&second.finish().await);
    gate.open();
    assert_eq!(first.finish().await.text(), "Small order number 1", "the running leg is not disturbed");
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn a_panic_wakes_whoever_waits_and_they_run() {
    let gate = Gate::new();
    let handler = gate.clone();
    let stage = Visit::of(Desk::new(move |turn| {
        let gate = handler.clone();
        async move {
            if turn.round()?.number() == 1 && turn.effects.have() == 0 {
                gate.pass().await;
                panic!("the till is jammed");
            }
            sell(&turn)
        }
    }))
    .await;
    let accepted = stage.order().await.accept("size", small());
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    let second = accepted.start(&stage.client).await;
    stage.events.until(1, WAITING).await;
    gate.open();
    assert_eq!(first.finish().await.error()["code"], -32603);
    assert_eq!(second.finish().await.text(), "Small order number 3", "it did not have to wait for the lease");
}

#[tokio::test]
async fn a_first_leg_whose_client_is_gone_runs_on_to_its_end() {
    let (gate, gone) = (Gate::new(), Gone::default());
    let stage = Visit::of(held(0, &gate, &gone)).await;
    let leg = stage.client.start("tools/call", json!({"name": "order"})).await;
    gate.reached().await;
    leg.cancel().await;
    let _ = stage.client.request("tools/list", json!({})).await;
    stage.clock.advance(secs(60));
    assert!(!gone.is_gone());
    gate.open();
    stage.events.until(1, |station| *station == Station::Ended(Outcome::InputRequired)).await;
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_leg_whose_client_is_gone_keeps_its_claim_while_the_handler_runs_on_and_records_the_reply() {
    let (gate, gone, ledger) = (Gate::new(), Gone::default(), Faulty::new());
    let limits = Limits::default().with_wait(secs(3600));
    let stage = Visit::with(held(1, &gate, &gone), |builder| builder.ledger(ledger.clone()).limits(limits)).await;
    let asked = stage.order().await;
    let accepted = asked.accept("size", small());
    let leg = accepted.start(&stage.client).await;
    gate.reached().await;
    leg.cancel().await;
    ledger.asked(Step::Release, 1).await;
    // Five minutes: ten leases.
    for renewals in 1..=30 {
        stage.clock.until_asleep(1).await;
        stage.clock.advance(secs(10));
        ledger.asked(Step::Renew, renewals).await;
    }
    assert!(!gone.is_gone());
    asked.decline("size").send(&stage.client).await.frozen();
    let waiting = accepted.start(&stage.client).await;
    stage.events.until(1, WAITING).await;
    gate.open();
    assert_eq!(waiting.finish().await.text(), "Small order number 1");
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
}

#[tokio::test]
async fn cancelled_while_an_equal_leg_waits_the_run_goes_on_for_it() {
    let (gate, gone, ledger) = (Gate::new(), Gone::default(), Faulty::new());
    let stage = Visit::with(held(1, &gate, &gone), |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    let second = accepted.start(&Client::modern(stage.server.clone()).await).await;
    stage.events.until(1, WAITING).await;
    first.cancel().await;
    ledger.asked(Step::Release, 1).await;
    assert!(!gone.is_gone());
    gate.open();
    assert_eq!(second.finish().await.text(), "Small order number 1");
    assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
}

#[tokio::test]
async fn a_waiting_leg_that_is_cancelled_no_longer_counts() {
    let gate = Gate::new();
    let (tokens, mut handed) = mpsc::unbounded_channel::<CancellationToken>();
    let handler = gate.clone();
    let stage = Visit::of(Desk::new(move |turn| {
        let (gate, tokens) = (handler.clone(), tokens.clone());
        async move {
            if turn.round()?.number() == 1 {
                tokens.send(turn.context.ct.clone()).unwrap();
                gate.pass().await;
            }
            sell(&turn)
        }
    }))
    .await;
    let accepted = stage.order().await.accept("size", small());
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    let second = accepted.start(&stage.client).await;
    stage.events.until(1, WAITING).await;
    second.cancel().await;
    stage.events.until(1, CANCELLED).await;
    let token = handed.recv().await.unwrap();
    assert!(!token.is_cancelled(), "the running leg is not cancelled for it");
    first.cancel().await;
    token.cancelled().await;
    gate.open();
    stage.events.until(1, |station| *station == Station::Ended(Outcome::Complete)).await;
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    assert_eq!(stage.runs(), 2);
}

#[tokio::test]
async fn a_lease_is_renewed_as_long_as_the_handler_runs() {
    let (clock, gate, ledger) = (Clock::new(), Gate::new(), Faulty::new());
    let fleet = |builder: rounds::RoundsBuilder<Desk>| {
        let patient = Limits::default().with_wait(secs(3600));
        builder.keys(ring(&[1])).audience("tea").ledger(ledger.clone()).limits(patient)
    };
    let slow = Visit::at(&clock, gate.shop(), fleet).await;
    let other = Visit::at(&clock, shop(), fleet).await;
    let accepted = slow.order().await.accept("size", small());
    let first = accepted.start(&slow.client).await;
    gate.reached().await;
    let second = accepted.start(&other.client).await;
    // Five minutes: ten leases.
    for renewals in 1..=30 {
        clock.until_asleep(2).await;
        clock.advance(secs(10));
        ledger.asked(Step::Renew, renewals).await;
    }
    clock.until_asleep(2).await;
    assert_eq!((slow.runs(), other.runs()), (2, 0));
    gate.open();
    assert_eq!(first.finish().await.text(), "Small order number 1");
    assert_eq!(second.finish().await.text(), "Small order number 1");
    assert_eq!((slow.effects.count(), other.effects.count()), (1, 0));
}

#[tokio::test]
async fn what_a_handler_started_is_told_when_its_part_is_over() {
    let (tokens, mut handed) = mpsc::unbounded_channel::<CancellationToken>();
    let stage = Visit::of(Desk::new(move |turn| {
        tokens.send(turn.context.ct.clone()).unwrap();
        async move { sell(&turn) }
    }))
    .await;
    let asked = stage.order().await;
    let first = handed.recv().await.unwrap();
    assert!(first.is_cancelled(), "it asked, and is called again with another token");
    let _ = asked.accept("size", small()).send(&stage.client).await.text();
    assert!(handed.recv().await.unwrap().is_cancelled(), "the handler has returned");
}

#[tokio::test]
async fn a_handler_that_goes_on_for_another_leg_is_not_told_to_stop() {
    let (gate, ledger) = (Gate::new(), Faulty::new());
    let (tokens, mut handed) = mpsc::unbounded_channel::<CancellationToken>();
    let handler = gate.clone();
    let desk = Desk::new(move |turn| {
        let (gate, tokens) = (handler.clone(), tokens.clone());
        async move {
            if turn.round()?.number() == 1 {
                tokens.send(turn.context.ct.clone()).unwrap();
                gate.pass().await;
            }
            sell(&turn)
        }
    });
    let stage = Visit::with(desk, |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    let first = accepted.start(&stage.client).await;
    let token = handed.recv().await.unwrap();
    let second = accepted.start(&stage.client).await;
    stage.events.until(1, WAITING).await;
    first.cancel().await;
    ledger.asked(Step::Release, 1).await;
    assert!(!token.is_cancelled());
    gate.open();
    assert_eq!(second.finish().await.text(), "Small order number 1");
    assert!(token.is_cancelled());
}
