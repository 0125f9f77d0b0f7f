//! Cancelling a flow: while it waits, while it runs, and from another instance.

use rounds::{
    ledger::MemoryLedger,
    observe::Refusal,
    register::FlowStatus,
    test::{Client, Clock, Events},
};
use rounds_testkit::{Log, in_time};
use serde_json::json;

use crate::{HOUR, Weather, builder, only, until};

fn metric() -> serde_json::Value {
    json!({"units": "metric"})
}

#[tokio::test]
async fn a_flow_that_waits_is_cancelled_with_its_handler_and_the_log_has_the_cause() {
    for tool in ["weather", "book"] {
        let (weather, clock, events) = (Weather::new(), Clock::new(), Events::new());
        let server = builder(&weather, MemoryLedger::new(), &clock).observe(events.clone()).build().unwrap();
        let client = Client::modern(server.clone()).await;
        let asked = client.call(tool, json!({"city": "Lisbon"})).await.asked();
        assert_eq!(weather.alive(), usize::from(tool == "weather"));
        let id = only(&server, FlowStatus::Waiting).await.id;
        let (log, listening) = Log::listen(tracing::Level::INFO);
        let before = server.flows().cancel(id, "the trip is off").await.unwrap();
        drop(listening);
        assert_eq!(before, Some(FlowStatus::Waiting));
        assert!(log.text().contains("the trip is off"), "{}", log.text());
        until(|| weather.alive() == 0 && server.waiting_calls() == 0).await;
        asked.accept("units", metric()).send(&client).await.frozen();
        assert_eq!(events.refusals(), [Refusal::Cancelled]);
        only(&server, FlowStatus::Cancelled).await;
        assert_eq!(weather.charged(), 0);
    }
}

#[tokio::test]
async fn an_earlier_round_of_a_cancelled_flow_is_refused_too() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "Lisbon"})).await.asked();
    let again = asked.accept("units", json!({"units": "of its own"})).send(&client).await.asked();
    server.flows().cancel(only(&server, FlowStatus::Waiting).await.id, "").await.unwrap();
    asked.accept("units", json!({"units": "of its own"})).send(&client).await.frozen();
    again.accept("units", metric()).send(&client).await.frozen();
}

#[tokio::test]
async fn a_leg_that_runs_when_its_flow_is_cancelled_is_refused_and_its_handler_is_dropped() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("weather", json!({"city": "slow"})).await.asked();
    let leg = asked.accept("units", metric()).start(&client).await;
    in_time(weather.works.notified()).await;
    let id = only(&server, FlowStatus::Working).await.id;
    assert_eq!(server.flows().cancel(id, "").await.unwrap(), Some(FlowStatus::Working));
    in_time(leg.finish()).await.frozen();
    assert_eq!((weather.alive(), server.waiting_calls()), (0, 0));
    only(&server, FlowStatus::Cancelled).await;
}

#[tokio::test]
async fn an_effect_that_has_begun_runs_to_its_end_and_nothing_after_it_begins() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "slow"})).await.asked();
    let leg = asked.accept("units", metric()).start(&client).await;
    in_time(weather.works.notified()).await;
    server.flows().cancel(only(&server, FlowStatus::Working).await.id, "").await.unwrap();
    in_time(leg.finish()).await.frozen();
    assert_eq!(weather.charged(), 0);
    weather.work.notify_one();
    until(|| weather.charged() == 1).await;
    asked.accept("units", metric()).send(&client).await.frozen();
    assert_eq!(weather.charged(), 1);
}

#[tokio::test]
async fn a_flow_is_cancelled_from_another_instance() {
    let (here, there, clock, ledger) = (Weather::new(), Weather::new(), Clock::new(), MemoryLedger::new());
    let one = builder(&here, ledger.clone(), &clock).build().unwrap();
    let other = builder(&there, ledger, &clock).build().unwrap();
    let client = Client::modern(one.clone()).await;
    let waiting = client.call("weather", json!({"city": "Lisbon"})).await.asked();
    let slow = client.call("weather", json!({"city": "slow"})).await.asked();
    let running = slow.accept("units", metric()).start(&client).await;
    in_time(here.works.notified()).await;
    assert_eq!(here.alive(), 2);
    for status in [FlowStatus::Waiting, FlowStatus::Working] {
        let id = only(&other, status).await.id;
        assert_eq!(other.flows().cancel(id, "from afar").await.unwrap(), Some(status));
    }
    in_time(running.finish()).await.frozen();
    until(|| here.alive() == 0 && one.waiting_calls() == 0).await;
    waiting.accept("units", metric()).send(&client).await.frozen();
}

#[tokio::test]
async fn a_deleted_flow_leaves_nothing_and_its_token_is_refused() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let principal = rounds::Principal::new("canary-principal");
    let first = client.call("weather", json!({"city": "Lisbon"})).await.asked();
    assert!(server.flows().delete(only(&server, FlowStatus::Waiting).await.id).await.unwrap());
    let second = client.call("weather", json!({"city": "Lisbon"})).await.asked();
    assert_eq!(server.flows().delete_principal(&rounds::Principal::new("other")).await.unwrap(), 0);
    assert_eq!(server.flows().delete_principal(&principal).await.unwrap(), 1);
    until(|| weather.alive() == 0).await;
    for asked in [first, second] {
        asked.accept("units", metric()).send(&client).await.frozen();
    }
    assert!(server.flows().list(rounds::register::FlowQuery::new()).await.unwrap().flows.is_empty());
    clock.advance(HOUR);
    assert_eq!(server.flows().sweep().await.unwrap(), 2, "their ids are kept as long as their tokens could be used");
}

#[tokio::test]
async fn changes_are_seen_by_a_watch() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let mut watch = server.flows().watch().await.unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("weather", json!({"city": "Lisbon"})).await.asked();
    asked.accept("units", metric()).send(&client).await.text();
    for status in [FlowStatus::Waiting, FlowStatus::Working, FlowStatus::Completed] {
        assert_eq!(in_time(watch.next()).await.unwrap().status, status);
    }
}
