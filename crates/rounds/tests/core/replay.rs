//! Single use, and safe for honest retries: the same token with the same answers gets the same reply, and nothing runs
//! again. With other answers it is rejected.

use crate::common::{Desk, Reply, Visit, asks_for_a_retry, gate::Gate, large, sell, shop, small};
use rmcp::{
    ErrorData,
    model::{CallToolResult, ContentBlock, ErrorCode},
};
use rounds::{
    FlowError, Given, Limits,
    ledger::MemoryLedger,
    observe::{Refusal, Station},
    test::{Client, Leg, Retry},
};
use serde_json::json;

/// Sends it again and expects the same response, except for its id.
async fn again(retry: &Retry, first: &Leg, client: &Client) {
    let second = retry.send(client).await;
    for part in ["result", "error"] {
        assert_eq!(first.response().get(part), second.response().get(part));
    }
}

#[tokio::test]
async fn a_retry_after_the_end_gets_the_same_result_and_has_no_further_effect() {
    let stage = Visit::of(shop()).await;
    let accepted = stage.order().await.accept("size", small());
    let done = accepted.send(&stage.client).await;
    assert_eq!(done.text(), "Small order number 1");
    again(&accepted, &done, &stage.client).await;
    // Also from another connection.
    again(&accepted, &done, &Client::modern(stage.server.clone()).await).await;
    assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
}

#[tokio::test]
async fn other_answers_to_a_round_that_was_answered_are_refused() {
    let stage = Visit::of(shop()).await;
    let asked = stage.order().await;
    let done = asked.accept("size", small()).send(&stage.client).await;
    for fork in [asked.accept("size", large()), asked.decline("size"), asked.cancel("size"), asked.retry()] {
        fork.send(&stage.client).await.frozen();
    }
    assert_eq!(stage.events.refusals(), [Refusal::AnsweredOtherwise; 4]);
    again(&asked.accept("size", small()), &done, &stage.client).await;
    assert_eq!(stage.effects.count(), 1);
}

/// Fails when its effect runs, the first time or always.
fn fails(failure: fn() -> FlowError, always: bool) -> Desk {
    Desk::new(move |turn| async move {
        match sell(&turn)? {
            Reply::Text(_) if always || turn.effects.count() == 1 => Err(failure()),
            reply => Ok(reply),
        }
    })
}

#[tokio::test]
async fn tool_errors_and_protocol_errors_are_replayed_like_results() {
    let failures: [fn() -> FlowError; 4] = [
        || FlowError::failed("Out of tea."),
        || ErrorData::invalid_params("no such tea", Some(json!({"tea": "none"}))).into(),
        || ErrorData::internal_error("the kettle broke, with the tea in it", None).into(),
        || ErrorData::new(ErrorCode(-32000), "the shop is closed", None).into(),
    ];
    for failure in failures {
        for method in ["tools/call", "prompts/get", "resources/read"] {
            let stage = Visit::of(fails(failure, true)).await;
            let asked = stage.client.request(method, json!({"name": "order", "uri": "shop://order"})).await.asked();
            let failed = asked.accept("size", small()).send(&stage.client).await;
            assert!(failed.response().get("error").is_some() || failed.is_tool_error());
            again(&asked.accept("size", small()), &failed, &stage.client).await;
            asked.accept("size", large()).send(&stage.client).await.frozen();
            assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
        }
    }
}

#[tokio::test]
async fn a_handler_that_asks_for_a_retry_is_run_again() {
    let stage = Visit::of(fails(|| FlowError::retry("the kettle is cold"), false)).await;
    let accepted = stage.order().await.accept("size", small());
    asks_for_a_retry(&accepted.send(&stage.client).await);
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 2");
}

#[tokio::test]
async fn a_result_is_replayed_with_all_that_was_in_it() {
    let mut whole = CallToolResult::structured(json!({"large": 9_007_199_254_740_993_u64, "small": 0.1}));
    whole.content.push(ContentBlock::text("a second block"));
    whole.meta = Some(serde_json::from_value(json!({"shop/till": 7})).unwrap());
    let client = Client::modern(rounds::Rounds::new(Whole(whole))).await;
    let accepted = client.call("whole", json!({})).await.asked().accept("sure", json!({"sure": true}));
    let done = accepted.send(&client).await;
    assert_eq!(done.result()["structuredContent"]["large"], json!(9_007_199_254_740_993_u64));
    assert_eq!(done.result()["_meta"]["shop/till"], 7);
    again(&accepted, &done, &client).await;
}

#[tokio::test]
async fn going_back_to_an_older_token_gives_the_recorded_question_byte_for_byte() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match (round.given::<bool>("hot"), round.given::<bool>("sweet")) {
            (Given::Missing, _) => round.ask_form::<bool>("hot", "Hot?"),
            (_, Given::Missing) => round.ask_form::<bool>("sweet", "Sweet?"),
            _ => Reply::text(format!("number {}", turn.effects.have() + 1)),
        }
    });
    let stage = Visit::of(desk).await;
    let first = stage.order().await.accept("hot", json!({"hot": true}));
    let second = first.send(&stage.client).await;
    let last = second.clone().asked().accept("sweet", json!({"sweet": false}));
    let done = last.send(&stage.client).await;

    let replayed = first.send(&stage.client).await;
    let bytes = |leg: &Leg| serde_json::to_string(&leg.response()["result"]).unwrap();
    assert_eq!(bytes(&replayed), bytes(&second));
    // The only way to continue from there is the one that was taken before.
    again(&replayed.clone().asked().accept("sweet", json!({"sweet": false})), &done, &stage.client).await;
    replayed.asked().accept("sweet", json!({"sweet": true})).send(&stage.client).await.frozen();
    assert_eq!((stage.runs(), stage.effects.count()), (3, 1));

    // Only the remaining time is shorter.
    stage.clock.advance(crate::common::secs(60));
    let left = first.send(&stage.client).await.asked().result()["_meta"]["rounds/expiresInMs"].clone();
    assert_eq!(left, json!(540_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_twenty_equal_retries_at_once_one_runs_and_all_get_its_reply() {
    let gate = Gate::new();
    let stage = Visit::of(gate.shop()).await;
    let accepted = stage.order().await.accept("size", small());
    let mut legs = Vec::new();
    for _ in 0..20 {
        let client = Client::modern(stage.server.clone()).await;
        let accepted = accepted.clone();
        legs.push(tokio::spawn(async move { accepted.send(&client).await }));
    }
    gate.reached().await;
    stage.events.until(19, |station| *station == Station::Waiting).await;
    gate.open();
    for leg in legs {
        assert_eq!(leg.await.unwrap().text(), "Small order number 1");
    }
    assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_different_answers_at_once_one_wins_and_the_others_are_refused() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match round.given::<u32>("cups") {
            Given::Accepted(cups) => {
                turn.effects.have();
                tokio::task::yield_now().await;
                Reply::text(format!("{cups} cups"))
            }
            _ => round.ask_form::<u32>("cups", "How many?"),
        }
    });
    let stage = Visit::of(desk).await;
    let asked = stage.order().await;
    let mut legs = Vec::new();
    for cups in 0..20 {
        let client = Client::modern(stage.server.clone()).await;
        let retry = asked.accept("cups", json!({"cups": cups}));
        legs.push(tokio::spawn(async move { retry.send(&client).await }));
    }
    let mut won = Vec::new();
    for leg in legs {
        let leg = leg.await.unwrap();
        if leg.response().get("result").is_some() {
            won.push(leg.text());
        } else {
            leg.frozen();
        }
    }
    assert_eq!((won.len(), stage.effects.count()), (1, 1), "{won:?}");
    assert_eq!(stage.events.refusals(), [Refusal::AnsweredOtherwise; 19]);
}

#[tokio::test]
async fn a_reply_too_large_to_keep_is_sent_and_its_retry_is_refused_and_never_run() {
    let desk = Desk::new(|turn| async move {
        match sell(&turn)? {
            Reply::Text(_) => Reply::text("x".repeat(2000)),
            asks => Ok(asks),
        }
    });
    let stage = Visit::with(desk, |builder| builder.limits(Limits::default().with_reply_bytes(1000))).await;
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.text().len(), 2000);
    accepted.send(&stage.client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::ReplyGone]);
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn the_retry_of_an_evicted_reply_is_refused_and_never_run() {
    let one_reply = MemoryLedger::new().with_reply_bytes(150);
    let stage = Visit::with(shop(), |builder| builder.ledger(one_reply)).await;
    let first = stage.order().await.accept("size", small());
    let second = stage.order().await.accept("size", large());
    let _ = first.send(&stage.client).await.text();
    let done = second.send(&stage.client).await;
    first.send(&stage.client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::ReplyGone]);
    again(&second, &done, &stage.client).await;
    assert_eq!(stage.effects.count(), 2);
}

/// Asks whether the user is sure, and returns a result with every kind of content.
struct Whole(CallToolResult);

impl rmcp::ServerHandler for Whole {
    async fn call_tool(
        &self,
        _request: rmcp::model::CallToolRequestParams,
        context: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, ErrorData> {
        let round = rounds::Round::from_context(&context)?;
        match round.given::<bool>("sure") {
            Given::Accepted(_) => Ok(self.0.clone().into()),
            _ => Ok(round.ask_form::<bool>("sure", "Sure?")?),
        }
    }
}
