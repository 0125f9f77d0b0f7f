//! A client over HTTP, in process.

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rounds::{
    Principal, Rounds,
    http::Sessions,
    test::{Leg, Retry},
};
use serde_json::{Value, json};

use super::Desk;

/// A client of 2026-07-28 that sends each request separately, with this bearer token.
pub struct Http {
    pub service: StreamableHttpService<Rounds<Desk>, Sessions>,
    pub bearer: Option<&'static str>,
}

impl Http {
    pub fn to(server: &Rounds<Desk>) -> Self {
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        Self { service: server.streamable_http(config), bearer: None }
    }

    pub fn with(&self, bearer: &'static str) -> Self {
        Self { service: self.service.clone(), bearer: Some(bearer) }
    }

    pub async fn call(&self, tool: &str) -> Leg {
        self.post("tools/call", json!({"name": tool}), json!({"elicitation": {}})).await.1
    }

    pub async fn send(&self, retry: &Retry) -> Leg {
        let (method, params) = retry.clone().into_parts();
        self.post(&method, params, json!({"elicitation": {}})).await.1
    }

    pub async fn post(&self, method: &str, params: Value, capabilities: Value) -> (StatusCode, Leg) {
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

    pub fn request(&self, method: &str, params: &Value, capabilities: &Value) -> Request<String> {
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

/// Plays the middleware: derives the principal from the token, which may change while the principal stays the same.
fn authenticate(bearer: Option<&str>, request: &mut Request<String>) {
    if let Some((subject, _)) = bearer.and_then(|bearer| bearer.split_once('-')) {
        request.extensions_mut().insert(Principal::new(subject));
    }
}
