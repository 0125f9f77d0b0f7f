//! What a connection waits for, since when, and for how long it may: the state that the timeouts and the limits of a port look at.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// How many bytes of a response a client has to take within the write stall timeout, unless it takes all that is there. Less than that is a
/// client that reads a byte now and then to keep its connection.
const PROGRESS: usize = 16 << 10;

/// How many bytes of a request do not count against [`Unfinished`]: most requests are not longer, and connections are limited.
const FREE: usize = 16 << 10;

/// How long a client may take, for each thing that only it can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) header: Duration,
    pub(super) body: Duration,
    pub(super) write_stall: Duration,
    pub(super) keep_alive: Duration,
}

/// What a client was too slow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Head,
    Body,
    Write,
    Idle,
}

impl Late {
    /// What became of the connection, for the log.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Head => "the head of its request did not arrive within the header timeout",
            Self::Body => "the body of its request did not arrive within the body timeout",
            Self::Write => "its client did not read the response within the write stall timeout",
            Self::Idle => "it was idle for the keep-alive timeout",
        }
    }
}

/// The state of one connection. Its task, the body of its request and the port itself share it.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    unfinished: Arc<Unfinished>,
    /// Cancelled when the port stops, and when the connection has to give way.
    leave: CancellationToken,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the phase began. It is filled in when a task has done all it could, so that a phase which passes at once costs nothing.
    since: Option<Instant>,
    stall: Option<Stall>,
    responded: bool,
    /// Bytes of the request that is arriving.
    received: usize,
    gives_way: bool,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The rest of a request's head, or all of it on a new connection.
    Head,
    /// The rest of a request's body.
    Body,
    /// The server, for as long as a call or a stream lasts.
    Call,
    /// The next request.
    Idle,
}

/// A response that the client's side has no room for.
#[derive(Debug, Default)]
struct Stall {
    since: Option<Instant>,
    written: usize,
}

impl Watch {
    /// A connection that was accepted just now.
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

    /// Bytes have come from the client.
    pub(super) fn received(&self, bytes: usize) {
        let mut state = self.state();
        match state.phase {
            Phase::Idle => state.enter(Phase::Head),
            // Part of the next request, of which hyper takes no more than a buffer.
            Phase::Call => return,
            Phase::Head | Phase::Body => {}
        }
        if !state.gives_way {
            let counted = state.counted();
            state.received += bytes;
            self.unfinished.add(state.counted() - counted);
        }
    }

    /// The head of a request is complete, and the service is called with it.
    pub(super) fn called(&self, has_body: bool) {
        let mut state = self.state();
        state.enter(Phase::Call);
        if !has_body {
            self.forget(&mut state);
        }
    }

    /// The service waits for the body.
    pub(super) fn wants_body(&self) {
        let mut state = self.state();
        if state.phase == Phase::Call {
            state.enter(Phase::Body);
        }
    }

    /// The body has come to its end, or is not wanted any more.
    pub(super) fn body_ended(&self) {
        let mut state = self.state();
        if state.phase == Phase::Body {
            state.enter(Phase::Call);
        }
        self.forget(&mut state);
    }

    /// All of the response is with hyper, which has yet to write it.
    pub(super) fn responded(&self) {
        self.state().responded = true;
    }

    /// A write found no room.
    pub(super) fn stalled(&self) {
        self.state().stall.get_or_insert_default();
    }

    /// A write after one that found no room.
    pub(super) fn wrote(&self, bytes: usize) {
        if let Some(stall) = &mut self.state().stall {
            stall.written += bytes;
            if stall.written >= PROGRESS {
                *stall = Stall::default();
            }
        }
    }

    /// Nothing is left to be written. After a response, that is the end of its request.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        state.stall = None;
        if std::mem::take(&mut state.responded) {
            state.enter(Phase::Idle);
            self.forget(&mut state);
        }
    }

    /// The connection has ended.
    pub(super) fn ended(&self) {
        self.forget(&mut self.state());
    }

    fn forget(&self, state: &mut State) {
        self.unfinished.remove(state.counted());
        state.received = 0;
    }

    /// When the client will be too late, as things stand, and for what.
    pub(super) fn due(&self, timeouts: &Timeouts) -> Option<(Instant, Late)> {
        let state = &mut *self.state();
        let waits = match state.phase {
            Phase::Head => Some((timeouts.header, Late::Head)),
            Phase::Body => Some((timeouts.body, Late::Body)),
            Phase::Call => None,
            Phase::Idle => Some((timeouts.keep_alive, Late::Idle)),
        };
        // What no clock can show never comes.
        let due = |since: &mut Option<Instant>, (timeout, late): (Duration, Late)| {
            Some((since.get_or_insert_with(Instant::now).checked_add(timeout)?, late))
        };
        let waits = waits.and_then(|limit| due(&mut state.since, limit));
        let stall = state.stall.as_mut();
        let stall = stall.and_then(|stall| due(&mut stall.since, (timeouts.write_stall, Late::Write)));
        [waits, stall].into_iter().flatten().min_by_key(|(due, _)| *due)
    }

    /// Since when the server waits for this client to send a request, if the connection may be closed for that: when it is idle
    /// between two requests, or when a request that has begun takes longer than `patience`.
    pub(super) fn waits_since(&self, patience: Duration) -> Option<Instant> {
        let state = self.state();
        let since = state.since.filter(|_| !state.gives_way)?;
        match state.phase {
            Phase::Idle => Some(since),
            Phase::Head | Phase::Body => (since.elapsed() >= patience).then_some(since),
            Phase::Call => None,
        }
    }

    /// Since when a request is arriving that counts against what may be unfinished.
    pub(super) fn unfinished_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.counted() > 0).then(|| state.since.unwrap_or_else(Instant::now))
    }

    /// Has the connection closed, if it still waits for its client when its task gets to know.
    pub(super) fn give_way(&self) {
        let mut state = self.state();
        self.forget(&mut state);
        state.gives_way = true;
        drop(state);
        self.leave.cancel();
    }

    /// Whether the connection is to be closed as it is.
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

/// How many bytes there are of requests that have not arrived completely, on all connections.
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

    /// Becomes ready when there may be too many.
    pub(super) async fn too_many(&self) {
        self.too_many.notified().await;
    }
}
