//! Over streamable HTTP, in process: every request meets the same keys and the same ledger, and its principal is the one
//! that middleware put into it.

#![cfg(feature = "http")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Desk, Stage, gate::Gate, gate::Gone, shop, small};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use rounds::{
    Principal, Refusal, Rounds,
    observe::{Outcome, Station},
    test::{Leg, Retry},
};
use serde_json::{Value, json};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// A client of 2026-07-28 who sends each request by itself, with this bearer token.
struct Http {
    service: StreamableHttpService<Rounds<Desk>, LocalSessionManager>,
    bearer: Option<&'static str>,
}

impl Http {
    fn to(server: &Rounds<Desk>) -> Self {
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        Self { service: server.streamable_http(config), bearer: None }
    }

    fn with(&self, bearer: &'static str) -> Self {
        Self { service: self.service.clone(), bearer: Some(bearer) }
    }

    async fn call(&self, tool: &str) -> Leg {
        self.post("tools/call", json!({"name": tool}), json!({"elicitation": {}})).await.1
    }

    async fn send(&self, retry: &Retry) -> Leg {
        let (method, params) = retry.clone().into_parts();
        self.post(&method, params, json!({"elicitation": {}})).await.1
    }

    async fn post(&self, method: &str, params: Value, capabilities: Value) -> (StatusCode, Leg) {
        let request = self.request(method, &params, &capabilities);
        let response = self.service.handle(request).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body in memory").to_bytes();
        let body = String::from_utf8(body.to_vec()).expect("text");
        // One message, as JSON or as the data of an event.
        let message = body.lines().find_map(|line| line.strip_prefix("data: {")).map(|rest| format!("{{{rest}"));
        let message = serde_json::from_str(message.as_ref().unwrap_or(&body));
        (status, Leg::new(method, params, message.unwrap_or_else(|_| panic!("no message in {status} {body}"))))
    }

    fn request(&self, method: &str, params: &Value, capabilities: &Value) -> Request<String> {
        let mut sent = params.clone();
        sent["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": sent});
        let mut request = Request::post("http://localhost/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
            .header("mcp-name", name)
            .body(body.to_string())
            .expect("a request");
        authenticate(self.bearer, &mut request);
        request
    }
}

/// What middleware does: the token says who it is, and changes while the person stays the same.
fn authenticate(bearer: Option<&str>, request: &mut Request<String>) {
    if let Some((subject, _)) = bearer.and_then(|bearer| bearer.split_once('-')) {
        request.extensions_mut().insert(Principal::new(subject));
    }
}

#[tokio::test]
async fn a_state_made_by_one_request_is_opened_by_another() {
    let stage = Stage::of(shop()).await;
    let http = Http::to(&stage.server);
    let accepted = http.call("order").await.asked().accept("size", small());
    assert_eq!(http.send(&accepted).await.text(), "Small order number 1");
    assert_eq!(http.send(&accepted).await.text(), "Small order number 1");
    // Mounted a second time, and in memory: it is the same server.
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
    let http = Http { service: StreamableHttpService::new(factory, Arc::default(), config), bearer: None };
    let accepted = http.call("order").await.asked().accept("size", small());
    http.send(&accepted).await.frozen();
    assert_eq!(events.refusals(), [Refusal::OtherRoundsOfThisProcess]);
}

#[tokio::test]
async fn a_flow_follows_its_subject_and_not_the_bearer_token() {
    let stage = Stage::of(shop()).await;
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
    let stage = Stage::of(shop()).await;
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
async fn a_closed_stream_is_a_cancelled_leg() {
    let (gate, gone) = (Gate::new(), Gone::default());
    let (waits, held) = (gate.clone(), gone.clone());
    let stage = Stage::of(Desk::new(move |turn| {
        let (waits, held) = (waits.clone(), held.clone());
        async move {
            if turn.round()?.number() == 1 {
                let _guard = held.guard();
                waits.pass().await;
            }
            common::sell(&turn)
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
    stage.events.until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    assert!(gone.is_gone());
    gate.open();
    assert_eq!(http.send(&accepted).await.text(), "Small order number 1");
}

#[tokio::test]
async fn a_question_for_nobody_in_particular_warns_once() {
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let stage = Stage::of(shop()).await;
    let http = Http::to(&stage.server);
    let _ = stage.order().await;
    let _ = http.with("ada-1").call("order").await.asked();
    assert_eq!(warnings.said(), Vec::<String>::new(), "neither in memory nor for somebody");
    let asked = http.call("order").await.asked();
    let _ = http.send(&asked.retry()).await.asked();
    let _ = Http::to(&stage.server).call("order").await.asked();
    let said = warnings.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("Principal::required"), "{said:?}");
}

/// What this library warns of.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn said(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rounds" && *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Visit for Warnings {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().expect("nobody panics with it").push(format!("{value:?}"));
        }
    }
}
