//! A port with nothing between it and the endpoint.

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
use self::{connection::Serving, seats::Seats, watch::Timeouts};

/// A port where a server is all there is: the fastest way to serve an [`Endpoint`](crate::Endpoint).
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
/// There is no router, and a short response is one write to a socket with `TCP_NODELAY`. Other paths get a 404. It speaks HTTP/1.1,
/// and services find neither the address of the client nor a way to upgrade a connection. Where there is to be more at the port, or
/// HTTP/2 or TLS, mount the endpoint in axum or whatever has that.
///
/// # Slow clients, and many of them
///
/// A client cannot keep a connection by doing nothing. Each of these has a default and a method that sets it; [`Duration::MAX`] switches a
/// timeout off.
///
/// | limit | default | when it is exceeded |
/// |---|---|---|
/// | [header timeout](Self::with_header_timeout) | 10 s | the connection is closed |
/// | [body timeout](Self::with_body_timeout) | 30 s | the connection is closed |
/// | [write stall](Self::with_write_stall) | 60 s | the connection is closed |
/// | [keep-alive](Self::with_keep_alive) | 75 s | the connection is closed |
/// | [connections](Self::with_connections) | 10,000, or as many as there are file descriptors, less a reserve | the connection that has waited longest for a request is closed; if there is none, new ones wait |
/// | [bytes of unfinished requests](Self::with_unfinished_bytes) | 256 MiB | the slowest requests are given up |
/// | line and headers of a request | 64 KiB | the request gets a 431, if there is still more to come |
///
/// A call that is in flight, and a stream that is open, may last: none of these counts while the server is at work on a response. How many of
/// those one client may have is for the service to say.
#[derive(Debug)]
#[must_use = "it serves nobody before it is told to"]
pub struct Port {
    listener: TcpListener,
    path: Arc<str>,
    drain: Duration,
    timeouts: Timeouts,
    connections: Option<usize>,
    unfinished: usize,
}

impl Port {
    /// How long connections have to end, unless it is set.
    pub const DRAIN: Duration = Duration::from_secs(10);

    /// How long the head of a request may take to arrive, unless it is set.
    pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long the body of a request may take to arrive, unless it is set.
    pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

    /// How long a client may read nothing of a response, unless it is set.
    pub const WRITE_STALL: Duration = Duration::from_secs(60);

    /// How long a connection may be idle between two requests, unless it is set.
    pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

    /// How many bytes there may be of requests that have not arrived completely, unless it is set: 256 MiB.
    pub const UNFINISHED_BYTES: usize = 256 << 20;

    /// Serves at this path. It is compared as it is written: there are no patterns in it, and what is encoded in a request stays so.
    ///
    /// # Panics
    ///
    /// If it does not begin with a slash, or has a query: no request could be for it.
    pub fn new(listener: TcpListener, path: &str) -> Self {
        assert!(path.starts_with('/') && !path.contains(['?', '#']), "{path:?} is no path, which begins with a slash");
        let timeouts = Timeouts {
            header: Self::HEADER_TIMEOUT,
            body: Self::BODY_TIMEOUT,
            write_stall: Self::WRITE_STALL,
            keep_alive: Self::KEEP_ALIVE,
        };
        let unfinished = Self::UNFINISHED_BYTES;
        Self { listener, path: path.into(), drain: Self::DRAIN, timeouts, connections: None, unfinished }
    }

    /// Gives connections this long to end once the port is to stop, in place of [`DRAIN`](Self::DRAIN).
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Closes a connection on which the head of a request has not arrived this long after its first byte, in place of
    /// [`HEADER_TIMEOUT`](Self::HEADER_TIMEOUT). On a new connection the time begins when it is accepted, also if nothing is sent.
    pub fn with_header_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.header = timeout;
        self
    }

    /// Closes a connection on which the body of a request has not arrived this long after a service began to wait for it, in place of
    /// [`BODY_TIMEOUT`](Self::BODY_TIMEOUT). It is for all of the body: bytes that come in between do not extend it.
    pub fn with_body_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.body = timeout;
        self
    }

    /// Closes a connection whose client has not made room for more of a response for this long, in place of
    /// [`WRITE_STALL`](Self::WRITE_STALL). Less than 16 KiB in this time is as good as nothing, unless no more was left to be read.
    pub fn with_write_stall(mut self, timeout: Duration) -> Self {
        self.timeouts.write_stall = timeout;
        self
    }

    /// Closes a connection that has been idle for this long after a response, in place of [`KEEP_ALIVE`](Self::KEEP_ALIVE).
    pub fn with_keep_alive(mut self, timeout: Duration) -> Self {
        self.timeouts.keep_alive = timeout;
        self
    }

    /// Serves at most this many connections at a time, and at least one.
    ///
    /// The default is 10,000, or what the limit on open files of the process (`ulimit -n`) allows, if that is less: a quarter of them, at least
    /// 16 and at most 256, is kept in reserve. The limit is read when serving begins.
    ///
    /// When a connection arrives at the limit, the one that has waited longest for its client is closed: one that is idle between two
    /// requests, or one whose request has been arriving for more than two seconds. If there is none, the new one waits until another ends, and those after it
    /// wait in the backlog of the operating system. A connection with a call in flight, or with an open stream, is never closed for
    /// another.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Holds at most this many bytes of requests that have not arrived completely, on all connections together, in place of
    /// [`UNFINISHED_BYTES`](Self::UNFINISHED_BYTES). The first 16 KiB of a request do not count.
    ///
    /// Beyond that, the connections whose requests have been arriving for the longest time are closed. What counts are the bytes on the wire:
    /// for how much of a complete request there may be, see the service.
    pub fn with_unfinished_bytes(mut self, bytes: usize) -> Self {
        self.unfinished = bytes;
        self
    }

    /// Serves with this service until `stop` is there: an endpoint, one with middleware around it, or rmcp's own.
    ///
    /// What goes wrong with a connection ends that connection. If there are too many to accept one more, those to come wait until
    /// there is room: also where it is the operating system that has no file descriptor left.
    ///
    /// Once `stop` is there, no connection is accepted anymore. Those that are idle are closed, the others after their response; when
    /// all are, this returns. It does not wait for longer than it [may](Self::with_drain), however long a handler, a stream or a client
    /// takes: what is left then goes on for as long as the runtime does. So it is when this is dropped. Who sends a request at the very
    /// moment may find the connection closed, as with any server that closes what is idle.
    ///
    /// The `cancellation_token` of the endpoint's configuration is another matter: whoever cancels it tells handlers to stop, and has
    /// what is in flight answered with a 500 at once.
    pub async fn serve<S, B>(self, service: S, stop: impl Future<Output = ()>)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
            + Clone
            + Send
            + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let Self { listener, path, drain, timeouts, connections, unfinished } = self;
        let stopping = CancellationToken::new();
        let ending = stopping.clone().drop_guard();
        let mut seats = Seats::new(connections.unwrap_or_else(descriptors::connections), unfinished, stopping);
        let serving = Serving { path, service, timeouts };
        let tasks = TaskTracker::new();
        let mut stop = pin!(stop);
        loop {
            let (stream, peer, seat) = tokio::select! {
                admitted = seats.admit(&listener) => admitted,
                () = &mut stop => break,
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(target: "rounds", %peer, %error, "a connection stays without TCP_NODELAY");
            }
            tasks.spawn(serving.clone().serve(stream, peer, seat));
        }
        drop((listener, ending));
        tasks.close();
        if timeout(drain, tasks.wait()).await.is_err() {
            tracing::info!(target: "rounds", connections = tasks.len(), "stopped with connections still open");
        }
    }
}
