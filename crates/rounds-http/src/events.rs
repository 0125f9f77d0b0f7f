//! What a handler sends to its client before the result: events, in order, in one buffer of a bounded size.

use std::{
    error::Error,
    fmt::{self, Display},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use rmcp::model::ServerJsonRpcMessage;
use tokio::{sync::Notify, time::Instant};

use crate::print::event;

/// How many bytes may wait for a client. A handler that has sent more waits until its client has read.
const ENOUGH: usize = 16 << 10;

/// How many bytes may wait if the handler does not: it sends from many tasks at once, or drops a send that has begun. What is sent then is refused.
const MOST: usize = 1 << 20;

/// The events of one request, between whatever its handler sends and the [`Reader`].
#[derive(Default)]
pub(crate) struct Events {
    state: Mutex<State>,
    /// Notified when something was taken, and when nothing will be taken any more.
    taken: Notify,
}

#[derive(Default)]
struct State {
    /// Events as they are written.
    waiting: Vec<u8>,
    stage: Stage,
    reader: Option<Waker>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The result was there. What waits is the last of it.
    Ended,
    /// The client is gone.
    Left,
}

impl Events {
    /// Adds an event, and tells whether its sender may go on at once. Otherwise it has to wait until there is [room](Self::room).
    pub(crate) fn push(&self, message: &ServerJsonRpcMessage) -> Result<bool, Undelivered> {
        let mut state = self.state();
        match state.stage {
            Stage::Open if state.waiting.len() >= MOST => return Err(Undelivered::TooMany),
            Stage::Open => event(&mut state.waiting, message).map_err(Undelivered::Unprintable)?,
            // It comes too late to have a place before the result.
            Stage::Ended => return Ok(true),
            Stage::Left => return Err(Undelivered::Left),
        }
        let has_room = state.waiting.len() < ENOUGH;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(has_room)
    }

    /// Becomes ready when the client has read enough for another event.
    pub(crate) async fn room(&self) -> Result<(), Undelivered> {
        loop {
            let taken = self.taken.notified();
            {
                let state = self.state();
                match state.stage {
                    Stage::Open if state.waiting.len() >= ENOUGH => {}
                    Stage::Open | Stage::Ended => return Ok(()),
                    Stage::Left => return Err(Undelivered::Left),
                }
            }
            taken.await;
        }
    }

    /// Adds the result, which is the last event.
    pub(crate) fn end(&self, result: &[u8]) {
        let mut state = self.state();
        if state.stage == Stage::Open {
            state.waiting.extend_from_slice(result);
            state.stage = Stage::Ended;
        }
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of [`Events`] at which they are taken. When it is dropped, the client is gone.
pub(crate) struct Reader(Arc<Events>);

impl Reader {
    pub(crate) fn of(events: Arc<Events>) -> Self {
        Self(events)
    }

    pub(crate) fn events(&self) -> &Arc<Events> {
        &self.0
    }

    /// How many bytes wait. The task is woken when there are more.
    pub(crate) fn waiting(&self, cx: &Context<'_>) -> usize {
        let mut state = self.0.state();
        state.wake(cx);
        state.waiting.len()
    }

    /// All that waits. Nothing is added any more.
    pub(crate) fn end(&self) -> Vec<u8> {
        let mut state = self.0.state();
        state.stage = Stage::Ended;
        mem::take(&mut state.waiting)
    }

    /// All that waits, as soon as there is something, and `None` after the result.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if state.waiting.is_empty() {
            if state.stage != Stage::Open {
                return Poll::Ready(None);
            }
            state.wake(cx);
            return Poll::Pending;
        }
        let taken = mem::take(&mut state.waiting);
        drop(state);
        self.0.taken.notify_waiters();
        Poll::Ready(Some(taken.into()))
    }

    /// Whether the result is there, and so nothing will be added to what waits.
    pub(crate) fn is_all_there(&self) -> bool {
        self.0.state().stage != Stage::Open
    }

    /// Whether the result was taken.
    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.0.state();
        state.stage != Stage::Open && state.waiting.is_empty()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.stage == Stage::Open {
            state.stage = Stage::Left;
        }
        state.waiting = Vec::new();
        state.reader = None;
        drop(state);
        self.0.taken.notify_waiters();
    }
}

impl State {
    fn wake(&mut self, cx: &Context<'_>) {
        match &mut self.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            reader => *reader = Some(cx.waker().clone()),
        }
    }
}

/// Events that are collected for one write.
///
/// A handler waits until a notification was taken, by another task, before it sends the next. So where one has arrived, the next, or the result, will
/// most likely be there within a few turns of the runtime.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: usize,
    /// Turns since the last event came.
    turns: u8,
    /// When the first one came.
    begun: Option<Instant>,
}

/// How many turns of the runtime an event waits for the next one.
const TURNS: u8 = 8;

/// How long the first event waits at most, while others follow.
const DELAY: Duration = Duration::from_millis(1);

impl Batch {
    /// Whether it is worth another turn to wait for more than these bytes.
    pub(crate) fn may_grow(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            (self.bytes, self.turns) = (bytes, 0);
        }
        self.turns += 1;
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.turns <= TURNS && bytes < ENOUGH && begun.elapsed() < DELAY
    }
}

/// Why a client does not get what a handler has sent.
#[derive(Debug)]
pub(crate) enum Undelivered {
    /// It has closed the response, or its connection.
    Left,
    /// It reads slower than the handler sends, and the handler does not wait for it.
    TooMany,
    /// The message has no JSON.
    Unprintable(serde_json::Error),
}

impl Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("the client has closed the response: no more of it can be sent"),
            Self::TooMany => write!(
                f,
                "{MOST} bytes wait for a client that reads slower than its handler sends: wait for each notification before sending the next"
            ),
            Self::Unprintable(_) => f.write_str("the notification cannot be written as JSON, and was not sent"),
        }
    }
}

impl Error for Undelivered {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unprintable(why) => Some(why),
            Self::Left | Self::TooMany => None,
        }
    }
}
