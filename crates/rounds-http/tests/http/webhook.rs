//! The webhook against a real HTTP server, which fails twice first.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler};
use rounds::{
    Durable, Era, FlowError, Principal, Rounds, durable,
    elsewhere::{Elsewhere, Notified, WebhookError, WebhookKey, WebhookSignature},
    register::FlowQuery,
    test::{Client, Clock},
};
use rounds_http::{Webhook, WebhookSetupError};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Refund {
    amount: u32,
}

struct Shop {
    tool_router: ToolRouter<Self>,
}

async fn refund(flow: Durable<Shop>, Refund { amount }: Refund) -> Result<String, FlowError> {
    let decision = flow.approval(format!("Refund {amount}?")).await?;
    Ok(format!("{decision:?}"))
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

/// A receiver that verifies what it gets.
#[derive(Clone)]
struct Receiver {
    key: WebhookKey,
    /// What it answers first, one after the other.
    fails: Arc<Mutex<Vec<StatusCode>>>,
    requests: Arc<AtomicUsize>,
    got: Arc<Mutex<Vec<(WebhookSignature, Bytes)>>>,
}

impl Receiver {
    fn new(fails: &[StatusCode]) -> Self {
        let key = WebhookKey::from_bytes(&[7; 32]).unwrap();
        let fails = Arc::new(Mutex::new(fails.iter().rev().copied().collect()));
        Self { key, fails, requests: Arc::default(), got: Arc::default() }
    }

    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/hook", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/hook")
    }

    fn got(&self) -> Vec<(WebhookSignature, Bytes)> {
        self.got.lock().unwrap().clone()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    receiver.requests.fetch_add(1, Ordering::SeqCst);
    let header = |name| headers.get(name).unwrap().to_str().unwrap().to_owned();
    let signature = WebhookSignature {
        id: header(WebhookSignature::ID),
        timestamp: header(WebhookSignature::TIMESTAMP),
        signature: header(WebhookSignature::SIGNATURE),
    };
    assert_eq!(header("content-type"), "application/json");
    if receiver.key.verify(&signature, &body, SystemTime::now().into()).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    receiver.got.lock().unwrap().push((signature, body));
    receiver.fails.lock().unwrap().pop().unwrap_or(StatusCode::NO_CONTENT)
}

fn server(webhook: Webhook, clock: &Clock) -> Rounds<Shop> {
    let route = durable("refund", "Refunds", refund);
    Rounds::builder(Shop { tool_router: ToolRouter::new().with_route(route) })
        .clock(clock.clone())
        .principal(|_: &_| Some(Principal::new("ada")))
        .register()
        .elsewhere(Elsewhere::at("https://shop.example/questions").notify(webhook))
        .build()
        .unwrap()
}

/// Waits until this holds, for real: there is a real server.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let long = tokio::time::timeout(Duration::from_secs(30), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(long.await.is_ok(), "{what} does not happen");
}

#[tokio::test]
async fn a_receiver_that_fails_twice_gets_the_notification_the_third_time_and_verifies_it() {
    let receiver = Receiver::new(&[StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE]);
    let (clock, url) = (Clock::new(), receiver.serve().await);
    let server = server(Webhook::new(&url, receiver.key.clone()).unwrap(), &clock);
    let client = Client::connect(server.clone(), Era::Modern, json!({})).await;
    assert!(client.call("refund", json!({"amount": 900})).await.is_tool_error());
    let flows = server.flows();
    let flow = flows.list(FlowQuery::new()).await.unwrap().flows[0].id;
    let question = flows.question(flow, "approval").await.unwrap().unwrap();
    let is_sent = |notified| matches!(notified, Some(Notified::Sent { attempts: 3, .. }));
    until("the third attempt", async || {
        clock.advance(Duration::from_millis(50));
        is_sent(flows.notified(&question).await.unwrap())
    })
    .await;
    let got = receiver.got();
    assert_eq!(got.len(), 3);
    assert!(
        got.iter().all(|(signature, body)| (&signature.id, body) == (&got[0].0.id, &got[0].1)),
        "by its id it is the same"
    );
    let notice: Value = serde_json::from_slice(&got[2].1).unwrap();
    assert_eq!(notice["type"], "question.asked");
    assert_eq!(notice["data"]["link"], format!("https://shop.example/questions/{flow}/approval"));
    assert!(!notice.to_string().contains("900"), "{notice}");

    // An old one that is sent again, and one with another body.
    let (signature, body) = &got[2];
    let later = (SystemTime::now() + Duration::from_secs(301)).into();
    assert_eq!(receiver.key.verify(signature, body, later), Err(WebhookError::Time));
    let now = SystemTime::now().into();
    assert_eq!(receiver.key.verify(signature, b"{}", now), Err(WebhookError::Signature));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let receiver = Receiver::new(&[]);
    let target = receiver.serve().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let redirect = Router::new().route(
        "/",
        post(move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            axum::response::Redirect::temporary(&target)
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, redirect).await });
    let clock = Clock::new();
    let server = server(Webhook::new(&url, receiver.key.clone()).unwrap(), &clock);
    let client = Client::connect(server.clone(), Era::Modern, json!({})).await;
    assert!(client.call("refund", json!({"amount": 900})).await.is_tool_error());
    until("the second attempt", async || {
        clock.advance(Duration::from_millis(50));
        asked.load(Ordering::SeqCst) >= 2
    })
    .await;
    assert_eq!(receiver.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_address_that_is_not_one_of_the_web_is_refused() {
    for url in ["", "/hook", "ftp://chat.example/", "file:///etc/passwd"] {
        let key = WebhookKey::from_bytes(&[7; 32]).unwrap();
        assert!(matches!(Webhook::new(url, key).unwrap_err(), WebhookSetupError::Url), "{url}");
    }
    let key = WebhookKey::from_bytes(&[7; 32]).unwrap();
    let webhook = Webhook::new("https://chat.example/hooks/secret-token", key).unwrap();
    assert!(!format!("{webhook:?}").contains("secret-token"));
}
