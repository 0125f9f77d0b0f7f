//! Tasks over HTTP: the gallery's own handlers through the endpoint and through rmcp's service.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::tasks::Tasks;
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tower_service::Service;

/// Sends a request as a client of tasks does, and gives its response.
async fn send<S>(service: &mut S, method: &str, name: &str, mut params: Value) -> Value
where
    S: Service<Request<Full<Bytes>>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible>,
{
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities":
            {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name)
        .body(Full::from(body))
        .unwrap();
    let response = service.call(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&body)))
}

/// Calls the weather tool of a shape as a task, answers its question, and gives the text that it ends with.
async fn weather<S>(service: &mut S, shape: &str) -> String
where
    S: Service<Request<Full<Bytes>>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible>,
{
    let tool = format!("weather_{shape}");
    let call = json!({"name": tool, "arguments": {"location": "Tokyo"}});
    let created = send(service, "tools/call", &tool, call).await;
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    let id = created["result"]["taskId"].as_str().unwrap();
    for _ in 0..1_000 {
        let got = send(service, "tasks/get", id, json!({"taskId": id})).await;
        let task = &got["result"];
        match task["status"].as_str() {
            Some("working") => tokio::task::yield_now().await,
            Some("input_required") => {
                let key = task["inputRequests"].as_object().unwrap().keys().next().unwrap();
                let answers = json!({key: {"action": "accept", "content": {"units": "metric"}}});
                let update = json!({"taskId": id, "inputResponses": answers});
                let updated = send(service, "tasks/update", id, update).await;
                assert_eq!(updated["result"], json!({"resultType": "complete"}), "{updated}");
            }
            Some("completed") => return task["result"]["content"][0]["text"].as_str().unwrap().to_owned(),
            _ => panic!("{shape}: {got}"),
        }
    }
    panic!("{shape}: it does not end");
}

#[tokio::test]
async fn every_shape_of_the_gallery_is_a_task_over_http_in_both_lanes() {
    let config = || StreamableHttpServerConfig::default().with_json_response(true);
    for shape in ["asked", "e", "f", "g", "h", "i"] {
        let server = gallery::rounds().tasks(Tasks::at_once()).build().unwrap();
        let ours = weather(&mut Endpoint::new(&server, config()), shape).await;
        let theirs = weather(&mut server.streamable_http(config()), shape).await;
        assert!(ours.contains("22°C"), "{shape}: {ours}");
        assert_eq!(ours, theirs, "{shape}");
        let id = "rounds.unknown";
        for method in ["tasks/get", "tasks/cancel"] {
            let refused = send(&mut Endpoint::new(&server, config()), method, id, json!({"taskId": id})).await;
            assert_eq!(refused["error"]["code"], -32602, "{method}");
        }
    }
}
