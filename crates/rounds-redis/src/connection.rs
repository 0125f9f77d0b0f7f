//! The connection: every call ends with a reply or an error in bounded time, and a lost connection is opened again.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{
    Client, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig, PubSub},
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
    /// Number of managers that this one replaced.
    number: u64,
}

impl Connection {
    pub(crate) fn new(client: Client, timeout: Duration) -> Result<Self, RedisError> {
        let current = Current { manager: manager(&client, timeout)?, number: 0 };
        Ok(Self { client, current: Mutex::new(current), timeout })
    }

    /// Calls a script. If the connection breaks during the call, calls `again` once. The first call may have run, so
    /// every script that changes something must recognise its own repetition.
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

    /// Publishes a message, and returns how many subscribers received it. If the connection breaks, publishes it once
    /// more and sets `broken`: the subscribers may have lost their connections as well.
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

    /// A connection of its own that has subscribed to a channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<PubSub, Away> {
        let subscribing = async {
            let mut subscription = self.client.get_async_pubsub().await?;
            subscription.subscribe(channel).await?;
            Ok(subscription)
        };
        let (_, number) = self.current();
        self.bounded(number, subscribing).await
    }

    /// Number of subscribers of a channel.
    pub(crate) async fn listeners(&self, channel: &str) -> Result<u64, Away> {
        let (mut manager, number) = self.current();
        let mut count = redis::cmd("PUBSUB");
        count.arg("NUMSUB").arg(channel);
        let (_, listeners): (String, u64) = self.bounded(number, count.query_async(&mut manager)).await?;
        Ok(listeners)
    }

    /// Returns one page of the keys that match a pattern, and the cursor of the next page.
    pub(crate) async fn scan(&self, cursor: u64, pattern: &str) -> Result<(u64, Vec<String>), Away> {
        let (mut manager, number) = self.current();
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
        self.bounded(number, scan.query_async(&mut manager)).await
    }

    /// Returns a section of the reply to `INFO`.
    pub(crate) async fn info(&self, section: &str) -> Result<String, Away> {
        let (mut manager, number) = self.current();
        let mut info = redis::cmd("INFO");
        self.bounded(number, info.arg(section).query_async(&mut manager)).await
    }

    /// Whether the server is a primary. A replica accepts messages too, but delivers them only to its own subscribers.
    pub(crate) async fn is_primary(&self) -> Result<bool, Away> {
        let replication = self.info("replication").await?;
        Ok(field(&replication, "role") == Some("master"))
    }

    /// Opens a new connection for the next call.
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

    /// Replaces a connection that may never work again. The new one resolves the host name again.
    fn replace(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number != number {
            return;
        }
        // The connection is opened on first use, so this fails only for a reason for which the first manager would have
        // failed.
        if let Ok(manager) = manager(&self.client, self.timeout) {
            *current = Current { manager, number: number + 1 };
        }
    }
}

/// Outcome of publishing a message.
pub(crate) struct Published {
    pub(crate) heard: u64,
    pub(crate) broken: bool,
}

fn manager(client: &Client, timeout: Duration) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(timeout))
        // `Connection::bounded` applies the timeout.
        .set_response_timeout(None)
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(100));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal()
}

/// Reason why a call to Redis failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Away {
    #[error("Redis did not answer within {after:?}")]
    Silent { after: Duration },
    #[error("Redis returned an error, or the connection to it broke")]
    Failed(#[from] RedisError),
    #[error("Redis sent a reply of an unexpected form")]
    Garbage,
    #[error("the connection to Redis has just been restored, and it is not known yet which instances are connected")]
    Unsettled,
}

impl Away {
    /// Whether the same connection may never work again: the peer is gone, is no longer the primary, has lost its
    /// replicas, or rejected the handshake. The manager reconnects by itself only after a connection broke. It keeps
    /// returning the error of a rejected password or database.
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

    /// Whether Redis answered that it does not support or permit the command.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension))
    }
}

impl From<Away> for LedgerError {
    fn from(away: Away) -> Self {
        Self::Unavailable(Box::new(away))
    }
}
