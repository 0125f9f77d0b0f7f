//! The line of this instance: a connection that listens, and that holds the lock by which other instances know that this
//! one is there. It is restored however often it is lost.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rounds::relay::Inbox;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::{Instant, sleep, timeout};

/// First and longest pause between two attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Everything that connecting needs.
pub(super) struct Line {
    options: PgConnectOptions,
    /// The key of the advisory lock, from which the name of the channel is made.
    lock: i64,
    timeout: Duration,
}

impl Line {
    pub(super) fn new(options: PgConnectOptions, lock: i64, timeout: Duration) -> Self {
        Self { options, lock, timeout }
    }

    /// Connects, takes the lock and listens.
    pub(super) async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        // A pool for one connection, which is never given back: a lost one must not count against the next.
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(self.timeout);
        let mut listener = PgListener::connect_with(&pool.connect_lazy_with(self.options.clone())).await?;
        listener.eager_reconnect(false);
        while !self.take_lock(&mut listener).await? {
            sleep(Duration::from_millis(10)).await;
        }
        listener.listen(&format!("rounds_{:x}", self.lock)).await?;
        Ok(listener)
    }

    /// Takes the lock, unless another session holds it: a sender for a moment, or the session that this one replaces,
    /// which Postgres may not know to be lost and which is ended here.
    async fn take_lock(&self, listener: &mut PgListener) -> Result<bool, sqlx::Error> {
        let taken: bool =
            sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(self.lock).fetch_one(&mut *listener).await?;
        if !taken {
            let end = sqlx::query(
                "SELECT pg_terminate_backend(pid) FROM pg_locks
                 WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objsubid = 1
                   AND ((classid::bigint << 32) | objid::bigint) = $1 AND pid <> pg_backend_pid()",
            );
            end.bind(self.lock).execute(listener).await?;
        }
        Ok(taken)
    }

    /// Delivers the messages for this instance, and connects again whenever the connection is lost.
    pub(super) async fn listen(self, mut listener: PgListener, inbox: Inbox, standing: Standing) {
        loop {
            let lost = self.deliver(&mut listener, &inbox).await;
            standing.lost();
            tracing::warn!(
                target: "rounds", error = &lost as &dyn std::error::Error,
                "the line to Postgres is lost: legs from other instances do not arrive until it is restored"
            );
            listener = self.again().await;
            standing.regained();
            tracing::warn!(target: "rounds", "the line to Postgres is restored");
        }
    }

    /// Returns when the connection is lost, or when Postgres does not answer.
    async fn deliver(&self, listener: &mut PgListener, inbox: &Inbox) -> sqlx::Error {
        loop {
            // Messages may have been left before this session listened. It also tells whether Postgres still answers.
            let messages = sqlx::query_scalar::<_, Vec<u8>>("SELECT rounds_take_messages($1)").bind(self.lock);
            match timeout(self.timeout, messages.fetch_all(&mut *listener)).await {
                Ok(Ok(messages)) => messages.iter().for_each(|message| inbox.deliver(message)),
                Ok(Err(error)) => return error,
                Err(_) => return sqlx::Error::PoolTimedOut,
            }
            if listener.next_buffered().is_some() {
                continue;
            }
            match timeout(self.timeout / 2, listener.try_recv()).await {
                // Notifications for the messages that are taken next.
                Ok(Ok(Some(_))) => while listener.next_buffered().is_some() {},
                Ok(Ok(None)) => return sqlx::Error::WorkerCrashed,
                Ok(Err(error)) => return error,
                Err(_) => {}
            }
        }
    }

    async fn again(&self) -> PgListener {
        let (mut pause, longest) = PAUSES;
        loop {
            if let Ok(Ok(listener)) = timeout(self.timeout, self.connect()).await {
                return listener;
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

/// Whether this instance can tell which instances are connected.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// When the instances that lost Postgres together with this one are connected again; none while this one is not.
    steady_from: Arc<Mutex<Option<Instant>>>,
    settling: Duration,
}

impl Standing {
    /// The time to notice a loss, plus a few attempts to connect.
    pub(super) fn new(timeout: Duration) -> Self {
        let settling = timeout.saturating_mul(3).saturating_add(PAUSES.1);
        Self { steady_from: Arc::new(Mutex::new(Some(Instant::now()))), settling }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.steady_from().is_some_and(|from| from <= Instant::now())
    }

    /// Whether this instance is connected, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.steady_from().is_some()
    }

    fn lost(&self) {
        *self.steady_from() = None;
    }

    fn regained(&self) {
        *self.steady_from() = Some(Instant::now() + self.settling);
    }

    fn steady_from(&self) -> MutexGuard<'_, Option<Instant>> {
        self.steady_from.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
