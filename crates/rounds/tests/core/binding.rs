//! A token belongs to the request that it was made for: same method, target, arguments and service.

use crate::common::{Desk, Visit, ring, shop, small};
use rounds::{RoundsBuilder, observe::Refusal, test::Retry};
use serde_json::{Value, json};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Expects that this retry is rejected for this reason, and that the honest retry still works afterwards.
async fn refused(stage: &Visit, dishonest: &Retry, refusal: Refusal, honest: &Retry) {
    stage.events.clear();
    dishonest.send(&stage.client).await.frozen();
    assert_eq!(stage.events.refusals(), [refusal]);
    assert_eq!(stage.runs(), 0);
    assert!(honest.send(&stage.client).await.text().contains("number"));
}

#[tokio::test]
async fn other_arguments_are_refused() {
    let began = r#"{"item": "tea", "cups": 1, "with": ["milk", "sugar"], "note": null}"#;
    for changed in [
        json!({}),
        Value::Null,
        parsed(r#"{"item": "coffee", "cups": 1, "with": ["milk", "sugar"], "note": null}"#),
        parsed(r#"{"item": "tea", "cups": 2, "with": ["milk", "sugar"], "note": null}"#),
        parsed(r#"{"item": "tea", "cups": 1.5, "with": ["milk", "sugar"], "note": null}"#),
        parsed(r#"{"item": "tea", "cups": "1", "with": ["milk", "sugar"], "note": null}"#),
        parsed(r#"{"item": "tea", "cups": 1, "with": ["sugar", "milk"], "note": null}"#),
        parsed(r#"{"item": "tea", "cups": 1, "with": ["milk", "sugar"]}"#),
        parsed(r#"{"item": "tea", "cups": 1, "with": ["milk", "sugar"], "note": null, "admin": true}"#),
    ] {
        let stage = Visit::of(shop()).await;
        let honest = stage.client.call("order", parsed(began)).await.asked().accept("size", small());
        refused(&stage, &honest.clone().with("arguments", changed), Refusal::Arguments, &honest).await;
    }
}

#[tokio::test]
async fn the_same_arguments_may_be_spelled_otherwise() {
    for (began, spelled) in [
        (r#"{"a": 1, "b": {"c": [1, 2], "d": "é"}}"#, r#"{"b": {"d": "\u00e9", "c": [1.0, 2e0]}, "a": 1.0}"#),
        (r#"{"a": 100}"#, r#"{"a": 1e2}"#),
        (r#"{"a": 0}"#, r#"{"a": -0.0}"#),
    ] {
        let stage = Visit::of(shop()).await;
        let retry = stage.client.call("order", parsed(began)).await.asked().accept("size", small());
        let spelled = retry.with("arguments", parsed(spelled));
        assert_eq!(spelled.send(&stage.client).await.text(), "Small order number 1");
    }
}

#[tokio::test]
async fn no_arguments_and_empty_ones_are_the_same() {
    let stage = Visit::of(shop()).await;
    let absent = stage.client.request("tools/call", json!({"name": "order"})).await.asked().accept("size", small());
    let empty = absent.clone().with("arguments", json!({}));
    assert_eq!(empty.send(&stage.client).await.text(), "Small order number 1");
    let empty = stage.client.call("order", json!({})).await.asked().accept("size", small());
    assert_eq!(empty.without("arguments").send(&stage.client).await.text(), "Small order number 2");
}

#[tokio::test]
async fn large_integers_are_told_apart_to_the_last_digit() {
    let stage = Visit::of(shop()).await;
    let began = json!({"account": 9_007_199_254_740_993_u64});
    let honest = stage.client.call("order", began).await.asked().accept("size", small());
    let neighbour = honest.clone().with("arguments", json!({"account": 9_007_199_254_740_992_u64}));
    refused(&stage, &neighbour, Refusal::Arguments, &honest).await;
}

#[tokio::test]
async fn another_target_is_refused() {
    let stage = Visit::of(shop()).await;
    let tool = stage.order().await.accept("size", small());
    refused(&stage, &tool.clone().with("name", json!("refund")), Refusal::Target, &tool).await;
    let prompt = stage.client.prompt("order", json!({})).await.asked().accept("size", small());
    refused(&stage, &prompt.clone().with("name", json!("Order")), Refusal::Target, &prompt).await;
    let resource = stage.client.read("shop://one").await.asked().accept("size", small());
    refused(&stage, &resource.clone().with("uri", json!("shop://two")), Refusal::Target, &resource).await;
}

#[tokio::test]
async fn another_method_is_refused() {
    let stage = Visit::of(shop()).await;
    // Everything that the others need is present, so that only the method differs.
    let params = || json!({"name": "order", "uri": "order"});
    for (began, others) in [
        ("tools/call", ["prompts/get", "resources/read"]),
        ("prompts/get", ["tools/call", "resources/read"]),
        ("resources/read", ["tools/call", "prompts/get"]),
    ] {
        for other in others {
            let honest = stage.client.request(began, params()).await.asked().accept("size", small());
            refused(&stage, &honest.clone().as_method(other), Refusal::Method, &honest).await;
        }
    }
}

#[tokio::test]
async fn a_token_of_another_server_is_refused_by_keys_and_by_audience() {
    let configured = |keys: &'static [u8], audience: &'static str| {
        move |builder: RoundsBuilder<Desk>| builder.keys(ring(keys)).audience(audience)
    };
    let stage = Visit::with(shop(), configured(&[1], "tea")).await;
    for (keys, audience) in [(&[2][..], "tea"), (&[1], "coffee"), (&[1], "tea2"), (&[2, 3], "coffee")] {
        let other = Visit::with(shop(), configured(keys, audience)).await;
        let foreign = other.order().await.accept("size", small());
        foreign.send(&stage.client).await.frozen();
        assert_eq!(foreign.send(&other.client).await.text(), "Small order number 1");
    }
    assert_eq!(stage.events.refusals(), [Refusal::UnknownKey; 4]);
    assert_eq!(stage.runs(), 0);
    let twin = Visit::with(shop(), configured(&[1], "tea")).await;
    let ours = twin.order().await.accept("size", small());
    assert_eq!(ours.send(&stage.client).await.text(), "Small order number 1", "another instance of the same service");
}

#[tokio::test]
async fn a_token_of_another_rounds_of_this_process_is_refused_and_the_log_says_so() {
    let (stage, other) = (Visit::of(shop()).await, Visit::of(shop()).await);
    let foreign = other.order().await.accept("size", small());
    foreign.send(&stage.client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::OtherRoundsOfThisProcess]);
    assert_eq!(stage.runs(), 0);
}
