//! The format of a saved call: it is versioned, and old files stay readable.

use rmcp::object;
use rounds::client::{AnswerError, Call, LoadError, Pending, Server};
use serde_json::{Value, json};

use crate::{Act, Raw, asked, metric, units_form};

/// A saved call of version 1. It must not change: users have such files.
const GOLDEN: &str = include_str!("golden.json");

/// The call in the golden file.
async fn golden() -> Pending {
    let (_raw, client) = Raw::modern(|_| {
        let page =
            json!({"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e-1"});
        let asks = json!({"page": {"method": "elicitation/create", "params": page}, "units": units_form()});
        Act::Result(json!({
            "resultType": "input_required", "inputRequests": asks, "requestState": "opaque \"state\" ä",
            "_meta": {"rounds/expiresInMs": 600_000},
        }))
    })
    .await;
    let server = Server::from(&client).at("https://example.com/mcp").clock(rounds::test::Clock::new());
    let call = Call::tool("weather", object!({"location": "Paris"})).with_meta(object!({"traceparent": "00-1-2-03"}));
    let mut before = asked(call.send(server.clone()).await.unwrap());
    before.accept("units", object!({"units": "imperial"})).unwrap();
    let mut pending = asked(before.start_over().send(server).await.unwrap());
    pending.answer("units", metric()).unwrap();
    pending
}

#[tokio::test]
async fn a_call_is_saved_as_it_always_was() {
    let saved: Value = serde_json::from_str(&golden().await.to_json()).unwrap();
    let expected: Value = serde_json::from_str(GOLDEN).unwrap();
    assert_eq!(saved, expected, "{saved:#}");
}

#[tokio::test]
async fn a_call_that_was_saved_is_read_again_whole() {
    let read = Pending::from_json(GOLDEN).unwrap();
    assert_eq!(read, golden().await);
    assert_eq!(read.open(), ["page"]);
    let by_serde: Pending = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(by_serde, read);
}

#[test]
fn an_unknown_version_is_an_error_that_says_so() {
    let mut newer: Value = serde_json::from_str(GOLDEN).unwrap();
    newer["version"] = json!(3);
    newer["call"] = json!("all is different now");
    let error = Pending::from_json(&newer.to_string()).unwrap_err();
    let told =
        "this call was saved in version 3 of the format, and this build reads version 2: load it with a newer one";
    assert_eq!(error.to_string(), told);
    let by_serde = serde_json::from_value::<Pending>(newer).unwrap_err();
    assert_eq!(by_serde.to_string(), told);
}

#[test]
fn what_is_no_saved_call_is_refused() {
    let changed = |change: fn(&mut Value)| {
        let mut saved: Value = serde_json::from_str(GOLDEN).unwrap();
        change(&mut saved);
        saved.to_string()
    };
    for text in [
        String::new(),
        "{}".to_owned(),
        "[]".to_owned(),
        changed(|saved| saved["version"] = json!("1")),
        changed(|saved| saved["call"]["method"] = json!("tools/list")),
        changed(|saved| saved["state"] = json!(7)),
    ] {
        assert!(matches!(Pending::from_json(&text), Err(LoadError::Malformed(_))), "{text}");
    }
    let question = changed(|saved| saved["questions"]["units"]["params"]["requestedSchema"] = json!(1));
    assert!(matches!(Pending::from_json(&question), Err(LoadError::Question { key, .. }) if key == "units"));
    for answer in [
        changed(|saved| saved["answers"]["units"]["content"]["units"] = json!("kelvin")),
        changed(|saved| saved["answers"]["units"] = json!("yes")),
        changed(|saved| saved["answers"]["ghost"] = json!({"action": "decline"})),
    ] {
        assert!(matches!(Pending::from_json(&answer), Err(LoadError::Answer(_))), "{answer}");
    }
    let odd = changed(|saved| saved["answers"]["units"] = json!({"action": "perhaps"}));
    let error = Pending::from_json(&odd).unwrap_err();
    assert!(matches!(error, LoadError::Answer(AnswerError::OtherKind { .. })), "expected no question: {error:?}");
}
