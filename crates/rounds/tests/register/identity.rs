//! A first leg with an identity: sent again, it is the same call.

use std::time::Duration;

use rmcp::{ServiceExt as _, object};
use rounds::{
    Limits, Principal, Rounds,
    client::{Call, Host, Sent, defaults_only},
    ledger::MemoryLedger,
    register::FlowStatus,
    test::{Client, Clock, Leg},
};
use serde_json::json;

use crate::{MINUTE, Weather, apart::Apart, builder, keys, listed, until};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Calls a tool with an idempotency key.
async fn call(client: &Client, tool: &str, city: &str, key: &str) -> Leg {
    let params = json!({"name": tool, "arguments": {"city": city}, "_meta": {"rounds/idempotencyKey": key}});
    client.request("tools/call", params).await
}

#[tokio::test]
async fn the_same_key_gets_the_same_flow_and_reply_and_the_handler_runs_once() {
    for tool in ["weather", "book"] {
        let (weather, clock) = (Weather::new(), Clock::new());
        let server = builder(&weather, Apart::default(), &clock).build().unwrap();
        let client = Client::modern(server.clone()).await;
        let first = call(&client, tool, "Lisbon", KEY).await.asked();
        let again = call(&client, tool, "Lisbon", KEY).await.asked();
        assert_eq!(again.state(), first.state());
        assert_eq!(listed(&server, FlowStatus::Waiting).await.len(), 1, "one flow");
        assert_eq!(weather.alive(), usize::from(tool == "weather"), "one handler");
        let other = call(&client, tool, "Lisbon", "another").await.asked();
        assert_ne!(other.state(), first.state());
        assert_eq!(listed(&server, FlowStatus::Waiting).await.len(), 2);
        let text = again.accept("units", json!({"units": "metric"})).send(&client).await.text();
        assert!(text.starts_with("canary-result Lisbon"), "{text}");
        assert_eq!(weather.charged(), usize::from(tool == "book"));
    }
}

#[tokio::test]
async fn the_same_key_with_other_arguments_is_an_error_and_of_another_tool_or_caller_is_another_call() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let server = builder(&weather, ledger.clone(), &clock).build().unwrap();
    let client = Client::modern(server).await;
    let first = call(&client, "book", "Lisbon", KEY).await.asked();
    let refused = call(&client, "book", "Porto", KEY).await;
    assert_eq!(refused.error()["code"], -32602);
    assert!(refused.error()["message"].as_str().unwrap().contains("other arguments"), "{}", refused.error());
    call(&client, "weather", "Lisbon", KEY).await.asked();
    let yours = builder(&weather, ledger, &clock).principal(|_: &_| Some(Principal::new("other"))).build().unwrap();
    let theirs = call(&Client::modern(yours).await, "book", "Lisbon", KEY).await.asked();
    assert_ne!(theirs.state(), first.state());
}

#[tokio::test]
async fn a_durable_first_leg_that_is_dropped_in_its_effect_and_sent_again_has_the_effect_once() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let limits = Limits::default().with_grace(Duration::ZERO);
    let server = builder(&weather, Apart::default(), &clock).limits(limits).build().unwrap();
    let client = Client::modern(server).await;
    let params = json!({"name": "prepaid", "arguments": {"city": "slow"}, "_meta": {"rounds/idempotencyKey": KEY}});
    let dropped = client.start("tools/call", params.clone()).await;
    weather.works.notified().await;
    dropped.cancel().await;
    let again = client.start("tools/call", params).await;
    weather.work.notify_one();
    let asked = again.finish().await.asked();
    let text = asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    assert!(text.ends_with("charge 1"), "{text}");
    assert_eq!(weather.charged(), 1);
}

#[tokio::test]
async fn a_durable_first_leg_whose_process_is_lost_before_its_reply_has_the_effect_once() {
    let (weather, clock, store) = (Weather::new(), Clock::new(), Apart::default());
    let instance = || builder(&weather, store.clone(), &clock).build().unwrap();
    let losing = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    store.never_settle_rounds(true);
    let (lost, charged) = (instance(), weather.clone());
    losing.spawn(async move { call(&Client::modern(lost).await, "prepaid", "Lisbon", KEY).await });
    until(|| charged.charged() == 1 && store.settled_effects() == 1).await;
    // Whatever this instance still had to do is not done: its lease lapses.
    losing.shutdown_background();
    store.never_settle_rounds(false);
    clock.advance(MINUTE);
    let client = Client::modern(instance()).await;
    let first = call(&client, "prepaid", "Lisbon", KEY).await.asked();
    let again = call(&client, "prepaid", "Lisbon", KEY).await.asked();
    assert_eq!(first.state(), again.state());
    let text = first.accept("units", json!({"units": "metric"})).send(&client).await.text();
    assert!(text.ends_with("charge 1"), "{text}");
    assert_eq!(weather.charged(), 1);
}

#[tokio::test]
async fn without_a_principal_a_key_has_to_be_a_secret() {
    let weather = Weather::new();
    let client = Client::modern(Rounds::new(weather.clone())).await;
    for weak in ["1", "0123456789abcdef", ""] {
        for tool in ["book", "weather", "prepaid"] {
            let refused = call(&client, tool, "Lisbon", weak).await;
            assert_eq!(refused.error()["code"], -32602, "{weak}");
        }
        assert_eq!((weather.alive(), weather.charged()), (0, 0), "no handler has started");
        let plain = json!({"name": "plain", "_meta": {"rounds/idempotencyKey": weak}});
        assert_eq!(client.request("tools/call", plain).await.text(), "plain", "a plain call is not recorded under it");
    }
    let long = call(&client, "book", "Lisbon", &"a".repeat(256)).await;
    assert!(long.error()["message"].as_str().unwrap().contains("255 bytes"));
    call(&client, "book", "Lisbon", KEY).await.asked();
}

#[tokio::test]
async fn a_plain_call_is_run_each_time_and_not_recorded() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let server = builder(&weather, ledger.clone(), &clock).build().unwrap();
    let client = Client::modern(server).await;
    for _ in 0..2 {
        let params = json!({"name": "plain", "_meta": {"rounds/idempotencyKey": KEY}});
        assert_eq!(client.request("tools/call", params).await.text(), "plain");
    }
    assert_eq!(ledger.flow_bytes(), 0);
}

#[tokio::test]
async fn two_first_legs_at_once_are_one_call() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let (one, other) = tokio::join!(call(&client, "weather", "Lisbon", KEY), call(&client, "weather", "Lisbon", KEY));
    assert_eq!(one.asked().state(), other.asked().state());
    assert_eq!((listed(&server, FlowStatus::Waiting).await.len(), weather.alive()), (1, 1));
}

#[tokio::test]
async fn a_first_leg_that_lands_on_another_instance_is_the_same_call() {
    let (weather, clock, store) = (Weather::new(), Clock::new(), Apart::default());
    let instance = || builder(&weather, store.clone(), &clock).keys(keys(&[1])).build().unwrap();
    let (one, other) = (Client::modern(instance()).await, Client::modern(instance()).await);
    let first = call(&one, "book", "Lisbon", KEY).await.asked();
    let again = call(&other, "book", "Lisbon", KEY).await.asked();
    assert_eq!(first.state(), again.state());
}

#[tokio::test]
async fn our_client_sends_a_key_of_its_own_with_each_call_and_the_same_one_when_told_to() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let (near, far) = tokio::io::duplex(64 << 10);
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(far).await.unwrap().waiting().await });
    let client = Host::new(defaults_only()).connect(near).await.unwrap();
    let call = Call::tool("book", object!({"city": "Lisbon"}));
    let flows = async || listed(&server, FlowStatus::Waiting).await.len();
    for count in 1..=2 {
        assert!(matches!(call.send(&client).await.unwrap(), Sent::Asks(_)));
        assert_eq!(flows().await, count, "each send is a new call");
    }
    let named = call.with_idempotency_key(KEY);
    for _ in 0..2 {
        assert!(matches!(named.send(&client).await.unwrap(), Sent::Asks(_)));
        assert_eq!(flows().await, 3, "the same call again");
    }
}
