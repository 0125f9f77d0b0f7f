//! Durable handlers whose client disconnects while a leg is in flight.

use std::time::Duration;

use rounds::{
    Durable, FlowError, durable,
    observe::{Outcome, Station},
    test::Retry,
};
use serde_json::json;

use super::{Airline, Flights, Trip};

const CANCELLED: fn(&Station) -> bool = |station| *station == Station::Ended(Outcome::Cancelled);
const STARTED: fn(&Station) -> bool = |station| *station == Station::Started;

/// Asks, charges at a gate, and posts a letter.
async fn slow(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
    flow.confirm("Pay?").await?;
    let charge = flow
        .once("charge", async |airline, _key| {
            airline.world.pass().await;
            airline.world.have("charge")
        })
        .await?;
    let letter = flow.once("letter", async |airline, _key| airline.world.have("letter")).await?;
    Ok(format!("charge {charge}, letter {letter}"))
}

/// A fleet with one instance, whose client is about to pay.
async fn paying(fleet: &Flights) -> (rounds::test::Client, Retry) {
    let client = fleet.instance(durable("book", "", slow)).await;
    let paid = client.call("book", json!({"to": "Rome"})).await.asked().accept("confirm", json!({"confirm": true}));
    (client, paid)
}

#[tokio::test]
async fn a_durable_handler_has_the_grace_period_and_then_its_round_is_free_for_any_answers() {
    let fleet = Flights { grace: Duration::from_secs(5), ..Flights::new() };
    let client = fleet.instance(durable("book", "", slow)).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    let leg = asked.accept("confirm", json!({"confirm": true})).start(&client).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    leg.cancel().await;
    // The timers of two leases, of the round and of the effect, and of the grace period.
    fleet.clock.until_asleep(3).await;
    fleet.clock.advance(Duration::from_millis(4999));
    asked.decline("confirm").send(&client).await.frozen();
    assert!(!fleet.events.stations().iter().any(CANCELLED));
    fleet.clock.advance(Duration::from_millis(1));
    fleet.events.until(1, CANCELLED).await;
    let retry = asked.decline("confirm").start(&client).await;
    fleet.events.until(3, STARTED).await;
    fleet.world.gate.add_permits(1);
    assert_eq!(
        retry.finish().await.text(),
        "charge 0, letter 0",
        "the effect had begun, and the handler ignores the cancellation"
    );
    assert_eq!(fleet.world.count("charge"), 1);
}

#[tokio::test]
async fn what_a_durable_handler_ends_with_in_its_grace_period_is_the_reply() {
    let fleet = Flights { grace: Duration::from_secs(5), ..Flights::new() };
    let (client, paid) = paying(&fleet).await;
    let leg = paid.start(&client).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    leg.cancel().await;
    fleet.clock.until_asleep(3).await;
    fleet.world.gate.add_permits(1);
    fleet.events.until(1, |station| *station == Station::Ended(Outcome::Complete)).await;
    assert_eq!(paid.send(&client).await.text(), "charge 0, letter 0");
    assert_eq!(fleet.events.runs("book"), 2, "the reply was recorded");
}

#[tokio::test]
async fn a_durable_handler_that_has_not_asked_yet_is_not_dropped() {
    async fn charges(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let charge = async |airline: &Airline, _key: &str| {
            airline.world.pass().await;
            airline.world.have("charge")
        };
        flow.once("charge", charge).await?;
        flow.once("letter", async |airline, _key| airline.world.have("letter")).await?;
        Ok("charged".to_owned())
    }
    let fleet = Flights { grace: Duration::from_secs(5), ..Flights::new() };
    let client = fleet.instance(durable("book", "", charges)).await;
    let leg = client.start("tools/call", json!({"name": "book", "arguments": {"to": "Rome"}})).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    leg.cancel().await;
    let _ = client.request("tools/list", json!({})).await;
    fleet.clock.advance(Duration::from_secs(3600));
    fleet.world.gate.add_permits(1);
    fleet.events.until(1, |station| *station == Station::Ended(Outcome::Complete)).await;
    assert_eq!((fleet.world.count("charge"), fleet.world.count("letter")), (1, 1));
}

#[tokio::test]
async fn an_effect_that_has_begun_comes_to_its_end_and_nothing_after_it_begins() {
    let fleet = Flights::new();
    let (client, paid) = paying(&fleet).await;
    let leg = paid.start(&client).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    leg.cancel().await;
    fleet.events.until(1, CANCELLED).await;
    fleet.world.gate.add_permits(1);
    fleet.events.until(1, |station| matches!(station, Station::Effect { .. })).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!((fleet.world.count("charge"), fleet.world.count("letter")), (1, 0));
    assert_eq!(paid.send(&client).await.text(), "charge 0, letter 0");
}

#[tokio::test]
async fn a_long_effect_is_not_taken_for_lost() {
    let fleet = Flights::new();
    let (client, paid) = paying(&fleet).await;
    let leg = paid.start(&client).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    leg.cancel().await;
    fleet.events.until(1, CANCELLED).await;
    for _ in 0..9 {
        fleet.clock.until_asleep(1).await;
        fleet.clock.advance(Duration::from_secs(10));
        tokio::task::yield_now().await;
    }
    let retry = paid.start(&client).await;
    fleet.events.until(3, STARTED).await;
    fleet.world.gate.add_permits(1);
    assert_eq!(retry.finish().await.text(), "charge 0, letter 0");
    assert_eq!(fleet.world.count("charge"), 1);
}

#[tokio::test]
async fn a_cancelled_leg_that_waited_for_the_effect_of_another_does_not_go_on_with_its_value() {
    let fleet = Flights::new();
    let (client, paid) = paying(&fleet).await;
    let first = paid.start(&client).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    first.cancel().await;
    fleet.events.until(1, CANCELLED).await;
    let second = paid.start(&client).await;
    fleet.events.until(3, STARTED).await;
    second.cancel().await;
    fleet.events.until(2, CANCELLED).await;
    fleet.world.gate.add_permits(1);
    fleet.events.until(1, |station| matches!(station, Station::Effect { .. })).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!((fleet.world.count("charge"), fleet.world.count("letter")), (1, 0));
    assert_eq!(paid.send(&client).await.text(), "charge 0, letter 0", "only the answered leg continued");
}
