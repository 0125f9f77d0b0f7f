//! A handler that asks through its peer on one instance, and whose answer reaches another one.

use rmcp::{
    ErrorData, RoleServer,
    model::{CustomRequest, ProgressNotificationParam, ServerRequest},
    service::{RequestContext, ServiceError},
};
use rounds::{
    observe::Station,
    test::{Client, Events},
};
use rounds_testkit::{Fleet, in_time};
use serde_json::json;

use crate::{Old, Sure, delete_all};

/// A client at each of two instances of one server, and the events of the second instance.
async fn pair<F, Fut>(handler: F) -> (Client, Client, Events)
where
    F: Fn(RequestContext<RoleServer>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ErrorData>> + Send + 'static,
{
    let (fleet, events) = (Fleet::new(), Events::new());
    let instance = |name: &str| fleet.routed(name, Old(handler.clone())).pushes();
    let a = instance("a").build().unwrap();
    let b = instance("b").observe(events.clone()).build().unwrap();
    (Client::modern(a).await, Client::modern(b).await, events)
}

#[tokio::test]
async fn an_answer_that_reaches_another_instance_gets_the_next_question_and_the_result() {
    let (a, b, events) = pair(delete_all).await;
    let sure = a.call("delete_all", json!({})).await.asked();
    let why = in_time(sure.accept("sure", json!({"sure": true})).send(&b)).await.asked();
    assert_eq!(why.message("why"), "Why?");
    let done = in_time(why.accept("why", json!({"why": "space"})).send(&b)).await;
    assert_eq!(done.text(), "deleted, because space");
    assert!(events.stations().contains(&Station::Routed { to: "a".to_owned() }));
    assert_eq!(events.runs("delete_all"), 0, "the handler waits on the first instance and runs there");
}

#[tokio::test]
async fn what_a_routed_leg_cannot_deliver_is_lost_or_fails_with_what_to_do() {
    let (a, b, _) = pair(async |context: RequestContext<RoleServer>| {
        let token = context.meta.get_progress_token().unwrap();
        context.peer.elicit::<Sure>("Sure?").await.unwrap();
        context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.unwrap();
        let custom = CustomRequest::new("example/hello", None);
        match context.peer.send_request(ServerRequest::CustomRequest(custom)).await {
            Err(ServiceError::McpError(error)) => Ok(error.message.into_owned()),
            other => Ok(format!("{other:?}")),
        }
    })
    .await;
    let call = json!({"name": "hello", "_meta": {"progressToken": "first"}});
    let asked = a.request("tools/call", call).await.asked();
    let answered = asked.accept("sure", json!({"sure": true})).with("_meta", json!({"progressToken": "second"}));
    let text = in_time(answered.send(&b)).await.text();
    assert!(text.contains("did not reach the client") && text.contains("in flight"), "{text}");
    assert!(a.notifications().is_empty() && b.notifications().is_empty());
}
