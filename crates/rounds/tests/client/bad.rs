//! Bad servers: whatever they send, the call ends by itself, with a short error that says what is wrong.

use rmcp::object;
use rounds::client::{BadServer, Call, DriveLimits, Host, Pending, SendError, Sent, Stopped, concurrently, drive};
use serde_json::{Value, json};

use crate::{Act, Raw, asked, asks_units, knows_units, metric, said, soon, text, units_form};

/// The client's outcome for this result of a tool call.
async fn made_of(result: Value) -> Result<Sent, SendError> {
    let (_raw, client) = Raw::modern(move |_| Act::Result(result.clone())).await;
    soon(Call::tool("x", object!({})).send(&client)).await
}

/// The client's error for this result of a tool call.
async fn wrong_with(result: Value) -> BadServer {
    match made_of(result.clone()).await {
        Err(SendError::BadServer(bad)) => {
            assert!(bad.to_string().len() < 1000, "errors are short");
            bad
        }
        other => panic!("{result} was taken for {other:?}"),
    }
}

fn asks(questions: Value) -> Value {
    json!({"resultType": "input_required", "inputRequests": questions, "requestState": "s"})
}

#[tokio::test]
async fn a_result_with_neither_questions_nor_a_state_is_refused() {
    for result in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": {}}),
        json!({"resultType": "input_required", "inputRequests": null, "requestState": null}),
        json!({"resultType": "input_required", "content": [{"type": "text", "text": "fine"}], "messages": []}),
    ] {
        assert_eq!(wrong_with(result).await, BadServer::AsksNothing);
    }
}

#[tokio::test]
async fn a_state_of_ten_megabytes_is_refused() {
    let state = "s".repeat(10 << 20);
    let bad = wrong_with(json!({"resultType": "input_required", "requestState": state})).await;
    assert_eq!(bad, BadServer::StateTooLarge { bytes: 10 << 20, most: 1 << 20 });
    assert_eq!(bad.to_string(), "its state has 10485760 bytes, and the limit is 1048576");
}

#[tokio::test]
async fn how_large_a_state_may_be_is_the_callers_choice() {
    for (most, taken) in [(4, true), (3, false)] {
        let (_raw, client) = Raw::modern(|_| asks_units("four")).await;
        let sent = Call::tool("x", object!({})).with_max_state(most).send(&client).await;
        assert_eq!(sent.is_ok(), taken);
    }
}

#[tokio::test]
async fn a_question_with_a_broken_schema_is_refused_by_its_key() {
    let form = |schema: Value| json!({"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}});
    for schema in [
        json!(null),
        json!("object"),
        json!([]),
        json!({"type": "array"}),
        json!({"type": "object", "properties": []}),
        json!({"type": "object", "properties": {"a": "string"}}),
        json!({"type": "object", "properties": {"a": true}}),
        json!({"type": "object", "properties": {}, "required": "a"}),
        json!({"type": "object", "properties": {}, "required": [1]}),
    ] {
        let bad = wrong_with(asks(form(schema.clone()))).await;
        assert!(matches!(&bad, BadServer::Question { key, .. } if key == "q"), "{schema}: {bad}");
    }
}

#[tokio::test]
async fn what_is_no_question_is_refused_by_its_key() {
    for question in [
        json!({"method": "tools/call", "params": {"name": "rm"}}),
        json!({"method": "ping"}),
        json!({"method": "elicitation/create"}),
        json!({"method": "elicitation/create", "params": {"mode": "form", "requestedSchema": {}}}),
        json!({"method": "elicitation/create", "params": {"mode": "url", "message": "?"}}),
        json!({"method": "elicitation/create", "params": {"mode": "hologram", "message": "?", "url": "a:b"}}),
        json!({"method": "elicitation/create", "params": {"mode": 7, "message": "?", "url": "a:b"}}),
        json!({"method": "sampling/createMessage", "params": {"messages": "all of them"}}),
        json!({"method": "sampling/createMessage"}),
        json!({"method": 1}),
        json!({}),
        json!(null),
        json!("elicitation/create"),
    ] {
        let bad = wrong_with(asks(json!({"fine": units_form(), "q": question}))).await;
        assert!(matches!(&bad, BadServer::Question { key, .. } if key == "q"), "{question}: {bad}");
    }
}

#[tokio::test]
async fn what_is_of_the_wrong_type_is_refused() {
    for (result, what) in [
        (json!({"resultType": "input_required", "requestState": 7}), "requestState"),
        (json!({"resultType": "input_required", "requestState": {"a": 1}}), "requestState"),
        (json!({"resultType": "input_required", "requestState": "s", "inputRequests": [1]}), "inputRequests"),
        (json!({"resultType": "input_required", "requestState": "s", "inputRequests": "all"}), "inputRequests"),
    ] {
        assert!(matches!(wrong_with(result).await, BadServer::Unreadable { what: found } if found == what));
    }
    for result_type in
        [json!(1), json!({}), json!(["complete"]), json!("\u{1b}[2J\u{202e}"), json!("x".repeat(1 << 20))]
    {
        let bad = wrong_with(json!({"resultType": result_type, "content": []})).await;
        assert!(matches!(bad, BadServer::ResultType(_)));
        assert!(!bad.to_string().contains(['\u{1b}', '\u{202e}']), "the sequence does not reach a terminal");
    }
}

#[tokio::test]
async fn what_is_no_result_of_the_method_is_refused() {
    for result in [json!({}), json!({"resultType": "complete"}), json!({"content": 7}), json!({"tools": []}), json!(7)]
    {
        let bad = wrong_with(result).await;
        assert!(matches!(bad, BadServer::Result { method: "tools/call", .. }), "{bad}");
    }
    let task = wrong_with(json!({"resultType": "task", "taskId": 7})).await;
    assert!(matches!(task, BadServer::Result { .. }));
}

#[tokio::test]
async fn more_than_anybody_can_answer_is_refused() {
    let many: serde_json::Map<String, Value> = (0..1000).map(|at| (format!("q{at}"), units_form())).collect();
    assert!(matches!(wrong_with(asks(json!(many))).await, BadServer::AsksTooMuch { .. }));
    let mut large = units_form();
    large["params"]["message"] = json!("?".repeat(2 << 20));
    assert!(matches!(wrong_with(asks(json!({"q": large}))).await, BadServer::AsksTooMuch { .. }));
    let url = "https://example.com/".repeat(100_000);
    let page = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": url}});
    assert!(matches!(wrong_with(asks(json!({"q": page}))).await, BadServer::AsksTooMuch { .. }));
}

#[tokio::test]
async fn a_form_that_is_made_to_be_slow_is_not() {
    let names: Vec<String> = (0..10_000).map(|at| format!("f{at}")).collect();
    let fields: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"type": "null"}))).collect();
    for schema in [
        json!({"type": "object", "properties": fields, "required": names}),
        json!({"type": "object", "properties": {}, "required": vec!["ghost"; 20_000]}),
    ] {
        let form = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}});
        match made_of(asks(json!({"q": form}))).await {
            Ok(sent) => {
                let pending = asked(sent);
                assert!(pending.fields().all(|(_, field)| field.default.is_none()));
                assert!(pending.fields().filter(|(_, field)| field.name == "ghost").count() <= 1);
                Pending::from_json(&pending.to_json()).unwrap();
            }
            Err(error) => assert!(matches!(error, SendError::BadServer(BadServer::AsksTooMuch { .. })), "{error}"),
        }
    }
}

/// Checking one takes time in proportion to the product of items and choices.
#[tokio::test]
async fn a_default_that_takes_long_to_check_is_none() {
    let choices: Vec<String> = (0..20_000).map(|at| format!("{at:x}")).collect();
    let list = |default: usize| json!({"type": "array", "items": {"type": "string", "enum": choices}, "default": vec!["4e1f"; default]});
    let nested = json!({"type": "array", "items": list(0), "default": [vec!["4e1f"; 1001]]});
    for (schema, is_there) in [(list(1000), true), (list(1001), false), (nested, false)] {
        let schema = json!({"type": "object", "properties": {"list": schema}});
        let form = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}});
        let pending = asked(made_of(asks(json!({"q": form}))).await.unwrap());
        assert!(pending.fields().all(|(_, field)| field.default.is_some() == is_there), "{is_there}");
    }
}

#[tokio::test]
async fn a_refused_state_that_was_never_sent_is_just_an_error() {
    let (_raw, client) = Raw::modern(|_| {
        Act::Error(json!({"code": -32602, "message": "no", "data": {"reason": "invalid_request_state"}}))
    })
    .await;
    let error = Call::tool("x", object!({})).send(&client).await.unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error:?}");
}

#[tokio::test]
async fn names_that_would_fill_a_screen_are_refused() {
    let long = "n".repeat(1000);
    let bad = wrong_with(asks(json!({long.as_str(): units_form()}))).await;
    assert_eq!(bad.to_string(), "its questions are too many or too large: a key of more than 256 bytes");
    let mut form = units_form();
    form["params"]["requestedSchema"]["required"] = json!([long]);
    assert!(matches!(wrong_with(asks(json!({"q": form}))).await, BadServer::Question { .. }));
    form["params"]["requestedSchema"] = json!({"type": "object", "properties": {long.as_str(): {"type": "string"}}});
    assert!(matches!(wrong_with(asks(json!({"q": form}))).await, BadServer::Question { .. }));
}

#[tokio::test]
async fn an_expiry_that_makes_no_sense_is_no_expiry_or_a_far_one() {
    for (millis, told) in [
        (json!(u64::MAX), true),
        (json!(0), true),
        (json!(-5), false),
        (json!(1.5), false),
        (json!("soon"), false),
        (json!(null), false),
    ] {
        let mut result = asks(json!({"units": units_form()}));
        result["_meta"] = json!({"rounds/expiresInMs": millis});
        let pending = asked(made_of(result).await.unwrap());
        assert_eq!(pending.expires_in().is_some(), told, "{millis}");
        assert_eq!(Pending::from_json(&pending.to_json()).unwrap(), pending);
    }
}

#[tokio::test]
async fn an_endless_asker_is_stopped_and_what_was_answered_is_kept() {
    let mut legs = 0;
    let (raw, client) = Raw::modern(move |_| {
        legs += 1;
        asks_units(&format!("leg {legs}"))
    })
    .await;
    let error =
        soon(drive(&client, Call::tool("x", object!({})), &knows_units(), DriveLimits::default())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server has not finished after 10 rounds; continue with the pending call, or raise `DriveLimits::with_rounds`"
    );
    assert_eq!(raw.requests("tools/call").len(), 11);
    let pending = error.into_pending().unwrap();
    assert_eq!((pending.round(), pending.open()), (11, vec!["units"]));
    assert_eq!(pending.question("units").unwrap().prefilled(), object!({"units": "metric"}), "no typed answer is lost");
}

#[tokio::test]
async fn a_connection_that_is_lost_between_legs_leaves_the_call_whole() {
    let (_raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { Act::Close }
            },
        )
        .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    let before = pending.clone();
    let error = soon(pending.send(&client)).await.unwrap_err();
    assert!(matches!(error, SendError::Connection(_)), "{error:?}");
    let again = soon(pending.send(&client)).await.unwrap_err();
    assert!(matches!(again, SendError::Connection(_)), "the connection is still closed: {again:?}");
    assert_eq!(pending, before);

    let (_raw, client) = Raw::modern(|request| text(request["params"]["requestState"].as_str().unwrap())).await;
    assert_eq!(said(pending.send(&client).await.unwrap()), "s", "over another connection the call continues");
}

#[tokio::test]
async fn a_driven_call_that_loses_its_connection_keeps_what_was_answered() {
    let (_raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { Act::Close }
            },
        )
        .await;
    let responder = concurrently(knows_units());
    let error =
        soon(drive(&client, Call::tool("x", object!({})), &responder, DriveLimits::default())).await.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::Leg(SendError::Connection(_))), "{error}");
    assert_eq!(error.into_pending().unwrap().answered("units"), Some(&metric()));
}

#[tokio::test]
async fn an_error_of_a_megabyte_is_told_in_a_line() {
    let (_raw, client) = Raw::modern(|_| {
        Act::Error(json!({"code": -32000, "message": "\u{1b}]0;owned\u{7}no ".repeat(100_000), "data": {"reason": 7}}))
    })
    .await;
    let error = Call::tool("x", object!({})).send(&client).await.unwrap_err();
    assert!(matches!(error, SendError::Refused(_)));
    let told = error.to_string();
    assert!(told.len() < 2500 && !told.contains('\u{1b}'), "{told}");
}

#[tokio::test]
async fn a_form_of_many_choices_is_refused_an_answer_in_a_line() {
    let choices: Vec<String> = (0..5000).map(|at| format!("choice-{at}")).collect();
    let form = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {
        "type": "object", "properties": {"a": {"type": "string", "enum": choices}},
    }}});
    let mut pending = asked(made_of(asks(json!({"q": form}))).await.unwrap());
    let error = pending.accept("q", object!({"a": "none"})).unwrap_err();
    assert!(error.to_string().len() < 1000, "{error}");
}

#[tokio::test]
async fn a_host_with_a_name_of_another_is_not_answered() {
    let act = |_: &Value| asks_units("s");
    let (_raw, first) = Raw::named("bank", Host::new(knows_units()), act).await;
    let (thief, other) = Raw::named("thief", Host::new(knows_units()), act).await;
    let mut pending = asked(Call::tool("x", object!({})).send(&first).await.unwrap());
    pending.answer("units", metric()).unwrap();
    let error = pending.send(&other).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this call belongs to \"bank\", and this connection is to \"thief\": send it to the server that asked"
    );
    assert!(thief.requests("tools/call").is_empty(), "nothing was sent");
}
