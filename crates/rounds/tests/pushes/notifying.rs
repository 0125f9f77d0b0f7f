//! What is not a question goes to the client of the leg in flight.

use rmcp::{
    ErrorData, RoleServer,
    model::{CustomRequest, ProgressNotificationParam, ServerRequest},
    service::{RequestContext, ServiceError},
};
use rounds_testkit::in_time;
use serde_json::json;

use crate::{Sure, stage};

async fn reports(context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let token = context.meta.get_progress_token();
    let report = async |progress| {
        if let Some(token) = token.clone() {
            context.peer.notify_progress(ProgressNotificationParam::new(token, progress)).await.unwrap();
        }
    };
    report(1.0).await;
    context.peer.elicit::<Sure>("Sure?").await.unwrap();
    report(2.0).await;
    Ok("done".to_owned())
}

fn progress(client: &rounds::test::Client) -> Vec<(serde_json::Value, serde_json::Value)> {
    let notes = client.notifications().into_iter().filter(|note| note["method"] == "notifications/progress");
    notes.map(|note| (note["params"]["progressToken"].clone(), note["params"]["progress"].clone())).collect()
}

#[tokio::test]
async fn progress_is_told_under_the_token_of_the_leg_in_flight() {
    let client = stage(reports).modern().await;
    let call = json!({"name": "reports", "_meta": {"progressToken": "first"}});
    let asked = client.request("tools/call", call).await.asked();
    let second = json!({"progressToken": "second"});
    let done = asked.accept("sure", json!({"sure": true})).with("_meta", second).send(&client).await;
    assert_eq!(done.text(), "done");
    assert_eq!(progress(&client), [(json!("first"), json!(1.0)), (json!("second"), json!(2.0))]);
}

#[tokio::test]
async fn a_leg_without_a_token_is_told_no_progress() {
    let client = stage(reports).modern().await;
    let call = json!({"name": "reports", "_meta": {"progressToken": "first"}});
    let asked = client.request("tools/call", call).await.asked();
    let answered = asked.accept("sure", json!({"sure": true})).with("_meta", json!({}));
    assert_eq!(in_time(answered.send(&client)).await.text(), "done");
    assert_eq!(progress(&client), [(json!("first"), json!(1.0))]);
}

#[expect(deprecated, reason = "logging is deprecated in the protocol, and servers still use it")]
#[tokio::test]
async fn log_messages_reach_the_leg_in_flight_before_and_after_a_question() {
    let client = stage(async |context: RequestContext<RoleServer>| {
        let log = async |text| {
            let message =
                rmcp::model::LoggingMessageNotificationParam::new(rmcp::model::LoggingLevel::Info, json!(text));
            context.peer.notify_logging_message(message).await.unwrap();
        };
        log("before").await;
        context.peer.elicit::<Sure>("Sure?").await.unwrap();
        log("after").await;
        Ok("done".to_owned())
    })
    .modern()
    .await;
    let messages = || {
        let notes = client.notifications().into_iter().filter(|note| note["method"] == "notifications/message");
        notes.map(|note| note["params"]["data"].clone()).collect::<Vec<_>>()
    };
    let asked = in_time(client.call("logs", json!({}))).await.asked();
    assert_eq!(messages(), ["before"]);
    assert_eq!(in_time(asked.accept("sure", json!({"sure": true})).send(&client)).await.text(), "done");
    assert_eq!(messages(), ["before", "after"]);
}

#[tokio::test]
async fn a_notification_between_two_legs_goes_nowhere_and_does_not_fail() {
    let (notified, was_notified) = tokio::sync::oneshot::channel();
    let notified = std::sync::Arc::new(std::sync::Mutex::new(Some(notified)));
    let stage = stage(move |context: RequestContext<RoleServer>| {
        let notified = notified.clone();
        async move {
            let nudge = async {
                tokio::task::yield_now().await;
                let result = context.peer.notify_tool_list_changed().await;
                let sender = notified.lock().unwrap().take();
                sender.unwrap().send(result).unwrap();
            };
            let (sure, ()) = tokio::join!(context.peer.elicit::<Sure>("Sure?"), nudge);
            Ok(sure.unwrap().unwrap().sure.to_string())
        }
    });
    let client = stage.modern().await;
    let asked = client.call("sure", json!({})).await.asked();
    in_time(was_notified).await.unwrap().unwrap();
    assert_eq!(asked.accept("sure", json!({"sure": true})).send(&client).await.text(), "true");
    assert!(client.notifications().is_empty());
}

#[tokio::test]
async fn another_request_goes_to_the_real_peer_as_it_is() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let custom = CustomRequest::new("example/hello", Some(json!({"a": 1})));
        match context.peer.send_request(ServerRequest::CustomRequest(custom)).await {
            Ok(result) => Ok(serde_json::to_string(&result).unwrap()),
            Err(ServiceError::McpError(error)) => Ok(error.message.into_owned()),
            Err(error) => Ok(error.to_string()),
        }
    });
    let client = stage.modern().await;
    let call = client.start("tools/call", json!({"name": "hello"})).await;
    // rmcp lets it through on this connection. What a handler asks of its client beyond questions is for rmcp to judge.
    let pushed = in_time(client.pushed()).await.unwrap();
    assert_eq!(pushed.method(), "example/hello");
    assert_eq!(pushed.params()["a"], 1);
    pushed.answer(json!({"b": 2})).await;
    assert_eq!(in_time(call.finish()).await.text(), r#"{"b":2}"#);
}
