//! Slow clients, on a paused clock that advances when all tasks are idle.

use std::{
    convert::Infallible,
    future::{pending, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Instant, Interval, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{Incoming, Port, beside::Beside, connection::Serving, seats::Seats, watch::Timeouts};

const TIMEOUTS: Timeouts = Timeouts {
    header: Port::HEADER_TIMEOUT,
    body: Port::BODY_TIMEOUT,
    write_stall: Port::WRITE_STALL,
    keep_alive: Port::KEEP_ALIVE,
};

const GET: &[u8] = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n";
const POST: &[u8] = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n";

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_new_connection_on_which_nothing_is_sent_is_closed_after_the_header_timeout() {
    let mut client = connect(text("hello"));
    assert_eq!(closed(&mut client).await, Port::HEADER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_in_is_cut_off_at_the_header_timeout() {
    let mut client = connect(text("hello"));
    let began = Instant::now();
    // The pause between two bytes is well below every timeout.
    for byte in GET.iter().cycle() {
        if client.write_all(&[*byte]).await.is_err() {
            break;
        }
        sleep(SECOND / 2).await;
        assert!(began.elapsed() <= 2 * Port::HEADER_TIMEOUT, "the connection is still open");
    }
    assert!(began.elapsed() >= Port::HEADER_TIMEOUT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn empty_lines_before_a_request_do_not_extend_the_header_timeout() {
    let mut client = connect(text("hello"));
    let began = Instant::now();
    while client.write_all(b"\r\n").await.is_ok() {
        sleep(SECOND).await;
        assert!(began.elapsed() <= 2 * Port::HEADER_TIMEOUT, "the connection is still open");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_in_is_cut_off_at_the_body_timeout() {
    let mut client = connect(reading());
    client.write_all(POST).await.unwrap();
    let began = Instant::now();
    while client.write_all(b"x").await.is_ok() {
        sleep(SECOND).await;
        assert!(began.elapsed() <= 2 * Port::BODY_TIMEOUT, "the connection is still open");
    }
    assert!(began.elapsed() >= Port::BODY_TIMEOUT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_in_chunks_is_cut_off_at_the_body_timeout_too() {
    let mut client = connect(reading());
    client.write_all(b"POST /mcp HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    let began = Instant::now();
    while client.write_all(b"1\r\nx\r\n").await.is_ok() {
        sleep(SECOND).await;
        assert!(began.elapsed() <= 2 * Port::BODY_TIMEOUT, "the connection is still open");
    }
    assert!(began.elapsed() >= Port::BODY_TIMEOUT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_there_in_time_is_read() {
    let mut client = connect(reading());
    client.write_all(POST).await.unwrap();
    for _ in 0..10 {
        sleep(2 * SECOND).await;
        client.write_all(&[b'x'; 100]).await.unwrap();
    }
    assert!(response(&mut client).await.ends_with("1000"));
}

#[tokio::test(start_paused = true)]
async fn time_that_the_service_takes_is_not_the_bodys() {
    let mut client = connect(service(|request| async move {
        sleep(10 * MINUTE).await;
        let read = request.into_body().collect().await.unwrap().to_bytes().len();
        sleep(10 * MINUTE).await;
        whole(read.to_string())
    }));
    client.write_all(POST).await.unwrap();
    sleep(10 * MINUTE + SECOND).await;
    client.write_all(&[b'x'; 1000]).await.unwrap();
    assert!(response(&mut client).await.ends_with("1000"));
}

#[tokio::test(start_paused = true)]
async fn a_call_may_be_in_flight_for_far_longer_than_any_timeout() {
    let mut client = connect(service(|_| async {
        sleep(24 * 60 * MINUTE).await;
        whole("at last")
    }));
    client.write_all(GET).await.unwrap();
    assert!(response(&mut client).await.ends_with("at last"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_be_open_for_far_longer_than_any_timeout() {
    for every in [15 * SECOND, 60 * MINUTE] {
        let mut client = connect(service(move |_| ready(Response::new(Pings(interval(every)).boxed()))));
        client.write_all(GET).await.unwrap();
        response(&mut client).await;
        for _ in 0..100 {
            let mut ping = [0; 64];
            let read = client.read(&mut ping).await.unwrap();
            assert!(ping[..read].windows(6).any(|said| said == b": ping"), "{every:?}: {:?}", &ping[..read]);
        }
    }
}

/// Like the stream of a legacy session, with pings or without.
#[tokio::test(start_paused = true)]
async fn a_stream_on_which_nothing_is_said_stays_open() {
    let mut client = connect(service(|_| ready(Response::new(Silence.boxed()))));
    client.write_all(GET).await.unwrap();
    assert!(response(&mut client).await.starts_with("HTTP/1.1 200 OK"));
    let read = tokio::time::timeout(24 * 60 * MINUTE, client.read(&mut [0; 64])).await;
    assert!(read.is_err(), "it was closed");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_cut_off_at_the_write_stall() {
    let dropped = Dropped::default();
    let mut client = connect({
        let dropped = dropped.clone();
        service(move |_| ready(Response::new(Long(1 << 20, dropped.clone()).boxed())))
    });
    client.write_all(GET).await.unwrap();
    sleep(Port::WRITE_STALL - SECOND).await;
    assert!(!dropped.is_set(), "it has a second left");
    sleep(2 * SECOND).await;
    assert!(dropped.is_set(), "the response is still kept");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_byte_now_and_then_is_cut_off_too() {
    let dropped = Dropped::default();
    let mut client = connect({
        let dropped = dropped.clone();
        service(move |_| ready(Response::new(Long(1 << 20, dropped.clone()).boxed())))
    });
    client.write_all(GET).await.unwrap();
    for _ in 0..70 {
        sleep(SECOND).await;
        let _ = client.read(&mut [0; 1]).await;
    }
    assert!(dropped.is_set(), "the response is still kept");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_all_of_a_long_response() {
    let long = 1 << 20;
    let mut client = connect(service(move |_| ready(Response::new(Long(long, Dropped::default()).boxed()))));
    client.write_all(GET).await.unwrap();
    let mut read = response(&mut client).await.split_once("\r\n\r\n").unwrap().1.len();
    // At a kilobyte per second, this takes a quarter of an hour.
    while read < long {
        sleep(SECOND).await;
        let bytes = client.read(&mut [0; 1024]).await.unwrap();
        assert!(bytes > 0, "it was cut off after {read} bytes");
        read += bytes;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_between_requests_for_the_keep_alive() {
    let mut client = connect(text("hello"));
    for _ in 0..5 {
        client.write_all(GET).await.unwrap();
        assert!(response(&mut client).await.ends_with("hello"));
        sleep(Port::KEEP_ALIVE - SECOND).await;
    }
    client.write_all(GET).await.unwrap();
    assert!(response(&mut client).await.ends_with("hello"));
    assert_eq!(closed(&mut client).await, Port::KEEP_ALIVE);
}

#[tokio::test(start_paused = true)]
async fn another_path_is_kept_for_the_keep_alive_too() {
    let mut client = connect(text("hello"));
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(response(&mut client).await.starts_with("HTTP/1.1 404"));
    assert_eq!(closed(&mut client).await, Port::KEEP_ALIVE);
}

#[tokio::test(start_paused = true)]
async fn the_next_request_on_a_connection_has_its_header_timeout() {
    let mut client = connect(text("hello"));
    client.write_all(GET).await.unwrap();
    response(&mut client).await;
    sleep(MINUTE).await;
    client.write_all(b"GET /mcp").await.unwrap();
    assert_eq!(closed(&mut client).await, Port::HEADER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn requests_in_one_segment_are_answered_one_after_the_other() {
    let mut client = connect(text("hello"));
    client.write_all(&[GET, GET, GET, b"GET /mcp"].concat()).await.unwrap();
    let mut said = String::new();
    while said.matches("hello").count() < 3 {
        said += &response(&mut client).await;
    }
    // The half request at the end does not keep the connection open longer than an idle one.
    assert!(closed(&mut client).await <= Port::KEEP_ALIVE);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_switched_off_never_comes() {
    let never = Duration::MAX;
    let timeouts = Timeouts { header: never, body: never, write_stall: never, keep_alive: never };
    let mut client = connect_with(timeouts, reading());
    for byte in POST {
        sleep(60 * MINUTE).await;
        client.write_all(&[*byte]).await.unwrap();
    }
    for _ in 0..1000 {
        sleep(60 * MINUTE).await;
        client.write_all(b"x").await.unwrap();
    }
    sleep(60 * MINUTE).await;
    assert!(response(&mut client).await.ends_with("1000"));
    sleep(60 * MINUTE).await;
    client.write_all(GET).await.unwrap();
    assert!(response(&mut client).await.ends_with('0'));
}

/// A connection to a port with this service, with a socket buffer of some kilobytes.
fn connect<S>(service: S) -> DuplexStream
where
    S: Service<Request<Incoming>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    connect_with(TIMEOUTS, service)
}

fn connect_with<S>(timeouts: Timeouts, service: S) -> DuplexStream
where
    S: Service<Request<Incoming>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let (ours, theirs) = duplex(8 << 10);
    tokio::spawn(async move {
        let mut seats = Seats::new(1, usize::MAX, CancellationToken::new());
        let seat = seats.take().await;
        Serving { path: Some("/mcp".into()), service, timeouts, beside: Beside::default() }
            .serve(theirs, "a test", seat)
            .await;
    });
    ours
}

/// How long it takes until a connection is closed on which the client sends nothing more.
async fn closed(client: &mut DuplexStream) -> Duration {
    let began = Instant::now();
    let mut said = Vec::new();
    let read = tokio::time::timeout(60 * MINUTE, client.read_to_end(&mut said)).await;
    read.expect("it is closed").unwrap();
    assert_eq!(String::from_utf8_lossy(&said), "");
    began.elapsed()
}

/// The response so far.
async fn response(client: &mut DuplexStream) -> String {
    let mut said = vec![0; 8 << 10];
    let read = client.read(&mut said).await.unwrap();
    String::from_utf8(said[..read].to_vec()).unwrap()
}

#[derive(Clone)]
struct Responding<F>(F);

fn service<F, Fut>(respond: F) -> Responding<F>
where
    F: Fn(Request<Incoming>) -> Fut + Clone,
    Fut: Future<Output = Response<BoxBody<Bytes, Infallible>>>,
{
    Responding(respond)
}

/// A service that always sends the same text.
fn text(
    said: &'static str,
) -> impl Service<Request<Incoming>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service(move |_| ready(whole(said)))
}

/// A service that reads the body, and answers with its length.
fn reading()
-> impl Service<Request<Incoming>, Response = Response<BoxBody<Bytes, Infallible>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service(|request| async {
        match request.into_body().collect().await {
            Ok(body) => whole(body.to_bytes().len().to_string()),
            Err(_) => pending().await,
        }
    })
}

fn whole(said: impl Into<Bytes>) -> Response<BoxBody<Bytes, Infallible>> {
    Response::new(Full::new(said.into()).boxed())
}

impl<F, Fut> Service<Request<Incoming>> for Responding<F>
where
    F: Fn(Request<Incoming>) -> Fut,
    Fut: Future<Output = Response<BoxBody<Bytes, Infallible>>> + Send + 'static,
{
    type Response = Response<BoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let response = (self.0)(request);
        Box::pin(async { Ok(response.await) })
    }
}

/// Whether a body was dropped.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicBool>);

impl Dropped {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.1.0.store(true, Ordering::Relaxed);
    }
}

/// A body of this many bytes, in small pieces.
struct Long(usize, Dropped);

impl Body for Long {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.min(1024);
        self.0 -= next;
        Poll::Ready((next > 0).then(|| Ok(Frame::data(Bytes::from_static(&[b'x'; 1024]).slice(..next)))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0 as u64)
    }
}

struct Pings(Interval);

impl Body for Pings {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b": ping\n\n")))))
    }
}

struct Silence;

impl Body for Silence {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}
