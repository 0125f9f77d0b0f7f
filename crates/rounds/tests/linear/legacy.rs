//! Legacy clients: asked over the live connection, by the same handler.

use std::time::Duration;

use rounds::{
    Ask, Era, FlowError, Limits, Principal,
    observe::{Outcome, Refusal, Station},
    test::Client,
};
use serde_json::json;

use super::{Count, Units, stage, stage_with, units, units_until, without_grace};

#[tokio::test]
async fn the_real_request_is_pushed_and_awaited() {
    let stage = stage(units);
    let client = Client::legacy(stage.server.clone()).await;
    for (answer, text) in [
        (json!({"action": "accept", "content": {"units": "imperial"}}), "Imperial"),
        (json!({"action": "decline"}), "The user declined: Which units?"),
        (json!({"action": "cancel"}), "The user cancelled: Which units?"),
    ] {
        let leg = client.start("tools/call", json!({"name": "weather", "arguments": {}})).await;
        let pushed = client.pushed().await.unwrap();
        assert_eq!(pushed.method(), "elicitation/create");
        assert_eq!(pushed.params()["message"], "Which units?");
        assert_eq!(pushed.params()["requestedSchema"]["required"], json!(["units"]));
        pushed.answer(answer).await;
        assert_eq!(leg.finish().await.text(), text);
    }
    assert_eq!(stage.events.runs("weather"), 3);
    assert!(stage.events.stations().contains(&Station::Pushed { key: "units".to_owned() }));
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again() {
    let stage = stage(units);
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "weather"})).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"units": "kelvin"}})).await;
    let again = client.pushed().await.unwrap();
    assert_eq!(again.params()["message"], "Which units? (`units` must be one of metric, imperial)");
    again.answer(json!({"action": "accept", "content": {"units": "metric"}})).await;
    assert_eq!(leg.finish().await.text(), "Metric");
}

#[tokio::test]
async fn questions_that_are_pending_together_are_pushed_together() {
    let stage = stage(|ask: Ask| async move {
        let (one, two) = tokio::join!(
            ask.form::<Units>("One?").key("one").into_future(),
            ask.form::<Units>("Two?").key("two").into_future(),
        );
        Ok(format!("{:?} {:?}", one?, two?))
    });
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let (one, two) = (client.pushed().await.unwrap(), client.pushed().await.unwrap());
    assert_eq!((&one.params()["message"], &two.params()["message"]), (&json!("One?"), &json!("Two?")));
    two.answer(json!({"action": "accept", "content": {"two": "imperial"}})).await;
    one.answer(json!({"action": "accept", "content": {"one": "metric"}})).await;
    assert_eq!(leg.finish().await.text(), "Metric Imperial");
}

#[tokio::test]
async fn a_client_that_did_not_sign_up_is_not_pushed_to_whatever_its_request_says() {
    let stage = stage(units);
    let client = Client::connect(stage.server.clone(), Era::Legacy, json!({})).await;
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let leg = client.request("tools/call", json!({"name": "weather", "_meta": meta})).await;
    assert_eq!(leg.error()["code"], -32021);
    assert!(!client.was_pushed());
}

#[tokio::test]
async fn a_client_that_answers_with_an_error_ends_the_call_in_words() {
    let stage = stage(units);
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "weather"})).await;
    client.pushed().await.unwrap().fail(-32601, "no such method here").await;
    let ended = leg.finish().await;
    assert!(ended.is_tool_error());
    assert!(
        ended.text().starts_with("the client failed to ask its user: ") && ended.text().contains("no such method here")
    );
}

#[tokio::test]
async fn a_push_waits_as_long_as_a_round_lives_with_signs_of_life() {
    let stage = stage(units);
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "weather", "_meta": {"progressToken": 7}})).await;
    let pushed = client.pushed().await.unwrap();
    stage.clock.until_asleep(2).await;
    stage.clock.advance(Duration::from_secs(10));
    let sign = client.notified("notifications/progress").await;
    assert_eq!((&sign["params"]["progressToken"], &sign["params"]["progress"]), (&json!(7), &json!(0.001)));
    stage.clock.until_asleep(2).await;
    stage.clock.advance(Duration::from_secs(600));
    assert_eq!(leg.finish().await.text(), "The user did not answer in time: Which units?");
    let withdrawn = client.notified("notifications/cancelled").await;
    assert_eq!(&withdrawn["params"]["requestId"], pushed.id(), "the pushed question is cancelled");
}

#[tokio::test]
async fn signs_of_life_go_on_from_what_was_said_last() {
    let stage = stage(|ask: Ask| async move {
        ask.progress(50.0, Some(100.0), None).await;
        let one: Units = ask.form("One?").key("one").await?;
        let two: Units = ask.form("Two?").key("two").await?;
        Ok(format!("{one:?} {two:?}"))
    });
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x", "_meta": {"progressToken": 7}})).await;
    let told = || client.notifications().into_iter().filter(|told| told["method"] == "notifications/progress");
    for (key, before) in [("one", 1), ("two", 2)] {
        let pushed = client.pushed().await.unwrap();
        stage.clock.until_asleep(2).await;
        stage.clock.advance(Duration::from_secs(10));
        while told().count() == before {
            tokio::task::yield_now().await;
        }
        pushed.answer(json!({"action": "accept", "content": {key: "metric"}})).await;
    }
    assert_eq!(leg.finish().await.text(), "Metric Metric");
    let said = told().map(|told| told["params"]["progress"].as_f64().unwrap()).collect::<Vec<_>>();
    assert!(said.len() == 3 && said[0] == 50.0 && said[2] < 51.0, "{said:?}");
    assert!(said.is_sorted_by(|one, next| one < next), "{said:?}");
    assert!(told().all(|told| told["params"]["total"] == 100.0));
}

#[tokio::test]
async fn a_question_that_is_dropped_is_withdrawn_at_the_client() {
    let stage = stage(|ask: Ask| async move {
        let asked = Count::default();
        tokio::select! {
            units = ask.form::<Units>("Which units?") => Ok(format!("{:?}", units?)),
            () = async { for _ in 0..10 { tokio::task::yield_now().await } asked.up() } => Ok("never mind".to_owned()),
        }
    });
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let pushed = client.pushed().await.unwrap();
    assert_eq!(leg.finish().await.text(), "never mind");
    let withdrawn = client.notified("notifications/cancelled").await;
    assert_eq!(&withdrawn["params"]["requestId"], pushed.id());
}

#[tokio::test]
async fn a_cancelled_call_ends_its_handler_while_it_waits() {
    let dropped = Count::default();
    let stage = stage_with(units_until(&dropped), without_grace);
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let _pushed = client.pushed().await.unwrap();
    leg.cancel().await;
    dropped.reaches(1).await;
    while !stage.events.outcomes().contains(&Outcome::Cancelled) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawned_task_can_ask_a_legacy_client() {
    let stage = stage(|ask: Ask| async move {
        let task = tokio::spawn(async move { units(ask).await });
        task.await.map_err(|error| FlowError::failed(error.to_string()))?
    });
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"units": "metric"}})).await;
    assert_eq!(leg.finish().await.text(), "Metric");
}

#[tokio::test]
async fn nobody_is_asked_on_behalf_of_nobody() {
    let nobody = Principal::required(|_: &rmcp::service::RequestContext<rmcp::RoleServer>| None);
    let stage = stage_with(units, |builder| builder.principal(nobody));
    let client = Client::legacy(stage.server.clone()).await;
    let refused = client.call("x", json!({})).await;
    assert_eq!(
        refused.error()["message"],
        "this server asks only authenticated callers, and this request has no principal: sign in, then call again"
    );
    assert!(!client.was_pushed());
}

#[tokio::test]
async fn pushes_are_rounds_and_are_limited_like_them() {
    let stage = stage_with(units, |builder| builder.limits(Limits::default().with_rounds(2)));
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    for _ in 0..2 {
        client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"units": "kelvin"}})).await;
    }
    assert_eq!(
        leg.finish().await.text(),
        "this call has asked 2 times, which is the limit: start it again, or raise `Limits::with_rounds`"
    );
}

#[tokio::test]
async fn no_more_questions_are_pushed_at_once_than_a_round_may_have() {
    let both = |ask: Ask| async move {
        let (one, two) = tokio::try_join!(ask.confirm("One?"), ask.confirm("Two?"))?;
        Ok(format!("{one} {two}"))
    };
    let stage = stage_with(both, |builder| builder.limits(Limits::default().with_questions(1)));
    for client in [Client::modern(stage.server.clone()).await, Client::legacy(stage.server.clone()).await] {
        let told = tokio::time::timeout(Duration::from_secs(60), client.call("x", json!({}))).await.unwrap().text();
        assert_eq!(
            told,
            "2 questions in one round exceed the limit of 1: ask fewer together, or raise `Limits::with_questions`"
        );
        assert!(!client.was_pushed());
    }
}

#[tokio::test]
async fn those_who_wait_for_a_push_take_places_too() {
    let stage = stage_with(units, |builder| builder.limits(Limits::default().with_frames(1, 1)));
    let client = Client::legacy(stage.server.clone()).await;
    let first = client.start("tools/call", json!({"name": "x"})).await;
    let pushed = client.pushed().await.unwrap();
    assert_eq!(stage.server.waiting_calls(), 1);
    let second = client.call("x", json!({})).await;
    assert!(second.text().starts_with("too many calls are waiting for an answer (limit 1)"), "{}", second.text());
    pushed.answer(json!({"action": "accept", "content": {"units": "metric"}})).await;
    assert_eq!(first.finish().await.text(), "Metric");
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn a_flow_of_pushes_has_a_deadline() {
    let stage = stage_with(units, |builder| builder.flow_deadline(Duration::from_secs(60)));
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let _pushed = client.pushed().await.unwrap();
    stage.clock.until_asleep(3).await;
    stage.clock.advance(Duration::from_secs(60));
    assert_eq!(leg.finish().await.text(), "the deadline of this call has passed: start the call again");
}

#[tokio::test]
async fn a_state_from_a_legacy_client_is_refused() {
    let stage = stage(units);
    let (modern, legacy) = (Client::modern(stage.server.clone()).await, Client::legacy(stage.server.clone()).await);
    let retry = modern.call("x", json!({})).await.asked().accept("units", json!({"units": "metric"}));
    retry.send(&legacy).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::LegacyClient]);
    assert_eq!(retry.send(&modern).await.text(), "Metric");
}
