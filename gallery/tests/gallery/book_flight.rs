//! A booking: whatever is declined, sent again or sent too late, a flight is charged at most once.

use rounds::Era;
use serde_json::{Value, json};

use super::{ERAS, Visit, accept, cancel, decline};

pub(crate) const BOOKED: &str = "Booked LHR to FCO on 2026-12-01, seat 12A: charged 140.";

pub(crate) fn to_rome() -> Value {
    json!({"from": "LHR", "to": "FCO", "date": "2026-12-01"})
}

pub(crate) fn seat() -> Value {
    json!({"seat": "12A"})
}

pub(crate) fn yes() -> Value {
    json!({"confirm": true})
}

/// The airline's counts: quotes, charges and duplicates.
async fn counted(stage: &Visit) -> [u64; 3] {
    let ledger = stage.client.call("airline_ledger", json!({})).await;
    let counted = &ledger.result()["structuredContent"];
    assert_eq!(serde_json::from_str::<Value>(&ledger.text()).unwrap(), *counted);
    assert_eq!(counted.as_object().unwrap().len(), 3);
    ["quotes", "charges", "duplicates"].map(|name| counted[name].as_u64().unwrap())
}

#[tokio::test]
async fn a_flight_is_charged_when_the_payment_was_agreed_to_and_only_then() {
    for era in ERAS {
        for (payment, text, charges) in [
            (accept(yes()), BOOKED, 1),
            (accept(json!({"confirm": false})), "Not booked.", 0),
            (decline(), "Not booked.", 0),
            (cancel(), "Not booked.", 0),
        ] {
            let stage = Visit::new(era).await;
            let call = json!({"name": "book_flight", "arguments": to_rome()});
            let played = stage.play_in_turn("tools/call", call, [accept(seat()), payment]).await;
            let asked: Vec<_> = played.questions.iter().map(|question| &question["params"]["message"]).collect();
            assert_eq!(asked, ["LHR to FCO on 2026-12-01 for 140. Which seat?", "Pay 140 for seat 12A?"]);
            assert_eq!(played.leg.text(), text, "{era:?}");
            assert!(!played.leg.is_tool_error());
            assert_eq!(counted(&stage).await, [1, charges, 0], "{era:?}");
        }
    }
}

#[tokio::test]
async fn whoever_wants_no_seat_is_asked_nothing_more() {
    for era in ERAS {
        for (answer, did) in [(decline(), "declined"), (cancel(), "cancelled")] {
            let stage = Visit::new(era).await;
            let call = json!({"name": "book_flight", "arguments": to_rome()});
            let played = stage.play_in_turn("tools/call", call, [answer]).await;
            let words = format!("The user {did}: LHR to FCO on 2026-12-01 for 140. Which seat?");
            assert_eq!(played.leg.text(), words, "{era:?}");
            assert!(played.leg.is_tool_error());
            assert_eq!(counted(&stage).await, [1, 0, 0], "{era:?}");
        }
    }
}

#[tokio::test]
async fn the_last_leg_sent_again_gets_the_same_booking_and_no_further_charge() {
    let stage = Visit::new(Era::Modern).await;
    let asked = stage.client.call("book_flight", to_rome()).await.asked();
    let paid = asked.accept("seat", seat()).send(&stage.client).await.asked().accept("confirm", yes());
    for _ in ["the answer", "its retry"] {
        assert_eq!(paid.send(&stage.client).await.text(), BOOKED);
    }
    assert_eq!(stage.events.runs("book_flight"), 3);
    assert_eq!(counted(&stage).await, [1, 1, 0]);
}

#[tokio::test]
async fn an_older_token_gives_the_reply_it_gave_and_no_other() {
    let stage = Visit::new(Era::Modern).await;
    let asked = stage.client.call("book_flight", to_rome()).await.asked();
    let seated = asked.accept("seat", seat());
    let payment = seated.send(&stage.client).await.asked();
    assert_eq!(payment.accept("confirm", yes()).send(&stage.client).await.text(), BOOKED);

    let again = seated.send(&stage.client).await.asked();
    assert_eq!(again.state(), payment.state());
    assert_eq!(again.accept("confirm", yes()).send(&stage.client).await.text(), BOOKED);
    asked.accept("seat", json!({"seat": "1A"})).send(&stage.client).await.frozen();
    payment.decline("confirm").send(&stage.client).await.frozen();
    assert_eq!(counted(&stage).await, [1, 1, 0]);
}
