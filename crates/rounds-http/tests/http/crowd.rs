//! A port with more connections than it may have.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    time::advance,
};

use crate::{
    lanes::{Tool, called, done},
    port::{Served, call, held, in_time, ready},
};

#[tokio::test]
async fn at_the_limit_the_connection_that_was_idle_for_longest_gives_way() {
    let port = Served::at(ready(Tool::new(|_| async { done() })), |port| port.with_connections(2)).await;
    let (mut first, mut second) = (port.connect().await, port.connect().await);
    assert_eq!(call(&mut first, "/mcp").await.0, StatusCode::OK);
    assert_eq!(call(&mut second, "/mcp").await.0, StatusCode::OK);
    assert_eq!(call(&mut port.connect().await, "/mcp").await.0, StatusCode::OK);
    assert!(in_time(first.ready()).await.is_err(), "the first is closed");
    assert_eq!(call(&mut second, "/mcp").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_call_in_flight_is_not_given_up_for_another_connection() {
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let port = Served::at(ready(held(&begun, &finish)), |port| port.with_connections(1)).await;
    let mut first = port.connect().await;
    let first = tokio::spawn(async move { call(&mut first, "/mcp").await });
    in_time(begun.notified()).await;

    let mut second = port.connect().await;
    let second = tokio::spawn(async move { call(&mut second, "/mcp").await });
    // Nothing shows that a connection waits to be accepted. If it were accepted, that would happen soon.
    assert!(tokio::time::timeout(Duration::from_millis(300), begun.notified()).await.is_err(), "there is one seat");

    finish.notify_one();
    assert_eq!(in_time(first).await.unwrap().0, StatusCode::OK);
    // There is a seat now: the first is idle.
    in_time(begun.notified()).await;
    finish.notify_one();
    assert_eq!(in_time(second).await.unwrap().0, StatusCode::OK);
}

/// Without a header timeout, which would end them all the same.
#[tokio::test]
async fn connections_on_which_nothing_or_too_little_is_sent_keep_nobody_out() {
    let port = Served::at(ready(Tool::new(|_| async { done() })), |port| {
        port.with_connections(8).with_header_timeout(Duration::MAX).with_body_timeout(Duration::MAX)
    })
    .await;
    let mut crowd = Vec::new();
    for number in 0..48 {
        let mut connection = TcpStream::connect(port.address).await.unwrap();
        let sent = called();
        let head =
            format!("POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-length: 9999", sent.headers["host"].to_str().unwrap());
        let sent = [String::new(), head.clone(), head + "\r\n\r\n{"];
        connection.write_all(sent[number % sent.len()].as_bytes()).await.unwrap();
        crowd.push(connection);
    }
    let mut client = port.begin(0).await;
    let body = vec![b' '; 1_024_000];
    let served = tokio::spawn(async move {
        client.write_all(&body).await.unwrap();
        let mut said = [0; 9];
        client.read_exact(&mut said).await.unwrap();
        said
    });

    // Time goes on only here, for all that we wait for the network.
    tokio::time::pause();
    let (_until, waits) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || waits.recv());
    let mut passed = Duration::ZERO;
    while !served.is_finished() {
        advance(Duration::from_millis(50)).await;
        passed += Duration::from_millis(50);
        // The network has its own time.
        tokio::task::yield_now().await;
        assert!(passed < Duration::from_secs(24 * 60 * 60), "it is never served");
    }
    assert_eq!(&served.await.unwrap(), b"HTTP/1.1 ");
}

#[tokio::test]
async fn the_slowest_of_the_requests_that_take_too_much_memory_is_given_up() {
    let port = Served::at(ready(Tool::new(|_| async { done() })), |port| port.with_unfinished_bytes(1 << 20)).await;
    let (mut first, mut second) = (port.begin(700 << 10).await, port.begin(100 << 10).await);
    in_time(second.write_all(&vec![b' '; 600 << 10])).await.unwrap();
    // A connection that is closed with something left to read is reset.
    let ended = in_time(first.read(&mut [0; 64])).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    // What is left of the second still gets its answer.
    in_time(second.write_all(&vec![b' '; 300 << 10])).await.unwrap();
    let mut said = [0; 64];
    let read = in_time(second.read(&mut said)).await.unwrap();
    assert!(said[..read].starts_with(b"HTTP/1.1 "), "{:?}", String::from_utf8_lossy(&said[..read]));
}

#[tokio::test]
async fn requests_that_have_arrived_do_not_count_against_those_that_have_not() {
    let port = Served::at(ready(Tool::new(|_| async { done() })), |port| port.with_unfinished_bytes(1200 << 10)).await;
    let mut slow = port.begin(100 << 10).await;
    for _ in 0..10 {
        let mut whole = port.begin(500 << 10).await;
        in_time(whole.write_all(&vec![b' '; 500 << 10])).await.unwrap();
        let mut said = [0; 64];
        let read = in_time(whole.read(&mut said)).await.unwrap();
        assert!(said[..read].starts_with(b"HTTP/1.1 "));
    }
    in_time(slow.write_all(&vec![b' '; 900 << 10])).await.unwrap();
    let mut said = [0; 64];
    let read = in_time(slow.read(&mut said)).await.unwrap();
    assert!(said[..read].starts_with(b"HTTP/1.1 "));
}

impl Served {
    /// A connection with a request of 1,000 KiB, of which this much is sent.
    async fn begin(&self, bytes: usize) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let mut head = String::from("POST /mcp HTTP/1.1\r\ncontent-length: 1024000\r\n");
        for (name, value) in &called().headers {
            head += &format!("{name}: {}\r\n", value.to_str().unwrap());
        }
        in_time(connection.write_all((head + "\r\n").as_bytes())).await.unwrap();
        in_time(connection.write_all(&vec![b' '; bytes])).await.unwrap();
        connection
    }
}
