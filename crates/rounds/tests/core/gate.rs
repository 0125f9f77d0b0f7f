//! Only what the client can answer: every leg is asked only what that request declares, and a legacy client is not
//! asked.

use crate::common::{Desk, Reply, Visit};
use rounds::{Era, Given, test::Client};
use serde_json::{Value, json};

/// Asks what its target names, with rmcp's types, and returns what came back.
fn asks_anything() -> Desk {
    Desk::new(|turn| async move {
        if turn.answers.is_some() {
            return Reply::text("answered");
        }
        let form = json!({"method": "elicitation/create", "params": {
            "message": "?", "requestedSchema": {"type": "object", "properties": {}},
        }});
        let url = json!({"method": "elicitation/create", "params": {
            "mode": "url", "message": "?", "url": "https://tea.example", "elicitationId": "1",
        }});
        let sample = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
        let mut tools = sample.clone();
        tools["params"]["tools"] = json!([{"name": "kettle", "inputSchema": {"type": "object"}}]);
        let requests = match &*turn.target {
            "form" => json!({"key": form}),
            "url" => json!({"key": url}),
            "sample" => json!({"key": sample}),
            "tools" => json!({"key": tools}),
            "roots" => json!({"key": {"method": "roots/list"}}),
            _ => json!({"first": form, "second": url}),
        };
        Reply::raw(json!({"resultType": "input_required", "inputRequests": requests}))
    })
}

#[tokio::test]
async fn a_question_goes_only_to_a_request_that_declares_its_kind_and_mode() {
    let stage = Visit::of(asks_anything()).await;
    let required = |target: &str| match target {
        "form" => json!({"elicitation": {}}),
        "url" => json!({"elicitation": {"url": {}}}),
        "sample" => json!({"sampling": {}}),
        "tools" => json!({"sampling": {"tools": {}}}),
        _ => json!({"roots": {}}),
    };
    for (declared, asked) in [
        (json!({}), &[][..]),
        (json!({"elicitation": {}}), &["form"]),
        (json!({"elicitation": {"form": {}}}), &["form"]),
        (json!({"elicitation": {"url": {}}}), &["url"]),
        (json!({"elicitation": {"form": {}, "url": {}}}), &["form", "url"]),
        (json!({"sampling": {}}), &["sample"]),
        (json!({"sampling": {"tools": {}}}), &["sample", "tools"]),
        (json!({"roots": {}}), &["roots"]),
    ] {
        let client = stage.client.declaring(declared.clone());
        for target in ["form", "url", "sample", "tools", "roots"] {
            let leg = client.call(target, json!({})).await;
            if asked.contains(&target) {
                assert_eq!(leg.asked().keys(), ["key"], "{declared} asked for {target}");
            } else {
                assert_eq!(leg.error()["code"], -32021, "{declared} asked for {target}");
                assert_eq!(leg.error()["data"], json!({"requiredCapabilities": required(target)}));
            }
        }
    }
}

#[tokio::test]
async fn one_question_that_cannot_be_answered_holds_back_all_of_its_round() {
    let stage = Visit::of(asks_anything()).await;
    let leg = stage.client.declaring(json!({"elicitation": {}})).call("both", json!({})).await;
    assert_eq!(leg.error()["data"], json!({"requiredCapabilities": {"elicitation": {"url": {}}}}));
}

/// Asks twice, then runs its effect.
fn twice() -> Desk {
    Desk::new(|turn| async move {
        let round = turn.round()?;
        match (round.given::<bool>("one"), round.given::<bool>("two")) {
            (Given::Missing, _) => round.ask_form::<bool>("one", "One?"),
            (_, Given::Missing) => round.ask_form::<bool>("two", "Two?"),
            _ => Reply::text(format!("number {}", turn.effects.have() + 1)),
        }
    })
}

#[tokio::test]
async fn a_leg_that_declares_less_than_the_next_question_needs_leaves_its_round_open() {
    let stage = Visit::of(twice()).await;
    let less = stage.client.declaring(json!({"roots": {}}));
    let one = stage.order().await.accept("one", json!({"one": true}));
    for _ in 0..2 {
        assert_eq!(one.send(&less).await.error()["code"], -32021);
    }
    let two = one.send(&stage.client).await.asked().accept("two", json!({"two": true}));
    // A call without a question needs no capability.
    assert_eq!(two.send(&less).await.text(), "number 1");
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn a_replayed_question_passes_the_gate_again() {
    let stage = Visit::of(twice()).await;
    let one = stage.order().await.accept("one", json!({"one": true}));
    let second = one.send(&stage.client).await.asked();
    for less in [json!({}), json!({"elicitation": {"url": {}}})] {
        let refused = one.send(&stage.client.declaring(less)).await;
        assert_eq!(refused.error()["code"], -32021);
        assert_eq!(refused.error()["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
    }
    assert_eq!(
        one.send(&stage.client).await.asked().state(),
        second.state(),
        "the reply is kept for a client that can answer"
    );
    assert_eq!(stage.runs(), 2);
}

#[tokio::test]
async fn a_handler_can_look_before_it_asks() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        let can = [round.can_form(), round.can_url(), round.can_sample(), round.can_roots()];
        Reply::text(format!("{:?} {can:?}", round.era()))
    });
    let stage = Visit::of(desk).await;
    let says = async |declared: Value| stage.client.declaring(declared).call("look", json!({})).await.text();
    assert_eq!(says(json!({})).await, "Modern [false, false, false, false]");
    assert_eq!(says(json!({"elicitation": {}, "roots": {}})).await, "Modern [true, false, false, true]");
    assert_eq!(says(json!({"elicitation": {"url": {}}, "sampling": {}})).await, "Modern [false, true, true, false]");
    let legacy = Client::legacy(stage.server.clone()).await;
    assert_eq!(legacy.call("look", json!({})).await.text(), "Legacy [false, false, false, false]");
}

#[tokio::test]
async fn a_legacy_client_is_told_in_plain_words_and_nothing_is_pushed() {
    let stage = Visit::of(asks_anything()).await;
    let every = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}});
    for declared in [every, json!({})] {
        let legacy = Client::connect(stage.server.clone(), Era::Legacy, declared).await;
        for target in ["form", "url", "sample", "roots", "both"] {
            let told = legacy.call(target, json!({})).await;
            assert!(told.is_tool_error());
            assert!(told.text().contains("this client cannot be asked"), "{}", told.text());
            for leg in [legacy.prompt(target, json!({})).await, legacy.read(target).await] {
                assert_eq!(leg.error()["code"], -32600, "{}", leg.response());
            }
        }
        assert!(!legacy.was_pushed());
    }
}

#[tokio::test]
async fn a_legacy_client_that_brings_a_modern_token_is_refused_and_the_flow_goes_on_without_it() {
    let stage = Visit::of(twice()).await;
    let one = stage.order().await.accept("one", json!({"one": true}));
    let legacy = Client::legacy(stage.server.clone()).await;
    one.send(&legacy).await.frozen();
    assert!(!legacy.was_pushed());
    let _ = one.send(&stage.client).await.asked();
}
