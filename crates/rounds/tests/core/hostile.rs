//! Messages that no honest client would send. None of them crashes the server, runs an effect, or learns which check it
//! failed.

use crate::common::{Desk, Reply, Visit, large, secs, sell, shop, small};
use rounds::{
    Given, Rounds,
    observe::{Method, Outcome, Refusal},
    test::Client,
};
use serde_json::{Value, json};

/// The three methods that may be answered with a question, each with its parameters.
fn methods() -> [(Method, &'static str, Value); 3] {
    [
        (Method::Tool, "tools/call", json!({"name": "order", "arguments": {}})),
        (Method::Prompt, "prompts/get", json!({"name": "order", "arguments": {}})),
        (Method::Resource, "resources/read", json!({"uri": "shop://order"})),
    ]
}

#[tokio::test]
async fn a_state_that_is_no_token_is_refused_whatever_it_is() {
    let stage = Visit::of(shop()).await;
    let asked = stage.order().await;
    let megabyte = "A".repeat(1 << 20);
    for (state, refusal) in [
        (String::new(), Refusal::NotAToken),
        ("null".to_owned(), Refusal::NotAToken),
        ("r1.".to_owned(), Refusal::NotAToken),
        ("r1.AAAA".to_owned(), Refusal::NotAToken),
        ("r1.not base64 at all!".to_owned(), Refusal::NotAToken),
        (format!("{}==", asked.state()), Refusal::NotAToken),
        (asked.state().replacen("r1.", "r2.", 1), Refusal::NotAToken),
        (format!("r1.{}", "é\u{0}\u{202e}".repeat(40)), Refusal::NotAToken),
        (format!("r1.{}", "A".repeat(200)), Refusal::UnknownKey),
        (format!("r1.{megabyte}"), Refusal::TooLong),
        (megabyte, Refusal::TooLong),
    ] {
        stage.events.clear();
        let forged = asked.accept("size", small()).with("requestState", json!(state));
        forged.send(&stage.client).await.frozen();
        assert_eq!(stage.events.refusals(), [refusal], "{:.40}", state);
        assert_eq!(stage.runs(), 0);
    }
    assert_eq!(asked.accept("size", small()).send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn no_character_of_a_token_can_be_changed_or_left_out() {
    let stage = Visit::of(shop()).await;
    let asked = stage.order().await;
    let accepted = asked.accept("size", small());
    for place in 0..asked.state().len() {
        let other = if &asked.state()[place..=place] == "A" { "B" } else { "A" };
        let flipped = |state: &str| format!("{}{other}{}", &state[..place], &state[place + 1..]);
        accepted.clone().tamper(flipped).send(&stage.client).await.frozen();
        accepted.clone().tamper(|state| state[..place].to_owned()).send(&stage.client).await.frozen();
    }
    assert_eq!((stage.runs(), stage.effects.count()), (1, 0));
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}

#[tokio::test]
async fn a_state_that_is_no_string_or_answers_that_are_no_map_are_refused_for_every_method() {
    let stage = Visit::of(shop()).await;
    let wrong = [
        ("requestState", json!([7, 1.5, {}, {"a": 1}, [], ["r1."], true, false])),
        ("inputResponses", json!(["", "{}", 7, [], [{"size": {"action": "decline"}}], true])),
    ];
    for (method, name, params) in methods() {
        for (param, values) in &wrong {
            for value in values.as_array().unwrap() {
                stage.events.clear();
                let mut params = params.clone();
                params[param] = value.clone();
                stage.client.request(name, params).await.frozen();
                assert_eq!(stage.events.refusals(), [Refusal::WrongType], "{name} with {param} {value}");
                assert_eq!(stage.events.outcomes(), [Outcome::Error { code: -32602 }]);
                assert!(stage.events.all().iter().all(|event| event.method == method && event.flow.is_none()));
            }
        }
    }
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn no_state_and_no_answers_may_be_spelled_null() {
    for (_, name, params) in methods() {
        let stage = Visit::of(shop()).await;
        let mut params = params.clone();
        params["requestState"] = Value::Null;
        params["inputResponses"] = Value::Null;
        let asked = stage.client.request(name, params).await.asked();
        let unanswered = asked.retry().with("inputResponses", Value::Null).send(&stage.client).await;
        assert_eq!(unanswered.asked().keys(), ["size"], "a retry with no answers is asked again");
        assert_eq!(stage.events.refusals(), []);
    }
}

#[tokio::test]
async fn answers_to_what_was_not_asked_are_ignored() {
    let stage = Visit::of(shop()).await;
    let asked = stage.order().await;
    let accepted = asked.accept("size", small());
    let more = accepted.clone().accept("admin", json!({"admin": true})).respond("\0", json!([1, null]));
    assert_eq!(more.send(&stage.client).await.text(), "Small order number 1");
    // They do not matter for the equality of retries, either.
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn a_handler_never_sees_an_answer_to_what_it_did_not_ask() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match (round.number(), round.given::<bool>("admin")) {
            (0, _) => round.ask_form::<bool>("sure", "Sure?"),
            (_, admin) => {
                let seen: Vec<_> = turn.answers.iter().flatten().map(|(key, _)| key.as_str()).collect();
                Reply::text(format!("{admin:?} {seen:?}"))
            }
        }
    });
    let stage = Visit::of(desk).await;
    let asked = stage.order().await;
    let both = asked.accept("sure", json!({"sure": true})).accept("admin", json!({"admin": true}));
    assert_eq!(both.send(&stage.client).await.text(), r#"Missing ["sure"]"#);
}

#[tokio::test]
async fn an_answer_of_another_kind_or_shape_is_asked_again_and_has_no_effect() {
    for answer in [
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "small"}}),
        json!({"roots": [{"uri": "file:///small"}]}),
        json!({"action": "accept", "content": {"size": 7}}),
        json!({"action": "accept", "content": {"size": ["small"]}}),
        json!({"action": "accept", "content": {"size": "SMALL"}}),
        json!({"action": "accept", "content": {"size": null}}),
        json!({"action": "accept", "content": {"Size": "small"}}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept", "content": "small"}),
        json!({"action": "accept", "content": ["small"]}),
        json!({"action": "accept"}),
        json!({"action": "ACCEPT", "content": {"size": "small"}}),
        json!({"action": 1}),
        json!({"size": "small"}),
        json!("accept"),
        json!([]),
        Value::Null,
    ] {
        let stage = Visit::of(shop()).await;
        let asked = stage.order().await.retry().respond("size", answer.clone()).send(&stage.client).await.asked();
        assert_eq!(asked.keys(), ["size"], "{answer}");
        assert_eq!(stage.effects.count(), 0);
        assert_eq!(asked.accept("size", large()).send(&stage.client).await.text(), "Large order number 1");
    }
}

#[tokio::test]
async fn content_on_a_decline_is_seen_by_nobody() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match round.given::<bool>("sure") {
            Given::Missing => round.ask_form::<bool>("sure", "Sure?"),
            given => Reply::text(format!("{given:?} {}", json!(turn.answers))),
        }
    });
    let stage = Visit::of(desk).await;
    for (action, given) in [("decline", "Declined"), ("cancel", "Cancelled")] {
        let asked = stage.order().await;
        let answer = json!({"action": action, "content": {"sure": true}});
        let done = asked.retry().respond("sure", answer).send(&stage.client).await;
        assert_eq!(done.text(), format!(r#"{given} {{"sure":{{"action":"{action}"}}}}"#));
    }
    // Nor when it arrives unsolicited.
    let answer = json!({"sure": {"action": "decline", "content": {"sure": true}}});
    let done = stage.client.request("tools/call", json!({"name": "order", "inputResponses": answer})).await;
    assert_eq!(done.text(), r#"Declined {"sure":{"action":"decline"}}"#);
}

#[tokio::test]
async fn an_integer_may_be_spelled_as_a_float_and_no_other_number_may_stand_for_it() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match round.given::<u8>("cups") {
            Given::Accepted(cups) => Reply::text(format!("{cups} cups")),
            _ => round.ask_form::<u8>("cups", "How many?"),
        }
    });
    let stage = Visit::of(desk).await;
    let asked = stage.order().await;
    let float: Value = serde_json::from_str("3.0").unwrap();
    assert_eq!(asked.accept("cups", json!({"cups": float})).send(&stage.client).await.text(), "3 cups");
    assert_eq!(asked.accept("cups", json!({"cups": 3})).send(&stage.client).await.text(), "3 cups", "an equal retry");
    for wrong in [json!(3.5), json!(-1), json!(256), json!(1e300), json!("3"), json!(true)] {
        let asked = stage.order().await;
        assert_eq!(asked.accept("cups", json!({"cups": wrong})).send(&stage.client).await.asked().keys(), ["cups"]);
    }
}

#[tokio::test]
async fn a_panic_is_answered_and_the_same_retry_runs_again() {
    let desk = Desk::new(|turn| async move {
        if turn.round()?.number() == 1 && turn.effects.have() == 0 {
            panic!("the till is jammed");
        }
        sell(&turn)
    });
    let stage = Visit::of(desk).await;
    let accepted = stage.order().await.accept("size", small());
    let panicked = accepted.send(&stage.client).await;
    assert_eq!(panicked.error()["code"], -32603);
    assert!(!panicked.response().to_string().contains("till"), "the message of a panic is not sent to clients");
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 3");
    assert_eq!(stage.events.outcomes(), [Outcome::InputRequired, Outcome::Panicked, Outcome::Complete]);
}

#[tokio::test]
async fn a_panic_on_the_first_leg_is_answered_and_the_server_goes_on() {
    let desk = Desk::new(|turn| async move {
        assert_ne!(turn.effects.have(), 0, "not today");
        sell(&turn)
    });
    let stage = Visit::of(desk).await;
    assert_eq!(stage.client.call("order", json!({})).await.error()["code"], -32603);
    assert_eq!(stage.client.call("order", json!({})).await.asked().keys(), ["size"]);
    assert_eq!(stage.events.outcomes(), [Outcome::Panicked, Outcome::InputRequired]);
}

#[tokio::test]
async fn every_refusal_looks_the_same_on_the_wire() {
    let shared = |audience: &'static str| {
        move |builder: rounds::RoundsBuilder<Desk>| builder.keys(crate::common::ring(&[1])).audience(audience)
    };
    let stage = Visit::with(shop(), shared("tea")).await;
    let other = Visit::with(shop(), shared("coffee")).await;
    let accepted = stage.order().await.accept("size", small());
    let mut refused = vec![
        accepted.clone().tamper(|state| format!("{state}A")).send(&stage.client).await,
        accepted.clone().with("requestState", json!(7)).send(&stage.client).await,
        accepted.clone().with("name", json!("another")).send(&stage.client).await,
        accepted.clone().with("arguments", json!({"item": "coffee"})).send(&stage.client).await,
        accepted.send(&other.client).await,
    ];
    let _ = accepted.send(&stage.client).await.text();
    refused.push(accepted.clone().decline("size").send(&stage.client).await);
    stage.clock.advance(secs(24 * 60 * 60));
    refused.push(accepted.send(&stage.client).await);
    for leg in &refused {
        leg.frozen();
        assert_eq!(leg.response().as_object().unwrap().len(), 3, "jsonrpc, id and error: {}", leg.response());
    }
    assert_eq!(stage.effects.count() + other.effects.count(), 1);
}

#[tokio::test]
async fn a_panic_in_what_the_application_plugged_in_is_answered_too() {
    struct Nervous;
    impl rounds::observe::Observe for Nervous {
        fn event(&self, event: &rounds::observe::Event<'_>) {
            assert_ne!(event.round, 1, "as the test wants it");
        }
    }
    let client = Client::modern(Rounds::builder(shop()).observe(Nervous).build().expect("it builds")).await;
    let asked = client.call("order", json!({"item": "tea"})).await.asked();
    let leg = asked.accept("size", small()).send(&client).await;
    assert_eq!((&leg.error()["code"], &leg.error()["message"]), (&json!(-32603), &json!("the handler panicked")));
    let identify = |_: &rmcp::service::RequestContext<rmcp::RoleServer>| panic!("as the test wants it");
    let client = Client::modern(Rounds::builder(shop()).principal(identify).build().expect("it builds")).await;
    assert_eq!(client.call("order", json!({"item": "tea"})).await.error()["code"], -32603);
}
