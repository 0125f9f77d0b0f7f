//! How long a question can be answered, by a clock that the test moves.

use crate::common::{Desk, Reply, Visit, gate::Gate, ledger::Faulty, ring, secs, shop, small};
use rounds::{
    Given, Limits,
    observe::{Refusal, Station},
};
use serde_json::{Value, json};

const EXPIRES: &str = "rounds/expiresInMs";

/// Asks again and again, whatever the answers are.
fn curious() -> Desk {
    Desk::new(|turn| async move { turn.round()?.ask_form::<bool>("more", "More?") })
}

#[tokio::test]
async fn a_round_can_be_answered_until_its_time_is_over_and_not_at_that_moment() {
    for (waited, refusal) in [
        (secs(599), None),
        (secs(600) - std::time::Duration::from_millis(1), None),
        (secs(600), Some(Refusal::Expired)),
        (secs(601), Some(Refusal::Expired)),
    ] {
        let stage = Visit::of(shop()).await;
        let accepted = stage.order().await.accept("size", small());
        stage.clock.advance(waited);
        let leg = accepted.send(&stage.client).await;
        assert_eq!(stage.events.refusals(), Vec::from_iter(refusal), "after {waited:?}");
        match refusal {
            None => assert_eq!(leg.text(), "Small order number 1"),
            Some(_) => leg.frozen(),
        }
    }
}

#[tokio::test]
async fn a_reply_is_not_given_again_once_its_round_has_expired() {
    let stage = Visit::of(shop()).await;
    let accepted = stage.order().await.accept("size", small());
    let _ = accepted.send(&stage.client).await.text();
    stage.clock.advance(secs(600));
    accepted.send(&stage.client).await.frozen();
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn the_deadline_of_a_flow_is_not_extended_by_asking_again() {
    let stage = Visit::with(curious(), |builder| builder.flow_deadline(secs(25 * 60))).await;
    let mut asked = stage.order().await;
    let mut left = vec![asked.result()["_meta"][EXPIRES].clone()];
    for _ in 0..4 {
        stage.clock.advance(secs(6 * 60));
        asked = asked.retry().send(&stage.client).await.asked();
        left.push(asked.result()["_meta"][EXPIRES].clone());
    }
    // Ten minutes each, until less than that is left of the flow.
    assert_eq!(left, [600_000, 600_000, 600_000, 420_000, 60_000].map(Value::from));
    stage.clock.advance(secs(60));
    asked.retry().send(&stage.client).await.frozen();
    assert_eq!(stage.runs(), 5);
}

#[tokio::test]
async fn the_times_of_rounds_and_flows_can_be_set() {
    let stage = Visit::with(shop(), |builder| builder.round_lifetime(secs(5)).flow_deadline(secs(3))).await;
    let asked = stage.order().await;
    assert_eq!(asked.result()["_meta"][EXPIRES], 3000, "a round does not outlive its flow");
    stage.clock.advance(secs(3));
    asked.accept("size", small()).send(&stage.client).await.frozen();
}

#[tokio::test]
async fn a_token_from_the_future_is_refused_beyond_a_minute_of_skew() {
    let stage = Visit::of(shop()).await;
    let accepted = stage.order().await.accept("size", small());
    stage.clock.rewind(secs(61));
    accepted.send(&stage.client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::FromTheFuture]);
    stage.clock.advance(secs(1));
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn a_question_says_how_long_it_is_good_for_unless_told_not_to() {
    let stage = Visit::of(shop()).await;
    assert_eq!(stage.order().await.result()["_meta"], json!({EXPIRES: 600_000}));
    let silent = Visit::with(shop(), |builder| builder.announce_expiry(false)).await;
    assert_eq!(silent.order().await.result().get("_meta"), None);
}

#[tokio::test]
async fn a_leg_that_waits_beyond_the_end_of_its_round_gets_the_reply_and_does_not_run() {
    for waits in [secs(601), secs(660), secs(3599)] {
        let gate = Gate::new();
        // No lease is renewed and no wait ends within the hour: the two legs meet only at the end.
        let patient = Limits::default().with_wait(secs(3600)).with_lease(secs(3600));
        let stage = Visit::with(gate.shop(), |builder| builder.limits(patient)).await;
        let accepted = stage.order().await.accept("size", small());
        let first = accepted.start(&stage.client).await;
        gate.reached().await;
        let second = accepted.start(&stage.client).await;
        stage.events.until(1, |station| *station == Station::Waiting).await;
        stage.clock.advance(waits);
        gate.open();
        gate.open();
        assert_eq!(first.finish().await.text(), "Small order number 1");
        assert_eq!(second.finish().await.text(), "Small order number 1");
        assert_eq!((stage.runs(), stage.effects.count()), (2, 1), "after {waits:?}");
    }
}

#[tokio::test]
async fn a_round_whose_owner_is_lost_is_not_taken_over_after_its_end() {
    let ledger = Faulty::new();
    let patient = Limits::default().with_wait(secs(3600)).with_lease(secs(700));
    let stage = Visit::with(shop(), |builder| builder.ledger(ledger.clone()).limits(patient)).await;
    let accepted = stage.order().await.accept("size", small());
    ledger.lose_an_owner();
    let waiting = accepted.start(&stage.client).await;
    stage.events.until(1, |station| *station == Station::Waiting).await;
    stage.clock.until_asleep(1).await;
    stage.clock.advance(secs(700));
    waiting.finish().await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::Expired]);
    assert_eq!(stage.effects.count(), 0);
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_bring_a_used_token_back() {
    let stage = Visit::with(shop(), |builder| builder.keys(ring(&[1])).audience("tea")).await;
    let accepted = stage.order().await.accept("size", small());
    let done = accepted.send(&stage.client).await;
    stage.clock.advance(secs(630));
    let _ = stage.order().await; // whatever has expired is forgotten by now
    stage.clock.rewind(secs(60));
    let again = accepted.send(&stage.client).await;
    assert_eq!(again.response()["result"], done.response()["result"]);
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn what_was_answered_in_time_stays_answered_when_later_rounds_take_long() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match (round.given::<bool>("one"), round.given::<bool>("two")) {
            (Given::Missing, _) => round.ask_form::<bool>("one", "One?"),
            (_, Given::Missing) => round.ask_form::<bool>("two", "Two?"),
            (one, two) => Reply::text(format!("{one:?} {two:?}")),
        }
    });
    let stage = Visit::of(desk).await;
    let one = stage.order().await.accept("one", json!({"one": true}));
    stage.clock.advance(secs(599));
    let two = one.send(&stage.client).await.asked().accept("two", json!({"two": false}));
    stage.clock.advance(secs(599));
    assert_eq!(two.send(&stage.client).await.text(), "Accepted(true) Accepted(false)");
}
