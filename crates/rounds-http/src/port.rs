//! A port with nothing between it and the endpoint.

use std::{
    convert::Infallible,
    error::Error,
    future::{Future, poll_fn},
    io::ErrorKind,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

/// How long to wait for files, or whatever else there is too little of to accept a connection.
const SHORTAGE: Duration = Duration::from_millis(100);

/// How much of a response is handed to hyper at once, in bytes, and after how much it writes. It keeps room for as much as it was given
/// in between, as long as a connection lasts.
const PIECE: usize = 64 << 10;

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
/// The line and the headers of a request may have 64 KiB; beyond that it gets a 431, if there is still more to come. How long a client may
/// take to send a request or to read a response is not limited, as it is not in axum. Towards clients that are not trusted, that is for a
/// proxy in front of it.
#[derive(Debug)]
#[must_use = "it serves nobody before it is told to"]
pub struct Port {
    listener: TcpListener,
    path: Arc<str>,
    drain: Duration,
}

impl Port {
    /// How long connections have to end, unless it is set.
    pub const DRAIN: Duration = Duration::from_secs(10);

    /// Serves at this path. It is compared as it is written: there are no patterns in it, and what is encoded in a request stays so.
    ///
    /// # Panics
    ///
    /// If it does not begin with a slash, or has a query: no request could be for it.
    pub fn new(listener: TcpListener, path: &str) -> Self {
        assert!(path.starts_with('/') && !path.contains(['?', '#']), "{path:?} is no path, which begins with a slash");
        Self { listener, path: path.into(), drain: Self::DRAIN }
    }

    /// Gives connections this long to end once the port is to stop, in place of [`DRAIN`](Self::DRAIN).
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Serves with this service until `stop` is there: an endpoint, one with middleware around it, or rmcp's own.
    ///
    /// What goes wrong with a connection ends that connection. If there are too many to accept one more, those to come wait until
    /// there is room.
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
        let Self { listener, path, drain } = self;
        let stopping = CancellationToken::new();
        let ending = stopping.clone().drop_guard();
        let connections = TaskTracker::new();
        let mut stop = pin!(stop);
        let mut told = false;
        loop {
            let (stream, peer) = tokio::select! {
                accepted = accepted(&listener, &mut told) => accepted,
                () = &mut stop => break,
            };
            // One of its own, as each looks at its token whenever it is woken.
            let stopping = stopping.child_token();
            connections.spawn(connection(stream, peer, path.clone(), service.clone(), stopping));
        }
        drop((listener, ending));
        connections.close();
        if timeout(drain, connections.wait()).await.is_err() {
            tracing::info!(connections = connections.len(), "stopped with connections still open");
        }
    }
}

/// The next connection. Who is at the limit gets one whenever another ends, and is not told each time.
async fn accepted(listener: &TcpListener, told: &mut bool) -> (TcpStream, SocketAddr) {
    let mut waited = false;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                *told &= waited;
                return accepted;
            }
            Err(error) if is_about_one(error.kind()) => {}
            Err(error) => {
                waited = true;
                if !std::mem::replace(told, true) {
                    tracing::warn!(%error, "cannot accept connections for now");
                }
                sleep(SHORTAGE).await;
            }
        }
    }
}

/// Whether it was this connection that failed, and not the listener.
fn is_about_one(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::ConnectionAborted | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
}

async fn connection<S, B>(stream: TcpStream, peer: SocketAddr, path: Arc<str>, service: S, stopping: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a connection stays without TCP_NODELAY");
    }
    let respond = service_fn(move |request: Request<Incoming>| {
        let service = (request.uri().path() == &*path).then(|| service.clone());
        async move {
            let Some(mut service) = service else { return Ok(nothing_here()) };
            poll_fn(|cx| service.poll_ready(cx)).await?;
            Ok::<_, Infallible>(service.call(request).await?.map(Pieces::of))
        }
    });
    // Responses are short: to write them from one place takes less than to hand over two.
    let mut http = http1::Builder::new();
    http.writev(false).max_buf_size(PIECE);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), respond));
    let ended = tokio::select! {
        // A request that has come by now is answered.
        biased;
        ended = served.as_mut() => ended,
        () = stopping.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection was broken off");
    }
}

fn nothing_here<B>() -> Response<Pieces<B>> {
    let mut response = Response::new(Pieces { body: None, rest: Bytes::new(), has_begun: false });
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// A body, if there is one, in pieces of a bounded size.
///
/// It never says beforehand that it is empty. hyper would be through with such a response as soon as its head is in the buffer, and with one
/// after the other the buffer would grow for as long as somebody sends requests and reads nothing.
struct Pieces<B> {
    body: Option<B>,
    /// What has come of it and is still to be handed on.
    rest: Bytes,
    has_begun: bool,
}

impl<B> Pieces<B> {
    fn of(body: B) -> Self {
        Self { body: Some(body), rest: Bytes::new(), has_begun: false }
    }

    fn next(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Frame::data(piece)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Pieces<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.has_begun = true;
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next())));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let Some(frame) = std::task::ready!(Pin::new(body).poll_frame(cx)?) else { return Poll::Ready(None) };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                self.next()
            }
            Err(frame) => frame,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.has_begun && self.rest.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let Some(body) = &self.body else { return SizeHint::with_exact(rest) };
        let mut hint = body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn a_long_body_comes_in_pieces_and_says_how_long_it_is() {
        let long = Bytes::from(vec![7; 2 * PIECE + 5]);
        let mut pieces = Pieces::of(Full::new(long.clone()));
        let mut left = long.len();
        for size in [PIECE, PIECE, 5] {
            assert_eq!(pieces.size_hint().exact(), Some(left as u64));
            assert!(!pieces.is_end_stream());
            let piece = pieces.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece, long[..size]);
            left -= size;
        }
        assert!(pieces.is_end_stream() && pieces.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_short_body_and_its_trailers_stay_what_they_are() {
        let trailers = async { Some(Ok::<_, Infallible>(HeaderMap::new())) };
        let body = Full::new(Bytes::from("one")).with_trailers(Box::pin(trailers));
        let mut pieces = Pieces::of(body);
        assert_eq!(pieces.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        assert!(pieces.frame().await.unwrap().unwrap().is_trailers());
        assert!(pieces.frame().await.is_none());
    }
}
