//! A port of its own, over real sockets.

use std::{
    future::{Future, pending},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rmcp::{
    model::{CallToolResult, ContentBlock, ProgressNotificationParam},
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds_http::{Incoming, Port};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tower_service::Service;

use crate::lanes::{At, Tool, called, done, endpoint};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_connection_is_kept_for_one_request_after_the_other() {
    let port = Served::of(ready(Tool::new(|_| async { done() }))).await;
    let mut connection = port.connect().await;
    for _ in 0..3 {
        let (status, body) = call(&mut connection, "/mcp").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("done"), "{body}");
    }
}

#[tokio::test]
async fn another_path_is_not_found_and_never_reaches_the_service() {
    let port = Served::of(ready(Tool::new(|_| async { panic!("no request may reach the tool") }))).await;
    let mut connection = port.connect().await;
    for path in ["/", "/mcp/", "/mcp2", "/.well-known/oauth-protected-resource"] {
        assert_eq!(call(&mut connection, path).await, (StatusCode::NOT_FOUND, String::new()), "{path}");
    }
}

#[tokio::test]
async fn a_query_is_no_part_of_the_path() {
    let port = Served::of(ready(Tool::new(|_| async { done() }))).await;
    let (status, _) = call(&mut port.connect().await, "/mcp?tenant=a").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_response_may_be_longer_than_a_write() {
    // More than a socket takes in one write.
    let long = "weather ".repeat(1 << 20);
    let tool = Tool::new({
        let long = long.clone();
        move |_| {
            let said = ContentBlock::text(long.clone());
            async move { Ok(CallToolResult::success(vec![said]).into()) }
        }
    });
    let (status, body) = call(&mut Served::of(ready(tool)).await.connect().await, "/mcp").await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains(&long));
}

#[tokio::test]
async fn a_head_has_room_for_long_headers_but_not_for_any() {
    let port = Served::of(ready(Tool::new(|_| async { done() }))).await;
    let refused = "431 Request Header Fields Too Large";
    // The second does not even end.
    for (bytes, end, expected) in [(60 << 10, "\r\n\r\n", "404 Not Found"), (70 << 10, "", refused)] {
        let mut connection = TcpStream::connect(port.address).await.unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}{end}", "a".repeat(bytes));
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut said = [0; 64];
        let read = in_time(connection.read(&mut said)).await.unwrap();
        let said = String::from_utf8_lossy(&said[..read]);
        assert!(said.starts_with(&format!("HTTP/1.1 {expected}")), "{bytes}: {said}");
    }
}

/// Responses are not kept for a client that does not read them.
#[tokio::test]
async fn who_sends_requests_and_reads_nothing_is_not_heard_any_more() {
    let port = Served::of(ready(Tool::new(|_| async { done() }))).await;
    let mut connection = TcpStream::connect(port.address).await.unwrap();
    let requests = "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n".repeat(100);
    let mut sent = 0;
    // A socket takes some megabytes on both sides. Who is still heard after this many is heard for ever.
    while sent < 64 << 20 {
        if timeout(Duration::from_secs(2), connection.writable()).await.is_err() {
            // Until they are read.
            while timeout(Duration::from_millis(1), connection.writable()).await.is_err() {
                assert!(in_time(connection.read(&mut [0; 1 << 16])).await.unwrap() > 0);
            }
            return;
        }
        match connection.try_write(&requests.as_bytes()[sent % requests.len()..]) {
            Ok(written) => sent += written,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    panic!("{sent} bytes of requests were taken, and none of their responses");
}

#[tokio::test]
async fn a_handler_is_told_when_the_client_of_its_stream_is_gone_whatever_it_has_read() {
    for reads in [0, 1, 20] {
        let (told, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let tool = Tool::new({
            let (told, begun) = (told.clone(), begun.clone());
            move |context| {
                let (told, begun) = (told.clone(), begun.clone());
                async move {
                    let token = context.meta.get_progress_token().unwrap();
                    // For ever, unless it is told.
                    for step in 0_u32.. {
                        let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
                        if context.peer.notify_progress(progress).await.is_err() {
                            break;
                        }
                        begun.notify_one();
                    }
                    context.ct.cancelled().await;
                    told.notify_one();
                    done()
                }
            }
        });
        let port = Served::of(ready(tool)).await;
        let mut connection = TcpStream::connect(port.address).await.unwrap();
        let sent = called().putting("/params/_meta/progressToken", json!("p"));
        let mut head = "POST /mcp HTTP/1.1\r\n".to_owned();
        for (name, value) in &sent.headers {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        let body = sent.body();
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        connection.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        in_time(begun.notified()).await;
        for _ in 0..reads {
            assert!(in_time(connection.read(&mut [0; 4096])).await.unwrap() > 0);
        }
        drop(connection);
        in_time(told.notified()).await;
    }
}

#[tokio::test]
async fn stopping_closes_what_is_idle_and_finishes_what_is_not() {
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let port = Served::of(ready(held(&begun, &finish))).await;
    let mut silent = TcpStream::connect(port.address).await.unwrap();
    let mut connection = port.connect().await;
    let calling = tokio::spawn(async move { call(&mut connection, "/mcp").await });
    begun.notified().await;

    port.stop.send(()).unwrap();
    // No other connection is accepted, and a silent one is closed.
    in_time(async { while TcpStream::connect(port.address).await.is_ok() {} }).await;
    assert_eq!(in_time(silent.read(&mut [0])).await.unwrap(), 0);
    assert!(!port.serving.is_finished(), "there is a request to answer");

    finish.notify_one();
    let (status, body) = in_time(calling).await.unwrap();
    assert!(status == StatusCode::OK && body.contains("done"), "{status} {body}");
    in_time(port.serving).await.unwrap();
}

#[tokio::test]
async fn nobody_keeps_a_port_that_is_to_stop_for_longer_than_it_drains() {
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let port = Served::at(ready(held(&begun, &finish)), |port| port.with_drain(Duration::ZERO)).await;
    // Half a head, and a handler that takes its time.
    let mut slow = TcpStream::connect(port.address).await.unwrap();
    slow.write_all(b"POST /mcp HTTP/1.1\r\nHost: local").await.unwrap();
    let mut connection = port.connect().await;
    let calling = tokio::spawn(async move { call(&mut connection, "/mcp").await });
    begun.notified().await;

    port.stop.send(()).unwrap();
    // Well before it would have, had it not been told.
    timeout(Port::DRAIN / 2, port.serving).await.expect("it waits for no connection").unwrap();
    // Who waits for an answer still gets it.
    finish.notify_one();
    assert_eq!(in_time(calling).await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn what_is_no_path_is_refused_before_anybody_asks_for_it() {
    for path in ["", "mcp", "/mcp?tenant=a", "/mcp#top"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = std::panic::catch_unwind(|| Port::new(listener, path)).unwrap_err();
        let said = refused.downcast_ref::<String>().unwrap();
        assert!(said.contains(&format!("{path:?}")), "{said}");
    }
}

#[tokio::test]
async fn dropping_it_finishes_what_is_in_flight_too() {
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let port = Served::of(ready(held(&begun, &finish))).await;
    let mut silent = TcpStream::connect(port.address).await.unwrap();
    let mut connection = port.connect().await;
    let calling = tokio::spawn(async move { call(&mut connection, "/mcp").await });
    begun.notified().await;

    port.serving.abort();
    assert_eq!(in_time(silent.read(&mut [0])).await.unwrap(), 0);
    finish.notify_one();
    assert_eq!(in_time(calling).await.unwrap().0, StatusCode::OK);
}

#[tokio::test]
async fn a_connection_that_breaks_is_nobody_elses_trouble() {
    let port = Served::of(ready(Tool::new(|_| async { done() }))).await;
    let mut babbling = TcpStream::connect(port.address).await.unwrap();
    babbling.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await.unwrap();
    let mut said = String::new();
    in_time(babbling.read_to_string(&mut said)).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert_eq!(call(&mut port.connect().await, "/mcp").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_handler_is_told_when_its_connection_is_closed_and_comes_to_its_end() {
    let (begun, finished) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let tool = Tool::new({
        let (begun, finished) = (begun.clone(), finished.clone());
        move |context| {
            let (begun, finished) = (begun.clone(), finished.clone());
            async move {
                begun.notify_one();
                context.ct.cancelled().await;
                finished.notify_one();
                done()
            }
        }
    });
    let port = Served::of(ready(tool)).await;
    let mut connection = port.connect().await;
    let calling = tokio::spawn(async move { call(&mut connection, "/mcp").await });
    in_time(begun.notified()).await;
    calling.abort();
    in_time(finished.notified()).await;
}

/// Like some middleware, it must not be called before it is ready, and has to become ready again for each call.
#[derive(Clone)]
pub(crate) struct Ready<S> {
    inner: S,
    is: bool,
}

pub(crate) fn ready(tool: Tool) -> Ready<At<Tool>> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    Ready { inner: endpoint(&tool, config), is: false }
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for Ready<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.is = true;
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> S::Future {
        assert!(std::mem::take(&mut self.is), "called before it was ready");
        self.inner.call(request)
    }
}

/// Tells when it was called, and waits until it may go on.
pub(crate) fn held(begun: &Arc<Notify>, finish: &Arc<Notify>) -> Tool {
    let (begun, finish) = (begun.clone(), finish.clone());
    Tool::new(move |_| {
        let (begun, finish) = (begun.clone(), finish.clone());
        async move {
            begun.notify_one();
            finish.notified().await;
            done()
        }
    })
}

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn of(service: Ready<At<Tool>>) -> Self {
        Self::at(service, |port| port).await
    }

    /// At a port that is set up so.
    pub(crate) async fn at(service: Ready<At<Tool>>, set_up: impl FnOnce(Port) -> Port) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let port = set_up(Port::new(listener, "/mcp"));
        let serving = tokio::spawn(async move {
            let stopped = async {
                if stopped.await.is_err() {
                    pending::<()>().await;
                }
            };
            port.serve(service, stopped).await;
        });
        Self { address, stop, serving }
    }

    pub(crate) async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

pub(crate) async fn call(connection: &mut SendRequest<Full<Bytes>>, path: &str) -> (StatusCode, String) {
    let sent = called();
    let mut request = Request::post(path).body(Full::from(sent.body())).unwrap();
    *request.headers_mut() = sent.headers.clone();
    in_time(connection.ready()).await.unwrap();
    let (head, body) = in_time(connection.send_request(request)).await.unwrap().into_parts();
    let body = in_time(body.collect()).await.unwrap().to_bytes();
    (head.status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    timeout(LIMIT, future).await.expect("an end")
}
