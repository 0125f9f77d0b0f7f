//! Requests that a handler gives up on.

use std::time::Duration;

use rmcp::{
    RoleServer,
    model::{CustomRequest, ServerRequest},
    service::{ElicitationError, PeerRequestOptions, RequestContext, ServiceError},
};
use rounds_testkit::in_time;
use serde_json::json;

use crate::{Sure, Why, stage};

#[tokio::test(start_paused = true)]
async fn a_request_that_times_out_withdraws_its_question() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let first = context.peer.elicit_with_timeout::<Sure>("Sure?", Some(Duration::from_secs(30))).await;
        assert!(matches!(first, Err(ElicitationError::Service(ServiceError::Timeout { .. }))), "{first:?}");
        let why = context.peer.elicit::<Why>("Then why?").await.unwrap().unwrap();
        Ok(why.why)
    });
    let client = stage.modern().await;
    let asked = client.call("sure", json!({})).await.asked();
    assert_eq!(asked.message("sure"), "Sure?");
    tokio::time::sleep(Duration::from_secs(31)).await;
    let second = asked.accept("sure", json!({"sure": true})).send(&client).await.asked();
    assert_eq!(second.keys().len(), 1, "the first is not asked again: {second:?}");
    let key = second.keys()[0].to_owned();
    assert_eq!(second.message(&key), "Then why?");
    assert_eq!(second.accept(&key, json!({"why": "a"})).send(&client).await.text(), "a");
}

#[tokio::test]
async fn a_request_that_is_cancelled_by_hand_is_not_asked() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let ask = |message: &str| {
            let schema = rmcp::model::ElicitationSchema::from_type::<Sure>().unwrap();
            let params = rmcp::model::ElicitRequestParams::FormElicitationParams {
                meta: None,
                message: message.to_owned(),
                requested_schema: schema,
            };
            let request = ServerRequest::ElicitRequest(rmcp::model::ElicitRequest::new(params));
            context.peer.send_cancellable_request(request, PeerRequestOptions::no_options())
        };
        let (one, other) = (ask("One?").await.unwrap(), ask("Other?").await.unwrap());
        one.cancel(None).await.unwrap();
        Ok(format!("{:?}", other.await_response().await.is_ok()))
    });
    let client = stage.modern().await;
    let asked = in_time(client.call("sure", json!({}))).await.asked();
    assert_eq!(asked.keys().len(), 1);
    let key = asked.keys()[0].to_owned();
    assert_eq!(asked.message(&key), "Other?");
    assert_eq!(asked.accept(&key, json!({"sure": true})).send(&client).await.text(), "true");
}

#[tokio::test(start_paused = true)]
async fn a_request_of_another_kind_that_times_out_is_cancelled_at_the_client() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let custom = ServerRequest::CustomRequest(CustomRequest::new("example/slow", None));
        let options = PeerRequestOptions::with_timeout(Duration::from_secs(5));
        let handle = context.peer.send_request_with_option(custom, options).await.unwrap();
        Ok(handle.await_response().await.unwrap_err().to_string())
    });
    let client = stage.modern().await;
    let call = client.start("tools/call", json!({"name": "slow"})).await;
    let pushed = client.pushed().await.unwrap();
    let done = call.finish().await;
    assert!(done.text().contains("timeout"), "{done:?}");
    let note = client.notified("notifications/cancelled").await;
    assert_eq!(&note["params"]["requestId"], pushed.id());
}
