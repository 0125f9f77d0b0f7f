//! The memory that the ledger takes, by caller and over time.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::common::{
    Desk, Reply, Turn, Visit, asks_for_a_retry,
    gate::Gate,
    large,
    ledger::{Faulty, Step},
    ring, secs, shop, small,
};
use rmcp::{RoleServer, service::RequestContext};
use rounds::{FlowError, Given, Principal, Round, RoundsBuilder, ledger::MemoryLedger, observe::Station, test::Clock};
use serde_json::{Value, json};

/// The bytes that a claim counts: an answered one, and a running one.
const ANSWERED: usize = 64;
const AT_WORK: usize = 192;

#[tokio::test]
async fn a_question_that_waits_takes_no_room_and_a_full_ledger_refuses_none() {
    let ledger = MemoryLedger::new().with_claim_bytes(0);
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    for _ in 0..1000 {
        stage.order().await;
    }
    stage.client.prompt("order", json!({})).await.asked();
    stage.client.read("shop://order").await.asked();
    assert_eq!((ledger.claims(), ledger.claim_bytes()), (0, 0));
}

#[tokio::test]
async fn a_claim_that_does_not_fit_runs_nothing_and_its_token_stays_good() {
    let ledger = MemoryLedger::new().with_claim_bytes(AT_WORK);
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    let (one, two) = (stage.order().await, stage.order().await.accept("size", large()));
    // Also in a later round.
    let one = one.retry().send(&stage.client).await.asked();
    for _ in 0..3 {
        asks_for_a_retry(&one.accept("size", small()).send(&stage.client).await);
        asks_for_a_retry(&two.send(&stage.client).await);
    }
    assert_eq!((stage.runs(), stage.effects.count(), ledger.claims()), (3, 0, 1));
    assert_eq!(stage.events.refusals(), []);

    let ledger = ledger.with_claim_bytes(AT_WORK + ANSWERED);
    assert_eq!(two.send(&stage.client).await.text(), "Large order number 1");
    assert_eq!(two.send(&stage.client).await.text(), "Large order number 1", "a round with a record is not rejected");
    assert_eq!(ledger.claims(), 2);
    asks_for_a_retry(&one.accept("size", small()).send(&stage.client).await);
    // Other answers than before, with which nothing has run.
    stage.clock.advance(secs(599));
    let ledger = ledger.with_claim_bytes(AT_WORK + 2 * ANSWERED);
    assert_eq!(one.accept("size", large()).send(&stage.client).await.text(), "Large order number 2");
    // There is space again when the tokens have expired by every clock.
    let later = stage.order().await.accept("size", small());
    asks_for_a_retry(&later.send(&stage.client).await);
    stage.clock.advance(secs(91));
    assert_eq!(later.send(&stage.client).await.text(), "Small order number 3");
    assert_eq!(ledger.claims(), 1);
}

#[tokio::test]
async fn an_effect_that_does_not_fit_does_not_run_and_its_leg_may_be_sent_again() {
    let ledger = MemoryLedger::new().with_claim_bytes(AT_WORK);
    let stage = Visit::with(charging(), |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    for _ in 0..3 {
        asks_for_a_retry(&accepted.send(&stage.client).await);
    }
    assert_eq!((stage.runs(), stage.effects.count()), (4, 0));
    let _more = ledger.with_claim_bytes(2 * AT_WORK);
    assert_eq!(accepted.send(&stage.client).await.text(), "charge 0");
    assert_eq!(stage.effects.count(), 1);
}

/// Charges once it has a size.
fn charging() -> Desk {
    Desk::new(|turn| async move {
        let round = turn.round()?;
        if let Given::Missing = round.given::<Value>("size") {
            return ask(&round, "size");
        }
        charged(&turn, &round).await
    })
}

async fn charged(turn: &Turn, round: &Round<Reply>) -> Result<Reply, FlowError> {
    Reply::text(format!("charge {}", round.once("charge", async || turn.effects.have()).await?))
}

fn ask(round: &Round<Reply>, key: &str) -> Result<Reply, FlowError> {
    round.ask_form::<crate::common::Size>(key, "Which size?")
}

#[tokio::test]
async fn the_effects_of_a_flow_that_is_over_go_with_its_last_token() {
    let ledger = MemoryLedger::new();
    let stage = Visit::with(charging(), |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.text(), "charge 0");
    assert_eq!(ledger.claims(), 2, "a round and an effect");
    stage.clock.advance(secs(689));
    touch(&stage).await;
    assert_eq!(ledger.claims(), 3);
    stage.clock.advance(secs(1));
    touch(&stage).await;
    assert_eq!(ledger.claims(), 2, "only the claims of other flows are left: this flow's are not kept for an hour");
}

/// A leg of another flow, which tells the ledger the current time.
async fn touch(stage: &Visit) {
    stage.order().await.retry().send(&stage.client).await.asked();
}

/// Asks three times, with an effect before each question except the first.
fn stepwise() -> Desk {
    Desk::new(|turn| async move {
        let round = turn.round()?;
        let mut had = Vec::new();
        for key in ["a", "b", "c"] {
            if let Given::Missing = round.given::<Value>(key) {
                return ask(&round, key);
            }
            had.push(round.once(key, async || turn.effects.have()).await?);
        }
        Reply::text(format!("{had:?}"))
    })
}

#[tokio::test]
async fn an_effect_whose_value_the_next_token_carries_goes_with_its_round_and_does_not_happen_again() {
    let ledger = MemoryLedger::new();
    let stage = Visit::with(stepwise(), |builder| builder.ledger(ledger.clone())).await;
    let mut asked = stage.order().await;
    for key in ["a", "b"] {
        stage.clock.advance(secs(590));
        asked = asked.accept(key, json!({key: "small"})).send(&stage.client).await.asked();
    }
    assert_eq!(ledger.claims(), 2, "a round and an effect: those of the round before are deleted");
    stage.clock.advance(secs(590));
    assert_eq!(asked.accept("c", json!({"c": "small"})).send(&stage.client).await.text(), "[0, 1, 2]");
    assert_eq!(stage.effects.count(), 3);
}

/// The next token does not carry an effect that a task is still running, so the ledger has to keep its record longer.
#[tokio::test]
async fn an_effect_that_was_left_to_a_task_is_remembered_for_the_rounds_after_it() {
    let gate = Gate::new();
    let waits = gate.clone();
    let ledger = MemoryLedger::new();
    let desk = Desk::new(move |turn| {
        let waits = waits.clone();
        async move {
            let round = turn.round()?;
            if let Given::Missing = round.given::<Value>("a") {
                return ask(&round, "a");
            }
            let (task, begun, effects) = (round.clone(), waits.clone(), turn.effects.clone());
            let charge = async move || {
                waits.pass().await;
                effects.have()
            };
            if let Given::Missing = round.given::<Value>("b") {
                tokio::spawn(async move { task.once("charge", charge).await });
                begun.reached().await;
                return ask(&round, "b");
            }
            Reply::text(format!("charge {}", round.once("charge", charge).await?))
        }
    });
    let stage = Visit::with(desk, |builder| builder.ledger(ledger.clone())).await;
    let asked = stage.order().await;
    stage.clock.advance(secs(590));
    let asked = asked.accept("a", json!({"a": "small"})).send(&stage.client).await.asked();
    gate.open();
    stage.events.until(1, |station| matches!(station, Station::Effect { .. })).await;
    // The round in which it ran has been deleted by now.
    stage.clock.advance(secs(590));
    let accepted = asked.accept("b", json!({"b": "small"}));
    assert_eq!(accepted.send(&stage.client).await.text(), "charge 0");
    assert_eq!(stage.effects.count(), 1);
    // Now a leg that has replied has used it.
    stage.clock.advance(secs(690));
    let other = stage.order().await.accept("a", json!({"a": "small"}));
    other.send(&stage.client).await.asked();
    assert_eq!(ledger.claims(), 2, "the round of the other flow, and its effect");
}

#[tokio::test]
async fn an_effect_that_failed_is_tried_again_in_a_later_round_when_its_record_is_gone_and_keeps_its_key() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let desk = Desk::new(move |turn| {
        let seen = seen.clone();
        async move {
            let round = turn.round()?;
            for key in ["a", "b"] {
                if let Given::Missing = round.given::<Value>(key) {
                    return ask(&round, key);
                }
                let attempt = async || {
                    seen.lock().expect("the lock is not poisoned").push(round.once_key("charge"));
                    match turn.effects.have() {
                        0 => Err(FlowError::failed("the bank is closed")),
                        _ => Ok("charged".to_owned()),
                    }
                };
                if let Ok(charged) = round.try_once("charge", attempt).await {
                    return Reply::text(charged);
                }
            }
            Reply::text("unreachable")
        }
    });
    let stage = Visit::of(desk).await;
    let asked = stage.order().await;
    stage.clock.advance(secs(590));
    let asked = asked.accept("a", json!({"a": "small"})).send(&stage.client).await.asked();
    stage.clock.advance(secs(590));
    assert_eq!(asked.accept("b", json!({"b": "small"})).send(&stage.client).await.text(), "charged");
    let keys = keys.lock().expect("the lock is not poisoned");
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[tokio::test]
async fn an_effect_that_takes_longer_than_its_round_lives_happens_once_and_is_replied() {
    let gate = Gate::new();
    let waits = gate.clone();
    let ledger = MemoryLedger::new();
    let desk = Desk::new(move |turn| {
        let waits = waits.clone();
        async move {
            let round = turn.round()?;
            if let Given::Missing = round.given::<Value>("size") {
                return ask(&round, "size");
            }
            let slow = async || {
                waits.pass().await;
                turn.effects.have()
            };
            let first = round.once("slow", slow).await?;
            // A claim that begins long after the round's token has expired.
            let second = round.once("late", async || turn.effects.have()).await?;
            Reply::text(format!("{first} {second}"))
        }
    });
    let stage = Visit::with(desk, |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    let leg = accepted.start(&stage.client).await;
    gate.reached().await;
    for _ in 0..120 {
        stage.clock.until_asleep(2).await;
        stage.clock.advance(secs(10));
    }
    accepted.send(&stage.client).await.frozen();
    assert_eq!(ledger.claims(), 2, "a running claim is not deleted");
    gate.open();
    assert_eq!(leg.finish().await.text(), "0 1");
    assert_eq!((stage.runs(), stage.effects.count()), (2, 2));
}

fn fleet(ledger: &Faulty) -> impl FnOnce(RoundsBuilder<Desk>) -> RoundsBuilder<Desk> + use<> {
    let ledger = ledger.clone();
    |builder| builder.keys(ring(&[1])).audience("tea").ledger(ledger)
}

/// Charges and then waits, or the other way round.
fn gated(gate: &Gate, first: bool) -> Desk {
    let gate = gate.clone();
    Desk::new(move |turn| {
        let gate = gate.clone();
        async move {
            let round = turn.round()?;
            if let Given::Missing = round.given::<Value>("size") {
                return ask(&round, "size");
            }
            if first {
                gate.pass().await;
            }
            let charged = charged(&turn, &round).await;
            if !first {
                gate.pass().await;
            }
            charged
        }
    })
}

/// The earlier run has run the effect and was lost. The run that took over needs half an hour to reach the same effect.
#[tokio::test]
async fn a_run_that_took_over_finds_the_effects_of_the_run_before_however_long_it_takes() {
    let (clock, ledger, here_gate, there_gate) = (Clock::new(), Faulty::new(), Gate::new(), Gate::new());
    let lost = ledger.elsewhere();
    let here = Visit::at(&clock, gated(&here_gate, false), fleet(&lost)).await;
    let there = Visit::at(&clock, gated(&there_gate, true), fleet(&ledger)).await;
    let accepted = here.order().await.accept("size", small());
    clock.advance(secs(500));
    let first = accepted.start(&here.client).await;
    here_gate.reached().await;
    lost.is_away_at(Step::Renew);
    let second = accepted.start(&there.client).await;
    for renewal in 1..=3 {
        clock.until_asleep(2).await;
        clock.advance(secs(10));
        lost.asked(Step::Renew, renewal).await;
    }
    there_gate.reached().await;
    for _ in 0..180 {
        clock.until_asleep(2).await;
        clock.advance(secs(10));
    }
    there_gate.open();
    assert_eq!(second.finish().await.text(), "charge 0");
    here_gate.open();
    asks_for_a_retry(&first.finish().await);
    assert_eq!((here.effects.count(), there.effects.count()), (1, 0));
}

/// The run that took over has replied, and its effect is deleted with its round. The run that was overtaken reaches the
/// effect only now.
#[tokio::test]
async fn a_run_that_was_overtaken_begins_no_effect_after_those_of_the_other_are_forgotten() {
    let (clock, ledger, gate) = (Clock::new(), Faulty::new(), Gate::new());
    let stalled = ledger.elsewhere();
    let slow = Visit::at(&clock, gated(&gate, true), fleet(&stalled)).await;
    let quick = Visit::at(&clock, charging(), fleet(&ledger)).await;
    let accepted = slow.order().await.accept("size", small());
    let first = accepted.start(&slow.client).await;
    gate.reached().await;
    stalled.is_away_at(Step::Renew);
    let second = accepted.start(&quick.client).await;
    for renewal in 1..=3 {
        clock.until_asleep(2).await;
        clock.advance(secs(10));
        stalled.asked(Step::Renew, renewal).await;
    }
    assert_eq!(second.finish().await.text(), "charge 0");
    for renewal in 4..=70 {
        clock.until_asleep(1).await;
        clock.advance(secs(10));
        stalled.asked(Step::Renew, renewal).await;
    }
    touch(&quick).await;
    assert_eq!(ledger.claims(), 1, "the record of the other flow");
    stalled.is_back();
    gate.open();
    asks_for_a_retry(&first.finish().await);
    assert_eq!((slow.effects.count(), quick.effects.count()), (0, 1));
}

/// A server whose test decides whether a caller is authenticated.
async fn identifying(ledger: &MemoryLedger, configured: bool) -> (Visit, Arc<Mutex<Option<&'static str>>>) {
    let who = Arc::new(Mutex::new(None));
    let signed_in = who.clone();
    let identify = move |_: &RequestContext<RoleServer>| {
        signed_in.lock().expect("the lock is not poisoned").map(|name: &str| Principal::new(name))
    };
    let stage = Visit::with(shop(), |builder| {
        let builder = builder.ledger(ledger.clone());
        if configured { builder.principal(identify) } else { builder }
    });
    (stage.await, who)
}

/// How many flows pass before one gets a retryable error.
async fn flows(stage: &Visit) -> usize {
    for flows in 0..1000 {
        let leg = stage.order().await.accept("size", small()).send(&stage.client).await;
        if leg.response().get("error").is_some() {
            asks_for_a_retry(&leg);
            return flows;
        }
    }
    1000
}

#[tokio::test]
async fn an_anonymous_crowd_and_one_principal_leave_room_for_the_others() {
    let ledger = MemoryLedger::new().with_claim_bytes(20_000);
    let (stage, who) = identifying(&ledger, true).await;
    let signed_in = |name| *who.lock().expect("the lock is not poisoned") = name;
    assert_eq!(flows(&stage).await, (10_000 - 128) / ANSWERED, "half of the space is for callers without a principal");
    signed_in(Some("ada"));
    assert_eq!(flows(&stage).await, (2_000 - 128) / ANSWERED, "a tenth is for each principal");
    signed_in(Some("bob"));
    assert_eq!(flows(&stage).await, (2_000 - 128) / ANSWERED);
    signed_in(None);
    asks_for_a_retry(&stage.order().await.accept("size", small()).send(&stage.client).await);
    stage.clock.advance(secs(690));
    assert!(flows(&stage).await > 100, "until they expire");
}

#[tokio::test]
async fn where_no_principal_was_ever_seen_all_the_room_is_for_everybody() {
    let ledger = MemoryLedger::new().with_claim_bytes(20_000);
    let (stage, _) = identifying(&ledger, false).await;
    assert_eq!(flows(&stage).await, (20_000 - 128) / ANSWERED);
}

/// A server that finds principals in its requests without an `Identify` of its own.
#[tokio::test]
async fn after_the_first_principal_those_without_one_have_their_share() {
    let ledger = MemoryLedger::new().with_claim_bytes(20_000);
    let first = Arc::new(AtomicBool::new(true));
    let seen = first.clone();
    let identify =
        move |_: &RequestContext<RoleServer>| seen.swap(false, Ordering::SeqCst).then(|| Principal::new("ada"));
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone()).principal(identify)).await;
    stage.order().await;
    assert!(!first.load(Ordering::SeqCst));
    assert_eq!(flows(&stage).await, (10_000 - 128) / ANSWERED);
}
