//! Health: whether a server can serve legs, and how it stops without losing the flows whose handlers wait.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::ServerHandler;
use tokio::sync::Notify;

use super::{engine::core::Core, ledger::LedgerError, policy::error::FlowError, rounds::Rounds};

/// The health of a server, for probes and for its end. Made by [`Rounds::health`]; clones are of the same server.
///
/// ```no_run
/// # use rounds::Rounds;
/// # use std::time::Duration;
/// # struct Weather;
/// # impl rmcp::ServerHandler for Weather {}
/// # async fn main_(server: Rounds<Weather>, signal: impl Future<Output = ()>) {
/// let health = server.health();
/// // A load balancer asks this, and sends nothing here while it fails.
/// let is_ready = health.ready().await.is_ok();
/// // On SIGTERM:
/// signal.await;
/// let drained = health.drain(Duration::from_secs(30)).await;
/// println!("ended {} calls that were still waiting", drained.ended);
/// # let _ = is_ready;
/// # }
/// ```
#[derive(Clone)]
pub struct Health(Arc<Core>);

impl<H: ServerHandler> Rounds<H> {
    /// The health of this server: [`ready`](Health::ready) for probes, and [`drain`](Health::drain) for its end.
    pub fn health(&self) -> Health {
        Health(self.core.clone())
    }
}

impl Health {
    /// Checks that the server can serve legs: it is not draining, and its ledger and its relay can be reached.
    ///
    /// The check takes as long as one call to each, which their timeouts limit.
    ///
    /// # Errors
    ///
    /// [`NotReady`] with the reason.
    pub async fn ready(&self) -> Result<(), NotReady> {
        if self.is_draining() {
            return Err(NotReady::Draining);
        }
        self.0.ledger.check().await.map_err(NotReady::Ledger)?;
        match self.0.is_heard() {
            true => Ok(()),
            false => Err(NotReady::Relay),
        }
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.0.draining.has_begun()
    }

    /// Lets the server run out: from now on it is not [ready](Self::ready) and starts no flow whose handler waits in
    /// memory. Returns when no handler waits any more, or ends those that are left when this time has passed, by the
    /// server's clock. Keep serving requests meanwhile: the answers of waiting handlers still have to arrive.
    ///
    /// A call that would wait in memory fails with `{"reason": "retry"}`, so that its client sends it again, to another
    /// instance. A tool whose handlers have waited here before is not run for that; the first call of any other tool runs
    /// until it asks. Handlers of other shapes are served as usual, and so are legacy clients, whose sessions cannot move:
    /// their questions are waited for like all others.
    pub async fn drain(&self, within: Duration) -> Drained {
        let core = &self.0;
        core.draining.begin();
        let over = core.clock.sleep(within);
        tokio::select! {
            biased;
            () = core.until_none_waits() => Drained { ended: 0 },
            () = over => Drained { ended: core.frames.abort_all() },
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("is_draining", &self.is_draining()).finish_non_exhaustive()
    }
}

/// How the draining of a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Handlers that still waited for an answer when the time had passed, and that were ended.
    pub ended: usize,
}

/// Reason why a server should get no requests at the moment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// The server is about to end.
    #[error("the server is draining: it finishes the calls that wait, and starts no others that wait in memory")]
    Draining,
    /// The ledger cannot be reached.
    #[error("the ledger is not ready")]
    Ledger(#[source] LedgerError),
    /// The relay has lost its connection: legs from other instances do not arrive.
    #[error("the relay is not connected: legs from other instances do not arrive here")]
    Relay,
}

/// Whether the server drains, and which targets have handlers that wait in memory.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    has_begun: AtomicBool,
    /// Targets whose handlers have waited here.
    waits: Mutex<HashSet<String>>,
    /// Notified when there may be nothing left to wait for.
    less: Notify,
}

impl Draining {
    /// More targets than a server has; resources are counted by their URIs, which a client chooses.
    const TARGETS: usize = 1000;

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// The last handler has gone, or a leg of another instance has ended.
    pub(crate) fn may_be_done(&self) {
        self.less.notify_waiters();
    }

    fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// A handler of this target waits.
    pub(crate) fn waits(&self, target: &str) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if !waits.contains(target) && waits.len() < Self::TARGETS {
            waits.insert(target.to_owned());
        }
    }

    /// Whether a handler of this target has waited here.
    fn has_waited(&self, target: &str) -> bool {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }
}

impl Core {
    /// Checks that a handler may begin to wait here.
    ///
    /// # Errors
    ///
    /// [`FlowError::Retry`] while the server drains, or while the relay does not hear the other instances: legs that land
    /// there could not reach the handler.
    pub(crate) fn may_wait(&self) -> Result<(), FlowError> {
        match (self.draining.has_begun(), self.is_heard()) {
            (true, _) => Err(FlowError::retry(NotHere::Draining)),
            (_, false) => Err(FlowError::retry(NotHere::Unheard)),
            _ => Ok(()),
        }
    }

    /// Checks the same before the handler runs, if handlers of this target are known to wait.
    pub(crate) fn may_start(&self, target: &str) -> Result<(), FlowError> {
        self.may_wait().or_else(|error| if self.draining.has_waited(target) { Err(error) } else { Ok(()) })
    }

    /// Resolves when no handler waits, and no leg of another instance is served: what came of it is recorded then.
    async fn until_none_waits(&self) {
        loop {
            let less = self.draining.less.notified();
            if self.frames.count() == 0 && self.routes.taken().is_empty() {
                return;
            }
            less.await;
        }
    }

    fn is_heard(&self) -> bool {
        self.relay.as_ref().is_none_or(|relay| relay.hears())
    }
}

/// Reason why no handler begins to wait here.
#[derive(Debug, thiserror::Error)]
enum NotHere {
    #[error("this instance is draining, and starts no call whose handler waits in memory")]
    Draining,
    #[error("the relay is not connected, so that legs from other instances could not reach a handler that waits here")]
    Unheard,
}
