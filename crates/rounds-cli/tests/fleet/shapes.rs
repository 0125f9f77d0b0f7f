//! Every tool of the gallery, with each leg at another instance than the one before.

use serde_json::{Value, json};

use crate::{
    Fleet,
    call::{Call, METRIC, text},
};

/// The flows of the gallery: the call, the questions, the answers and the result.
const FLOWS: &str = include_str!("../../../../interop/flows.json");

on_every_store!(
    what_is_called_asked_and_answered_is_the_same_as_at_one_instance,
    the_weather_in_every_shape_and_the_stories_of_two_rounds
);

async fn what_is_called_asked_and_answered_is_the_same_as_at_one_instance(fleet: Fleet) {
    let list: Value = serde_json::from_str(FLOWS).unwrap();
    let mut played = 0;
    for flow in list["flows"].as_array().unwrap().iter().filter(|flow| flow["era"] != "legacy") {
        for call in calls(flow) {
            play(&fleet, flow, call).await;
            played += 1;
        }
    }
    assert!(played > 25, "{played}");
    let ledger = fleet.send(&Call::tool("airline_ledger", &json!({}))).await;
    assert_eq!(
        ledger["result"]["structuredContent"], list["counted"]["airline_ledger"],
        "all instances share one airline"
    );
}

fn calls(flow: &Value) -> Vec<Call> {
    let tools = flow["tools"].as_array().into_iter().flatten().map(|tool| tool.as_str().unwrap());
    let mut calls: Vec<_> = tools.map(|tool| Call::tool(tool, &flow["arguments"])).collect();
    calls.extend(flow["prompt"].as_str().map(Call::prompt));
    calls.extend(flow["resource"].as_str().map(Call::resource));
    assert!(!calls.is_empty(), "{flow}");
    calls
}

async fn play(fleet: &Fleet, flow: &Value, mut call: Call) {
    let mut response = fleet.send(&call).await;
    for round in flow["rounds"].as_array().unwrap() {
        let mut answers = json!({});
        for (key, exchange) in round.as_object().unwrap() {
            let asked = &response["result"]["inputRequests"][key]["params"]["message"];
            assert_eq!(*asked, exchange["asks"], "{call:?} {response}");
            answers[key] = exchange["answer"].clone();
        }
        call = call.answered(&response, answers);
        response = fleet.send(&call).await;
    }
    assert_eq!(text(&response), flow["text"], "{call:?}");
    assert_eq!(text(&fleet.send(&call).await), flow["text"], "a retry at another instance gets the same reply");
}

async fn the_weather_in_every_shape_and_the_stories_of_two_rounds(fleet: Fleet) {
    for shape in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "asked", "naive"] {
        let call = Call::weather(&format!("weather_{shape}"));
        let asked = fleet.send(&call).await;
        let asked = fleet.send(&call.accepted(&asked, "units", json!("kelvin"))).await;
        assert_eq!(text(&fleet.send(&call.metric(&asked)).await), METRIC, "{shape}");
    }
    for (tool, arguments, [(one, first), (two, second)], said) in [
        (
            "resolve_work_item",
            json!({"work_item_id": 4522}),
            [("resolution", json!("Duplicate")), ("duplicate_of", json!(4301))],
            "#4522 resolved as Duplicate of #4301.",
        ),
        (
            "refund_order",
            json!({"order_id": "ORD-7002", "reason": "broken"}),
            [("scope", json!("mug")), ("restock", json!(true))],
            "Refunded 1800 of ORD-7002 (broken), restocked.",
        ),
    ] {
        let call = Call::tool(tool, &arguments);
        let asked = fleet.send(&call).await;
        let asked = fleet.send(&call.accepted(&asked, one, first)).await;
        assert_eq!(text(&fleet.send(&call.accepted(&asked, two, second)).await), said);
    }
}
