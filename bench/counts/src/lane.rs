//! The same requests over HTTP, without a socket: through an [`Endpoint`](rounds_http::Endpoint), which is the fast lane, or
//! through rmcp's own service.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use serde_json::{Value, json};
use tower_service::Service;

/// What both lanes are.
pub trait Lane:
    Service<Request<Full<Bytes>>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible>
{
}

impl<S> Lane for S where
    S: Service<Request<Full<Bytes>>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible>
{
}

/// The settings of both lanes.
pub fn config() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_json_response(true)
}

/// A request of a modern client that declares forms and tasks.
pub struct Post {
    method: &'static str,
    name: String,
    body: Bytes,
}

impl Post {
    /// A call of a tool.
    pub fn call(tool: &str) -> Self {
        Self::new("tools/call", tool, json!({"name": tool, "arguments": {"location": "Tokyo"}}))
    }

    /// A poll of a task.
    pub fn poll(id: &str) -> Self {
        Self::new("tasks/get", id, json!({"taskId": id}))
    }

    fn new(method: &'static str, name: &str, mut params: Value) -> Self {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "counts", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities":
                {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        Self { method, name: name.to_owned(), body: body.into() }
    }

    /// Sends it, and gives the body of the response.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub async fn send(&self, lane: &mut impl Lane) -> Bytes {
        let request = Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", self.method)
            .header("mcp-name", &self.name)
            .body(Full::from(self.body.clone()))
            .expect("the headers are well-formed");
        let response = lane.call(request).await.unwrap_or_else(|never| match never {});
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap_or_else(|never| match never {}).to_bytes()
    }

    /// Sends it, and reads the result.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub async fn result(&self, lane: &mut impl Lane) -> Value {
        let response: Value = serde_json::from_slice(&self.send(lane).await).expect("the body is JSON");
        assert_eq!(response["error"], Value::Null);
        response["result"].clone()
    }
}
