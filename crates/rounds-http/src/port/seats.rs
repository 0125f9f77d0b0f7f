//! Admission: a port has a limited number of seats, and an idle connection gives its seat to a new one.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::watch::{Unfinished, Watch};

/// Pause before looking again for a connection that can be closed, while seats or file descriptors are short.
const SHORTAGE: Duration = Duration::from_millis(100);

/// How long a request may take to arrive while other connections wait for a seat. Below the limit, only the timeouts
/// count.
const PATIENCE: Duration = Duration::from_secs(2);

/// Minimum interval between two log lines about a shortage.
const EVERY: Duration = Duration::from_secs(10);

/// The seats of a port.
pub(super) struct Seats {
    most: usize,
    permits: Arc<Semaphore>,
    unfinished: Arc<Unfinished>,
    stopping: CancellationToken,
    /// All connections with a seat, and some that have ended.
    taken: Vec<Weak<Watch>>,
    /// Connections that could be closed at the last look, beginning with the one that has waited longest.
    idle: VecDeque<(Instant, Weak<Watch>)>,
    /// When a shortage was last logged.
    told: Option<Instant>,
}

/// The seat of one connection, until this is dropped.
pub(super) struct Seat {
    watch: Arc<Watch>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    pub(super) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.watch.ended();
    }
}

impl Seats {
    pub(super) fn new(most: usize, unfinished: usize, stopping: CancellationToken) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            most,
            permits: Arc::new(Semaphore::new(most)),
            unfinished: Arc::new(Unfinished::up_to(unfinished)),
            stopping,
            taken: Vec::new(),
            idle: VecDeque::new(),
            told: None,
        }
    }

    /// Accepts the next connection, and takes a seat for it. At the limit, one connection is accepted and waits for a
    /// seat; the others wait in the backlog of the operating system.
    pub(super) async fn admit(&mut self, listener: &TcpListener) -> (TcpStream, SocketAddr, Seat) {
        let (stream, peer) = self.accept(listener).await;
        let seat = self.take().await;
        (stream, peer, seat)
    }

    async fn accept(&mut self, listener: &TcpListener) -> (TcpStream, SocketAddr) {
        loop {
            let unfinished = self.unfinished.clone();
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = unfinished.too_many() => {
                    self.shed();
                    continue;
                }
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(error) if is_about_one(error.kind()) => {}
                // Most likely the process or the system has no file descriptors left.
                Err(error) => {
                    if self.may_tell() {
                        tracing::warn!(target: "rounds", %error,
                            "cannot accept connections for now; trying again: raise the limit on file descriptors if \
                             this persists");
                    }
                    self.make_room();
                    sleep(SHORTAGE).await;
                }
            }
        }
    }

    /// Takes a seat as soon as one is free.
    pub(super) async fn take(&mut self) -> Seat {
        loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                return self.seat(permit);
            }
            if self.may_tell() {
                tracing::warn!(
                    target: "rounds",
                    connections = self.most,
                    "the limit on connections is reached: connections that wait for a request are closed, and new \
                     ones wait. To \
                     serve more, raise `Port::with_connections` and the limit on file descriptors"
                );
            }
            self.make_room();
            let (permits, unfinished) = (self.permits.clone(), self.unfinished.clone());
            tokio::select! {
                permit = permits.acquire_owned() => {
                    // The semaphore is never closed; an error would change nothing.
                    if let Ok(permit) = permit {
                        return self.seat(permit);
                    }
                }
                () = unfinished.too_many() => self.shed(),
                () = sleep(SHORTAGE) => {}
            }
        }
    }

    fn seat(&mut self, permit: OwnedSemaphorePermit) -> Seat {
        // A child token for each connection, because each polls its own whenever it is woken.
        let watch = Arc::new(Watch::new(self.unfinished.clone(), self.stopping.child_token()));
        if self.taken.len() == self.taken.capacity() {
            self.taken.retain(|watch| watch.strong_count() > 0);
        }
        self.taken.push(Arc::downgrade(&watch));
        Seat { watch, _permit: permit }
    }

    /// Closes the connection whose client has kept the server waiting the longest, if there is one.
    fn make_room(&mut self) {
        if self.close_one() {
            return;
        }
        let waits = |watch: &Weak<Watch>| Some((watch.upgrade()?.waits_since(PATIENCE)?, watch.clone()));
        let mut idle: Vec<_> = self.taken.iter().filter_map(waits).collect();
        idle.sort_by_key(|(since, _)| *since);
        self.idle = idle.into();
        self.close_one();
    }

    fn close_one(&mut self) -> bool {
        while let Some((since, watch)) = self.idle.pop_front() {
            // It may have received a request since the last look.
            if let Some(watch) = watch.upgrade()
                && watch.waits_since(PATIENCE) == Some(since)
            {
                watch.give_way();
                return true;
            }
        }
        false
    }

    /// Closes the connections whose requests take the longest to arrive, until the rest is within the limit.
    fn shed(&mut self) {
        if !self.unfinished.are_too_many() {
            return;
        }
        let arrives = |watch: &Weak<Watch>| {
            let watch = watch.upgrade()?;
            Some((watch.unfinished_since()?, watch))
        };
        let mut arriving: Vec<_> = self.taken.iter().filter_map(arrives).collect();
        arriving.sort_by_key(|(since, _)| *since);
        let mut closed = 0;
        for (_, watch) in &arriving {
            if !self.unfinished.are_too_many() {
                break;
            }
            watch.give_way();
            closed += 1;
        }
        if self.may_tell() {
            tracing::warn!(
                target: "rounds",
                connections = closed,
                "requests that have not arrived completely exceeded their memory limit, and the slowest connections \
                 were closed: see `Port::with_unfinished_bytes`"
            );
        }
    }

    /// Whether another line may be logged now.
    fn may_tell(&mut self) -> bool {
        let may = self.told.is_none_or(|told| told.elapsed() >= EVERY);
        if may {
            self.told = Some(Instant::now());
        }
        may
    }
}

/// Whether the error is about one connection, and not about the listener.
fn is_about_one(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::ConnectionAborted | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
}
