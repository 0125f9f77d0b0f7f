//! A legacy client over HTTP without a session: there is no connection on which it could be asked.

use http::Request;
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use serde_json::{Value, json};

use super::shapes::SHAPES;

#[tokio::test]
async fn a_shape_gives_its_default_or_says_at_once_that_it_cannot_ask() {
    let server = gallery::rounds().build().unwrap();
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let service = server.streamable_http(config);
    for shape in SHAPES {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": shape.call()});
        let request = Request::post("http://localhost/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .body(call.to_string())
            .unwrap();
        let body = service.handle(request).await.into_body().collect().await.unwrap().to_bytes();
        let result = &serde_json::from_slice::<Value>(&body).unwrap()["result"];
        let text = result["content"][0]["text"].as_str().unwrap();
        if shape.asks_legacy {
            assert_eq!(result["isError"], true, "{}", shape.tool);
            assert!(text.contains("this connection has no way to ask it"), "{}: {text}", shape.tool);
        } else {
            assert_eq!(text, "Weather in Tokyo: 22°C, partly cloudy.", "{}", shape.tool);
        }
    }
}
