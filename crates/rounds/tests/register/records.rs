//! What is recorded of a flow, for how long, and what of it can be read.

use rounds::{
    Principal, Rounds,
    ledger::MemoryLedger,
    register::{FlowQuery, FlowStation, FlowStatus, Flows, FlowsError},
    test::{Client, Clock, accept},
};
use serde_json::json;

use crate::{HOUR, MINUTE, Weather, apart::Apart, builder, keys, listed, only};

fn metric() -> serde_json::Value {
    json!({"units": "metric"})
}

#[tokio::test]
async fn a_flow_is_recorded_from_its_first_question_to_its_result() {
    let (weather, clock) = (Weather::new(), Clock::new());
    for tool in ["weather", "book"] {
        let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
        let client = Client::modern(server.clone()).await;
        assert!(listed(&server, FlowStatus::Waiting).await.is_empty());
        let asked = client.call(tool, json!({"city": "Lisbon"})).await.asked();
        let waiting = only(&server, FlowStatus::Waiting).await;
        assert_eq!((&*waiting.target, waiting.round, &waiting.open), (tool, 1, &vec!["units".to_owned()]));
        assert_eq!(waiting.owner.is_some(), tool == "weather", "where a handler waits is known");
        clock.advance(MINUTE);
        asked.accept("units", metric()).send(&client).await.text();
        let completed = only(&server, FlowStatus::Completed).await;
        assert_eq!((completed.id, completed.created), (waiting.id, waiting.created));
        assert_eq!(completed.changed.since(waiting.created), MINUTE);
        assert!(completed.open.is_empty() && completed.owner.is_none());

        let record = server.flows().get(completed.id).await.unwrap().unwrap();
        let stations: Vec<_> = record.timeline.entries().iter().map(|entry| (entry.leg, entry.station)).collect();
        assert_eq!(stations, [(0, FlowStation::Asked), (1, FlowStation::Claimed), (1, FlowStation::Completed)]);
        let details = server.flows().details(&record).unwrap();
        assert_eq!(details.arguments, Some(json!({"city": "Lisbon"})));
        assert_eq!((details.principal.as_deref(), details.target.as_deref()), (Some("canary-principal"), Some(tool)));
        let round = &details.rounds[0];
        assert_eq!(round.questions.as_ref().unwrap()["units"]["params"]["message"], "Which canary-question?");
        assert_eq!(round.answers.as_ref().unwrap()["units"]["content"], metric());
        assert!(details.result.unwrap().to_string().contains("canary-result Lisbon"));
        let effects: Vec<_> = round.effects.iter().map(|effect| &*effect.name).collect();
        assert_eq!(effects, if tool == "book" { vec!["charge"] } else { vec![] });
        let by_name = server.flows().get(details.flow.unwrap()).await.unwrap().unwrap();
        assert_eq!(by_name, record, "a flow is found by the name that logs have as well");
    }
}

#[tokio::test]
async fn a_register_that_is_off_writes_nothing() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let server = Rounds::builder(weather).ledger(ledger.clone()).clock(clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "Lisbon"})).await.asked();
    assert_eq!(ledger.claims(), 0, "a question has no record before its answer arrives");
    asked.accept("units", metric()).send(&client).await.text();
    assert_eq!(ledger.flow_bytes(), 0);
    assert!(matches!(server.flows().list(FlowQuery::new()).await, Err(FlowsError::Off)));
}

#[tokio::test]
async fn a_call_that_asks_nothing_is_not_recorded() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let server = builder(&weather, ledger.clone(), &clock).build().unwrap();
    assert_eq!(Client::modern(server).await.call("plain", json!({})).await.text(), "plain");
    assert_eq!((ledger.flow_bytes(), ledger.claims()), (0, 0));
}

#[tokio::test]
async fn a_call_of_a_legacy_client_is_not_recorded() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let server = builder(&weather, ledger.clone(), &clock).build().unwrap();
    for tool in ["weather", "book"] {
        let played =
            Client::legacy(server.clone()).await.play(tool, json!({"city": "Porto"}), [accept(metric())]).await;
        assert!(played.text().contains("Porto"), "{}", played.text());
    }
    assert!(server.flows().list(FlowQuery::new()).await.unwrap().flows.is_empty());
}

#[tokio::test]
async fn a_handler_that_waited_in_a_process_that_ended_is_listed_until_its_round_expires() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let ended = builder(&weather, ledger.clone(), &clock).build().unwrap();
    let asked = Client::modern(ended).await.call("weather", json!({"city": "Porto"})).await.asked();
    let server = builder(&weather, ledger, &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    asked.accept("units", metric()).send(&client).await.frozen();
    only(&server, FlowStatus::Waiting).await;
    clock.advance(HOUR);
    only(&server, FlowStatus::Expired).await;
}

#[tokio::test]
async fn nothing_that_was_said_is_in_the_store_and_all_of_it_opens_with_the_keys() {
    let (weather, clock, store) = (Weather::new(), Clock::new(), Apart::default());
    let server = builder(&weather, store.clone(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "canary-argument"})).await.asked();
    let answer = json!({"units": "metric", "note": "canary-answer"});
    asked.accept("units", answer).send(&client).await.text();
    let record = server.flows().get(only(&server, FlowStatus::Completed).await.id).await.unwrap().unwrap();
    let given = String::from_utf8_lossy(&store.given.lock().unwrap()).into_owned();
    assert!(given.contains("book"), "the name of the tool is plain");
    assert!(!given.contains("canary"), "{given}");
    let opened = Flows::open(store.clone(), &keys(&[2, 1]), Some("weather")).unwrap().details(&record).unwrap();
    assert!(serde_json::to_string(&opened).unwrap().contains("canary-argument"));
    let other_keys = Flows::open(store, &keys(&[2]), Some("weather")).unwrap().details(&record);
    assert!(matches!(other_keys, Err(FlowsError::Unreadable { .. })), "{other_keys:?}");
}

#[tokio::test]
async fn a_row_that_was_exchanged_for_another_does_not_open() {
    let (weather, clock, store) = (Weather::new(), Clock::new(), Apart::default());
    let server = builder(&weather, store.clone(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    for city in ["Lisbon", "Porto"] {
        client.call("book", json!({"city": city})).await.asked();
    }
    let flows = listed(&server, FlowStatus::Waiting).await;
    let [mine, yours] = [flows[0].id, flows[1].id];
    let read = async || server.flows().details(&server.flows().get(mine).await.unwrap().unwrap());
    assert!(read().await.is_ok());
    store.exchanged.lock().unwrap().insert(mine, yours);
    assert!(matches!(read().await, Err(FlowsError::Unreadable { id }) if id == mine));
}

#[tokio::test]
async fn a_record_is_kept_for_the_retention_after_its_flow_has_ended() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).register_for(2 * HOUR).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "Lisbon"})).await.asked();
    clock.advance(5 * MINUTE);
    asked.accept("units", metric()).send(&client).await.text();
    clock.advance(2 * HOUR - MINUTE);
    assert_eq!(server.flows().sweep().await.unwrap(), 0);
    only(&server, FlowStatus::Completed).await;
    clock.advance(MINUTE);
    assert_eq!(server.flows().sweep().await.unwrap(), 1);
    assert!(listed(&server, FlowStatus::Completed).await.is_empty());
}

#[tokio::test]
async fn a_flow_that_is_not_answered_expires_and_is_removed_in_the_end() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, MemoryLedger::new(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    client.call("book", json!({"city": "Lisbon"})).await.asked();
    clock.advance(10 * MINUTE);
    assert!(listed(&server, FlowStatus::Waiting).await.is_empty());
    only(&server, FlowStatus::Expired).await;
    clock.advance(23 * HOUR);
    assert_eq!(server.flows().sweep().await.unwrap(), 0);
    clock.advance(2 * HOUR);
    assert_eq!(server.flows().sweep().await.unwrap(), 1);
}

#[tokio::test]
async fn flows_are_found_by_tool_principal_and_age() {
    let (weather, clock, store) = (Weather::new(), Clock::new(), Apart::default());
    let server = builder(&weather, store, &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    client.call("book", json!({"city": "Lisbon"})).await.asked();
    clock.advance(MINUTE);
    client.call("weather", json!({"city": "Lisbon"})).await.asked();
    let count = async |query| server.flows().list(query).await.unwrap().flows.len();
    assert_eq!(count(FlowQuery::new()).await, 2);
    assert_eq!(count(FlowQuery::new().target("book")).await, 1);
    assert_eq!(count(FlowQuery::new().older_than(MINUTE / 2)).await, 1);
    assert_eq!(count(FlowQuery::new().older_than(HOUR)).await, 0);
    assert_eq!(count(FlowQuery::new().principal(&Principal::new("canary-principal"))).await, 2);
    assert_eq!(count(FlowQuery::new().principal(&Principal::new("other"))).await, 0);
    assert_eq!(count(FlowQuery::new().most(1)).await, 1);
}

#[tokio::test]
async fn arguments_that_are_too_large_are_left_out_of_the_record_and_the_flow_goes_on() {
    let (weather, clock, ledger) = (Weather::new(), Clock::new(), MemoryLedger::new());
    let limits = rounds::Limits::default().with_record_bytes(1024);
    let server = builder(&weather, ledger.clone(), &clock).limits(limits).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "x".repeat(10_000)})).await.asked();
    assert!(ledger.flow_bytes() < 4096, "{}", ledger.flow_bytes());
    asked.accept("units", metric()).send(&client).await.text();
    let record = server.flows().get(only(&server, FlowStatus::Completed).await.id).await.unwrap().unwrap();
    let details = server.flows().details(&record).unwrap();
    assert_eq!((details.arguments, details.target.as_deref()), (None, Some("book")));
    assert!(
        details.rounds.iter().any(|round| round.omitted.is_some_and(|bytes| bytes > 10_000)),
        "{:?}",
        details.rounds
    );
}

#[tokio::test]
async fn callers_without_a_principal_who_fill_their_half_of_the_register_are_told_so() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let ledger = MemoryLedger::new().with_flow_bytes(100_000);
    let server = builder(&weather, ledger, &clock).principal(rounds::Principal::from_request).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let mut asked = 0;
    let full = loop {
        let leg = client.call("book", json!({"city": "Lisbon"})).await;
        if leg.response()["result"]["resultType"] != "input_required" {
            break leg;
        }
        asked += 1;
        assert!(asked < 1000, "the limit holds");
    };
    assert!(full.is_tool_error() && full.text().contains("no space left"), "{:?}", full.response());
    assert!((10..50).contains(&asked), "{asked}");
}
