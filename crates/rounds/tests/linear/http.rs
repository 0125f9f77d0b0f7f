//! Over streamable HTTP: a legacy session can be asked, a stateless legacy client cannot, and a closed stream cancels
//! its leg.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::{BodyExt, combinators::BoxBody};
use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use rounds::{
    Ask, Principal, Rounds,
    http::Sessions,
    observe::{Outcome, Station},
};
use serde_json::{Value, json};

use super::{Count, stage, stage_with, units, without_grace};

/// A client that speaks HTTP by hand.
pub(crate) struct Http<H: ServerHandler> {
    service: StreamableHttpService<Rounds<H>, Sessions>,
    session: Option<String>,
    /// What middleware knows about the client.
    principal: Option<Principal>,
    header: Option<(&'static str, &'static str)>,
}

impl<H: ServerHandler> Http<H> {
    pub(crate) fn to(server: &Rounds<H>, config: StreamableHttpServerConfig) -> Self {
        Self::over(&server.streamable_http(config))
    }

    pub(crate) fn over(service: &StreamableHttpService<Rounds<H>, Sessions>) -> Self {
        Self { service: service.clone(), session: None, principal: None, header: None }
    }

    /// The same client, with a principal.
    pub(crate) fn known_as(&self, name: &str) -> Self {
        Self { principal: Some(Principal::new(name)), ..Self::over(&self.service) }
    }

    /// The same client, with one more header in each request.
    pub(crate) fn with_header(&self, header: (&'static str, &'static str)) -> Self {
        Self { header: Some(header), ..Self::over(&self.service) }
    }

    /// A legacy session.
    pub(crate) async fn session(server: &Rounds<H>) -> Self {
        Self::to(server, StreamableHttpServerConfig::default()).initialized("2025-11-25").await
    }

    /// The same client, in a new session.
    pub(crate) async fn initialized(&self, version: &str) -> Self {
        let (http, answer) = self.initialize(version, json!({"elicitation": {}})).await;
        assert!(answer["result"].is_object(), "{answer}");
        let _ = http.legacy(json!({"method": "notifications/initialized"})).await;
        http
    }

    /// The same client, and the response to its first message.
    pub(crate) async fn initialize(&self, version: &str, capabilities: Value) -> (Self, Value) {
        let mut http = Self { principal: self.principal.clone(), header: self.header, ..Self::over(&self.service) };
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "by hand", "version": "1"},
        });
        let request = Request::post("http://localhost/mcp");
        let mut response = http.send(request, json!({"id": 0, "method": "initialize", "params": params})).await;
        http.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        let answer = next(&mut response).await;
        (http, answer)
    }

    pub(crate) async fn legacy(&self, message: Value) -> Response<BoxBody<bytes::Bytes, Infallible>> {
        let mut request = Request::post("http://localhost/mcp").header("mcp-protocol-version", "2025-11-25");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        self.send(request, message).await
    }

    /// Ends the session.
    pub(crate) async fn delete(&self) -> Response<BoxBody<bytes::Bytes, Infallible>> {
        let session = self.session.as_deref().unwrap();
        let request = Request::delete("http://localhost/mcp").header("host", "localhost");
        self.service.handle(request.header("mcp-session-id", session).body(String::new()).unwrap()).await
    }

    pub(crate) async fn modern(&self, id: u64, mut params: Value) -> Response<BoxBody<bytes::Bytes, Infallible>> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let request = Request::post("http://localhost/mcp")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", params["name"].as_str().unwrap());
        self.send(request, json!({"id": id, "method": "tools/call", "params": params})).await
    }

    async fn send(
        &self,
        request: http::request::Builder,
        mut message: Value,
    ) -> Response<BoxBody<bytes::Bytes, Infallible>> {
        message["jsonrpc"] = json!("2.0");
        let mut request = request
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(message.to_string())
            .unwrap();
        if let Some((name, value)) = self.header {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        if let Some(principal) = self.principal.clone() {
            request.extensions_mut().insert(principal);
        }
        self.service.handle(request).await
    }
}

/// The next message of a stream of events.
pub(crate) async fn next(response: &mut Response<BoxBody<bytes::Bytes, Infallible>>) -> Value {
    loop {
        let frame = response.body_mut().frame().await.expect("the stream is open").unwrap();
        let text = String::from_utf8(frame.into_data().unwrap_or_default().to_vec()).unwrap();
        let message = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .find_map(|data| serde_json::from_str(data).ok());
        if let Some(message) = message {
            return message;
        }
    }
}

#[tokio::test]
async fn a_legacy_session_is_asked_on_the_stream_of_its_own_call() {
    let stage = stage(units);
    let http = Http::session(&stage.server).await;
    for (answer, text) in [
        (json!({"action": "accept", "content": {"units": "metric"}}), "Metric"),
        (json!({"action": "decline"}), "The user declined: Which units?"),
    ] {
        let call = json!({"id": 1, "method": "tools/call", "params": {"name": "weather"}});
        let mut stream = http.legacy(call).await;
        let pushed = next(&mut stream).await;
        assert_eq!(
            (&pushed["method"], &pushed["params"]["message"]),
            (&json!("elicitation/create"), &json!("Which units?"))
        );
        let taken = http.legacy(json!({"id": pushed["id"], "result": answer})).await;
        assert!(taken.status().is_success());
        let done = next(&mut stream).await;
        assert_eq!(done["result"]["content"][0]["text"], text);
    }
}

#[tokio::test]
async fn a_task_that_the_handler_spawned_asks_on_the_same_stream() {
    let stage = stage(|ask: Ask| async move { tokio::spawn(units(ask)).await.unwrap() });
    let http = Http::session(&stage.server).await;
    let mut stream = http.legacy(json!({"id": 1, "method": "tools/call", "params": {"name": "weather"}})).await;
    let pushed = next(&mut stream).await;
    let answer = json!({"action": "accept", "content": {"units": "imperial"}});
    let _ = http.legacy(json!({"id": pushed["id"], "result": answer})).await;
    assert_eq!(next(&mut stream).await["result"]["content"][0]["text"], "Imperial");
}

#[tokio::test]
async fn a_legacy_client_with_no_way_back_is_told_so_at_once() {
    let stage = stage(units);
    for json_response in [true, false] {
        let config =
            StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(json_response);
        let http = Http::to(&stage.server, config);
        let response = http.legacy(json!({"id": 1, "method": "tools/call", "params": {"name": "weather"}})).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let said = String::from_utf8_lossy(&body);
        assert!(said.contains("\"isError\":true") && said.contains("this connection has no way to ask it"), "{said}");
    }
    assert!(!stage.events.stations().iter().any(|station| matches!(station, Station::Pushed { .. })));
}

#[tokio::test]
async fn a_modern_flow_needs_no_session_and_every_leg_is_a_request_of_its_own() {
    let stage = stage(units);
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let http = Http::to(&stage.server, config);
    let body = |response: Response<BoxBody<bytes::Bytes, Infallible>>| async {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&body).unwrap()
    };
    let asked = body(http.modern(1, json!({"name": "weather"})).await).await;
    let state = asked["result"]["requestState"].clone();
    let answers = json!({"units": {"action": "accept", "content": {"units": "metric"}}});
    let done =
        body(http.modern(2, json!({"name": "weather", "requestState": state, "inputResponses": answers})).await).await;
    assert_eq!(done["result"]["content"][0]["text"], "Metric");
}

#[tokio::test]
async fn a_closed_stream_ends_the_handler() {
    let (reached, dropped) = (Count::default(), Count::default());
    let (at_work, on_drop) = (reached.clone(), dropped.clone());
    let tool = move |ask: Ask| {
        let (reached, guard) = (at_work.clone(), on_drop.on_drop());
        async move {
            let _guard = guard;
            let _units = units(ask).await?;
            reached.up();
            std::future::pending().await
        }
    };
    let stage = stage_with(tool, without_grace);
    let http = Http::to(&stage.server, StreamableHttpServerConfig::default());
    let mut first = http.modern(1, json!({"name": "weather"})).await;
    let state = next(&mut first).await["result"]["requestState"].clone();
    let answers = json!({"units": {"action": "accept", "content": {"units": "metric"}}});
    let retry = json!({"name": "weather", "requestState": state, "inputResponses": answers});
    let leg = tokio::spawn(async move { http.modern(2, retry).await.status() });
    reached.reaches(1).await;
    leg.abort();
    dropped.reaches(1).await;
    stage.events.until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    assert_eq!(stage.server.waiting_calls(), 0);
}
