//! One connection, from its first byte to its end.

use std::{
    convert::Infallible,
    error::Error,
    fmt::Display,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::{body::Incoming as Received, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Sleep, sleep},
};
use tower_service::Service;

use super::{
    Incoming,
    beside::Beside,
    pieces::{PIECE, Pieces},
    seats::Seat,
    socket::Watched,
    watch::{Late, Timeouts, Watch},
};

/// What all connections of a port share.
#[derive(Clone)]
pub(super) struct Serving<S> {
    /// None for every path.
    pub(super) path: Option<Arc<str>>,
    pub(super) service: S,
    pub(super) timeouts: Timeouts,
    pub(super) beside: Beside,
}

/// How a connection ended.
#[derive(Debug)]
enum End {
    Served(hyper::Result<()>),
    Late(Late),
    GaveWay,
}

impl<S, B> Serving<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Serves this connection to its end, and then frees its seat.
    pub(super) async fn serve<T>(self, stream: T, peer: impl Display, seat: Seat)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        match self.talk(stream, seat.watch()).await {
            End::Served(Ok(())) => {}
            End::Served(Err(error)) => tracing::debug!(target: "rounds", %peer, %error, "a connection failed"),
            End::Late(late) => tracing::debug!(target: "rounds", %peer, "a connection was closed: {}", late.why()),
            End::GaveWay => {
                tracing::debug!(target: "rounds", %peer, "a connection was closed to admit another");
            }
        }
    }

    async fn talk<T>(self, stream: T, watch: &Arc<Watch>) -> End
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { path, service, timeouts, beside } = self;
        let stream = TokioIo::new(Watched::new(stream, watch.clone()));
        let respond = service_fn(move |request: Request<Received>| {
            let at = request.uri().path();
            let is_here = path.as_deref().is_none_or(|path| path == at);
            let aside = if path.is_none() || !is_here { beside.takes(&request) } else { None };
            let service = (is_here && aside.is_none()).then(|| service.clone());
            let request = request.map(|body| Incoming::new(body, watch));
            watch.called(!request.body().is_end_stream());
            async move {
                if let Some(aside) = aside {
                    return Ok(aside.answer().await.map(|text| Pieces::whole(text, watch.clone())));
                }
                let Some(mut service) = service else { return Ok(nothing_here(watch.clone())) };
                poll_fn(|cx| service.poll_ready(cx)).await?;
                let response = service.call(request).await?;
                Ok::<_, Infallible>(response.map(|body| Pieces::of(Some(body), watch.clone())))
            }
        });
        // Responses are short: copying them into one buffer is cheaper than a vectored write.
        let mut http = http1::Builder::new();
        http.writev(false).max_buf_size(PIECE);
        let mut served = pin!(http.serve_connection(stream, respond));
        let mut alarm = pin!(sleep(timeouts.header));
        let mut left = pin!(watch.leave().cancelled());
        let mut is_leaving = false;
        poll_fn(|cx| {
            loop {
                // Polled first: a request that has arrived by now is answered.
                if let Poll::Ready(ended) = served.as_mut().poll(cx) {
                    return Poll::Ready(End::Served(ended));
                }
                if !is_leaving && left.as_mut().poll(cx).is_ready() {
                    if watch.is_given_up() {
                        return Poll::Ready(End::GaveWay);
                    }
                    is_leaving = true;
                    served.as_mut().graceful_shutdown();
                    continue;
                }
                return late(alarm.as_mut(), watch, &timeouts, cx).map(End::Late);
            }
        })
        .await
    }
}

/// Resolves when the client has exceeded a timeout.
///
/// Creating a timer is expensive, and a client that is in time moves its deadline with every request. So a timer that
/// is set to an earlier moment is kept, and set again when it fires.
fn late(mut alarm: Pin<&mut Sleep>, watch: &Watch, timeouts: &Timeouts, cx: &mut Context<'_>) -> Poll<Late> {
    loop {
        let Some((due, late)) = watch.due(timeouts) else { return Poll::Pending };
        if due < alarm.deadline() || alarm.is_elapsed() {
            alarm.as_mut().reset(due);
        }
        ready!(alarm.as_mut().poll(cx));
        if alarm.deadline() >= due {
            return Poll::Ready(late);
        }
    }
}

fn nothing_here<B>(watch: Arc<Watch>) -> Response<Pieces<B>> {
    let mut response = Response::new(Pieces::of(None, watch));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
