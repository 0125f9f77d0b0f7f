//! Live pages: a stream that tells a browser that something it shows has changed.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, combinators::BoxBody};
use rounds::{
    FlowId,
    register::{Flows, Watch},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, watch},
    task::AbortHandle,
    time::sleep,
};

use crate::problem::Problem;

/// How many pages may be open at the same time.
const STREAMS: usize = 200;

/// How many changes all streams share until each has seen them. One that falls behind loads its page.
const SHARED: usize = 64;

/// The shortest time between two events. Changes meanwhile are one event.
const PAUSE: Duration = Duration::from_secs(1);

/// After so much silence, a comment is sent, so that a connection that is gone is found.
const SILENCE: Duration = Duration::from_secs(20);

const CHANGED: &str = "event: changed\ndata:\n\n";
/// The browser waits this long, in milliseconds, before it connects again.
const BEGIN: &str = "retry: 3000\n\n";
const COMMENT: &str = ":\n\n";

/// The flow that has changed, or none if any may have.
type Change = Option<FlowId>;

/// Opens a watch of the register. None if it cannot be watched now.
type Open = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Watch>> + Send>> + Send + Sync>;

/// The streams of a desk.
///
/// All of them share one watch of the register, because a watch may be a connection to the store. It is open while a
/// stream is.
pub(crate) struct Live {
    open: Open,
    streams: Arc<Semaphore>,
    shared: Mutex<Weak<SharedWatch>>,
}

impl Live {
    pub(crate) fn new(flows: Flows) -> Self {
        Self::of(Arc::new(move || {
            let flows = flows.clone();
            Box::pin(async move { flows.watch().await.ok() })
        }))
    }

    fn of(open: Open) -> Self {
        Self { open, streams: Arc::new(Semaphore::new(STREAMS)), shared: Mutex::default() }
    }

    /// A stream of events about one flow, or about all of them.
    ///
    /// An event has no contents: a browser that may see more loads its page again. A browser that does not read costs
    /// one event.
    pub(crate) fn stream(&self, only: Option<FlowId>) -> Result<BoxBody<Bytes, Infallible>, Problem> {
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| Problem::TooManyStreams)?;
        let (shared, changes) = self.subscribe();
        let (sender, events) = mpsc::channel(1);
        tokio::spawn(feed(shared, changes, only, sender));
        Ok(Events { events, _permit: permit }.boxed())
    }

    fn subscribe(&self) -> (Arc<SharedWatch>, broadcast::Receiver<Change>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = shared.upgrade()
            && let Some(changes) = watch.changes.upgrade()
        {
            return (watch, changes.subscribe());
        }
        let (sender, changes) = broadcast::channel(SHARED);
        let (began, begun) = watch::channel(false);
        let weak = sender.downgrade();
        let task = tokio::spawn(pass_on(self.open.clone(), sender, began)).abort_handle();
        let watch = Arc::new(SharedWatch { changes: weak, begun, task });
        *shared = Arc::downgrade(&watch);
        (watch, changes)
    }
}

/// The watch that all streams share. It ends with the last of them.
struct SharedWatch {
    /// The sender is with the task: when the register can no longer be watched, all streams end.
    changes: broadcast::WeakSender<Change>,
    /// Whether the register is watched yet.
    begun: watch::Receiver<bool>,
    task: AbortHandle,
}

impl Drop for SharedWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes changes on to all streams, until the register cannot be watched.
async fn pass_on(open: Open, to: broadcast::Sender<Change>, began: watch::Sender<bool>) {
    // A change without a stream to take it is dropped: this task is aborted soon.
    while let Some(mut watch) = open().await {
        // Changes may be missing from the watch before this one.
        if began.send_replace(true) {
            let _ = to.send(None);
        }
        while let Some(changed) = watch.next().await {
            let _ = to.send(Some(changed.id));
        }
        // A register that ends its watches at once must not keep us busy.
        sleep(PAUSE).await;
    }
}

/// Sends events until the browser is gone or the register cannot be watched.
async fn feed(
    shared: Arc<SharedWatch>,
    mut changes: broadcast::Receiver<Change>,
    only: Option<FlowId>,
    to: mpsc::Sender<&'static str>,
) {
    if shared.begun.clone().wait_for(|begun| *begun).await.is_err() || to.send(BEGIN).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            changed = changes.recv() => match counts(changed, only) {
                None => return,
                Some(false) => continue,
                Some(true) => {}
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
        if drain(&mut changes, only) && to.send(CHANGED).await.is_err() {
            return;
        }
    }
}

/// Whether a change counts for this stream. None if there will be no more.
fn counts(changed: Result<Change, broadcast::error::RecvError>, only: Option<FlowId>) -> Option<bool> {
    match changed {
        Ok(changed) => Some(only.is_none() || changed.is_none() || only == changed),
        Err(broadcast::error::RecvError::Lagged(_)) => Some(true),
        Err(broadcast::error::RecvError::Closed) => None,
    }
}

/// Takes the changes that are there already. Returns whether one of them counts.
fn drain(changes: &mut broadcast::Receiver<Change>, only: Option<FlowId>) -> bool {
    let mut any = false;
    loop {
        let changed = match changes.try_recv() {
            Ok(changed) => Ok(changed),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Err(broadcast::error::RecvError::Lagged(missed)),
            Err(_) => return any,
        };
        any |= counts(changed, only) == Some(true);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rounds::register::{Changed, FlowStatus, Watcher};

    use super::*;

    /// A register that counts its watches.
    #[derive(Default)]
    struct Register {
        opened: AtomicUsize,
        watchers: Mutex<Vec<Watcher>>,
        is_away: std::sync::atomic::AtomicBool,
    }

    impl Register {
        fn live(self: &Arc<Self>) -> Live {
            let register = self.clone();
            Live::of(Arc::new(move || {
                let register = register.clone();
                Box::pin(async move {
                    if register.is_away.load(Ordering::Relaxed) {
                        return None;
                    }
                    register.opened.fetch_add(1, Ordering::Relaxed);
                    let (watcher, watch) = Watch::new();
                    register.watchers.lock().unwrap().push(watcher);
                    Some(watch)
                })
            }))
        }

        fn change(&self, id: u8) {
            let changed = Changed { id: FlowId::from_bytes([id; 16]), status: FlowStatus::Waiting };
            self.watchers.lock().unwrap().retain(|watcher| watcher.tell(changed));
        }
    }

    async fn next(stream: &mut BoxBody<Bytes, Infallible>) -> Option<String> {
        let data = stream.frame().await?.unwrap().into_data().unwrap();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_share_one_watch_which_ends_with_the_last() {
        let register = Arc::<Register>::default();
        let live = register.live();
        let mut streams: Vec<_> = (0..STREAMS).map(|_| live.stream(None).unwrap()).collect();
        for stream in &mut streams {
            assert_eq!(next(stream).await.unwrap(), BEGIN);
        }
        register.change(1);
        for stream in &mut streams {
            assert_eq!(next(stream).await.unwrap(), CHANGED);
        }
        assert_eq!(register.opened.load(Ordering::Relaxed), 1, "one connection to the store for all");
        let watcher = register.watchers.lock().unwrap()[0].clone();
        drop(streams);
        watcher.gone().await;
        assert_eq!(next(&mut live.stream(None).unwrap()).await.unwrap(), BEGIN);
        assert_eq!(register.opened.load(Ordering::Relaxed), 2, "and another one when a page is open again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_browser_holds_one_event_and_does_not_hold_up_others() {
        let register = Arc::<Register>::default();
        let live = register.live();
        let (mut stalled, mut other) = (live.stream(None).unwrap(), live.stream(None).unwrap());
        assert_eq!(next(&mut other).await.unwrap(), BEGIN);
        for _ in 0..50 {
            for id in 0..100 {
                register.change(id);
            }
            assert_eq!(next(&mut other).await.unwrap(), CHANGED);
        }
        let mut held = Vec::new();
        loop {
            match next(&mut stalled).await.unwrap() {
                comment if comment == COMMENT => break,
                event => held.push(event),
            }
        }
        assert_eq!(held[0], BEGIN);
        assert!((2..=4).contains(&held.len()), "5000 changes are a few events: {held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_register_is_away_a_stream_ends_and_the_next_one_tries_again() {
        let register = Arc::<Register>::default();
        let live = register.live();
        let mut stream = live.stream(None).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), BEGIN);
        register.is_away.store(true, Ordering::Relaxed);
        register.watchers.lock().unwrap().clear();
        assert_eq!(next(&mut stream).await, None, "the browser connects again");
        assert_eq!(next(&mut live.stream(None).unwrap()).await, None);
        register.is_away.store(false, Ordering::Relaxed);
        let mut stream = live.stream(None).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), BEGIN);
        register.change(1);
        assert_eq!(next(&mut stream).await.unwrap(), CHANGED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_was_lost_counts_as_a_change_of_every_flow() {
        let register = Arc::<Register>::default();
        let live = register.live();
        let mut stream = live.stream(Some(FlowId::from_bytes([7; 16]))).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), BEGIN);
        register.change(1);
        register.watchers.lock().unwrap().clear();
        assert_eq!(next(&mut stream).await.unwrap(), CHANGED);
        assert_eq!(register.opened.load(Ordering::Relaxed), 2);
    }
}
