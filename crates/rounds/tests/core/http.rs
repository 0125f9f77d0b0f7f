//! Over streamable HTTP, in process: every request uses the same keys and the same ledger, and its principal is the one
//! that middleware has added.

use std::sync::Arc;

use crate::common::{Desk, Visit, gate::Gate, http::Http, shop, small};
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rounds::{
    Rounds,
    observe::{Outcome, Refusal, Station},
};
use serde_json::json;

#[tokio::test]
async fn a_state_made_by_one_request_is_opened_by_another() {
    let stage = Visit::of(shop()).await;
    let http = Http::to(&stage.server);
    let accepted = http.call("order").await.asked().accept("size", small());
    assert_eq!(http.send(&accepted).await.text(), "Small order number 1");
    assert_eq!(http.send(&accepted).await.text(), "Small order number 1");
    // Mounted a second time, and in memory, it is the same server.
    assert_eq!(Http::to(&stage.server).send(&accepted).await.text(), "Small order number 1");
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn a_factory_that_builds_anew_for_every_request_is_told_so_in_the_log() {
    let events = rounds::test::Events::new();
    let observer = events.clone();
    let factory = move || Ok(Rounds::builder(shop()).observe(observer.clone()).build().expect("it builds"));
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = Arc::new(Rounds::new(shop()).sessions());
    let http = Http { service: StreamableHttpService::new(factory, sessions, config), bearer: None };
    let accepted = http.call("order").await.asked().accept("size", small());
    http.send(&accepted).await.frozen();
    assert_eq!(events.refusals(), [Refusal::OtherRoundsOfThisProcess]);
}

#[tokio::test]
async fn a_flow_follows_its_subject_and_not_the_bearer_token() {
    let stage = Visit::of(shop()).await;
    let http = Http::to(&stage.server);
    let accepted = http.with("ada-1").call("order").await.asked().accept("size", small());
    for other in [http.with("eve-1"), Http::to(&stage.server)] {
        other.send(&accepted).await.frozen();
    }
    assert_eq!(stage.events.refusals(), [Refusal::Principal; 2]);
    assert_eq!(http.with("ada-2").send(&accepted).await.text(), "Small order number 1");
    let anonymous = http.call("order").await.asked().accept("size", small());
    http.with("ada-2").send(&anonymous).await.frozen();
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn errors_have_the_status_that_the_protocol_gives_them() {
    let stage = Visit::of(shop()).await;
    let http = Http::to(&stage.server);
    let asked = http.call("order").await.asked();
    for state in [json!("r1.forged"), json!(7), json!({})] {
        let (method, params) = asked.retry().with("requestState", state).into_parts();
        let (status, leg) = http.post(&method, params, json!({"elicitation": {}})).await;
        leg.frozen();
        assert_eq!(status, 200);
    }
    let (status, leg) = http.post("tools/call", json!({"name": "order"}), json!({})).await;
    assert_eq!((status.as_u16(), &leg.error()["code"]), (400, &json!(-32021)));
}

#[tokio::test]
async fn a_closed_stream_tells_the_handler_and_its_reply_is_there_for_a_retry() {
    let gate = Gate::new();
    let waits = gate.clone();
    let stage = Visit::of(Desk::new(move |turn| {
        let waits = waits.clone();
        async move {
            if turn.round()?.number() == 1 {
                waits.pass().await;
                turn.context.ct.cancelled().await;
            }
            crate::common::sell(&turn)
        }
    }))
    .await;
    let http = Http::to(&stage.server);
    let accepted = http.call("order").await.asked().accept("size", small());
    let (method, params) = accepted.clone().into_parts();
    let request = http.request(&method, &params, &json!({"elicitation": {}}));
    let service = http.service.clone();
    let leg = tokio::spawn(async move { service.handle(request).await.into_body().collect().await.is_ok() });
    gate.reached().await;
    leg.abort();
    gate.open();
    stage.events.until(1, |station| *station == Station::Ended(Outcome::Complete)).await;
    assert_eq!(http.send(&accepted).await.text(), "Small order number 1");
    assert_eq!(stage.runs(), 2);
}
