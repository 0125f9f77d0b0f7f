//! The body of a request, as a port gives it to a service.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::watch::Watch;

/// The body of a request at a [`Port`](super::Port).
///
/// The [body timeout](super::Port::with_body_timeout) begins when a service first waits for the body, and ends when the
/// whole body has arrived or is dropped. When it expires, the connection is closed, and the future of the service is
/// dropped with it.
#[derive(Debug)]
pub struct Incoming {
    body: hyper::body::Incoming,
    /// `None` when nothing is left to arrive.
    watch: Option<Arc<Watch>>,
}

impl Incoming {
    pub(super) fn new(body: hyper::body::Incoming, watch: &Arc<Watch>) -> Self {
        let watch = (!body.is_end_stream()).then(|| watch.clone());
        Self { body, watch }
    }

    fn end(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.body_ended();
        }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                if let Some(watch) = &self.watch {
                    watch.wants_body();
                }
            }
            Poll::Ready(Some(Ok(_))) if !self.body.is_end_stream() => {}
            Poll::Ready(_) => self.end(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.end();
    }
}
