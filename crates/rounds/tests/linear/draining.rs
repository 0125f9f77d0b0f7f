//! A server that drains: it finishes the calls whose handlers wait, and starts no others. Also one that other instances
//! cannot reach.

use std::time::Duration;

use rounds::{
    Ask, Rounds,
    health::NotReady,
    test::{Client, Leg},
};
use rounds_testkit::{Fleet, Stage, Tool, in_time};
use serde_json::json;

use super::{Count, stage, units, units_until};

fn asks_for_a_retry(leg: &Leg) -> bool {
    leg.response()["error"]["data"]["reason"] == "retry"
}

#[tokio::test]
async fn a_call_that_waits_is_answered_while_its_server_drains_and_then_the_server_has_drained() {
    let stage = stage(units);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    let health = stage.server.health();
    health.ready().await.unwrap();

    let waiting = stage.clock.sleepers();
    let drained = tokio::spawn({
        let health = health.clone();
        async move { health.drain(Duration::from_secs(30)).await }
    });
    in_time(stage.clock.until_asleep(waiting + 1)).await;
    assert!(health.is_draining());
    assert!(matches!(health.ready().await, Err(NotReady::Draining)));
    assert!(asks_for_a_retry(&client.call("weather", json!({})).await), "it does not start");
    assert!(!drained.is_finished(), "a handler waits");
    let answered = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(answered.text(), "Metric");
    assert_eq!(in_time(drained).await.unwrap().ended, 0);
}

#[tokio::test]
async fn handlers_that_wait_when_the_time_has_passed_are_ended_and_counted() {
    let dropped = Count::default();
    let stage = stage(units_until(&dropped));
    let client = Client::modern(stage.server.clone()).await;
    for _ in 0..3 {
        client.call("weather", json!({})).await.asked();
    }
    let health = stage.server.health();
    let waiting = stage.clock.sleepers();
    let drained = tokio::spawn(async move { health.drain(Duration::from_secs(30)).await });
    in_time(stage.clock.until_asleep(waiting + 1)).await;
    stage.clock.advance(Duration::from_secs(30));
    assert_eq!(in_time(drained).await.unwrap().ended, 3);
    in_time(dropped.reaches(3)).await;
}

/// What the handler does above its question would be done again elsewhere.
#[tokio::test]
async fn a_tool_that_is_known_to_wait_is_not_run_for_a_call_that_does_not_start() {
    let runs = Count::default();
    let counted = runs.clone();
    let stage: Stage<_> = stage(move |ask: Ask| {
        counted.up();
        units(ask)
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    assert_eq!(stage.server.health().drain(Duration::ZERO).await.ended, 0);
    assert!(asks_for_a_retry(&client.call("weather", json!({})).await));
    assert_eq!(runs.get(), 1);
}

/// A leg of such a call could land on another instance, and would not find its handler.
#[tokio::test]
async fn no_handler_begins_to_wait_on_an_instance_that_hears_nothing_from_the_others() {
    let fleet = Fleet::new();
    let instance = |name: &str| -> Rounds<_> { fleet.routed(name, Tool(units)).build().unwrap() };
    let (a, b) = (instance("a"), instance("b"));
    let (to_a, to_b) = (Client::modern(a.clone()).await, Client::modern(b).await);
    let before = to_a.call("weather", json!({})).await.asked();
    fleet.hub.wires().deaf.push("a".to_owned());
    assert!(matches!(a.health().ready().await, Err(NotReady::Relay)));
    assert!(asks_for_a_retry(&to_a.call("weather", json!({})).await));
    let there = to_b.call("weather", json!({})).await.asked();
    fleet.hub.wires().deaf.clear();
    a.health().ready().await.unwrap();
    for asked in [before, there] {
        assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&to_b).await.text(), "Metric");
    }
}
