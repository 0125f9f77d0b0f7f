//! Web pages: which of them may call a server.

use http::Method;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::Rounds;
use rounds_http::Endpoint;
use serde_json::json;

use crate::{
    desk::Desk,
    send::{Answer, Sent},
};

fn configs() -> [StreamableHttpServerConfig; 2] {
    let config = StreamableHttpServerConfig::default();
    [config.clone(), config.with_json_response(true)]
}

/// A request for each way through an endpoint.
fn requests() -> Vec<Sent> {
    let call = Sent::new("tools/call", json!({ "name": "echo" }));
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" } });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let get = Sent { method: Method::GET, ..Sent::legacy(&json!({})).with("mcp-session-id", "some") };
    let delete = Sent { method: Method::DELETE, ..get.clone() };
    let stream = call.clone().putting("/params/_meta/progressToken", json!(1));
    vec![call, stream, Sent::legacy(&initialize), get, delete]
}

fn at(mut sent: Sent, host: &str) -> Sent {
    sent.headers.remove("host");
    sent.with("host", host)
}

async fn answered(endpoint: &mut Endpoint<Rounds<Desk>>, host: &str, origin: &str) -> Answer {
    let sent = Sent::new("tools/call", json!({ "name": "echo" })).with("origin", origin);
    at(sent, host).to(endpoint).await
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_origin_is_refused_whatever_it_requests() {
    for config in configs() {
        let desk = Desk::default();
        let server = Rounds::new(desk.clone());
        for sent in requests() {
            let mut endpoint = Endpoint::new(&server, config.clone());
            let plain = sent.to(&mut endpoint).await;
            assert_ne!(plain.status, 403, "without an origin: {plain:?}");
            for origin in
                ["https://evil.example", "null", "http://localhost.evil.example", "http://evil.example:8000", ""]
            {
                let refused = sent.clone().with("origin", origin).to(&mut endpoint).await;
                assert_eq!(refused.status, 403, "{origin:?}: {refused:?}");
                let refused = sent.clone().with("origin", origin).to(&mut server.streamable_http(config.clone())).await;
                assert_eq!(refused.status, 403, "rmcp's service, {origin:?}: {refused:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_of_a_server_itself_is_served_and_that_of_its_neighbour_is_not() {
    for config in configs() {
        let named = config.with_allowed_hosts(["mcp.example.com"]);
        for config in [named.clone(), named.disable_allowed_hosts()] {
            let mut endpoint = Endpoint::new(&Rounds::new(Desk::default()), config);
            for (host, origin, status) in [
                ("mcp.example.com", "https://mcp.example.com", 200),
                ("mcp.example.com:443", "https://mcp.example.com", 200),
                ("mcp.example.com", "http://MCP.example.com:80", 200),
                ("mcp.example.com:8443", "https://mcp.example.com:8443", 200),
                ("mcp.example.com:8443", "https://mcp.example.com", 403),
                ("mcp.example.com", "https://mcp.example.com:8443", 403),
                ("mcp.example.com", "https://www.mcp.example.com", 403),
                ("mcp.example.com", "https://example.com", 403),
                ("mcp.example.com", "https://mcp.example.com@evil.example", 403),
                ("mcp.example.com", "wss://mcp.example.com", 403),
                ("mcp.example.com", "http://localhost:6274", 403),
            ] {
                let answer = answered(&mut endpoint, host, origin).await;
                assert_eq!(answer.status, status, "{origin} at {host}: {answer:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_on_loopback_is_served_to_pages_on_loopback() {
    for config in configs() {
        let server = Rounds::new(Desk::default());
        let mut endpoint = Endpoint::new(&server, config.clone());
        for host in ["localhost:8000", "127.0.0.1:8000", "[::1]:8000"] {
            for origin in ["http://localhost:6274", "http://127.0.0.1:6274", "http://[::1]", "HTTPS://LOCALHOST"] {
                let answer = answered(&mut endpoint, host, origin).await;
                assert_eq!(answer.status, 200, "{origin} at {host}: {answer:?}");
                let sent = Sent::new("tools/call", json!({ "name": "echo" })).with("origin", origin);
                let answer = at(sent, host).to(&mut server.streamable_http(config.clone())).await;
                assert_eq!(answer.status, 200, "rmcp's service, {origin} at {host}: {answer:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_is_allowed_is_served_beside_the_server_itself() {
    for config in configs() {
        let config =
            config.with_allowed_hosts(["mcp.example.com:8443"]).with_allowed_origins(["https://app.example:443"]);
        let server = Rounds::new(Desk::default());
        for (origin, status) in
            [("https://app.example", 200), ("https://mcp.example.com:8443", 200), ("https://mcp.example.com", 403)]
        {
            let answer = answered(&mut Endpoint::new(&server, config.clone()), "mcp.example.com:8443", origin).await;
            assert_eq!(answer.status, status, "{origin}: {answer:?}");
            let sent = Sent::new("tools/call", json!({ "name": "echo" })).with("origin", origin);
            let answer = at(sent, "mcp.example.com:8443").to(&mut server.streamable_http(config.clone())).await;
            assert_eq!(answer.status, status, "rmcp's service, {origin}: {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_told_to_serves_any_origin() {
    for config in configs() {
        let mut endpoint = Endpoint::new(&Rounds::new(Desk::default()), config).with_any_origin();
        assert_eq!(answered(&mut endpoint.clone(), "localhost", "https://elsewhere.example").await.status, 200);
        assert_eq!(answered(&mut endpoint, "evil.example", "https://elsewhere.example").await.status, 403);
    }
}
