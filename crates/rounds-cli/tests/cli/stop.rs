//! Signals: a server that is asked to stop finishes the requests in flight, and exits with success.

use std::time::Duration;

use rounds_http::Port;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    legacy::Session,
    process::{Server, in_time},
    request::{METRIC, ask, call, first, message, post, retry, state_of},
};

#[tokio::test]
async fn an_idle_server_stops_at_once_on_either_signal() {
    for signal in ["TERM", "INT"] {
        let server = Server::start(&[]).await;
        server.signal(signal).await;
        let ended = server.ended().await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{signal}");
    }
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_end() {
    let server = Server::start(&[]).await;
    let body = message(1, first()).to_string();
    let (one, two) = body.split_at(body.len() / 2);
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: weather_e\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        server.address(),
        body.len(),
    );
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server sends this when it begins to read the body: the request is in flight.
    let mut go_on = [0; 25];
    in_time("100 Continue", stream.read_exact(&mut go_on)).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(one.as_bytes()).await.unwrap();

    server.signal("TERM").await;
    in_time("closing the port", async { while TcpStream::connect(server.address()).await.is_ok() {} }).await;
    stream.write_all(two.as_bytes()).await.unwrap();
    let mut response = String::new();
    in_time("the response", stream.read_to_string(&mut response)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK") && response.contains("input_required"), "{response}");
    assert_eq!(server.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_connection_that_stays_open_does_not_keep_the_server() {
    let server = Server::start(&[]).await;
    ask(&server, &[]).await;
    let session = Session::open(&server).await;
    let _stream = session.listen().await;
    server.signal("TERM").await;
    // Before the default drain time of a port would have passed.
    let ended = timeout(Port::DRAIN - Duration::from_secs(2), server.ended()).await.expect("three seconds");
    assert_eq!(ended.code, Some(0));
}

/// A server with a handler that waits for its user, that has got the first signal.
async fn draining(args: &[&str]) -> (Server, String) {
    let server = Server::start(args).await;
    let state = state_of(&post(&server, call("weather_h"), &[]).await.json().await.unwrap());
    assert_eq!(probe(&server, "/readyz").await, 200);
    server.signal("TERM").await;
    in_time("draining", async { while probe(&server, "/readyz").await == 200 {} }).await;
    (server, state)
}

/// The status of a probe, for a host that is not served otherwise.
async fn probe(server: &Server, path: &str) -> u16 {
    let url = format!("http://{}{path}", server.address());
    rounds_testkit::http_client().get(url).header("Host", "probe.example").send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_draining_server_is_alive_serves_who_waits_and_then_ends() {
    let (server, state) = draining(&[]).await;
    assert_eq!(probe(&server, "/livez").await, 200);
    let refused: Value = post(&server, call("weather_h"), &[]).await.json().await.unwrap();
    assert_eq!(refused["error"]["data"]["reason"], "retry", "{refused}");
    let answered: Value = post(&server, retry("weather_h", &state), &[]).await.json().await.unwrap();
    assert_eq!(answered["result"]["content"][0]["text"], METRIC, "{answered}");
    let ended = server.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("were ended"), "{ended:?}");
}

#[tokio::test]
async fn when_the_drain_time_is_over_the_log_says_how_many_calls_were_ended() {
    let (server, _) = draining(&["--drain", "300ms"]).await;
    let ended = server.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("were ended ended=1"), "{ended:?}");
}

#[tokio::test]
async fn a_second_signal_ends_a_draining_server_at_once() {
    let (server, _) = draining(&["--drain", "1h"]).await;
    server.signal("INT").await;
    let ended = timeout(Duration::from_secs(2), server.ended()).await.expect("at once");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("a second signal arrived"), "{ended:?}");
}
