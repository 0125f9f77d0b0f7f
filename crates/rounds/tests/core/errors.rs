//! Which errors end a round and which leave it open. A handler's own error is its reply, whatever it looks like.

use crate::common::{Desk, Reply, Turn, Visit, asks_for_a_retry, sell, small};
use rmcp::{
    ErrorData,
    model::{ClientCapabilities, ElicitationCapability, ErrorCode},
};
use rounds::{FlowError, observe::Refusal};
use serde_json::json;

/// Errors that look like the library's own, made by a handler.
fn lookalikes() -> [ErrorData; 3] {
    let mut required = ClientCapabilities::default();
    required.elicitation = Some(ElicitationCapability::default());
    [
        ErrorData::invalid_params("Invalid or expired requestState", Some(json!({"reason": "invalid_request_state"}))),
        ErrorData::internal_error(
            "the server cannot continue this call at the moment: send the same request again",
            Some(json!({"reason": "retry"})),
        ),
        ErrorData::missing_required_client_capability(required),
    ]
}

/// A shop whose first attempt to sell ends with this, and whose second sells.
fn fails_once<F: Future<Output = FlowError> + Send + 'static>(
    fail: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Desk {
    let fail = std::sync::Arc::new(fail);
    Desk::new(move |turn: Turn| {
        let fail = fail.clone();
        async move {
            if turn.round()?.number() == 1
                && let tries @ 0..1 = turn.effects.have()
            {
                return Err(fail(tries).await);
            }
            sell(&turn)
        }
    })
}

#[tokio::test]
async fn a_handlers_own_error_is_its_reply_however_much_it_looks_like_one_of_ours() {
    for lookalike in lookalikes() {
        let own = lookalike.clone();
        let stage = Visit::of(fails_once(move |_| std::future::ready(own.clone().into()))).await;
        let retry = stage.order().await.accept("size", small());
        let expected = serde_json::to_value(&lookalike).unwrap();
        for _ in 0..2 {
            assert_eq!(retry.send(&stage.client).await.error(), &expected);
        }
        assert_eq!((stage.runs(), stage.effects.count()), (2, 1), "the error was recorded: {expected}");
        assert!(stage.events.refusals().is_empty(), "the state was not rejected: {expected}");
    }
}

#[tokio::test]
async fn an_error_of_ours_leaves_the_round_open_also_when_it_became_rmcps_long_before_it_is_returned() {
    let unreadable = || FlowError::StateUnreadable(serde_json::from_str::<u32>("[]").unwrap_err());
    let lacking = || FlowError::MissingCapability { required: Box::default() };
    let ours: [(fn() -> FlowError, i32); 3] =
        [(unreadable, -32602), (|| FlowError::retry("the till is jammed"), -32603), (lacking, -32021)];
    for (make, code) in ours {
        for early in [false, true] {
            let stage = Visit::of(fails_once(move |_| async move {
                if !early {
                    return make();
                }
                let early = ErrorData::from(make());
                // Further errors are created and not returned, and the handler is polled again.
                for other in 0..3 {
                    let _ = ErrorData::from(FlowError::retry("away"));
                    let _ = ErrorData::from(FlowError::failed(other.to_string()));
                    tokio::task::yield_now().await;
                }
                early.into()
            }))
            .await;
            let retry = stage.order().await.accept("size", small());
            assert_eq!(retry.send(&stage.client).await.error()["code"], code);
            assert_eq!(retry.send(&stage.client).await.text(), "Small order number 3", "the handler ran again");
            let refused = if code == -32602 { vec![Refusal::HandlerState] } else { vec![] };
            assert_eq!(stage.events.refusals(), refused);
        }
    }
}

#[tokio::test]
async fn what_another_run_has_made_means_nothing_to_this_one() {
    let [_, lookalike, _] = lookalikes();
    let own = lookalike.clone();
    let stage = Visit::of(Desk::new(move |turn: Turn| {
        let own = own.clone();
        async move {
            match (turn.round()?.number(), turn.target.as_str()) {
                (0, _) => sell(&turn),
                (_, "ours") => Err(FlowError::retry("away")),
                _ => Err(own.into()),
            }
        }
    }))
    .await;
    let ask = async |target| stage.client.call(target, json!({})).await.asked().accept("size", small());
    let (ours, theirs) = (ask("ours").await, ask("theirs").await);
    for _ in 0..2 {
        asks_for_a_retry(&ours.send(&stage.client).await);
        asks_for_a_retry(&theirs.send(&stage.client).await);
    }
    assert_eq!(stage.runs(), 2 + 2 + 1, "after our error the handler ran twice, after its own once");
}

#[tokio::test]
async fn prompts_and_resources_tell_them_apart_as_tools_do() {
    let [_, lookalike, _] = lookalikes();
    let stage = Visit::of(Desk::new(move |turn: Turn| {
        let own = lookalike.clone();
        async move {
            match (turn.round()?.number(), turn.effects.have()) {
                (0, _) => Reply::raw(json!({"resultType": "input_required", "requestState": "kept"})),
                (_, 1) => Err(FlowError::retry("away")),
                _ => Err(own.into()),
            }
        }
    }))
    .await;
    let retry = stage.client.prompt("letter", json!({})).await.asked().retry();
    for _ in 0..3 {
        asks_for_a_retry(&retry.send(&stage.client).await);
    }
    assert_eq!(stage.runs(), 3, "the second reply was the handler's own, and was recorded");
    let code = ErrorCode::INTERNAL_ERROR.0;
    assert_eq!(retry.send(&stage.client).await.error()["code"], code);
}
