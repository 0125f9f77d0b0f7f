//! What a connection waits for, since when, and for how long it may: the state behind the timeouts and limits of a
//! port.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// How many bytes of a response a client has to take within the write stall timeout, unless it takes all of it. A
/// client that takes less reads a byte now and then to keep its connection.
const PROGRESS: usize = 16 << 10;

/// How many bytes of a request do not count against [`Unfinished`]: most requests are not longer, and the number of
/// connections is limited.
const FREE: usize = 16 << 10;

/// How long a client may take for each step that depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) header: Duration,
    pub(super) body: Duration,
    pub(super) write_stall: Duration,
    pub(super) keep_alive: Duration,
}

/// The step for which a client was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Head,
    Body,
    Write,
    Idle,
}

impl Late {
    /// Why the connection was closed, for the log.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Head => "the head of its request did not arrive within the header timeout",
            Self::Body => "the body of its request did not arrive within the body timeout",
            Self::Write => "its client did not read the response within the write stall timeout",
            Self::Idle => "it was idle for the keep-alive timeout",
        }
    }
}

/// The state of one connection. Its task, the body of its request and the port share it.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    unfinished: Arc<Unfinished>,
    /// Cancelled when the port stops, and when the connection has to give its seat to another.
    leave: CancellationToken,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began. It is set when a task has made all the progress it can, so that a phase that passes
    /// immediately costs nothing.
    since: Option<Instant>,
    stall: Option<Stall>,
    responded: bool,
    /// Bytes of the request that is arriving.
    received: usize,
    gives_way: bool,
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The rest of a request's head, or all of it on a new connection.
    Head,
    /// The rest of a request's body.
    Body,
    /// The server, as long as a call or a stream lasts.
    Call,
    /// The next request.
    Idle,
}

/// A response that the client does not take.
#[derive(Debug, Default)]
struct Stall {
    since: Option<Instant>,
    written: usize,
}

impl Watch {
    /// A connection that has just been accepted.
    pub(super) fn new(unfinished: Arc<Unfinished>, leave: CancellationToken) -> Self {
        let state = State {
            phase: Phase::Head,
            since: Some(Instant::now()),
            stall: None,
            responded: false,
            received: 0,
            gives_way: false,
        };
        Self { state: Mutex::new(state), unfinished, leave }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that bytes have arrived from the client.
    pub(super) fn received(&self, bytes: usize) {
        let mut state = self.state();
        match state.phase {
            Phase::Idle => state.enter(Phase::Head),
            // Part of the next request, of which hyper reads at most one buffer.
            Phase::Call => return,
            Phase::Head | Phase::Body => {}
        }
        if !state.gives_way {
            let counted = state.counted();
            state.received += bytes;
            self.unfinished.add(state.counted() - counted);
        }
    }

    /// Records that the head of a request is complete, and that the service is called with it.
    pub(super) fn called(&self, has_body: bool) {
        let mut state = self.state();
        state.enter(Phase::Call);
        if !has_body {
            self.forget(&mut state);
        }
    }

    /// Records that the service waits for the body.
    pub(super) fn wants_body(&self) {
        let mut state = self.state();
        if state.phase == Phase::Call {
            state.enter(Phase::Body);
        }
    }

    /// Records that the body has ended, or is not wanted any more.
    pub(super) fn body_ended(&self) {
        let mut state = self.state();
        if state.phase == Phase::Body {
            state.enter(Phase::Call);
        }
        self.forget(&mut state);
    }

    /// Records that hyper has the whole response, and has yet to write it.
    pub(super) fn responded(&self) {
        self.state().responded = true;
    }

    /// Records that a write found the socket's buffer full.
    pub(super) fn stalled(&self) {
        self.state().stall.get_or_insert_default();
    }

    /// Records a write after one that found the buffer full.
    pub(super) fn wrote(&self, bytes: usize) {
        if let Some(stall) = &mut self.state().stall {
            stall.written += bytes;
            if stall.written >= PROGRESS {
                *stall = Stall::default();
            }
        }
    }

    /// Records that nothing is left to be written. After a response, that is the end of its request.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        state.stall = None;
        if std::mem::take(&mut state.responded) {
            state.enter(Phase::Idle);
            self.forget(&mut state);
        }
    }

    /// Records that the connection has ended.
    pub(super) fn ended(&self) {
        self.forget(&mut self.state());
    }

    fn forget(&self, state: &mut State) {
        self.unfinished.remove(state.counted());
        state.received = 0;
    }

    /// When the client will exceed a timeout if it does nothing, and which one.
    pub(super) fn due(&self, timeouts: &Timeouts) -> Option<(Instant, Late)> {
        let state = &mut *self.state();
        let waits = match state.phase {
            Phase::Head => Some((timeouts.header, Late::Head)),
            Phase::Body => Some((timeouts.body, Late::Body)),
            Phase::Call => None,
            Phase::Idle => Some((timeouts.keep_alive, Late::Idle)),
        };
        // A moment beyond the range of the clock never comes.
        let due = |since: &mut Option<Instant>, (timeout, late): (Duration, Late)| {
            Some((since.get_or_insert_with(Instant::now).checked_add(timeout)?, late))
        };
        let waits = waits.and_then(|limit| due(&mut state.since, limit));
        let stall = state.stall.as_mut();
        let stall = stall.and_then(|stall| due(&mut stall.since, (timeouts.write_stall, Late::Write)));
        [waits, stall].into_iter().flatten().min_by_key(|(due, _)| *due)
    }

    /// Since when the server waits for this client to send a request, if the connection may be closed for that: it is
    /// idle between two requests, or a request that has begun takes longer than `patience`.
    pub(super) fn waits_since(&self, patience: Duration) -> Option<Instant> {
        let state = self.state();
        let since = state.since.filter(|_| !state.gives_way)?;
        match state.phase {
            Phase::Idle => Some(since),
            Phase::Head | Phase::Body => (since.elapsed() >= patience).then_some(since),
            Phase::Call => None,
        }
    }

    /// Since when a request is arriving that counts against the limit on unfinished bytes.
    pub(super) fn unfinished_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.counted() > 0).then(|| state.since.unwrap_or_else(Instant::now))
    }

    /// Asks the connection to close, if it still waits for its client when its task learns of it.
    pub(super) fn give_way(&self) {
        let mut state = self.state();
        self.forget(&mut state);
        state.gives_way = true;
        drop(state);
        self.leave.cancel();
    }

    /// Whether the connection has to be closed in its present state.
    pub(super) fn is_given_up(&self) -> bool {
        let state = self.state();
        state.gives_way && state.phase != Phase::Call
    }

    pub(super) fn leave(&self) -> &CancellationToken {
        &self.leave
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = None;
    }

    fn counted(&self) -> usize {
        self.received.saturating_sub(FREE)
    }
}

/// The bytes of requests that have not arrived completely, on all connections.
#[derive(Debug)]
pub(super) struct Unfinished {
    bytes: AtomicUsize,
    most: usize,
    too_many: Notify,
}

impl Unfinished {
    pub(super) fn up_to(most: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), most, too_many: Notify::new() }
    }

    fn add(&self, bytes: usize) {
        if bytes > 0 && self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            self.too_many.notify_one();
        }
    }

    fn remove(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.most
    }

    /// Resolves when the limit may have been exceeded.
    pub(super) async fn too_many(&self) {
        self.too_many.notified().await;
    }
}
