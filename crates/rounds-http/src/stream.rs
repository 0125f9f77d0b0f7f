//! A response that is a stream: what a handler sends while it runs, and its result.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{DropGuard, WaitForCancellationFutureOwned};

use crate::events::{Batch, Reader};

/// The body of such a response. It ends after the result, and when the server stops.
pub(crate) struct Stream {
    reader: Reader,
    batch: Batch,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    alive: Option<KeepAlive>,
    /// Tells the handler when the body is dropped.
    _left: DropGuard,
}

impl Stream {
    /// What the reader gets. The guard is dropped with the body.
    pub(crate) fn new(reader: Reader, left: DropGuard, config: &StreamableHttpServerConfig) -> Self {
        let alive = config.sse_keep_alive.map(|every| KeepAlive { every, timer: None });
        let stopped = Box::pin(config.cancellation_token.clone().cancelled_owned());
        Self { reader, batch: Batch::default(), stopped, alive, _left: left }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { reader, batch, stopped, alive, .. } = &mut *self;
        if stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let bytes = reader.waiting(cx);
        if bytes > 0 && !reader.is_all_there() && batch.may_grow(bytes) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *batch = Batch::default();
        let events = match (reader.poll_next(cx), alive) {
            (Poll::Ready(events), alive) => {
                alive.iter_mut().for_each(KeepAlive::reset);
                events
            }
            (Poll::Pending, Some(alive)) => Some(ready!(alive.poll(cx))),
            (Poll::Pending, None) => return Poll::Pending,
        };
        Poll::Ready(events.map(|events| Ok(Frame::data(events))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_at_end()
    }
}

/// Comments between events that come seldom, so that what is between server and client sees that the stream is in use.
struct KeepAlive {
    every: Duration,
    /// Set when the stream waits for the first time.
    timer: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.every)));
        ready!(timer.as_mut().poll(cx));
        self.reset();
        Poll::Ready(Bytes::from_static(b":\n\n"))
    }

    fn reset(&mut self) {
        if let (Some(timer), Some(due)) = (&mut self.timer, Instant::now().checked_add(self.every)) {
            timer.as_mut().reset(due);
        }
    }
}
