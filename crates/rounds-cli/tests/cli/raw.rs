//! A server that sends scripted replies and does not use rmcp.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::post,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore, task::AbortHandle};

/// It stops when the test ends.
pub(crate) struct Raw {
    pub(crate) url: String,
    script: Arc<Script>,
    serving: AbortHandle,
}

struct Script {
    replies: Mutex<VecDeque<Value>>,
    heard: Mutex<Vec<Value>>,
    authorized: Mutex<Vec<Option<String>>>,
    /// Number of replies that it may send.
    free: Semaphore,
}

impl Raw {
    /// Answers calls with these in order, and then with the last one again. Each is a `result` or an `error`.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Value>) -> Self {
        Self::start_with(replies, Semaphore::MAX_PERMITS).await
    }

    /// Answers no call until it is released.
    pub(crate) async fn start_slow(replies: impl IntoIterator<Item = Value>) -> Self {
        Self::start_with(replies, 0).await
    }

    async fn start_with(replies: impl IntoIterator<Item = Value>, free: usize) -> Self {
        let replies = Mutex::new(replies.into_iter().collect());
        let script = Arc::new(Script {
            replies,
            heard: Mutex::default(),
            authorized: Mutex::default(),
            free: Semaphore::new(free),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().route("/mcp", post(reply)).with_state(script.clone());
        let serving = tokio::spawn(async { axum::serve(listener, router).await.unwrap() }).abort_handle();
        Self { url, script, serving }
    }

    /// Lets it answer one more call.
    pub(crate) fn go(&self) {
        self.script.free.add_permits(1);
    }

    /// The parameters of the calls that it has received.
    pub(crate) fn heard(&self) -> Vec<Value> {
        self.script.heard.lock().unwrap().clone()
    }

    /// The authorization header of every request.
    pub(crate) fn authorized(&self) -> Vec<Option<String>> {
        self.script.authorized.lock().unwrap().clone()
    }

    /// The answers in the last call that it has received.
    pub(crate) fn answered(&self) -> Value {
        self.heard().last().unwrap()["inputResponses"].clone()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn reply(State(script): State<Arc<Script>>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let header = headers.get("authorization").map(|header| header.to_str().unwrap().to_owned());
    script.authorized.lock().unwrap().push(header);
    let message: Value = serde_json::from_slice(&body).unwrap();
    let mut reply = match message["method"].as_str() {
        Some("server/discover") => json!({"result": {
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}},
        }}),
        Some("tasks/cancel") => {
            script.heard.lock().unwrap().push(json!({"cancels": message["params"]["taskId"]}));
            json!({"result": {"resultType": "complete"}})
        }
        Some("tools/call" | "prompts/get" | "resources/read" | "tools/list" | "tasks/get") => {
            script.heard.lock().unwrap().push(message["params"].clone());
            script.free.acquire().await.unwrap().forget();
            let mut replies = script.replies.lock().unwrap();
            if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
        }
        _ if message["id"].is_null() => return (StatusCode::ACCEPTED, [("content-type", "text/plain")], String::new()),
        _ => json!({"error": {"code": -32601, "message": "no such method"}}),
    };
    reply["jsonrpc"] = json!("2.0");
    reply["id"] = message["id"].clone();
    (StatusCode::OK, [("content-type", "application/json")], reply.to_string())
}

/// A result that asks these questions, for ten minutes.
pub(crate) fn asks(questions: Value) -> Value {
    json!({"result": {
        "resultType": "input_required", "inputRequests": questions, "requestState": "as it came",
        "_meta": {"rounds/expiresInMs": 600_000},
    }})
}

/// A form as a question.
pub(crate) fn form(message: &str, properties: Value, required: &[&str]) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

/// A page as a question.
pub(crate) fn page(message: &str, url: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": url}})
}

/// The end of a tool call.
pub(crate) fn says(text: &str) -> Value {
    json!({"result": {"resultType": "complete", "content": [{"type": "text", "text": text}]}})
}
