//! Connecting: the conditions that a Redis must meet before claims are stored in it.

use std::time::{Duration, SystemTime};

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger as _, LedgerError, OwnerLost, PrincipalShare,
        Retention, Spill,
        kit::{Freeing, Shares, until_there},
    },
    register::Register as _,
    time::Timestamp,
};

use crate::{
    address::Address,
    connection::{Away, Connection, Times},
    ledger::{RedisLedger, random},
    tls::RedisTls,
};

/// Configures a [`RedisLedger`]. Made by [`RedisLedger::builder`].
#[derive(Clone)]
pub struct RedisLedgerBuilder {
    place: Place,
    anonymous_bytes: Option<usize>,
    principal_bytes: Option<usize>,
    freeing_bytes: usize,
}

impl RedisLedgerBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self { place: Place::new(url), anonymous_bytes: None, principal_bytes: None, freeing_bytes: Freeing::BYTES }
    }

    /// Sets the prefix of every key, which a colon follows: `rounds` by default. Services that share a Redis need
    /// different prefixes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.place.prefix = prefix.into();
        self
    }

    /// Sets the timeout of one round trip to Redis: one second by default. Round trips of 80 % of it are served.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.place.times.call = timeout;
        self
    }

    /// Sets the timeout of connecting to Redis: five seconds by default. A call that needs a connection waits for it within
    /// its own timeout, and the attempt goes on for the next call. If sentinels have to be asked for the primary, the call
    /// waits for that as well.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.place.times.connect = timeout;
        self
    }

    /// Sets the certificates for a `rediss://` URL.
    pub fn tls(mut self, tls: RedisTls) -> Self {
        self.place.tls = tls;
        self
    }

    /// Sets how long [`connect`](Self::connect) waits for a Redis that cannot be reached: not at all by default. The log
    /// says that it waits, and for what.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.place.wait = wait;
        self
    }

    /// Sets how many bytes the records of all callers without a principal may take together, if the server tells
    /// principals apart. The default is half of Redis's `maxmemory`, or half a gibibyte if `maxmemory` is not set. Each
    /// instance counts only the records that it created: with several instances, divide the limit by their number.
    pub fn anonymous_bytes(mut self, bytes: usize) -> Self {
        self.anonymous_bytes = Some(bytes);
        self
    }

    /// Sets how many bytes the records of one principal may take. The default is a tenth of Redis's `maxmemory`, or a
    /// tenth of a gibibyte if `maxmemory` is not set. Each instance counts only the records that it created: with
    /// several instances, divide the limit by their number.
    pub fn principal_bytes(mut self, bytes: usize) -> Self {
        self.principal_bytes = Some(bytes);
        self
    }

    /// Sets how many bytes the claims may take in this process that wait to be freed, because Redis did not confirm that
    /// they were taken or released: 32 MiB by default, which is enough for tens of thousands. If Redis is away and more
    /// claims have to be freed, their leases have to lapse, and the log says how many.
    pub fn freeing_bytes(mut self, bytes: usize) -> Self {
        self.freeing_bytes = bytes;
        self
    }

    /// Connects, checks that this Redis keeps claims, and takes every step once that a leg may take.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the configuration is wrong, or if Redis cannot be reached, is a replica, a sentinel or a node of
    /// a cluster, does not permit a step, or is configured to evict keys. The token of an evicted claim could be used
    /// again.
    pub async fn connect(self) -> Result<RedisLedger, ConnectError> {
        until_there(self.place.wait, ConnectError::is_away, || self.try_connect()).await
    }

    async fn try_connect(&self) -> Result<RedisLedger, ConnectError> {
        let (_, connection) = self.place.connection()?;
        check_kind(&connection).await?;
        let memory = connection.info("memory").await.map_err(|away| ConnectError::of("INFO", away))?;
        check_eviction(&memory)?;
        let shares = Shares::new(
            self.anonymous_bytes.unwrap_or_else(|| memory_for_claims(&memory) / 2),
            self.principal_bytes.unwrap_or_else(|| memory_for_claims(&memory) / 10),
        );
        let ledger = RedisLedger::on(connection, &self.place.prefix, shares, Freeing::new(self.freeing_bytes));
        rehearse(&ledger).await?;
        Ok(ledger)
    }
}

/// Takes every step that a leg may take, with claims that are removed at the end: a user without the right to take one of
/// them would fail every leg.
async fn rehearse(ledger: &RedisLedger) -> Result<(), ConnectError> {
    let flow = FlowId::from_bytes(random());
    let [first, second] = [1, 2].map(|round| ClaimId { flow, what: ClaimKind::Round(round) });
    let now = Timestamp::from(SystemTime::now());
    let keep = Retention { now, until: now + REHEARSAL, share: PrincipalShare::Common };
    let answers = Digest::from_bytes([0; 32]);
    let request = ClaimRequest { answers, keep, lease: REHEARSAL, orphan: OwnerLost::Free };
    let fence = fresh(ledger.claim(first, request).await)?;
    // With a leg that waits for it.
    drop(ledger.claim(first, request).await.map_err(ConnectError::step("claim"))?);
    ledger.renew(first, fence, now + REHEARSAL).await.map_err(ConnectError::step("renew"))?;
    let spill = Spill { id: second, keep, state: Vec::new() };
    ledger.settle(first, fence, Some(Vec::new()), Some(spill), vec![]).await.map_err(ConnectError::step("settle"))?;
    let fence = fresh(ledger.claim(second, request).await)?;
    ledger.release(second, fence, OwnerLost::Free, true).await.map_err(ConnectError::step("release"))?;
    ledger.sweep(Timestamp::from_millis(0), 1).await.map_err(ConnectError::step("sweep"))?;
    ledger.rehearse_register(flow, now).await?;
    let mut remove = redis::cmd("DEL");
    for id in [first, second] {
        remove.arg(ledger.key(id)).arg(ledger.waiters_key(id));
    }
    let removed = ledger.connection.query::<i64>(remove.arg(ledger.record_key(flow))).await;
    removed.map(drop).map_err(|away| ConnectError::of("DEL", away))
}

/// How long the claims of a rehearsal are kept if it is interrupted.
const REHEARSAL: Duration = Duration::from_secs(10);

fn fresh(claimed: Result<Claimed, LedgerError>) -> Result<Fence, ConnectError> {
    match claimed.map_err(ConnectError::step("claim"))? {
        Claimed::Fresh { fence, .. } => Ok(fence),
        _ => Err(ConnectError::of("claim", Away::Garbage)),
    }
}

impl std::fmt::Debug for RedisLedgerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may contain a password.
        f.debug_struct("RedisLedgerBuilder")
            .field("prefix", &self.place.prefix)
            .field("times", &self.place.times)
            .finish_non_exhaustive()
    }
}

/// Default timeouts.
const TIMES: Times = Times { call: Duration::from_secs(1), connect: Duration::from_secs(5) };

/// A Redis and how it is reached: what the ledger and the relay have in common.
#[derive(Clone)]
pub(crate) struct Place {
    url: String,
    pub(crate) prefix: String,
    pub(crate) times: Times,
    pub(crate) tls: RedisTls,
    pub(crate) wait: Duration,
}

impl Place {
    pub(crate) fn new(url: String) -> Self {
        let (prefix, tls) = ("rounds".to_owned(), RedisTls::default());
        Self { url, prefix, times: TIMES, tls, wait: Duration::ZERO }
    }

    /// Checks the configuration and returns a connection that is opened on first use.
    pub(crate) fn connection(&self) -> Result<(Address, Connection), ConnectError> {
        let Self { url, prefix, times, tls, .. } = self;
        if prefix.contains(['{', '}']) {
            return Err(ConnectError::Prefix { prefix: prefix.clone() });
        }
        if times.call.is_zero() || times.connect.is_zero() {
            return Err(ConnectError::NoTime);
        }
        let address = Address::parse(url, tls).map_err(ConnectError::url)?;
        let connection = Connection::new(address.clone(), *times).map_err(ConnectError::url)?;
        Ok((address, connection))
    }
}

/// Checks that this is the primary of a Redis that is not a cluster.
pub(crate) async fn check_kind(connection: &Connection) -> Result<(), ConnectError> {
    connection.open().await.map_err(|away| ConnectError::of("PING", away))?;
    let told = |away| ConnectError::of("INFO", away);
    let server = connection.info("server").await.map_err(told)?;
    match field(&server, "redis_mode") {
        Some("sentinel") => return Err(ConnectError::Sentinel),
        Some("cluster") => return Err(ConnectError::Cluster),
        _ => {}
    }
    // A hosted Redis may hide its role. It is accepted: it is not a replica that the operator chose by mistake.
    let replication = connection.info("replication").await.map_err(told)?;
    match field(&replication, "role") {
        Some("slave") => Err(ConnectError::Replica),
        _ => Ok(()),
    }
}

/// The value of a field in the reply to `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Reason why a ledger or a relay could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is not a Redis URL.
    #[error(
        "this is not the address of a Redis: write it like redis://127.0.0.1:6379/, or like \
         redis+sentinel://127.0.0.1:26379/mymaster for a primary behind sentinels"
    )]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The prefix contains a brace. A Redis Cluster chooses the node of a key by the part in braces.
    #[error(
        "the prefix `{prefix}` contains a brace, so a Redis Cluster would put all keys on one node: choose a prefix \
         without braces"
    )]
    Prefix {
        /// The prefix.
        prefix: String,
    },
    /// The instance has no name, or its name is too long: the name is part of every token.
    #[error("the name of the instance must have 1 to {longest} bytes: choose another name")]
    Name {
        /// Maximum length in bytes.
        longest: usize,
    },
    /// The timeout is zero.
    #[error("the timeout is zero, so every call to Redis would fail: set a longer one")]
    NoTime,
    /// Redis cannot be reached.
    #[error("Redis cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// This Redis is a replica. A replica rejects claims, or loses them when it synchronises with its primary. A
    /// message that is published on a replica reaches only the subscribers of that replica.
    #[error("this Redis is a replica: connect to its primary")]
    Replica,
    /// This is a sentinel, which keeps no claims.
    #[error(
        "this is a sentinel: write redis+sentinel:// and the name of its primary, as in redis+sentinel://HOST:26379/mymaster"
    )]
    Sentinel,
    /// This is a node of a cluster. The register and the scripts need all keys on one node.
    #[error(
        "this is a node of a Redis Cluster, which is not supported: use a Redis that is not a cluster, with replicas and sentinels"
    )]
    Cluster,
    /// Redis refuses a step that every leg needs.
    #[error("Redis refuses what every call needs ({step}): give its user the rights that the guide on deploying lists")]
    Refused {
        /// The step.
        step: &'static str,
        /// What Redis said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file of a certificate or of a key cannot be read.
    #[error("cannot read {file}")]
    Certificate {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Redis is configured to evict keys when its memory is full.
    #[error(
        "Redis is set to evict keys when its memory is full (maxmemory-policy {policy}), and the \
         token of an evicted claim could be used again: set maxmemory-policy to noeviction"
    )]
    Evicts {
        /// The configured `maxmemory-policy`.
        policy: String,
    },
}

impl ConnectError {
    pub(crate) fn url(error: redis::RedisError) -> Self {
        Self::Url(Box::new(error))
    }

    /// The reason for which a step was not taken.
    pub(crate) fn of(step: &'static str, away: Away) -> Self {
        match away.is_refusal() && !away.is_away() {
            true => Self::Refused { step, source: Box::new(away) },
            false => Self::Unreachable(Box::new(away)),
        }
    }

    pub(crate) fn step(step: &'static str) -> impl FnOnce(LedgerError) -> Self {
        move |error| match error {
            LedgerError::Unavailable(source) => match source.downcast() {
                Ok(away) => Self::of(step, *away),
                Err(source) => Self::Unreachable(source),
            },
            other => Self::Refused { step, source: Box::new(other) },
        }
    }

    /// Whether Redis cannot be reached, and may be reached later.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Unreachable(source) => source.downcast_ref().is_some_and(Away::is_away),
            _ => false,
        }
    }
}

/// Reads `INFO`, because hosted services often forbid `CONFIG`. A `maxmemory` of zero means no limit, and then Redis
/// evicts nothing.
fn check_eviction(memory: &str) -> Result<(), ConnectError> {
    let limited = field(memory, "maxmemory").is_none_or(|bytes| bytes != "0");
    match field(memory, "maxmemory_policy") {
        Some("noeviction") => Ok(()),
        Some(policy) if limited => Err(ConnectError::Evicts { policy: policy.to_owned() }),
        Some(policy) => {
            tracing::warn!(
                target: "rounds",
                policy,
                "Redis has no memory limit now, but would evict claims if it had one: set maxmemory-policy to \
                 noeviction"
            );
            Ok(())
        }
        None => {
            tracing::warn!(target: "rounds",
                "Redis does not report its maxmemory-policy: make sure that it is noeviction, because the token of an \
                 evicted claim could be used again");
            Ok(())
        }
    }
}

/// The memory limit of this Redis in bytes; if it has or reports none, one gibibyte.
fn memory_for_claims(memory: &str) -> usize {
    let limit = field(memory, "maxmemory").and_then(|bytes| bytes.parse().ok());
    limit.filter(|bytes| *bytes > 0).unwrap_or(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_redis_that_forgets_nothing_is_trusted() {
        let says = |text: &str| check_eviction(text).map_err(|error| error.to_string());
        assert_eq!(says("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n"), Ok(()));
        assert_eq!(says("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), Ok(()));
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru", "something-new"] {
            let said = says(&format!("maxmemory:100\r\nmaxmemory_policy:{policy}\r\n")).unwrap_err();
            assert!(said.contains(policy) && said.contains("noeviction"), "{said}");
        }
        assert!(says("maxmemory_policy:allkeys-lru\r\n").is_err(), "a policy without a known limit is rejected");
    }

    #[test]
    fn shares_are_parts_of_what_redis_has() {
        assert_eq!(memory_for_claims("maxmemory:5000\r\n"), 5000);
        for unlimited in ["maxmemory:0\r\n", "maxmemory:all of it\r\n", ""] {
            assert_eq!(memory_for_claims(unlimited), 1 << 30, "{unlimited}");
        }
    }
}
