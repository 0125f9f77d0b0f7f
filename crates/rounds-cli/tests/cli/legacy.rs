//! A client of 2025-11-25, over an HTTP session.

use reqwest::{Client, Response};
use serde_json::{Value, json};

use crate::{
    process::{Server, in_time},
    request::is_metric,
};

/// A legacy session of a client.
pub(crate) struct Session {
    http: Client,
    url: String,
    id: String,
}

impl Session {
    pub(crate) async fn open(server: &Server) -> Self {
        let mut session = Self { http: rounds_testkit::http_client(), url: server.url.clone(), id: String::new() };
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {"form": {}}},
            "clientInfo": {"name": "rounds-cli-test", "version": "1"},
        }});
        let response = session.post(&initialize).await;
        session.id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        assert_eq!(only_event(response).await["result"]["protocolVersion"], "2025-11-25");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&initialized).await.status(), 202);
        session
    }

    pub(crate) async fn post(&self, message: &Value) -> Response {
        let request = self.http.post(&self.url).header("Accept", "application/json, text/event-stream").json(message);
        let request = match self.id.as_str() {
            "" => request,
            id => request.header("Mcp-Session-Id", id).header("MCP-Protocol-Version", "2025-11-25"),
        };
        in_time("the request", request.send()).await.unwrap()
    }

    /// The stream on which a server may push. It stays open as long as the session.
    pub(crate) async fn listen(&self) -> Response {
        let request = self.http.get(&self.url).header("Accept", "text/event-stream");
        let request = request.header("Mcp-Session-Id", &self.id).header("MCP-Protocol-Version", "2025-11-25");
        let response = in_time("the stream", request.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }
}

/// The only message of a stream that ends. (Events without data only configure reconnection.)
async fn only_event(response: Response) -> Value {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let body = in_time("the stream", response.text()).await.unwrap();
    let data: Vec<_> = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
    let [message] = data.into_iter().filter(|data| !data.is_empty()).collect::<Vec<_>>()[..] else {
        panic!("expected one message, got {body}");
    };
    serde_json::from_str(message).unwrap()
}

#[tokio::test]
async fn a_legacy_client_gets_metric_over_its_session() {
    let server = Server::start(&[]).await;
    let session = Session::open(&server).await;
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "weather_e", "arguments": {"location": "Tokyo"},
    }});
    is_metric(&only_event(session.post(&call).await).await);
}
