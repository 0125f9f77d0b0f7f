//! A call that waits for answers: its server, its open questions, and how it starts over.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use std::time::Duration;

use rmcp::{
    model::{CreateMessageResult, ListRootsResult, SamplingMessage},
    object,
};
use rounds::{
    client::{AnswerError, Call, Host, Pending, SendError, Server, UserAnswer},
    observe::QuestionKind,
    test::Clock,
};
use serde_json::{Value, json};

use crate::{Act, Raw, asked, asks_units, metric, said, silent, text, units_form};

#[tokio::test]
async fn nothing_is_sent_while_something_is_open() {
    let (raw, client) = Raw::modern(|_| {
        let asks = json!({"a": units_form(), "b": units_form()});
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    })
    .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.answer("b", metric()).unwrap();
    assert_eq!(pending.open(), ["a"]);
    let error = pending.send(&client).await.unwrap_err();
    assert_eq!(error.to_string(), "these questions have no answer yet: a");
    pending.cancel("a").unwrap();
    assert_eq!(pending.reopen("b"), Some(metric()));
    assert!(matches!(pending.send(&client).await, Err(SendError::Open { keys }) if keys == ["b"]));
    assert_eq!(raw.requests("tools/call").len(), 1);
}

#[tokio::test]
async fn what_was_not_asked_or_is_of_another_kind_is_not_an_answer() {
    let (_raw, client) = Raw::modern(|_| asks_units("s")).await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    let error = pending.answer("ghost", metric()).unwrap_err();
    assert_eq!(error, AnswerError::NotAsked { key: "ghost".to_owned() });
    for answer in [UserAnswer::Visit, UserAnswer::Roots(ListRootsResult::default())] {
        let error = pending.answer("units", answer).unwrap_err();
        assert_eq!(error, AnswerError::OtherKind { key: "units".to_owned(), wanted: QuestionKind::Form });
        assert_eq!(error.to_string(), "\"units\" wants a form");
    }
}

#[tokio::test]
async fn samples_and_roots_are_asked_for_and_cannot_be_declined() {
    let (raw, client) = Raw::modern(|request| {
        if request["params"].get("requestState").is_some() {
            return text("done");
        }
        let message = json!({"role": "user", "content": {"type": "text", "text": "Say hello"}});
        let asks = json!({
            "sample": {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 7}},
            "roots": {"method": "roots/list"},
        });
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    })
    .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    let sample = pending.question("sample").unwrap();
    assert_eq!((sample.kind(), sample.sample().unwrap().max_tokens), (QuestionKind::Sample, 7));
    assert_eq!(pending.question("roots").unwrap().kind(), QuestionKind::Roots);
    for key in ["sample", "roots"] {
        assert!(pending.decline(key).is_err() && pending.cancel(key).is_err());
    }
    let hello = CreateMessageResult::new(SamplingMessage::assistant_text("hello"), "m-1".to_owned());
    pending.answer("sample", UserAnswer::Sample(Box::new(hello))).unwrap();
    pending.answer("roots", UserAnswer::Roots(ListRootsResult::default())).unwrap();
    let pending = Pending::from_json(&pending.to_json()).unwrap();
    assert_eq!(said(pending.send(&client).await.unwrap()), "done");
    let responses = &raw.requests("tools/call")[1]["params"]["inputResponses"];
    assert_eq!(responses["roots"], json!({"roots": []}));
    assert_eq!(
        (&responses["sample"]["model"], &responses["sample"]["content"]["text"]),
        (&json!("m-1"), &json!("hello"))
    );
}

#[tokio::test]
async fn a_call_is_answered_only_to_the_server_that_asked() {
    let act = |request: &Value| {
        if request["params"].get("requestState").is_none() { asks_units("s") } else { text("done") }
    };
    let (_a, one) = Raw::named("one", Host::new(silent()), act).await;
    let (_b, same) = Raw::named("one", Host::new(silent()), act).await;
    let at = |client, address: &str| Server::from(client).at(address);
    let mut here = asked(Call::tool("x", object!({})).send(at(&one, "https://one")).await.unwrap());
    here.answer("units", metric()).unwrap();
    assert!(matches!(here.send(&same).await, Err(SendError::OtherServer { .. })), "it may be any server");
    assert!(matches!(here.send(at(&same, "https://two")).await, Err(SendError::OtherServer { .. })));
    assert_eq!(said(here.send(at(&same, "https://one")).await.unwrap()), "done", "another connection is accepted");
    let saved = Pending::from_json(&here.to_json()).unwrap();
    assert!(
        matches!(saved.send(&same).await, Err(SendError::OtherServer { .. })),
        "a saved call still knows its server"
    );
    assert_eq!(said(saved.send(at(&same, "https://one")).await.unwrap()), "done");
}

#[tokio::test]
async fn how_long_is_left_counts_from_when_the_question_came_also_after_it_was_saved() {
    let (_raw, client) = Raw::modern(|_| {
        Act::Result(json!({
            "resultType": "input_required", "inputRequests": {"units": units_form()},
            "_meta": {"rounds/expiresInMs": 90_000},
        }))
    })
    .await;
    let clock = Clock::new();
    let server = Server::from(&client).clock(clock.clone());
    clock.advance(Duration::from_secs(1000));
    let pending = asked(Call::tool("x", object!({})).send(server).await.unwrap());
    let now = rounds::time::Clock::now(&clock);
    assert_eq!(pending.expires_at(), Some(now + Duration::from_secs(90)));
    let saved = Pending::from_json(&pending.to_json()).unwrap();
    assert_eq!((saved.expires_at(), saved.received_at()), (pending.expires_at(), now));

    let pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    let left = pending.expires_in().unwrap();
    assert!(left <= Duration::from_secs(90) && left > Duration::from_secs(30), "{left:?}");
    assert!(pending.questions()[0].expires_in().is_some());
}

#[tokio::test]
async fn a_question_with_less_time_than_the_others_says_so_also_after_it_was_saved() {
    let (_raw, client) = Raw::modern(|_| {
        let mut quick = units_form();
        quick["params"]["_meta"] = json!({"rounds/expiresInMs": 30_000});
        let mut page = json!({"method": "elicitation/create", "params": {
            "mode": "url", "message": "Sign in", "url": "https://example.com", "_meta": {"rounds/expiresInMs": 20_000},
        }});
        let mut odd = units_form();
        odd["params"]["_meta"] = json!({"rounds/expiresInMs": "soon"});
        let mut long = units_form();
        long["params"]["_meta"] = json!({"rounds/expiresInMs": 1_000_000});
        page["params"]["elicitationId"] = json!("1");
        Act::Result(json!({
            "resultType": "input_required",
            "inputRequests": {"long": long, "odd": odd, "page": page, "quick": quick, "slow": units_form()},
            "_meta": {"rounds/expiresInMs": 90_000},
        }))
    })
    .await;
    let pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    for pending in [Pending::from_json(&pending.to_json()).unwrap(), pending] {
        let left = |key: &str| pending.question(key).unwrap().expires_in().unwrap().as_secs();
        assert!((60..=90).contains(&pending.expires_in().unwrap().as_secs()));
        assert!((10..=20).contains(&left("page")) && (15..=30).contains(&left("quick")));
        for key in ["slow", "odd", "long"] {
            assert!((60..=90).contains(&left(key)), "{key}");
        }
    }
}

#[tokio::test]
async fn a_call_that_starts_over_suggests_what_was_answered_in_every_round() {
    let ask = |key: &str| {
        Act::Result(json!({"resultType": "input_required", "inputRequests": {key: units_form()}, "requestState": key}))
    };
    let (raw, client) = Raw::modern(move |request| match request["params"]["requestState"].as_str() {
        None => ask("first"),
        Some("first") => ask("second"),
        Some(_) => Act::Error(json!({"code": -32602, "message": "no", "data": {"reason": "invalid_request_state"}})),
    })
    .await;
    let call = Call::tool("x", object!({"place": "Paris"}));
    let mut pending = asked(call.send(&client).await.unwrap());
    pending.answer("first", metric()).unwrap();
    let mut pending = asked(pending.send(&client).await.unwrap());
    pending.accept("second", object!({"units": "imperial"})).unwrap();
    assert!(matches!(pending.send(&client).await, Err(SendError::StateRefused(_))));

    let again = pending.start_over();
    assert_eq!((again.target(), again.arguments()), (call.target(), call.arguments()));
    let again: Call = serde_json::from_str(&serde_json::to_string(&again).unwrap()).unwrap();
    let mut pending = asked(again.send(&client).await.unwrap());
    assert_eq!((pending.round(), pending.open()), (1, vec!["first"]), "a suggestion is not an answer");
    assert_eq!(pending.question("first").unwrap().fields()[0].suggested, Some(json!("metric")));
    pending.answer("first", metric()).unwrap();
    let pending = asked(pending.send(&client).await.unwrap());
    assert_eq!(pending.question("second").unwrap().prefilled(), object!({"units": "imperial"}));
    let fresh = &raw.requests("tools/call")[3]["params"];
    assert!(fresh.get("requestState").is_none() && fresh.get("inputResponses").is_none());
    assert!(!fresh.to_string().contains("imperial"), "suggestions are not sent");
}

#[tokio::test]
async fn a_suggestion_that_no_longer_fits_is_none() {
    let mut legs = 0;
    let (_raw, client) = Raw::modern(move |_| {
        legs += 1;
        let mut form = units_form();
        if legs > 1 {
            form["params"]["requestedSchema"]["properties"]["units"]["enum"] = json!(["kelvin"]);
        }
        Act::Result(json!({"resultType": "input_required", "inputRequests": {"units": form}, "requestState": "s"}))
    })
    .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    let pending = asked(pending.start_over().send(&client).await.unwrap());
    assert_eq!(pending.question("units").unwrap().fields()[0].suggested, None);
}

#[tokio::test]
async fn what_is_logged_has_neither_the_state_in_it_nor_what_was_typed() {
    let (_raw, client) = Raw::modern(|_| asks_units("a-bearer-of-everything")).await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.accept("units", object!({"units": "imperial"})).unwrap();
    for logged in [format!("{pending:?}"), format!("{:?}", pending.start_over())] {
        assert!(!logged.contains("bearer") && !logged.contains("imperial"), "{logged}");
    }
    assert_eq!(pending.state_bytes(), Some(22));
}
