//! The connection: every call ends with a reply or an error in bounded time, and a lost connection is opened again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisFuture, ScriptInvocation, ServerErrorKind,
    Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig, PubSub},
};
use rounds::ledger::LedgerError;
use tokio::time::{Instant, error::Elapsed, timeout};

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
    connecting: Arc<Connecting>,
}

/// A manager for one call.
struct Lent {
    manager: ConnectionManager,
    number: u64,
    connecting: Arc<Connecting>,
}

/// When a manager began to connect, until Redis answers.
struct Connecting(Mutex<Option<Instant>>);

impl Connecting {
    fn begins(&self) {
        *self.lock() = Some(Instant::now());
    }

    fn ends(&self) {
        *self.lock() = None;
    }

    /// Whether it may still be connecting.
    fn goes_on(&self, within: Duration) -> bool {
        self.lock().is_some_and(|began| began.elapsed() < within)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    pub(crate) fn new(address: Address, times: Times) -> Result<Self, RedisError> {
        let manager = match &address {
            Address::At(client) => Some(manager(client, times)?),
            Address::Sentinels(_) => None,
        };
        let current = Mutex::new(Current::new(manager, 0));
        Ok(Self { address, current, looking: tokio::sync::Mutex::default(), times })
    }

    /// Calls a script. If the connection breaks during the call, calls `again` once. The first call may have run, so
    /// every script that changes something must recognise its own repetition.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        again: &ScriptInvocation<'_>,
    ) -> Result<T, Away> {
        self.run(async |line| match call.invoke_async(line).await {
            Err(error) if is_broken(&error) => again.invoke_async(line).await,
            outcome => outcome,
        })
        .await
    }

    /// Publishes a message, and returns how many subscribers received it. If the connection breaks, publishes it once
    /// more and sets `broken`: the subscribers may have lost their connections as well.
    pub(crate) async fn publish(&self, channel: &str, message: &[u8]) -> Result<Published, Away> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(message);
        self.run(async |line| match publish.query_async(line).await {
            Err(error) if is_broken(&error) => Ok(Published { heard: publish.query_async(line).await?, broken: true }),
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
        self.run(async |line| command.query_async(line).await).await
    }

    /// Opens a new connection for the next call.
    pub(crate) fn renew(&self) {
        let number = self.lock().number;
        self.replace(number);
    }

    /// Runs work, each round trip of which has the timeout of a call. Asking sentinels for the primary comes before that.
    async fn run<T>(&self, work: impl AsyncFnOnce(&mut Timed) -> Result<T, RedisError>) -> Result<T, Away> {
        let Lent { manager, number, connecting } = self.lend().await?;
        let mut timed = Timed { manager, timeout: self.times.call, is_silent: false, connecting };
        let outcome = match work(&mut timed).await {
            Err(_) if timed.is_silent => Err(Away::Silent { after: self.times.call }),
            outcome => outcome.map_err(Away::Failed),
        };
        if let Err(away) = &outcome {
            let is_lost = away.is_for_good() || (self.has_sentinels() && away.is_away());
            // Connecting takes longer than a call. Another attempt would begin it again, and if a round trip takes most of
            // the timeout, no attempt would ever end.
            let waits = timed.is_silent && timed.connecting.goes_on(self.times.connect);
            if is_lost && !waits {
                self.replace(number);
            }
        }
        outcome
    }

    /// Connects, which may take longer than a call.
    pub(crate) async fn open(&self) -> Result<(), Away> {
        let Lent { manager, connecting, .. } = self.lend().await?;
        let limit = self.times.connect.saturating_add(self.times.call);
        let mut timed = Timed { manager, timeout: limit, is_silent: false, connecting };
        match redis::cmd("PING").exec_async(&mut timed).await {
            Err(_) if timed.is_silent => Err(Away::Silent { after: limit }),
            outcome => outcome.map_err(Away::Failed),
        }
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
        *current = Current::new(Some(manager), current.number);
        current.lend().ok_or(Away::Garbage)
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
        *current = Current::new(manager, number + 1);
    }

    fn has_sentinels(&self) -> bool {
        matches!(self.address, Address::Sentinels(_))
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn new(manager: Option<ConnectionManager>, number: u64) -> Self {
        Self { manager, number, connecting: Arc::new(Connecting(Mutex::new(Some(Instant::now())))) }
    }

    fn lend(&self) -> Option<Lent> {
        let manager = self.manager.clone()?;
        Some(Lent { manager, number: self.number, connecting: self.connecting.clone() })
    }
}

/// A connection on which each round trip has the timeout of a call. A script that Redis does not know takes three.
struct Timed {
    manager: ConnectionManager,
    timeout: Duration,
    /// Whether a round trip took longer.
    is_silent: bool,
    connecting: Arc<Connecting>,
}

impl Timed {
    fn ended<T>(&mut self, trip: Result<Result<T, RedisError>, Elapsed>) -> Result<T, RedisError> {
        match trip {
            Ok(outcome) => {
                match &outcome {
                    // The manager connects again by itself.
                    Err(error) if is_broken(error) || error.is_timeout() => self.connecting.begins(),
                    _ => self.connecting.ends(),
                }
                outcome
            }
            Err(_) => {
                self.is_silent = true;
                Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
            }
        }
    }
}

impl ConnectionLike for Timed {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let trip = timeout(self.timeout, self.manager.send_packed_command(command)).await;
            self.ended(trip)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let trip = timeout(self.timeout, self.manager.send_packed_commands(commands, offset, count)).await;
            self.ended(trip)
        })
    }

    fn get_db(&self) -> i64 {
        self.manager.get_db()
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

/// Whether the connection broke. A round trip that took too long does not tell.
fn is_broken(error: &RedisError) -> bool {
    !error.is_timeout() && (error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal())
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
                is_loading || is_broken(error) || error.is_timeout()
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
