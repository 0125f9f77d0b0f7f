//! An idempotency key in the header `Idempotency-Key`, in both lanes.

use std::{convert::Infallible, fmt::Debug};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, combinators::BoxBody};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tower_service::Service;

use crate::send::{Pieces, Sent};

const HEADER: &str = "idempotency-key";
const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

#[tokio::test]
async fn the_same_header_gets_the_same_flow() {
    let server = gallery::rounds().build().unwrap();
    same_flow(&mut Endpoint::new(&server, json())).await;
    let server = gallery::rounds().build().unwrap();
    same_flow(&mut server.streamable_http(json())).await;
}

async fn same_flow<S: Http>(service: &mut S) {
    for tool in ["weather_e", "weather_h", "weather_i"] {
        let first = state(&message(service, weather(tool).with(HEADER, KEY).request()).await);
        let again = state(&message(service, weather(tool).with(HEADER, KEY).request()).await);
        assert_eq!(again, first, "{tool}");
        let in_meta = weather(tool).putting("/params/_meta/rounds~1idempotencyKey", json!(KEY));
        assert_eq!(state(&message(service, in_meta.request()).await), first, "{tool}: both places have the same keys");
        for other in [weather(tool).with(HEADER, OTHER), weather(tool)] {
            assert_ne!(state(&message(service, other.request()).await), first, "{tool}");
        }
        let elsewhere = weather(tool).with(HEADER, KEY).putting("/params/arguments/location", json!("Oslo"));
        let refused = message(service, elsewhere.request()).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[tokio::test]
async fn a_header_that_is_not_a_secret_or_not_text_is_refused() {
    let server = gallery::rounds().build().unwrap();
    refuse(&mut Endpoint::new(&server, json())).await;
    refuse(&mut server.streamable_http(json())).await;
}

async fn refuse<S: Http>(service: &mut S) {
    for key in ["", "1", "0123456789abcdef"] {
        let refused = message(service, weather("weather_e").with(HEADER, key).request()).await;
        assert_eq!(refused["error"]["code"], -32602, "{key}: {refused}");
    }
    let mut request = weather("weather_e").request();
    request.headers_mut().insert(HEADER, HeaderValue::from_bytes(&[0xff; 32]).unwrap());
    let refused = message(service, request).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("not text"), "{refused}");
}

fn json() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_json_response(true)
}

fn weather(tool: &str) -> Sent {
    Sent::new("tools/call", json!({"name": tool, "arguments": {"location": "Tokyo"}}))
}

fn state(asked: &Value) -> String {
    asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("no question: {asked}")).to_owned()
}

trait Http: Service<Request<Pieces>, Response = Response<BoxBody<Bytes, Infallible>>, Error: Debug> {}

impl<S: Service<Request<Pieces>, Response = Response<BoxBody<Bytes, Infallible>>, Error: Debug>> Http for S {}

async fn message<S: Http>(service: &mut S, request: Request<Pieces>) -> Value {
    let said = service.call(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&said).unwrap_or_else(|_| panic!("no message: {said:?}"))
}
