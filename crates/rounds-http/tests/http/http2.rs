//! HTTP/2 over a socket, as a proxy in front of a server may speak it: there is no `Host`, but an authority.

use std::{future::Future, net::SocketAddr, sync::Arc};

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version, header::HOST};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rmcp::{
    model::{CustomNotification, ServerNotification},
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Barrier,
};

use crate::{
    lanes::{Tool, called, done, endpoint},
    send::Sent,
};

#[tokio::test]
async fn over_http_2_requests_share_a_connection_and_take_the_fast_lane() {
    // Each waits for the other, and then sends a notification that makes a stream of the response in rmcp's lane.
    let both = Arc::new(Barrier::new(2));
    let tool = Tool::new(move |context| {
        let both = both.clone();
        async move {
            both.wait().await;
            let stray = CustomNotification::new("stray", None);
            context.peer.send_notification(ServerNotification::CustomNotification(stray)).await.unwrap();
            done()
        }
    });
    let (address, sender) = connected(&tool).await;
    let call = || send(&sender, format!("http://{address}/mcp"), &called());
    let (one, other) = tokio::join!(call(), call());
    for (status, headers, body) in [one, other] {
        assert_eq!((status, &headers["content-type"]), (StatusCode::OK, &"application/json".parse().unwrap()));
        assert!(body.contains("done"), "{body}");
    }
}

#[tokio::test]
async fn an_authority_that_is_not_on_the_list_is_refused_as_a_host_is() {
    let (_, sender) = connected(&Tool::new(|_| async { panic!("no request may reach the tool") })).await;
    let (status, _, body) = send(&sender, "http://evil.example/mcp".to_owned(), &called()).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
}

/// A server that speaks HTTP/2, and a connection to it.
async fn connected(tool: &Tool) -> (SocketAddr, SendRequest<Full<Bytes>>) {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let router = Router::new().route_service("/mcp", endpoint(tool, config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    (address, sender)
}

fn send(
    sender: &SendRequest<Full<Bytes>>,
    uri: String,
    sent: &Sent,
) -> impl Future<Output = (StatusCode, HeaderMap, String)> + use<> {
    let mut request = Request::post(uri).version(Version::HTTP_2).body(Full::from(sent.body())).unwrap();
    *request.headers_mut() = sent.headers.clone();
    request.headers_mut().remove(HOST);
    let mut sender = sender.clone();
    async move {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
    }
}
