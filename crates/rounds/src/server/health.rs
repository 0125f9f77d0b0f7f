//! Health: whether a server can serve legs, and how it stops without losing the flows whose handlers wait.

use std::{fmt, sync::Arc, time::Duration};

use rmcp::ServerHandler;

use super::{engine::core::Core, ledger::LedgerError, rounds::Rounds};

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
