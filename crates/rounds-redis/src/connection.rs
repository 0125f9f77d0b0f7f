//! The connection: every call ends with a reply or an error in bounded time, and a lost connection is opened again.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{
    Client, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig, PubSub},
};
use rounds::ledger::LedgerError;

use crate::{address::Address, connect::field};

pub(crate) struct Connection {
    address: Address,
    current: Mutex<Current>,
    /// Held while sentinels are asked for the primary, so that they are asked once.
    looking: tokio::sync::Mutex<()>,
    times: Times,
}

/// How long Redis may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// For a call.
    pub(crate) call: Duration,
    /// For connecting. It goes on while the calls that wait for it give up, so it may be longer.
    pub(crate) connect: Duration,
}

struct Current {
    /// None if sentinels have to be asked where the primary is.
    manager: Option<ConnectionManager>,
    /// Number of managers before this one.
    number: u64,
    /// Whether Redis has answered on it.
    has_answered: Arc<AtomicBool>,
}

/// A manager for one call.
struct Lent {
    manager: ConnectionManager,
    number: u64,
    has_answered: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) fn new(address: Address, times: Times) -> Result<Self, RedisError> {
        let manager = match &address {
            Address::At(client) => Some(manager(client, times)?),
            Address::Sentinels(_) => None,
        };
        let current = Mutex::new(Current { manager, number: 0, has_answered: Arc::default() });
        Ok(Self { address, current, looking: tokio::sync::Mutex::default(), times })
    }

    /// Calls a script. If the connection breaks during the call, calls `again` once. The first call may have run, so
    /// every script that changes something must recognise its own repetition.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        again: &ScriptInvocation<'_>,
    ) -> Result<T, Away> {
        self.run(async |manager| match call.invoke_async(manager).await {
            Err(error) if is_broken(&error) => again.invoke_async(manager).await,
            outcome => outcome,
        })
        .await
    }

    /// Publishes a message, and returns how many subscribers received it. If the connection breaks, publishes it once
    /// more and sets `broken`: the subscribers may have lost their connections as well.
    pub(crate) async fn publish(&self, channel: &str, message: &[u8]) -> Result<Published, Away> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(message);
        self.run(async |manager| match publish.query_async(manager).await {
            Err(error) if is_broken(&error) => {
                Ok(Published { heard: publish.query_async(manager).await?, broken: true })
            }
            heard => Ok(Published { heard: heard?, broken: false }),
        })
        .await
    }

    /// A connection of its own that has subscribed to a channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<PubSub, Away> {
        subscribe(&self.address, channel, self.times.connect).await
    }

    /// Number of subscribers of a channel.
    pub(crate) async fn listeners(&self, channel: &str) -> Result<u64, Away> {
        let (_, listeners): (String, u64) = self.query(redis::cmd("PUBSUB").arg("NUMSUB").arg(channel)).await?;
        Ok(listeners)
    }

    /// Returns one page of the keys that match a pattern, and the cursor of the next page.
    pub(crate) async fn scan(&self, cursor: u64, pattern: &str) -> Result<(u64, Vec<String>), Away> {
        self.query(redis::cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000)).await
    }

    /// Returns a section of the reply to `INFO`.
    pub(crate) async fn info(&self, section: &str) -> Result<String, Away> {
        self.query(redis::cmd("INFO").arg(section)).await
    }

    /// Whether the server is a primary. A replica accepts messages too, but delivers them only to its own subscribers.
    pub(crate) async fn is_primary(&self) -> Result<bool, Away> {
        let replication = self.info("replication").await?;
        Ok(field(&replication, "role") == Some("master"))
    }

    /// Sends a command.
    pub(crate) async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Away> {
        self.run(async |manager| command.query_async(manager).await).await
    }

    /// Opens a new connection for the next call.
    pub(crate) fn renew(&self) {
        let number = self.lock().number;
        self.replace(number);
    }

    /// Runs work within the timeout of a call. Asking sentinels for the primary comes before that.
    async fn run<T>(&self, work: impl AsyncFnOnce(&mut ConnectionManager) -> Result<T, RedisError>) -> Result<T, Away> {
        let Lent { mut manager, number, has_answered } = self.lend().await?;
        let outcome = match tokio::time::timeout(self.times.call, work(&mut manager)).await {
            Ok(outcome) => outcome.map_err(Away::Failed),
            Err(_) => Err(Away::Silent { after: self.times.call }),
        };
        match &outcome {
            Ok(_) => has_answered.store(true, Ordering::Relaxed),
            // It may still be connecting, which takes longer than a call: another attempt would begin that again.
            Err(Away::Silent { .. }) if !has_answered.load(Ordering::Relaxed) && !self.has_sentinels() => {}
            Err(away) if away.is_for_good() || (self.has_sentinels() && away.is_away()) => self.replace(number),
            Err(_) => {}
        }
        outcome
    }

    async fn lend(&self) -> Result<Lent, Away> {
        if let Some(lent) = self.lock().lend() {
            return Ok(lent);
        }
        let _looking = self.looking.lock().await;
        if let Some(lent) = self.lock().lend() {
            return Ok(lent);
        }
        let primary = self.address.client(self.times.connect).await?;
        let manager = manager(&primary, self.times)?;
        let mut current = self.lock();
        current.has_answered = Arc::default();
        let (number, has_answered) = (current.number, current.has_answered.clone());
        current.manager = Some(manager.clone());
        Ok(Lent { manager, number, has_answered })
    }

    /// Replaces a connection that may never work again. The new one resolves the host name again, or asks sentinels.
    fn replace(&self, number: u64) {
        let mut current = self.lock();
        if current.number != number {
            return;
        }
        let manager = match &self.address {
            // The connection is opened on first use, so this fails only for a reason for which the first manager would
            // have failed.
            Address::At(client) => match manager(client, self.times) {
                Ok(manager) => Some(manager),
                Err(_) => return,
            },
            Address::Sentinels(_) => None,
        };
        *current = Current { manager, number: number + 1, has_answered: Arc::default() };
    }

    fn has_sentinels(&self) -> bool {
        matches!(self.address, Address::Sentinels(_))
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn lend(&self) -> Option<Lent> {
        let manager = self.manager.clone()?;
        Some(Lent { manager, number: self.number, has_answered: self.has_answered.clone() })
    }
}

/// A connection that has subscribed to a channel of the Redis that is the primary now.
pub(crate) async fn subscribe(address: &Address, channel: &str, within: Duration) -> Result<PubSub, Away> {
    let subscribing = async {
        let mut subscription = address.client(within).await?.get_async_pubsub().await?;
        subscription.subscribe(channel).await?;
        Ok(subscription)
    };
    let subscribed = tokio::time::timeout(within, subscribing).await;
    subscribed.map_err(|_| Away::Silent { after: within })?.map_err(Away::Failed)
}

/// Outcome of publishing a message.
pub(crate) struct Published {
    pub(crate) heard: u64,
    pub(crate) broken: bool,
}

fn manager(client: &Client, times: Times) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(times.connect))
        // `Connection::run` applies the timeout.
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

    /// Whether Redis cannot be reached, or is still loading its data: the same call may succeed later.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Failed(error) => {
                let kind = error.kind();
                let is_loading =
                    matches!(kind, ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown));
                is_loading || is_broken(error)
            }
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
