//! An unavailable ledger: nothing runs without a claim, nothing is lost, and service resumes.

use crate::common::{
    Visit, asks_for_a_retry,
    gate::Gate,
    large,
    ledger::{Faulty, Step},
    ring, secs, shop, small,
};
use rounds::{
    observe::{Outcome, Station},
    test::Clock,
};
use serde_json::json;

#[tokio::test]
async fn a_call_that_asks_nothing_needs_no_ledger() {
    let ledger = Faulty::new();
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    for step in [Step::Spill, Step::Claim, Step::Settle, Step::Renew, Step::Release] {
        ledger.is_away_at(step);
    }
    let uninvited = json!({"name": "order", "inputResponses": {"size": {"action": "decline"}}});
    assert_eq!(stage.client.request("tools/call", uninvited).await.text(), "declined");
}

#[tokio::test]
async fn a_flow_begins_without_a_ledger_and_its_question_is_answered_when_there_is_one() {
    let ledger = Faulty::new();
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    for step in [Step::Spill, Step::Claim, Step::Settle, Step::Renew, Step::Release] {
        ledger.is_away_at(step);
    }
    let accepted = stage.order().await.accept("size", small());
    let leg = accepted.send(&stage.client).await;
    asks_for_a_retry(&leg);
    assert!(!leg.response().to_string().contains("cable"), "the reason is only in the log");
    ledger.is_back();
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn away_when_a_round_is_claimed_it_runs_nothing_and_asks_for_a_retry() {
    let ledger = Faulty::new();
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    ledger.is_away_at(Step::Claim);
    for _ in 0..3 {
        asks_for_a_retry(&accepted.send(&stage.client).await);
    }
    assert_eq!((stage.runs(), stage.effects.count()), (1, 0));
    assert_eq!(stage.events.refusals(), []);
    ledger.is_back();
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn away_when_a_reply_is_recorded_the_reply_does_not_leave_and_the_round_is_free_after_its_lease() {
    let ledger = Faulty::new();
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    let asked = stage.order().await;
    let accepted = asked.accept("size", small());
    ledger.is_away_at(Step::Settle);
    asks_for_a_retry(&accepted.send(&stage.client).await);
    ledger.is_back();
    // Other answers are rejected, because the effect may have run with the first.
    asked.accept("size", large()).send(&stage.client).await.frozen();
    let retry = accepted.start(&stage.client).await;
    stage.clock.until_asleep(1).await;
    assert_eq!(stage.runs(), 2);
    stage.clock.advance(secs(30));
    assert_eq!(retry.finish().await.text(), "Small order number 2");
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 2", "recorded this time");
    assert_eq!(stage.runs(), 3);
}

#[tokio::test]
async fn away_when_a_panicked_leg_gives_its_round_back_the_lease_does_it() {
    let ledger = Faulty::new();
    let desk = crate::common::Desk::new(|turn| async move {
        if turn.round()?.number() == 1 && turn.effects.have() == 0 {
            panic!("the till is jammed");
        }
        crate::common::sell(&turn)
    });
    let stage = Visit::with(desk, |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    ledger.is_away_at(Step::Release);
    assert_eq!(accepted.send(&stage.client).await.error()["code"], -32603);
    ledger.is_back();
    let retry = accepted.start(&stage.client).await;
    stage.clock.until_asleep(1).await;
    stage.clock.advance(secs(30));
    assert_eq!(retry.finish().await.text(), "Small order number 3");
}

#[tokio::test]
async fn a_round_whose_owner_is_lost_is_taken_over_when_its_lease_lapses() {
    let ledger = Faulty::new();
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    ledger.lose_an_owner();
    let retry = accepted.start(&stage.client).await;
    stage.clock.until_asleep(1).await;
    stage.clock.advance(secs(29));
    assert_eq!(stage.runs(), 1, "the owner is presumed alive");
    stage.clock.advance(secs(1));
    assert_eq!(retry.finish().await.text(), "Small order number 1");
    assert!(stage.events.stations().contains(&Station::Claimed { fence: 2 }));
}

/// Away twice, and back long before the lease lapses.
#[tokio::test]
async fn an_owner_that_could_not_say_that_it_is_there_says_so_as_soon_as_it_can() {
    let (gate, ledger) = (Gate::new(), Faulty::new());
    let stage = Visit::with(gate.shop(), |builder| builder.ledger(ledger.clone())).await;
    let accepted = stage.order().await.accept("size", small());
    ledger.is_away_at(Step::Renew);
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    for (seconds, renewals) in [(10, 1), (1, 2)] {
        stage.clock.until_asleep(1).await;
        stage.clock.advance(secs(seconds));
        ledger.asked(Step::Renew, renewals).await;
    }
    ledger.is_back();
    stage.clock.until_asleep(1).await;
    stage.clock.advance(secs(1));
    ledger.asked(Step::Renew, 3).await;

    // After the first lease, and within the renewed one.
    let second = accepted.start(&stage.client).await;
    stage.clock.until_asleep(2).await;
    stage.clock.advance(secs(19));
    gate.open();
    assert_eq!(first.finish().await.text(), second.finish().await.text());
    assert_eq!(stage.runs(), 2, "one for the question, and one for its answer");
}

#[tokio::test]
async fn an_owner_that_was_overtaken_does_not_reply() {
    let (clock, gate, ledger) = (Clock::new(), Gate::new(), Faulty::new());
    let cut_off = ledger.elsewhere();
    cut_off.is_away_at(Step::Renew);
    let fleet =
        |ledger: Faulty| |builder: rounds::RoundsBuilder<_>| builder.keys(ring(&[1])).audience("tea").ledger(ledger);
    let slow = Visit::at(&clock, gate.shop(), fleet(cut_off.clone())).await;
    let quick = Visit::at(&clock, shop(), fleet(ledger)).await;
    let accepted = slow.order().await.accept("size", small());
    let first = accepted.start(&slow.client).await;
    gate.reached().await;
    let second = accepted.start(&quick.client).await;
    for step in 1..=3 {
        clock.until_asleep(2).await;
        clock.advance(secs(10));
        cut_off.asked(Step::Renew, step).await;
    }
    assert_eq!(second.finish().await.text(), "Small order number 1");
    gate.open();
    asks_for_a_retry(&first.finish().await);
    assert_eq!(slow.events.outcomes(), [Outcome::InputRequired, Outcome::Error { code: -32603 }]);
    assert_eq!(accepted.send(&slow.client).await.text(), "Small order number 1", "the reply of the faster leg");
}
