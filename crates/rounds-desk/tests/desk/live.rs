//! Live pages: events, their bounds, and a browser that stalls.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use serde_json::json;
use std::convert::Infallible;
use tower_service::Service;

use crate::stage::Stage;

type Stream = BoxBody<Bytes, Infallible>;

async fn open(stage: &Stage, path: &str) -> (u16, Stream) {
    let request = Request::get(path).header("host", "localhost").body(Full::<Bytes>::default()).unwrap();
    let response = stage.desk.clone().call(request).await.unwrap();
    (response.status().as_u16(), response.into_body())
}

async fn next(stream: &mut Stream) -> String {
    let frame = stream.frame().await.expect("the stream goes on").unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_flow_is_an_event_without_contents() {
    let stage = Stage::new();
    let (status, mut all) = open(&stage, "/events").await;
    assert_eq!((status, &*next(&mut all).await), (200, "retry: 3000\n\n"));
    let client = stage.client().await;
    let asked = client.call("weather_e", json!({"location": "Oslo"})).await.asked();
    assert_eq!(next(&mut all).await, "event: changed\ndata:\n\n");
    let flow = stage.get("/").await.link("weather_e");
    let (_, mut one) = open(&stage, &format!("/events?flow={}", flow.trim_start_matches("/flows/"))).await;
    next(&mut one).await;
    client.call("weather_h", json!({"location": "Oslo"})).await.asked();
    assert_eq!(next(&mut one).await, ":\n\n", "another flow does not count here: the stream only says that it lives");
    asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    assert_eq!(next(&mut one).await, "event: changed\ndata:\n\n");
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_one_event_and_a_stalled_browser_learns_of_them_later() {
    let stage = Stage::new();
    let (_, mut stream) = open(&stage, "/events").await;
    next(&mut stream).await;
    let client = stage.client().await;
    // More than a watch keeps for a reader that does not read.
    for number in 0..1100 {
        client.call("weather_e", json!({"location": format!("{number}")})).await.asked();
    }
    let mut events = 0;
    loop {
        match &*next(&mut stream).await {
            "event: changed\ndata:\n\n" => events += 1,
            ":\n\n" => break,
            other => panic!("{other}"),
        }
    }
    assert!((1..=4).contains(&events), "{events} events for 1100 changes");
    client.call("weather_e", json!({"location": "after"})).await.asked();
    assert_eq!(next(&mut stream).await, "event: changed\ndata:\n\n", "it is watched again");
}

#[tokio::test]
async fn the_number_of_open_pages_is_limited_and_a_closed_one_makes_place() {
    let stage = Stage::new();
    let mut streams = Vec::new();
    loop {
        let (status, stream) = open(&stage, "/events").await;
        if status != 200 {
            assert_eq!(status, 503);
            break;
        }
        streams.push(stream);
    }
    assert_eq!(streams.len(), 200);
    streams.pop();
    assert_eq!(open(&stage, "/events").await.0, 200);
    assert_eq!(open(&stage, "/events?flow=x").await.0, 404);
}
