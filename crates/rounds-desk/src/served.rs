//! The server behind the desk, without its type: what "Try it" needs of it.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use rmcp::{ServerHandler, transport::streamable_http_server::StreamableHttpServerConfig};
use rounds::{Principal, Rounds, keys::OpenedToken, observe::Refusal, time::BoxFuture};
use rounds_http::Endpoint;
use serde_json::Value;
use tower_service::Service;

pub(crate) trait Served: Send + Sync {
    /// The name that the server gives itself.
    fn name(&self) -> String;

    /// Sends one JSON-RPC request to the server in the name of this principal, and returns the JSON of its response.
    fn send(&self, method: &str, name: Option<&str>, body: &Value, principal: Option<Principal>) -> Sending;

    /// Opens a token with the keys of the server.
    fn inspect(&self, token: &str) -> Result<OpenedToken, Refusal>;
}

type Sending = BoxFuture<'static, Result<Value, String>>;

pub(crate) fn of<H: ServerHandler>(server: &Rounds<H>) -> Arc<dyn Served> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    Arc::new(AnyServer { server: server.clone(), endpoint: Endpoint::new(server, config) })
}

struct AnyServer<H> {
    server: Rounds<H>,
    endpoint: Endpoint<Rounds<H>>,
}

impl<H: ServerHandler> Served for AnyServer<H> {
    fn name(&self) -> String {
        ServerHandler::get_info(&self.server).server_info.name
    }

    fn send(&self, method: &str, name: Option<&str>, body: &Value, principal: Option<Principal>) -> Sending {
        let mut endpoint = self.endpoint.clone();
        let request = request(method, name, body, principal);
        Box::pin(async move {
            let response = match endpoint.call(request?).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            read(response).await
        })
    }

    fn inspect(&self, token: &str) -> Result<OpenedToken, Refusal> {
        self.server.inspect(token)
    }
}

/// The request as a client of 2026-07-28 sends it over HTTP.
fn request(
    method: &str,
    name: Option<&str>,
    body: &Value,
    principal: Option<Principal>,
) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::post("/")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", PROTOCOL)
        .header("mcp-method", method);
    if let Some(name) = name {
        request = request.header("mcp-name", header_value(name));
    }
    if let Some(principal) = principal {
        request = request.extension(principal);
    }
    request.body(Full::from(body.to_string())).map_err(|error| error.to_string())
}

/// A name as a header can carry it.
fn header_value(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| (b'!'..0x7f).contains(&byte)) && !name.starts_with("=?");
    if is_plain { name.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(name)) }
}

pub(crate) const PROTOCOL: &str = "2026-07-28";

/// The JSON of a response: its body, or the last event of a stream.
async fn read<B>(response: Response<B>) -> Result<Value, String>
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Display>,
{
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data:"));
    serde_json::from_str(last.unwrap_or(&text)).map_err(|_| format!("HTTP {status}: {text}"))
}
