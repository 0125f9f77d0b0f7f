//! Whole flows of the gallery, leg by leg through the endpoint.

use gallery::Gallery;
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::{Principal, Rounds};
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tower_service::Service;

use crate::send::Sent;

#[tokio::test]
async fn every_shape_asks_and_goes_on() {
    for config in [StreamableHttpServerConfig::default(), json()] {
        let server = gallery::rounds().build().unwrap();
        let mut endpoint = Endpoint::new(&server, config);
        for tool in ["weather_asked", "weather_e", "weather_f", "weather_g", "weather_h", "weather_i"] {
            let asked = leg(&mut endpoint, tool, None, "somebody").await;
            assert_eq!(asked["result"]["resultType"], "input_required", "{tool}: {asked}");
            let told = leg(&mut endpoint, tool, Some(&asked), "somebody").await;
            let text = told["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {told}"));
            assert!(text.starts_with("Weather in Tokyo: 22°C"), "{tool}: {text}");
        }
    }
}

#[tokio::test]
async fn a_flow_belongs_to_who_began_it() {
    let mut endpoint = Endpoint::new(&gallery::rounds().build().unwrap(), json());
    let asked = leg(&mut endpoint, "weather_e", None, "somebody").await;
    let refused = leg(&mut endpoint, "weather_e", Some(&asked), "somebody else").await;
    assert_eq!(refused["error"]["data"], json!({ "reason": "invalid_request_state" }), "{refused}");
    let told = leg(&mut endpoint, "weather_e", Some(&asked), "somebody").await;
    assert!(told["result"]["content"].is_array(), "{told}");
}

fn json() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_json_response(true)
}

/// One leg, with metric units for whatever was asked before.
async fn leg(endpoint: &mut Endpoint<Rounds<Gallery>>, tool: &str, asked: Option<&Value>, who: &str) -> Value {
    let mut params = json!({ "name": tool, "arguments": { "location": "Tokyo" } });
    if let Some(asked) = asked.map(|asked| &asked["result"]) {
        let answer = json!({ "action": "accept", "content": { "units": "metric" } });
        let keys = asked["inputRequests"].as_object().unwrap().keys();
        params["inputResponses"] = keys.map(|key| (key.clone(), answer.clone())).collect();
        params["requestState"] = asked["requestState"].clone();
    }
    let mut request = Sent::new("tools/call", params).request();
    request.extensions_mut().insert(Principal::new(who));
    let said = endpoint.call(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let message = said.strip_prefix(b"data: ").unwrap_or(&said);
    serde_json::from_slice(message).unwrap_or_else(|_| panic!("no message: {said:?}"))
}
