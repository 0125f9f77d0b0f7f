//! Everything that could grow has a limit, and a caller that exceeds it gets a readable error.

use crate::common::{Desk, Visit};
use rmcp::ServerHandler;
use rounds::{BuildError, Limits, Rounds, test::AskedRound};
use serde_json::json;

fn curious() -> Desk {
    Desk::new(|turn| async move { turn.round()?.ask_form::<bool>("more", "More?") })
}

#[tokio::test]
async fn a_flow_ends_in_words_when_it_has_asked_ten_times() {
    let stage = Visit::of(curious()).await;
    let mut asked = stage.order().await;
    for _ in 1..10 {
        asked = asked.accept("more", json!({"more": true})).send(&stage.client).await.asked();
    }
    let last = asked.accept("more", json!({"more": true}));
    for _ in 0..2 {
        let ended = last.send(&stage.client).await;
        assert!(ended.is_tool_error());
        assert_eq!(
            ended.text(),
            "this call has asked 10 times, which is the limit: start it again, or raise `Limits::with_rounds`"
        );
    }
    assert_eq!(stage.runs(), 11, "the error is recorded like any other reply");
}

#[tokio::test]
async fn the_limit_of_rounds_can_be_set_and_holds_for_prompts_too() {
    let stage = Visit::with(curious(), |builder| builder.limits(Limits::default().with_rounds(1))).await;
    let asked = stage.client.prompt("order", json!({})).await.asked();
    let ended = asked.retry().send(&stage.client).await;
    assert_eq!(ended.error()["code"], -32603);
    assert!(ended.error()["message"].as_str().unwrap().contains("asked 1 times"));
}

#[tokio::test]
async fn more_questions_at_once_than_the_limit_are_not_asked() {
    let desk = Desk::new(|turn| async move {
        let count: usize = turn.target.parse().unwrap();
        let asks = (0..count).fold(turn.round()?.questions(), |asks, n| asks.form::<bool>(&format!("q{n}"), "?"));
        asks.send()
    });
    let stage = Visit::of(desk).await;
    assert_eq!(stage.client.call("16", json!({})).await.asked().keys().len(), 16);
    let refused = stage.client.call("17", json!({})).await;
    assert!(refused.is_tool_error());
    assert_eq!(
        refused.text(),
        "17 questions in one round exceed the limit of 16: ask fewer together, or raise `Limits::with_questions`"
    );
}

#[tokio::test]
async fn what_does_not_fit_into_a_token_is_said_and_not_sent() {
    let desk = Desk::new(|turn| async move {
        let bytes = turn.target.parse().unwrap();
        turn.round()?.questions().form::<bool>("more", "More?").state(&"x".repeat(bytes)).send()
    });
    let stage = Visit::with(desk, |builder| builder.limits(Limits::default().with_token_bytes(4096))).await;
    let asked: AskedRound = stage.client.call("2800", json!({})).await.asked();
    assert!(asked.state().len() <= 4096);
    assert!(
        asked.retry().send(&stage.client).await.asked().state().len() <= 4096,
        "a token that was sent can be opened again"
    );
    let refused = stage.client.call("4000", json!({})).await;
    assert!(refused.is_tool_error());
    assert!(refused.text().contains("and the limit is 4096:"), "{}", refused.text());
}

#[tokio::test]
async fn answers_that_pile_up_beyond_a_token_end_the_flow_in_words() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        round.ask_form::<String>(&format!("q{}", round.number()), "And?")
    });
    let stage = Visit::with(desk, |builder| builder.limits(Limits::default().with_token_bytes(4096))).await;
    let asked = stage.order().await;
    let asked = asked.accept("q0", json!({"q0": "x".repeat(2000)})).send(&stage.client).await.asked();
    let ended = asked.accept("q1", json!({"q1": "x".repeat(2000)})).send(&stage.client).await;
    assert!(ended.is_tool_error());
    assert!(ended.text().contains("the state of this call takes"), "{}", ended.text());
}

#[test]
fn what_could_never_be_answered_does_not_build() {
    struct Nothing;
    impl ServerHandler for Nothing {}
    let builder = || Rounds::builder(Nothing);
    let limits = Limits::default;
    for (built, what) in [
        (builder().round_lifetime(Default::default()), "round lifetime"),
        (builder().flow_deadline(Default::default()), "flow deadline"),
        (builder().limits(limits().with_rounds(0)), "limit of rounds"),
        (builder().limits(limits().with_questions(0)), "limit of questions"),
        (builder().limits(limits().with_token_bytes(0)), "limit of token bytes"),
        (builder().limits(limits().with_lease(Default::default())), "lease"),
    ] {
        let error = built.build().unwrap_err();
        assert!(matches!(error, BuildError::Zero { .. }));
        assert!(error.to_string().starts_with(&format!("the {what} is zero")), "{error}");
    }
}

#[tokio::test]
async fn no_wait_at_all_is_a_limit_too() {
    let gate = crate::common::gate::Gate::new();
    let limits = Limits::default().with_wait(Default::default());
    let stage = Visit::with(gate.shop(), |builder| builder.limits(limits)).await;
    let accepted = stage.order().await.accept("size", crate::common::small());
    let first = accepted.start(&stage.client).await;
    gate.reached().await;
    crate::common::asks_for_a_retry(&accepted.send(&stage.client).await);
    gate.open();
    assert_eq!(first.finish().await.text(), "Small order number 1");
}
