//! A TCP port that serves an endpoint directly, without a router.

mod beside;
mod connection;
mod descriptors;
mod incoming;
mod pieces;
mod seats;
mod socket;
#[cfg(test)]
mod tests;
mod watch;

use std::{convert::Infallible, error::Error, future::Future, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::{net::TcpListener, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

pub use self::incoming::Incoming;
use self::{beside::Beside, connection::Serving, seats::Seats, watch::Timeouts};
use crate::probes::Probes;
#[cfg(feature = "metrics")]
use crate::scrape::Scrape;

/// A port with a single service: the fastest way to serve an [`Endpoint`](crate::Endpoint).
///
/// ```no_run
/// use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
/// use rounds::Rounds;
/// use rounds_http::{Endpoint, Port};
/// use tokio::net::TcpListener;
/// # struct Weather;
/// # impl rmcp::ServerHandler for Weather {}
///
/// # async fn main_() -> std::io::Result<()> {
/// let config = StreamableHttpServerConfig::default().with_json_response(true);
/// let endpoint = Endpoint::new(&Rounds::new(Weather), config);
/// let listener = TcpListener::bind("127.0.0.1:8000").await?;
/// let stop = async { _ = tokio::signal::ctrl_c().await };
/// Port::new(listener, "/mcp").serve(endpoint, stop).await;
/// # Ok(())
/// # }
/// ```
///
/// There is no router, and a short response is one write to a socket with `TCP_NODELAY`. Other paths get a 404, except for
/// [probes](Self::with_probes) and, with the feature `metrics`, scrapes. It speaks HTTP/1.1. Services get neither the address of the client nor a way to upgrade a connection. For further
/// routes, HTTP/2 or TLS, mount the endpoint in axum or another server that has them.
///
/// # Slow clients and many clients
///
/// A client cannot keep a connection by doing nothing. Each of these limits has a default and a method that sets it.
/// [`Duration::MAX`] disables a timeout.
///
/// | limit | default | when it is exceeded |
/// |---|---|---|
/// | [header timeout](Self::with_header_timeout) | 10 s | the connection is closed |
/// | [body timeout](Self::with_body_timeout) | 30 s | the connection is closed |
/// | [write stall](Self::with_write_stall) | 60 s | the connection is closed |
/// | [keep-alive](Self::with_keep_alive) | 75 s | the connection is closed |
/// | [connections](Self::with_connections) | 10,000, or as many as there are file descriptors, less a reserve | the connection that has waited longest for a request is closed; if there is none, new ones wait |
/// | [bytes of unfinished requests](Self::with_unfinished_bytes) | 256 MiB | the slowest requests are dropped |
/// | line and headers of a request | 64 KiB | the request gets a 431, if there is still more to come |
///
/// A call in flight and an open stream may last: none of these timeouts runs while the server works on a response. The
/// service has to limit how many of those a client may have.
#[derive(Debug)]
#[must_use = "a port accepts no connection until `serve` is called"]
pub struct Port {
    listener: TcpListener,
    /// None for every path.
    path: Option<Arc<str>>,
    drain: Duration,
    timeouts: Timeouts,
    connections: Option<usize>,
    unfinished: usize,
    beside: Beside,
}

impl Port {
    /// Default drain time: how long connections have to end after the port stops.
    pub const DRAIN: Duration = Duration::from_secs(10);

    /// Default header timeout: how long the head of a request may take to arrive.
    pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

    /// Default body timeout: how long the body of a request may take to arrive.
    pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

    /// Default write stall timeout: how long a client may read nothing of a response.
    pub const WRITE_STALL: Duration = Duration::from_secs(60);

    /// Default keep-alive timeout: how long a connection may be idle between two requests.
    pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

    /// Default limit on the bytes of requests that have not arrived completely: 256 MiB.
    pub const UNFINISHED_BYTES: usize = 256 << 20;

    /// Serves at this path. The path is compared literally: it has no patterns, and percent-encoding in a request is
    /// not decoded.
    ///
    /// # Panics
    ///
    /// If the path does not begin with a slash, or has a query or a fragment: no request could match it.
    pub fn new(listener: TcpListener, path: &str) -> Self {
        assert!(
            path.starts_with('/') && !path.contains(['?', '#']),
            "{path:?} is not a path: it must begin with a slash and have no query or fragment"
        );
        Self { path: Some(path.into()), ..Self::at_every_path(listener) }
    }

    /// Serves at every path. The service answers requests for paths that it does not know.
    pub fn at_every_path(listener: TcpListener) -> Self {
        let timeouts = Timeouts {
            header: Self::HEADER_TIMEOUT,
            body: Self::BODY_TIMEOUT,
            write_stall: Self::WRITE_STALL,
            keep_alive: Self::KEEP_ALIVE,
        };
        let unfinished = Self::UNFINISHED_BYTES;
        Self {
            listener,
            path: None,
            drain: Self::DRAIN,
            timeouts,
            connections: None,
            unfinished,
            beside: Beside::default(),
        }
    }

    /// Answers [probes](Probes) too: `/livez` and `/readyz`, for any `Host`. Without this, they get a 404.
    ///
    /// They keep answering after the server has begun to [drain](rounds::health::Health::drain), and until `stop` of
    /// [`serve`](Self::serve) resolves.
    pub fn with_probes(mut self, probes: Probes) -> Self {
        self.beside.probes = Some(probes);
        self
    }

    /// Answers [scrapes](Scrape) too: `/metrics`. Without this, they get a 404.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(mut self, scrape: Scrape) -> Self {
        self.beside.scrape = Some(scrape);
        self
    }

    /// Sets how long connections have to end after the port stops: [`DRAIN`](Self::DRAIN) by default.
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Sets the header timeout: [`HEADER_TIMEOUT`](Self::HEADER_TIMEOUT) by default. A connection is closed if the head
    /// of a request has not arrived this long after its first byte. On a new connection the time begins when it is
    /// accepted, even if nothing is sent.
    pub fn with_header_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.header = timeout;
        self
    }

    /// Sets the body timeout: [`BODY_TIMEOUT`](Self::BODY_TIMEOUT) by default. A connection is closed if the whole body
    /// of a request has not arrived this long after a service began to wait for it. Bytes that arrive meanwhile do not
    /// extend it.
    pub fn with_body_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.body = timeout;
        self
    }

    /// Sets the write stall timeout: [`WRITE_STALL`](Self::WRITE_STALL) by default. A connection is closed if its
    /// client has not taken more of a response for this long. Taking less than 16 KiB in this time counts as taking
    /// nothing, unless less was left to read.
    pub fn with_write_stall(mut self, timeout: Duration) -> Self {
        self.timeouts.write_stall = timeout;
        self
    }

    /// Sets the keep-alive timeout: [`KEEP_ALIVE`](Self::KEEP_ALIVE) by default. A connection is closed if it has been
    /// idle for this long after a response.
    pub fn with_keep_alive(mut self, timeout: Duration) -> Self {
        self.timeouts.keep_alive = timeout;
        self
    }

    /// Sets the limit on simultaneous connections, which is at least one.
    ///
    /// The default is 10,000, or what the process's limit on open files (`ulimit -n`) allows if that is less: a quarter
    /// of it, at least 16 and at most 256, is kept in reserve. The limit is read when serving begins.
    ///
    /// When a connection arrives at the limit, the connection that has waited longest for its client is closed: one
    /// that is idle between two requests, or one whose request has been arriving for more than two seconds. If there is
    /// none, the new connection waits until another ends, and later ones wait in the backlog of the operating system. A
    /// connection with a call in flight or an open stream is never closed for another.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Sets the limit on the bytes of requests that have not arrived completely, on all connections together:
    /// [`UNFINISHED_BYTES`](Self::UNFINISHED_BYTES) by default. The first 16 KiB of a request do not count.
    ///
    /// Beyond the limit, the connections whose requests have been arriving for the longest time are closed. The limit
    /// counts bytes on the wire. The service has to limit the size of a complete request.
    pub fn with_unfinished_bytes(mut self, bytes: usize) -> Self {
        self.unfinished = bytes;
        self
    }

    /// Serves until `stop` resolves. The service is an endpoint, an endpoint with middleware, or rmcp's own service.
    ///
    /// An error on a connection ends only that connection. If no further connection can be accepted, because of the
    /// limit or because the operating system has no file descriptor left, new connections wait.
    ///
    /// When `stop` resolves, the port accepts no more connections. Idle connections are closed, the others after their
    /// response, and when all are closed, this returns. It waits at most for the [drain time](Self::with_drain),
    /// however long a handler, a stream or a client takes: connections that are left then continue as long as the
    /// runtime does. The same happens when this future is dropped. A client that sends a request at that moment may
    /// find the connection closed, as with any server that closes idle connections.
    ///
    /// The `cancellation_token` of the endpoint's configuration is different: cancelling it tells handlers to stop, and
    /// requests in flight are answered with a 500 at once.
    pub async fn serve<S, B>(self, service: S, stop: impl Future<Output = ()>)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
            + Clone
            + Send
            + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let Self { listener, path, drain, timeouts, connections, unfinished, beside } = self;
        let stopping = CancellationToken::new();
        let ending = stopping.clone().drop_guard();
        let mut seats = Seats::new(connections.unwrap_or_else(descriptors::connections), unfinished, stopping);
        let serving = Serving { path, service, timeouts, beside };
        let tasks = TaskTracker::new();
        let mut stop = pin!(stop);
        loop {
            let (stream, peer, seat) = tokio::select! {
                admitted = seats.admit(&listener) => admitted,
                () = &mut stop => break,
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(target: "rounds", %peer, %error, "TCP_NODELAY could not be set on a connection");
            }
            tasks.spawn(serving.clone().serve(stream, peer, seat));
        }
        drop((listener, ending));
        tasks.close();
        if timeout(drain, tasks.wait()).await.is_err() {
            tracing::info!(target: "rounds", connections = tasks.len(),
                "the drain time is over, and connections are still open");
        }
    }
}
