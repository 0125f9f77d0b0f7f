//! States that are too large for a token, and are stored in the ledger instead.

use crate::common::{Desk, Reply, Turn, Visit, asks_for_a_retry, ledger::Faulty, ring, secs, small};
use rounds::{
    BuildError, FlowError, Given, Limits, Rounds, RoundsBuilder, ledger::MemoryLedger, observe::Refusal, test::Clock,
};
use serde_json::{Value, json};

/// Keeps as many bytes as its name says, and returns how many it was given back.
fn hoarder() -> Desk {
    Desk::new(|turn| async move {
        let round = turn.round()?;
        let bytes: usize = turn.target.parse().expect("a number of bytes");
        match round.given::<Value>("size") {
            Given::Missing => round.questions().form::<String>("size", "Which size?").state(&"x".repeat(bytes)).send(),
            _ => told(&turn, round.state::<String>()?.unwrap_or_default().len()),
        }
    })
}

fn told(turn: &Turn, kept: usize) -> Result<Reply, FlowError> {
    Reply::text(format!("{kept} kept, number {}", turn.effects.have()))
}

fn small_tokens() -> Limits {
    Limits::default().with_token_bytes(1000).with_spill_bytes(5000)
}

fn spilling(ledger: &Faulty) -> impl FnOnce(RoundsBuilder<Desk>) -> RoundsBuilder<Desk> {
    let ledger = ledger.clone();
    |builder| builder.keys(ring(&[1])).audience("tea").ledger(ledger).spill().limits(small_tokens())
}

#[tokio::test]
async fn what_fits_into_a_token_does_not_spill_and_what_does_not_goes_on_from_the_ledger() {
    let ledger = Faulty::new();
    let stage = Visit::with(hoarder(), spilling(&ledger)).await;
    let asked = stage.client.call("500", json!({})).await.asked();
    assert!(asked.state().len() > 700 && ledger.given().is_empty());

    let asked = stage.client.call("4000", json!({})).await.asked();
    assert!(asked.state().len() < 300, "{}", asked.state().len());
    let [spilled] = &ledger.given()[..] else { panic!("one state was spilled") };
    assert!(spilled.len() > 4000 && !spilled.windows(4).any(|bytes| bytes == b"xxxx"), "the state was sealed");
    let accepted = asked.accept("size", small());
    for _ in 0..2 {
        assert_eq!(accepted.send(&stage.client).await.text(), "4000 kept, number 0");
    }
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn nothing_spills_unless_it_was_asked_for() {
    let ledger = Faulty::new();
    let stage = Visit::with(hoarder(), |builder| builder.ledger(ledger.clone()).limits(small_tokens())).await;
    let refused = stage.client.call("4000", json!({})).await;
    assert!(refused.is_tool_error() && refused.text().contains("and the limit is 1000:"), "{}", refused.text());
    assert!(ledger.given().is_empty());
}

#[test]
fn a_ledger_has_to_be_chosen_for_it() {
    let built = Rounds::builder(hoarder()).spill().build();
    assert!(matches!(built, Err(BuildError::SpillWithoutLedger)));
    assert!(Rounds::builder(hoarder()).ledger(MemoryLedger::new()).spill().build().is_ok());
}

#[tokio::test]
async fn what_is_too_large_even_for_that_is_said_in_words() {
    let stage = Visit::with(hoarder(), spilling(&Faulty::new())).await;
    let refused = stage.client.call("5000", json!({})).await;
    assert!(refused.is_tool_error() && refused.text().contains("and the limit is 5000:"), "{}", refused.text());
}

#[tokio::test]
async fn a_state_grows_from_round_to_round_on_any_instance() {
    let desk = || {
        Desk::new(|turn| async move {
            let round = turn.round()?;
            let kept: String = round.state()?.unwrap_or_default();
            if round.number() == 4 {
                return told(&turn, kept.len());
            }
            let key = format!("q{}", round.number());
            round.questions().form::<String>(&key, "And?").state(&(kept + &"x".repeat(900))).send()
        })
    };
    let (clock, ledger) = (Clock::new(), Faulty::new());
    let here = Visit::at(&clock, desk(), spilling(&ledger)).await;
    let there = Visit::at(&clock, desk(), spilling(&ledger.elsewhere())).await;
    let mut asked = here.order().await;
    for (round, stage) in [(0, &there), (1, &here), (2, &there)] {
        let key = format!("q{round}");
        asked = asked.accept(&key, json!({&key: "y".repeat(100)})).send(&stage.client).await.asked();
    }
    let last = asked.accept("q3", json!({"q3": "y"}));
    assert_eq!(last.send(&here.client).await.text(), "3600 kept, number 0");
}

#[tokio::test]
async fn one_that_is_missing_or_forged_is_the_frozen_error_and_nothing_is_run() {
    let ledger = Faulty::new();
    let stage = Visit::with(hoarder(), spilling(&ledger)).await;
    let one = stage.client.call("4000", json!({})).await.asked().accept("size", small());
    let other = stage.client.call("4001", json!({})).await.asked().accept("size", small());
    let of_other = ledger.given().pop().unwrap();
    for forged in [None, Some(of_other), Some(vec![]), Some(vec![0; 4000])] {
        ledger.forges(move |_, _| forged.clone());
        one.send(&stage.client).await.frozen();
    }
    assert_eq!(stage.runs(), 2);
    assert_eq!(stage.events.refusals(), [Refusal::SpillGone; 4]);
    ledger.forges(|_, kept| Some(kept));
    assert_eq!(one.send(&stage.client).await.text(), "4000 kept, number 0", "the round was not changed");
    assert_eq!(other.send(&stage.client).await.text(), "4001 kept, number 1");
}

#[tokio::test]
async fn a_state_that_another_run_of_the_same_round_left_is_not_taken_for_this_one() {
    let desk = || {
        Desk::new(|turn| async move {
            let round = turn.round()?;
            match round.number() {
                0 => round.ask_form::<String>("size", "Which size?"),
                1 => round.questions().form::<String>("size", "Really?").state(&vec![turn.answers.clone(); 50]).send(),
                _ => told(&turn, round.state::<Vec<Value>>()?.unwrap_or_default().len()),
            }
        })
    };
    // Two ledgers that do not know each other: the same round is answered once with each.
    let (clock, one, other) = (Clock::new(), Faulty::new(), Faulty::new());
    let here = Visit::at(&clock, desk(), spilling(&one)).await;
    let there = Visit::at(&clock, desk(), spilling(&other)).await;
    let first = here.order().await;
    let accepted = first.accept("size", small()).send(&here.client).await.asked().accept("size", small());
    first.accept("size", json!({"size": "other"})).send(&there.client).await.asked();
    let left = |ledger: &Faulty| ledger.given().into_iter().max_by_key(Vec::len).unwrap();
    let (own, others) = (left(&one), left(&other));
    assert_ne!(own, others);
    one.forges(move |_, _| Some(others.clone()));
    accepted.send(&here.client).await.frozen();
    assert_eq!(here.events.refusals(), [Refusal::SpillGone]);
    one.forges(move |_, _| Some(own.clone()));
    assert_eq!(accepted.send(&here.client).await.text(), "50 kept, number 0");
}

#[tokio::test]
async fn it_expires_with_its_round() {
    let ledger = Faulty::new();
    let stage = Visit::with(hoarder(), spilling(&ledger)).await;
    let asked = stage.client.call("4000", json!({})).await.asked();
    stage.clock.advance(secs(10 * 60 + 60 + 30));
    assert_eq!(ledger.claims(), 1);
    // The next call lets the ledger delete it.
    let next = stage.client.call("500", json!({})).await.asked();
    next.accept("size", small()).send(&stage.client).await.text();
    assert_eq!(ledger.claims(), 1, "the state of the next flow");
    asked.accept("size", small()).send(&stage.client).await.frozen();
}

#[tokio::test]
async fn a_ledger_that_is_away_lets_no_token_out_that_leads_nowhere() {
    let ledger = Faulty::new();
    let stage = Visit::with(hoarder(), spilling(&ledger)).await;
    ledger.is_away_at(crate::common::ledger::Step::Spill);
    asks_for_a_retry(&stage.client.call("4000", json!({})).await);
}

/// Keeps nothing in the first round, and this many bytes in the second.
fn later() -> Desk {
    Desk::new(|turn| async move {
        let round = turn.round()?;
        let bytes: usize = turn.target.parse().expect("a number of bytes");
        match round.number() {
            0 => round.ask_form::<String>("size", "Which size?"),
            1 => round.questions().form::<String>("sure", "Sure?").state(&"x".repeat(bytes)).send(),
            _ => told(&turn, round.state::<String>()?.unwrap_or_default().len()),
        }
    })
}

#[tokio::test]
async fn a_state_that_finds_no_room_is_said_in_words_or_may_be_sent_again_and_nothing_is_left_of_it() {
    let ledger = MemoryLedger::new().with_claim_bytes(5000);
    let spilling = |builder: RoundsBuilder<Desk>| builder.ledger(ledger.clone()).spill().limits(small_tokens());
    let stage = Visit::with(hoarder(), spilling).await;
    let busy = stage.client.call("4000", json!({})).await;
    assert!(busy.is_tool_error());
    assert_eq!(busy.text(), "the server has no space left to keep this call: try again in a moment");
    assert_eq!(ledger.claim_bytes(), 0);

    let stage = Visit::with(later(), spilling).await;
    let accepted = stage.client.call("4000", json!({})).await.asked().accept("size", small());
    for _ in 0..2 {
        asks_for_a_retry(&accepted.send(&stage.client).await);
    }
    assert_eq!((ledger.claims(), ledger.claim_bytes()), (1, 64), "the claim on the round was released");
    let _more = ledger.clone().with_claim_bytes(10_000);
    let asked = accepted.send(&stage.client).await.asked();
    let done = asked.accept("sure", json!({"sure": "yes"})).send(&stage.client).await.text();
    assert_eq!(done, "4000 kept, number 0");
}
