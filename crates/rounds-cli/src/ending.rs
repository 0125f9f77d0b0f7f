//! The end of a server: the first signal lets it drain, and the second ends it at once.

use std::time::Duration;

use rounds::health::Health;
use tokio::sync::oneshot;

use crate::Failure;

/// Runs `serving`, which ends when it is told to, until then or until the second signal.
///
/// After the first signal the server is not ready any more, but keeps serving until no handler waits or the drain time has
/// passed. Only then it is told to end.
pub(crate) async fn until_ended<F: Future<Output = Result<(), Failure>>>(
    mut signals: Signals,
    health: Health,
    drain: Duration,
    serving: impl FnOnce(oneshot::Receiver<()>) -> F,
) -> Result<(), Failure> {
    let (drained, told) = oneshot::channel();
    let signalled = async {
        signals.next().await;
        let draining = async {
            let ended = health.drain(drain).await.ended;
            if ended > 0 {
                tracing::warn!(
                    target: "rounds", ended, ?drain,
                    "the drain time is over: calls that still waited for an answer were ended"
                );
            }
            // It may have ended by itself.
            let _ = drained.send(());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = draining => {}
            () = signals.next() => {
                tracing::warn!(target: "rounds", "a second signal arrived: the server ends at once");
            }
        }
    };
    tokio::select! {
        ended = serving(told) => ended,
        () = signalled => Ok(()),
    }
}

/// The signals that ask a server to stop. They are caught as long as this value exists.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let catch = |kind| signal(kind).map_err(Failure::io("catch signals"));
        Ok(Self { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
