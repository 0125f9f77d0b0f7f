//! A webhook: the server reports each approval that it waits for. `cargo run --example approval_webhook`.
//!
//! The receiver, such as a chat bot, verifies the signature before it believes a message. A message carries no text of
//! the call, and its link lets no one in: the page behind it asks who is there.

use std::time::SystemTime;

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolRoute},
    schemars, tool_handler,
};
use rounds::{
    Durable, Era, FlowError, Rounds, durable,
    elsewhere::{Approvers, Elsewhere, WebhookKey, WebhookSignature},
    test::Client,
};
use rounds_http::Webhook;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Refund {
    amount: u32,
}

struct Shop {
    tool_router: ToolRouter<Self>,
}

async fn refund(flow: Durable<Shop>, Refund { amount }: Refund) -> Result<String, FlowError> {
    let decision = flow.approval(format!("Refund {amount}?")).by(Approvers::role("manager")).await?;
    Ok(format!("{decision:?}"))
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The server and the receiver share a secret. A real one comes from a file or a vault.
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    let key = WebhookKey::from_bytes(&secret)?;

    let (chat, mut messages) = mpsc::channel(1);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/approvals", listener.local_addr()?);
    let receiver = Router::new().route("/approvals", post(receive)).with_state((key.clone(), chat));
    tokio::spawn(async move { axum::serve(listener, receiver).await });

    let route: ToolRoute<Shop> = durable("refund", "Refunds, if a manager approves", refund);
    let server = Rounds::builder(Shop { tool_router: ToolRouter::new().with_route(route) })
        .register()
        .elsewhere(Elsewhere::at("https://shop.example/questions").notify(Webhook::new(&url, key.clone())?))
        .build()?;
    let client = Client::connect(server, Era::Modern, json!({})).await;
    let refused = client.call("refund", json!({"amount": 900})).await.text();
    println!("to the model: {}", refused.split(" The reference").next().unwrap_or_default());

    let message = messages.recv().await.ok_or("the receiver has ended")?;
    println!("{}: {} waits for an {}", message["type"], message["data"]["target"], message["data"]["kind"]);
    println!("tells the amount: {}", message.to_string().contains("900"));

    let now = SystemTime::now().into();
    let forged = WebhookKey::from_bytes(&[7; 32])?.sign("forged", now, b"{}");
    if let Err(error) = key.verify(&forged, b"{}", now) {
        println!("a forged message: {error}");
    }
    Ok(())
}

/// Receives a message. A real receiver also keeps the ids of the last five minutes, and ignores a message whose id it knows.
async fn receive(
    State((key, chat)): State<(WebhookKey, mpsc::Sender<Value>)>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let signature = WebhookSignature {
        id: header(WebhookSignature::ID),
        timestamp: header(WebhookSignature::TIMESTAMP),
        signature: header(WebhookSignature::SIGNATURE),
    };
    if key.verify(&signature, &body, SystemTime::now().into()).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(message) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST };
    match chat.send(message).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
