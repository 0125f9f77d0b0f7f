//! The relay: carries messages between the instances of a fleet.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rounds::{
    relay::{Inbox, Relay, RelayError},
    time::BoxFuture,
};
use sqlx::{postgres::PgListener, query_as};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    connect,
    connections::Connections,
    line::{Line, Standing},
};
use crate::{
    claims::random,
    error::{OpenError, StoreError},
};

/// Pause before a message without a receiver is sent again: an instance that has just lost its connection has
/// reconnected by then.
const MOMENT: Duration = Duration::from_millis(250);

/// Maximum length of an instance's name in bytes.
const LONGEST: usize = 64;

/// Carries legs to the instance where their handler waits, over Postgres.
///
/// A message is a row of a table, which its receiver removes when it reads it, and a notification. Each instance has a
/// dedicated connection that listens, and that holds an advisory lock for as long as it is open: from the lock, a sender
/// knows at once whether the instance is still connected. The server seals the messages: see [`Relay`].
///
/// Connections must be real sessions. A pooler in transaction mode between an instance and Postgres breaks the relay.
///
/// # When Postgres is away
///
/// Each call ends within [the timeout](PostgresRelayBuilder::timeout), or within a few times that. If it fails, the leg
/// ends with a retryable error. This instance connects again by itself. For three times the timeout and half a second
/// after that, it does not treat an unreachable instance as gone, because that instance may be reconnecting as well. Give
/// all instances the same timeout.
///
/// The connection is closed when the relay is dropped, together with the server that owns it.
pub struct PostgresRelay {
    connections: Connections,
    here: String,
    lock: i64,
    standing: Standing,
    listening: Mutex<Listening>,
}

enum Listening {
    /// No server has opened the relay yet.
    NotYet(Box<(PgListener, Line, Handle)>),
    Since(AbortHandle),
    /// Only within [`Relay::open`].
    Between,
}

impl PostgresRelay {
    /// Connects with every default. The name identifies this instance in logs; a random suffix makes it unique for this
    /// run.
    ///
    /// # Errors
    ///
    /// [`OpenError`], as for [`PostgresRelayBuilder::connect`].
    pub async fn connect(url: &str, name: &str) -> Result<Self, OpenError> {
        Self::builder(url, name).connect().await
    }

    /// Returns a builder, to connect with a configuration.
    pub fn builder(url: impl Into<String>, name: impl Into<String>) -> PostgresRelayBuilder {
        PostgresRelayBuilder { url: url.into(), name: name.into(), timeout: Duration::from_secs(1) }
    }

    async fn send(&self, to: &str, message: &[u8]) -> Result<bool, StoreError> {
        // A name that no relay of this kind has given out.
        let Some(lock) = lock_of(to) else { return Ok(false) };
        let mut posted = self.post_to(lock, message).await?;
        if !posted.sent && !posted.broken {
            sleep(MOMENT).await;
            posted = self.post_to(lock, message).await?;
        }
        match posted {
            Posted { sent: true, .. } => Ok(true),
            // Checked last, so that a loss during the call counts.
            Posted { settled: true, broken: false, .. } if self.standing.is_steady() => Ok(false),
            _ => Err(StoreError::Unsettled),
        }
    }

    async fn post_to(&self, lock: i64, message: &[u8]) -> Result<Posted, StoreError> {
        let broken = AtomicBool::new(false);
        let call = |again| {
            broken.store(again, Ordering::Relaxed);
            let post = query_as("SELECT sent, settled FROM rounds_post($1, $2, $3)");
            post.bind(lock).bind(self.lock).bind(message.to_vec())
        };
        let (sent, settled) = self.connections.call(call).await?;
        Ok(Posted { sent, settled, broken: broken.into_inner() })
    }
}

/// Outcome of sending a message.
struct Posted {
    sent: bool,
    /// Whether Postgres knows this instance to be connected.
    settled: bool,
    /// Whether the connection broke, so that other instances may have lost theirs as well.
    broken: bool,
}

impl Relay for PostgresRelay {
    fn here(&self) -> &str {
        &self.here
    }

    fn post(&self, to: &str, message: Vec<u8>) -> BoxFuture<'_, Result<bool, RelayError>> {
        let to = to.to_owned();
        Box::pin(async move { self.send(&to, &message).await.map_err(RelayError::new) })
    }

    fn hears(&self) -> bool {
        self.standing.is_connected()
    }

    fn listen(&self, inbox: Inbox) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        *listening = match std::mem::replace(&mut *listening, Listening::Between) {
            Listening::NotYet(parts) => {
                let (listener, line, runtime) = *parts;
                Listening::Since(runtime.spawn(line.listen(listener, inbox, self.standing.clone())).abort_handle())
            }
            // A second server must not receive the messages of the first.
            already => already,
        };
    }
}

impl Drop for PostgresRelay {
    fn drop(&mut self) {
        if let Listening::Since(task) = &*self.listening.lock().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl fmt::Debug for PostgresRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresRelay").field("here", &self.here).finish_non_exhaustive()
    }
}

/// Configures a [`PostgresRelay`]. Made by [`PostgresRelay::builder`].
#[derive(Clone)]
pub struct PostgresRelayBuilder {
    url: String,
    name: String,
    timeout: Duration,
}

impl PostgresRelayBuilder {
    /// Sets the timeout of one call to Postgres, including a reconnection: one second by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects and listens. From then on, other instances can reach this one.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the configuration is wrong, or if Postgres cannot be used, as for
    /// [`PostgresLedgerBuilder::connect`](crate::PostgresLedgerBuilder::connect).
    pub async fn connect(self) -> Result<PostgresRelay, OpenError> {
        let Self { url, name, timeout: time } = self;
        if name.is_empty() || name.len() > LONGEST {
            return Err(OpenError::Name { longest: LONGEST });
        }
        let connections = connect::connections(&url, time).await?;
        let lock = i64::from_be_bytes(random());
        let here = unique(&name, lock);
        // So that an operator sees which instances are connected.
        let line = Line::new(connections.options().application_name(&format!("rounds {here}")), lock, time);
        let listener = timeout(time, line.connect()).await.map_err(|_| StoreError::Silent { after: time })??;
        let listening = Mutex::new(Listening::NotYet(Box::new((listener, line, Handle::current()))));
        Ok(PostgresRelay { connections, here, lock, standing: Standing::new(time), listening })
    }
}

impl fmt::Debug for PostgresRelayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("PostgresRelayBuilder")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Makes the name unique for this run. A restarted instance has none of the handlers that waited before, so it must have
/// another name. The suffix is the key of its advisory lock.
fn unique(name: &str, lock: i64) -> String {
    format!("{name}-{lock:016x}")
}

fn lock_of(instance: &str) -> Option<i64> {
    let (_, suffix) = instance.rsplit_once('-')?;
    let is_key = suffix.len() == 16 && suffix.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(suffix, 16).ok().filter(|_| is_key).map(u64::cast_signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_instance_tells_its_lock() {
        for lock in [0, 1, -1, i64::MIN, i64::MAX] {
            assert_eq!(lock_of(&unique("weather-1", lock)), Some(lock));
        }
        for other in ["", "weather", "weather-1", "weather-+000000000000001", "weather-00000000000000zz"] {
            assert_eq!(lock_of(other), None, "{other}");
        }
    }
}
