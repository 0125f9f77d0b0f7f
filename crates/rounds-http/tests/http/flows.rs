//! Whole flows of the gallery, leg by leg through the endpoint.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use gallery::{Airline, Counted, Gallery, PRICE};
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::{FlowError, Principal, Rounds, time::BoxFuture};
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_service::Service;

use crate::send::{Pieces, Sent};

#[tokio::test]
async fn every_shape_asks_and_goes_on() {
    for config in [StreamableHttpServerConfig::default(), json()] {
        let server = gallery::rounds().build().unwrap();
        let mut endpoint = Endpoint::new(&server, config);
        for tool in ["weather_asked", "weather_e", "weather_f", "weather_g", "weather_h", "weather_i"] {
            let asked = leg(&mut endpoint, tool, None, "alice").await;
            assert_eq!(asked["result"]["resultType"], "input_required", "{tool}: {asked}");
            let told = leg(&mut endpoint, tool, Some(&asked), "alice").await;
            let text = told["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {told}"));
            assert!(text.starts_with("Weather in Tokyo: 22°C"), "{tool}: {text}");
        }
    }
}

#[tokio::test]
async fn a_flow_belongs_to_who_began_it() {
    let mut endpoint = Endpoint::new(&gallery::rounds().build().unwrap(), json());
    let asked = leg(&mut endpoint, "weather_e", None, "alice").await;
    let refused = leg(&mut endpoint, "weather_e", Some(&asked), "bob").await;
    assert_eq!(refused["error"]["data"], json!({ "reason": "invalid_request_state" }), "{refused}");
    let told = leg(&mut endpoint, "weather_e", Some(&asked), "alice").await;
    assert!(told["result"]["content"].is_array(), "{told}");
}

/// An airline at which a charge takes as long as it is told to.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
    charges: Arc<AtomicU64>,
}

impl Airline for Slow {
    fn quote(&self) -> BoxFuture<'_, Result<u32, FlowError>> {
        Box::pin(async { Ok(PRICE) })
    }

    fn charge<'a>(&'a self, _key: &'a str, _flight: &'a str) -> BoxFuture<'a, Result<(), FlowError>> {
        Box::pin(async {
            self.begun.notify_one();
            self.go_on.notified().await;
            self.charges.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    fn counted(&self) -> BoxFuture<'_, Result<Counted, FlowError>> {
        let charges = self.charges.load(Ordering::Relaxed);
        Box::pin(async move { Ok(Counted { quotes: 0, charges, duplicates: 0 }) })
    }
}

#[tokio::test]
async fn a_client_that_is_gone_in_the_middle_of_a_charge_is_charged_once_and_told_when_it_is_back() {
    let airline = Slow::default();
    let server = gallery::rounds_with(Gallery::flying(airline.clone())).build().unwrap();
    let mut endpoint = Endpoint::new(&server, json());
    let trip = json!({ "name": "book_flight", "arguments": { "from": "VIE", "to": "ARN", "date": "2026-12-01" } });
    let seat = said(&mut endpoint, trip.clone()).await;
    let payment = said(&mut endpoint, answered(trip.clone(), &seat, &json!({ "seat": "12A" }))).await;
    let agreed = answered(trip, &payment, &json!({ "confirm": true }));

    let mut charging = endpoint.call(Sent::new("tools/call", agreed.clone()).request());
    tokio::select! {
        _ = &mut charging => panic!("a charge that waits has no answer"),
        () = airline.begun.notified() => {}
    }
    drop(charging);
    airline.go_on.notify_one();
    let booked = said(&mut endpoint, agreed).await;
    let text = booked["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{booked}"));
    assert!(text.starts_with("Booked VIE to ARN"), "{text}");
    assert_eq!(airline.charges.load(Ordering::Relaxed), 1);
}

/// The same call, with this answer to whatever was asked.
fn answered(mut params: Value, asked: &Value, content: &Value) -> Value {
    let asked = &asked["result"];
    let answer = json!({ "action": "accept", "content": content });
    let keys = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("no question: {asked}")).keys();
    params["inputResponses"] = keys.map(|key| (key.clone(), answer.clone())).collect();
    params["requestState"] = asked["requestState"].clone();
    params
}

async fn said(endpoint: &mut Endpoint<Rounds<Gallery>>, params: Value) -> Value {
    message(endpoint, Sent::new("tools/call", params).request()).await
}

fn json() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_json_response(true)
}

/// One leg, with metric units for whatever was asked before.
async fn leg(endpoint: &mut Endpoint<Rounds<Gallery>>, tool: &str, asked: Option<&Value>, who: &str) -> Value {
    let mut params = json!({ "name": tool, "arguments": { "location": "Tokyo" } });
    if let Some(asked) = asked {
        params = answered(params, asked, &json!({ "units": "metric" }));
    }
    let mut request = Sent::new("tools/call", params).request();
    request.extensions_mut().insert(Principal::new(who));
    message(endpoint, request).await
}

/// What is said to a request, in a body or in a stream of one event.
async fn message(endpoint: &mut Endpoint<Rounds<Gallery>>, request: http::Request<Pieces>) -> Value {
    let said = endpoint.call(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let message = said.strip_prefix(b"data: ").unwrap_or(&said);
    serde_json::from_slice(message).unwrap_or_else(|_| panic!("no message: {said:?}"))
}
