//! A work item to resolve: the second question depends on the answer to the first.

use rounds::Era;
use serde_json::{Value, json};

use super::{Played, Visit, accept, cancel, decline};

const HOW: &str = "How is #4522 resolved?";
const OF_WHAT: &str = "What is #4522 a duplicate of?";

async fn resolve(answers: impl IntoIterator<Item = Value>) -> Played {
    let call = json!({"name": "resolve_work_item", "arguments": {"work_item_id": 4522}});
    Visit::new(Era::Modern).await.play_in_turn("tools/call", call, answers).await
}

fn as_(resolution: &str) -> Value {
    accept(json!({"resolution": resolution}))
}

fn of(other: Value) -> Value {
    accept(json!({"duplicate_of": other}))
}

#[tokio::test]
async fn a_duplicate_has_a_second_question_and_nothing_else_has() {
    for (answers, asked, text) in [
        (vec![as_("Fixed")], &[HOW][..], "#4522 resolved as Fixed."),
        (vec![as_("Won't Fix")], &[HOW], "#4522 resolved as Won't Fix."),
        (vec![as_("By Design")], &[HOW], "#4522 resolved as By Design."),
        (vec![as_("Duplicate"), of(json!(4301))], &[HOW, OF_WHAT], "#4522 resolved as Duplicate of #4301."),
        (vec![decline()], &[HOW], "#4522 is left as it is."),
        (vec![cancel()], &[HOW], "#4522 is left as it is."),
        (vec![as_("Duplicate"), decline()], &[HOW, OF_WHAT], "#4522 is left as it is."),
        (vec![as_("Duplicate"), cancel()], &[HOW, OF_WHAT], "#4522 is left as it is."),
    ] {
        let played = resolve(answers).await;
        assert_eq!(played.messages(), asked);
        assert_eq!(played.leg.text(), text);
        assert!(!played.leg.is_tool_error());
    }
}

#[tokio::test]
async fn what_does_not_fit_is_asked_again_and_what_did_is_not() {
    let played = resolve([as_("Lost"), as_("Duplicate"), of(json!("the other one")), of(json!(4301))]).await;
    let asked = played.messages();
    assert_eq!(asked.len(), 4);
    for (message, question) in asked.iter().zip([HOW, HOW, OF_WHAT, OF_WHAT]) {
        assert!(message.contains(question), "{message}");
    }
    assert_eq!(played.leg.text(), "#4522 resolved as Duplicate of #4301.");
}

#[tokio::test]
async fn the_questions_are_forms_of_one_field() {
    let played = resolve([as_("Duplicate"), of(json!(1))]).await;
    let schema = |question: usize, field: &str| {
        played.questions[question]["params"]["requestedSchema"]["properties"][field].clone()
    };
    assert_eq!(schema(0, "resolution")["enum"], json!(["Fixed", "Won't Fix", "Duplicate", "By Design"]));
    assert_eq!(schema(1, "duplicate_of")["type"], "integer");
}

#[tokio::test]
async fn an_old_client_is_told_that_it_cannot_be_asked() {
    let stage = Visit::new(Era::Legacy).await;
    let leg = stage.client.call("resolve_work_item", json!({"work_item_id": 4522})).await;
    assert!(leg.is_tool_error() && leg.text().contains("this client cannot be asked"), "{}", leg.text());
    assert!(!stage.client.was_pushed());
}

#[tokio::test]
async fn the_simplest_tool_asks_once_and_gives_the_weather() {
    for (answer, text) in [
        (accept(json!({"units": "metric"})), "Weather in Tokyo: 22°C, partly cloudy."),
        (accept(json!({"units": "imperial"})), "Weather in Tokyo: 72°F, partly cloudy."),
        (decline(), "Cancelled."),
        (cancel(), "Cancelled."),
    ] {
        for era in [Era::Modern, Era::Legacy] {
            let call = json!({"name": "get_weather", "arguments": {"location": "Tokyo"}});
            let played = Visit::new(era).await.play("tools/call", call, &answer).await;
            assert_eq!(played.messages(), ["Which units?"]);
            assert_eq!(played.leg.text(), text);
        }
    }
}
