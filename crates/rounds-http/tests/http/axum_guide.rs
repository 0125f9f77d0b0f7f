//! The code for axum that the guide names: it has the limits that the guide says.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::Request, response::Response, routing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};

use self::guide::Limits;

#[expect(unreachable_pub, reason = "the guide is for programs in which it is reachable")]
#[path = "../../../../docs/snippets/axum.rs"]
mod guide;

/// Time that has to pass, on the clock of the operating system.
const SHORT: Duration = Duration::from_millis(100);
/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

const LIMITS: Limits = Limits { header: LONG, body: (LONG, 4 << 20), write_stall: LONG, connections: 100 };

#[test]
fn the_guide_names_this_code() {
    let guide = include_str!("../../../rounds/src/guide/deploying.md");
    assert!(guide.contains("`docs/snippets/axum.rs`"), "the guide `deploying` has to name docs/snippets/axum.rs");
}

#[tokio::test]
async fn a_head_that_does_not_arrive_ends_its_connection() {
    let address = serve(Limits { header: SHORT, ..LIMITS }).await;
    for sent in ["", "POST / HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(sent.as_bytes()).await.unwrap();
        assert_eq!(in_time(client.read(&mut [0; 64])).await.unwrap(), 0, "{sent:?}");
    }
}

#[tokio::test]
async fn a_body_that_trickles_in_gets_an_error() {
    let address = serve(Limits { body: (2 * SHORT, 4 << 20), ..LIMITS }).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n").await.unwrap();
    let (mut read, mut write) = client.split();
    let trickle = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 4).await;
        }
        std::future::pending::<()>().await;
    };
    let mut said = [0; 12];
    tokio::select! {
        read = in_time(read.read_exact(&mut said)) => assert_eq!(read.unwrap(), 12),
        () = trickle => {}
    }
    assert_eq!(&said, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let (gone, is_gone) = oneshot::channel();
    let gone = std::sync::Arc::new(std::sync::Mutex::new(Some(gone)));
    // A response without an end, and a sign when its client is gone.
    let endless = Router::new().route(
        "/",
        routing::get(async move || {
            let gone = gone.lock().unwrap().take().unwrap();
            Response::new(Body::new(Endless(gone)))
        }),
    );
    let address = serve_router(endless, Limits { write_stall: 3 * SHORT, ..LIMITS }).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    in_time(is_gone).await.unwrap_err();
}

#[tokio::test]
async fn one_connection_more_waits_until_another_has_ended() {
    let address = serve(Limits { connections: 1, ..LIMITS }).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(called(&mut first).await);
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    assert!(timeout(2 * SHORT, second.readable()).await.is_err(), "there is one seat");
    drop(first);
    let mut said = [0; 12];
    in_time(second.read_exact(&mut said)).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 200");
}

async fn called(client: &mut TcpStream) -> bool {
    client.write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    let mut said = [0; 1024];
    let read = in_time(client.read(&mut said)).await.unwrap();
    said[..read].starts_with(b"HTTP/1.1 200") && said[..read].ends_with(b"hi")
}

async fn serve(limits: Limits) -> SocketAddr {
    serve_router(Router::new().route("/", routing::post(async |request: Request| request.into_body())), limits).await
}

async fn serve_router(router: Router, limits: Limits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(guide::serve(listener, router, limits));
    address
}

async fn in_time<F: Future>(future: F) -> F::Output {
    timeout(LONG, future).await.expect("an end")
}

struct Endless(#[expect(dead_code, reason = "it is there to be dropped")] oneshot::Sender<()>);

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::convert::Infallible>>> {
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(bytes::Bytes::from_static(&[b'x'; 4096])))))
    }
}
