//! The connection: every call has an answer or an error in bounded time, and a connection that is lost comes back by itself.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{
    Client, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use rounds::ledger::LedgerError;

use crate::connect::field;

pub(crate) struct Connection {
    client: Client,
    current: Mutex<Current>,
    timeout: Duration,
}

struct Current {
    manager: ConnectionManager,
    /// How many there were before it.
    number: u64,
}

impl Connection {
    pub(crate) fn new(client: Client, timeout: Duration) -> Result<Self, RedisError> {
        let current = Current { manager: manager(&client, timeout)?, number: 0 };
        Ok(Self { client, current: Mutex::new(current), timeout })
    }

    /// Calls a script. One that did not get through a broken connection is called once more, as `again` has it: every script
    /// that changes something has to know itself again.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        again: &ScriptInvocation<'_>,
    ) -> Result<T, Away> {
        let (mut manager, number) = self.current();
        let calls = async {
            match call.invoke_async(&mut manager).await {
                Err(error) if is_broken(&error) => again.invoke_async(&mut manager).await,
                outcome => outcome,
            }
        };
        self.bounded(number, calls).await
    }

    /// Publishes a message, and gives how many heard it. One that did not get through a broken connection is sent once more: then
    /// those who would hear it may have lost theirs as well, and `broken` is true.
    pub(crate) async fn publish(&self, channel: &str, message: &[u8]) -> Result<Published, Away> {
        let (mut manager, number) = self.current();
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(message);
        let sending = async {
            match publish.query_async(&mut manager).await {
                Err(error) if is_broken(&error) => {
                    Ok(Published { heard: publish.query_async(&mut manager).await?, broken: true })
                }
                heard => Ok(Published { heard: heard?, broken: false }),
            }
        };
        self.bounded(number, sending).await
    }

    /// How many listen to a channel.
    pub(crate) async fn listeners(&self, channel: &str) -> Result<u64, Away> {
        let (mut manager, number) = self.current();
        let mut count = redis::cmd("PUBSUB");
        count.arg("NUMSUB").arg(channel);
        let (_, listeners): (String, u64) = self.bounded(number, count.query_async(&mut manager)).await?;
        Ok(listeners)
    }

    /// Looks at a part of all names.
    pub(crate) async fn scan(&self, cursor: u64, pattern: &str) -> Result<(u64, Vec<String>), Away> {
        let (mut manager, number) = self.current();
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
        self.bounded(number, scan.query_async(&mut manager)).await
    }

    /// Asks the server about itself.
    pub(crate) async fn info(&self, section: &str) -> Result<String, Away> {
        let (mut manager, number) = self.current();
        let mut info = redis::cmd("INFO");
        self.bounded(number, info.arg(section).query_async(&mut manager)).await
    }

    /// Whether it leads to a primary. A replica takes messages as well, and only those who listen to it hear them.
    pub(crate) async fn is_primary(&self) -> Result<bool, Away> {
        let replication = self.info("replication").await?;
        Ok(field(&replication, "role") == Some("master"))
    }

    /// Connects anew for the next call.
    pub(crate) fn renew(&self) {
        let (_, number) = self.current();
        self.replace(number);
    }

    async fn bounded<T>(&self, number: u64, work: impl Future<Output = Result<T, RedisError>>) -> Result<T, Away> {
        let outcome = match tokio::time::timeout(self.timeout, work).await {
            Ok(outcome) => outcome.map_err(Away::Failed),
            Err(_) => Err(Away::Silent { after: self.timeout }),
        };
        outcome.inspect_err(|away| {
            if away.is_for_good() {
                self.replace(number);
            }
        })
    }

    fn current(&self) -> (ConnectionManager, u64) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        (current.manager.clone(), current.number)
    }

    /// Does without a connection that may never be of use again. The name is looked up anew for the next.
    fn replace(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number != number {
            return;
        }
        // It is made when it is needed, so that this can fail only for what the first one would have failed for.
        if let Ok(manager) = manager(&self.client, self.timeout) {
            *current = Current { manager, number: number + 1 };
        }
    }
}

/// What became of a message that was published.
pub(crate) struct Published {
    pub(crate) heard: u64,
    pub(crate) broken: bool,
}

fn manager(client: &Client, timeout: Duration) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(timeout))
        // `Connection::call` has the one timeout that there is.
        .set_response_timeout(None)
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(100));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal()
}

/// Why nothing came of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Away {
    #[error("Redis did not answer within {after:?}")]
    Silent { after: Duration },
    #[error("Redis failed")]
    Failed(#[from] RedisError),
    #[error("Redis answered something else than was asked for")]
    Garbage,
    #[error("Redis has just come back, and who is there is not known yet")]
    Unsettled,
}

impl Away {
    /// Whether it may stay like this on the same connection: nobody at the other end knows of it any more, or whoever is there is not the
    /// primary any more, or has lost its replicas to the one that is, or has not taken the greeting. The manager tries again by itself
    /// only where a connection broke; that a password or a database was refused it says for ever.
    fn is_for_good(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Failed(error) => match error.kind() {
                ErrorKind::AuthenticationFailed
                | ErrorKind::Client
                | ErrorKind::InvalidClientConfig
                | ErrorKind::Parse
                | ErrorKind::RESP3NotSupported => true,
                ErrorKind::Server(kind) => matches!(
                    kind,
                    ServerErrorKind::ReadOnly
                        | ServerErrorKind::MasterDown
                        | ServerErrorKind::ClusterDown
                        | ServerErrorKind::ResponseError
                ),
                _ => matches!(error.code(), Some("NOREPLICAS" | "WRONGPASS" | "NOAUTH")),
            },
            Self::Garbage | Self::Unsettled => false,
        }
    }

    /// Whether Redis has answered, and that it does not do this.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
    }
}

impl From<Away> for LedgerError {
    fn from(away: Away) -> Self {
        Self::Unavailable(Box::new(away))
    }
}
