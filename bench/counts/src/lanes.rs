//! Calls of a tool that asks nothing over HTTP, without sockets: through the endpoint, and through rmcp's own service.

use std::fmt::Debug;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::RoundsBuilder;
use rounds_http::Endpoint;
use serde_json::json;
use tower_service::Service;

use crate::Weather;

/// The way of a request to the handler.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Lane {
    /// `Endpoint` of `rounds-http`.
    Endpoint,
    /// rmcp's own HTTP service.
    Rmcp,
}

impl Lane {
    /// Makes this many calls.
    ///
    /// # Panics
    ///
    /// If the tool does anything else than answer.
    pub async fn calls(self, builder: RoundsBuilder<Weather>, times: usize) {
        let server = builder.build().expect("the defaults fit together");
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        let (mut endpoint, mut theirs) = (Endpoint::new(&server, config.clone()), server.streamable_http(config));
        let body = Bytes::from(message());
        for _ in 0..times {
            match self {
                Self::Endpoint => call(&mut endpoint, &body).await,
                Self::Rmcp => call(&mut theirs, &body).await,
            }
        }
    }
}

/// The call of a modern client that can be asked with forms.
fn message() -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "counts", "version": "1"},
    });
    let params = json!({"name": "plain", "arguments": {"location": "Tokyo"}, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

async fn call<S, B>(service: &mut S, body: &Bytes)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Debug>,
    B: BodyExt<Error: Debug>,
{
    let request = Request::post("/mcp")
        .header("host", "localhost:8000")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "plain");
    let request = request.body(Full::new(body.clone())).expect("the request is well-formed");
    let response = service.call(request).await.expect("the service answers");
    let body = response.into_body().collect().await.expect("the response is whole").to_bytes();
    assert!(body.windows(7).any(|part| part == b"Weather"), "expected the weather, got {body:?}");
}
