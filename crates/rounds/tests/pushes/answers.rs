//! Answers: checked, single-use, bound, and not later than the flow.

use std::time::Duration;

use rmcp::{RoleServer, service::RequestContext};
use rounds::{Era, test::Client};
use serde_json::json;

use crate::{Sure, delete_all, stage};

#[tokio::test]
async fn an_answer_that_does_not_match_the_schema_is_asked_for_again() {
    let stage = stage(delete_all);
    let client = stage.modern().await;
    let asked = client.call("delete_all", json!({})).await.asked();
    let again = asked.accept("sure", json!({"sure": "yes"})).send(&client).await.asked();
    assert_eq!(again.message("sure"), "Delete everything? (`sure` must be of type boolean)");
    let again = again.accept("sure", json!({})).send(&client).await.asked();
    assert_eq!(again.message("sure"), "Delete everything? (`sure` is missing)");
    let why = again.accept("sure", json!({"sure": true, "admin": 1})).send(&client).await.asked();
    assert_eq!(why.message("why"), "Why?");
    assert_eq!(stage.events.runs("delete_all"), 1);
}

#[tokio::test]
async fn after_the_last_invalid_answer_the_request_fails() {
    let client = stage(delete_all).modern().await;
    let mut asked = client.call("delete_all", json!({})).await.asked();
    for _ in 0..3 {
        asked = asked.accept("sure", json!({"sure": 1})).send(&client).await.asked();
    }
    let failed = asked.accept("sure", json!({"sure": 1})).send(&client).await;
    let message = failed.error()["message"].as_str().unwrap();
    assert!(message.contains("\"Delete everything?\" is not valid: `sure` must be of type boolean"), "{message}");
}

#[tokio::test]
async fn a_round_is_answered_once() {
    let stage = stage(delete_all);
    let client = stage.modern().await;
    let asked = client.call("delete_all", json!({})).await.asked();
    let yes = asked.accept("sure", json!({"sure": true}));
    let why = yes.send(&client).await.asked();
    assert_eq!(yes.send(&client).await.asked().state(), why.state(), "a retry gets the same reply");
    asked.decline("sure").send(&client).await.frozen();
    why.retry().tamper(|state| state.to_uppercase()).send(&client).await.frozen();
    why.accept("why", json!({"why": "x"})).with("name", json!("other")).send(&client).await.frozen();
    let done = why.accept("why", json!({"why": "space"}));
    assert_eq!(done.send(&client).await.text(), "deleted, because space");
    assert_eq!(done.send(&client).await.text(), "deleted, because space");
    assert_eq!(stage.events.runs("delete_all"), 1);
}

#[tokio::test]
async fn a_question_without_an_answer_is_asked_again_and_expires_with_its_round() {
    let stage = stage(delete_all);
    let client = stage.modern().await;
    let asked = client.call("delete_all", json!({})).await.asked();
    let again = asked.retry().send(&client).await.asked();
    assert_eq!(again.message("sure"), "Delete everything?");
    assert_eq!(again.question("sure"), asked.question("sure"));
    stage.passes(1, Duration::from_secs(10 * 60)).await;
    assert_eq!(stage.server.waiting_calls(), 0);
    again.accept("sure", json!({"sure": true})).send(&client).await.frozen();
}

#[tokio::test]
async fn a_flow_has_the_rounds_that_a_flow_has() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        loop {
            if let Err(error) = context.peer.elicit::<Sure>("Sure?").await {
                return Ok(error.to_string());
            }
        }
    });
    let client = stage.modern().await;
    let mut leg = client.call("forever", json!({})).await;
    let mut rounds = 0;
    while leg.response()["result"]["resultType"] == "input_required" {
        rounds += 1;
        leg = leg.asked().accept("sure", json!({"sure": true})).send(&client).await;
    }
    assert_eq!(rounds, 10);
    assert!(leg.text().contains("asked 10 times"), "{leg:?}");
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn a_question_that_a_later_leg_cannot_be_asked_fails() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let sure = context.peer.elicit::<Sure>("Sure?").await;
        Ok(format!("{}", sure.unwrap_err()))
    });
    let client = stage.modern().await;
    let asked = client.call("sure", json!({})).await.asked();
    // The question has no answer, and this leg cannot be asked again.
    let poor = Client::connect(stage.server.clone(), Era::Modern, json!({})).await;
    let told = asked.retry().send(&poor).await;
    assert!(told.text().contains("InputRequiredResult"), "{told:?}");
}
