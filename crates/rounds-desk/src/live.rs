//! Live pages: a stream that tells a browser that something it shows has changed.

use std::{convert::Infallible, future::ready, pin::Pin, sync::Arc, task::Context, task::Poll, time::Duration};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, combinators::BoxBody};
use rounds::{
    FlowId,
    register::{Flows, Watch},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::sleep,
};

use crate::problem::Problem;

/// How many pages may be open at the same time.
const STREAMS: usize = 200;

/// The shortest time between two events. Changes meanwhile are one event.
const PAUSE: Duration = Duration::from_secs(1);

/// After so much silence, a comment is sent, so that a connection that is gone is found.
const SILENCE: Duration = Duration::from_secs(20);

const CHANGED: &str = "event: changed\ndata:\n\n";
/// The browser waits this long, in milliseconds, before it connects again.
const BEGIN: &str = "retry: 3000\n\n";
const COMMENT: &str = ":\n\n";

/// The streams of a desk.
pub(crate) struct Live {
    flows: Flows,
    streams: Arc<Semaphore>,
}

impl Live {
    pub(crate) fn new(flows: Flows) -> Self {
        Self { flows, streams: Arc::new(Semaphore::new(STREAMS)) }
    }

    /// A stream of events about one flow, or about all of them.
    ///
    /// An event has no contents: a browser that may see more loads its page again. A browser that does not read costs
    /// one event and the bounded buffer of a [`Watch`].
    pub(crate) fn stream(&self, only: Option<FlowId>) -> Result<BoxBody<Bytes, Infallible>, Problem> {
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| Problem::TooManyStreams)?;
        let (sender, events) = mpsc::channel(1);
        tokio::spawn(feed(self.flows.clone(), only, sender));
        Ok(Events { events, _permit: permit }.boxed())
    }
}

/// Sends events until the browser is gone or the register cannot be watched.
async fn feed(flows: Flows, only: Option<FlowId>, to: mpsc::Sender<&'static str>) {
    if to.send(BEGIN).await.is_err() {
        return;
    }
    let mut is_first = true;
    while let Ok(mut watch) = flows.watch().await {
        // Changes may be missing from the watch before this one.
        if !is_first && to.send(CHANGED).await.is_err() {
            return;
        }
        is_first = false;
        loop {
            tokio::select! {
                changed = watch.next() => match changed {
                    None => break,
                    Some(changed) if only.is_some_and(|only| only != changed.id) => continue,
                    Some(_) => {}
                },
                () = to.closed() => return,
                () = sleep(SILENCE) => {
                    if to.send(COMMENT).await.is_err() {
                        return;
                    }
                    continue;
                }
            }
            if to.send(CHANGED).await.is_err() {
                return;
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = to.closed() => return,
            }
            if drain(&mut watch, only).await && to.send(CHANGED).await.is_err() {
                return;
            }
        }
        // A register that ends its watches at once must not keep us busy.
        sleep(PAUSE).await;
    }
}

/// Takes the changes that are there already. Returns whether one of them counts.
async fn drain(watch: &mut Watch, only: Option<FlowId>) -> bool {
    let mut counts = false;
    loop {
        tokio::select! {
            biased;
            changed = watch.next() => match changed {
                Some(changed) => counts |= only.is_none_or(|only| only == changed.id),
                None => return counts,
            },
            () = ready(()) => return counts,
        }
    }
}

/// The body of a stream.
struct Events {
    events: mpsc::Receiver<&'static str>,
    _permit: OwnedSemaphorePermit,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = |event: &'static str| Ok(Frame::data(Bytes::from_static(event.as_bytes())));
        self.events.poll_recv(cx).map(|event| event.map(frame))
    }
}
