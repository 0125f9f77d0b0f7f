// An axum router with timeouts for slow clients and a limit on connections. The guide `deploying` names it, and tests run it.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{sleep, timeout},
};

#[derive(Clone, Copy)]
pub struct Limits {
    /// For the head of a request; hyper counts the idle time between two requests, too.
    pub header: Duration,
    /// For all of a body, and its size in bytes.
    pub body: (Duration, usize),
    /// For a client that reads nothing of a response.
    pub write_stall: Duration,
    /// Fewer than file descriptors: the server needs some for itself.
    pub connections: usize,
}

pub async fn serve(listener: TcpListener, router: Router, limits: Limits) {
    let router = router.layer(from_fn_with_state(limits.body, whole_body));
    // Not hyper-util's `auto`: it waits without a timeout for the bytes that tell HTTP/1.1 from HTTP/2.
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header);
    let seats = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(seat) = seats.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // There are no file descriptors left, or this client has gone already.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Linux ends a connection whose client acknowledges nothing, or has no room for more, for this long.
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.write_stall));
        let _ = stream.set_nodelay(true);
        let (http, router) = (http.clone(), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            let _ = http.serve_connection(TokioIo::new(stream), router).await;
            drop(seat);
        });
    }
}

/// Reads all of a body before the router gets the request. A timeout for each piece of it, such as tower-http has, would let a client send a byte
/// now and then; a timeout around the service would end calls that wait for a person.
async fn whole_body(State((time, bytes)): State<(Duration, usize)>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(time, to_bytes(body, bytes)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, body.into())).await,
        Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}
