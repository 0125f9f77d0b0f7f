//! Every part of a response, and of a saved call, replaced by every kind of JSON value.

use std::sync::{Arc, Mutex};

use rmcp::object;
use rounds::client::{Call, Pending, SendError, Sent};
use serde_json::{Value, json};

use crate::{Act, Raw, soon};

/// The replacements of a part. Removing it is a further one.
fn oddities() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}\u{202e}"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"": {"": []}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
    ]
}

/// The paths to all parts of a value.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(parts) => {
            parts.iter().for_each(|(name, part)| paths(part, &format!("{path}/{}", name.replace('/', "~1")), found));
        }
        Value::Array(parts) => {
            parts.iter().enumerate().for_each(|(at, part)| paths(part, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

/// The value with one part replaced or removed, in every way.
fn mutants(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    paths(value, "", &mut found);
    let mut mutants = Vec::new();
    for path in found {
        for oddity in oddities() {
            let mut mutant = value.clone();
            *mutant.pointer_mut(&path).unwrap() = oddity;
            mutants.push(mutant);
        }
        let Some((parent, name)) = path.rsplit_once('/') else { continue };
        let mut mutant = value.clone();
        if let Some(Value::Object(parts)) = mutant.pointer_mut(parent) {
            parts.remove(&name.replace("~1", "/"));
            mutants.push(mutant);
        }
    }
    mutants
}

fn result() -> Value {
    let field = json!({
        "type": "string", "title": "A", "description": "d", "minLength": 1, "maxLength": 5, "format": "email", "default": "a@b",
    });
    let choices =
        json!({"type": "array", "minItems": 1, "items": {"anyOf": [{"const": "a", "title": "A"}]}, "default": ["a"]});
    let number = json!({"type": "integer", "minimum": 1, "maximum": 3, "default": 2});
    json!({
        "resultType": "input_required", "requestState": "s", "_meta": {"rounds/expiresInMs": 1000},
        "inputRequests": {
            "form": {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {
                "type": "object", "required": ["a"], "properties": {"a": field, "b": choices, "c": number,
                    "d": {"type": "string", "enum": ["x"], "enumNames": ["X"]},
                    "e": {"type": "string", "oneOf": [{"const": "y", "title": "Y"}]}},
            }}},
            "page": {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://a"}},
            "roots": {"method": "roots/list"},
            "sample": {"method": "sampling/createMessage", "params": {"maxTokens": 1, "messages": [
                {"role": "user", "content": {"type": "text", "text": "hi"}},
            ]}},
        },
    })
}

#[tokio::test]
async fn no_response_makes_the_client_panic_or_wait() {
    let mutants = mutants(&result());
    let next = Arc::new(Mutex::new(mutants.clone().into_iter()));
    let (_raw, client) = Raw::modern(move |_| Act::Result(next.lock().unwrap().next().unwrap())).await;
    let (mut asked, mut refused) = (0, 0);
    for mutant in &mutants {
        match soon(Call::tool("x", object!({})).send(&client)).await {
            Ok(Sent::Asks(pending) | Sent::Later(pending)) => {
                asked += 1;
                assert_eq!(Pending::from_json(&pending.to_json()).unwrap(), pending, "{mutant}");
                for question in pending.questions() {
                    question.prefilled().iter().for_each(|(name, value)| {
                        assert!(question.field(name).unwrap().check(value).is_ok(), "{mutant}");
                    });
                }
            }
            // An absent resultType means complete, whatever else is present.
            Ok(Sent::Done(_)) if mutant["resultType"].is_null() => {}
            Ok(other) => panic!("{mutant} was taken for {other:?}"),
            Err(SendError::BadServer(bad)) => {
                refused += 1;
                assert!(bad.to_string().chars().count() < 500, "{mutant}");
            }
            Err(error) => panic!("{mutant}: {error:?}"),
        }
    }
    assert!(asked > 100 && refused > 100, "{asked} were asked, {refused} refused");
}

#[test]
fn no_saved_call_makes_the_client_panic() {
    let golden: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    for mutant in mutants(&golden) {
        if let Ok(pending) = Pending::from_json(&mutant.to_string()) {
            assert_eq!(Pending::from_json(&pending.to_json()).unwrap(), pending, "{mutant}");
            let _ = (pending.expires_in(), pending.expires_at(), pending.received_at(), format!("{pending:?}"));
        }
    }
}
