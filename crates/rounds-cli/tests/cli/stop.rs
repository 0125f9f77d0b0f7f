//! Signals: a server that is asked to stop finishes the requests in flight, and exits with success.

use std::time::Duration;

use rounds_http::Port;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    legacy::Session,
    process::{Server, in_time},
    request::{ask, first, message},
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
