//! Connecting: what has to hold of a Redis before claims are trusted to it.

use std::time::Duration;

use redis::Client;

use crate::{
    connection::{Away, Connection},
    ledger::RedisLedger,
    shares::Shares,
};

/// Configures a [`RedisLedger`]. Made by [`RedisLedger::builder`].
#[derive(Clone)]
pub struct RedisLedgerBuilder {
    url: String,
    prefix: String,
    timeout: Duration,
    anonymous_bytes: Option<usize>,
    principal_bytes: Option<usize>,
}

impl RedisLedgerBuilder {
    pub(crate) fn new(url: String) -> Self {
        let (anonymous_bytes, principal_bytes) = (None, None);
        Self { url, prefix: "rounds".to_owned(), timeout: Duration::from_secs(1), anonymous_bytes, principal_bytes }
    }

    /// Puts this and a colon in front of every key: `rounds` by default. Services that share a Redis have one each.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long Redis may take for one call, a reconnection included: a second by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many bytes all callers without a principal may have together, where the server tells principals apart: half of Redis's `maxmemory` by
    /// default, and half a gibibyte where it has none. Each instance counts for itself what it lets in: with several, divide by their number.
    pub fn anonymous_bytes(mut self, bytes: usize) -> Self {
        self.anonymous_bytes = Some(bytes);
        self
    }

    /// How many bytes one principal may have: a tenth of Redis's `maxmemory` by default, and of a gibibyte where it has none. Each instance
    /// counts for itself what it lets in: with several, divide by their number.
    pub fn principal_bytes(mut self, bytes: usize) -> Self {
        self.principal_bytes = Some(bytes);
        self
    }

    /// Connects, and looks whether claims can be trusted to this Redis.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the configuration is wrong, Redis cannot be reached, is a replica, or is set to evict keys: a claim that is
    /// evicted lets its token be used again.
    pub async fn connect(self) -> Result<RedisLedger, ConnectError> {
        let (_, connection) = connection(self.url, &self.prefix, self.timeout)?;
        let memory = connection.info("memory").await.map_err(ConnectError::unreachable)?;
        check_eviction(&memory)?;
        // A service that does not say what it is has its reasons, and is no replica that somebody chose.
        let replication = connection.info("replication").await.map_err(ConnectError::unreachable)?;
        if field(&replication, "role") == Some("slave") {
            return Err(ConnectError::Replica);
        }
        let shares = Shares::new(
            self.anonymous_bytes.unwrap_or_else(|| memory_for_claims(&memory) / 2),
            self.principal_bytes.unwrap_or_else(|| memory_for_claims(&memory) / 10),
        );
        Ok(RedisLedger::on(connection, &self.prefix, shares))
    }
}

impl std::fmt::Debug for RedisLedgerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An address may have a password in it.
        f.debug_struct("RedisLedgerBuilder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A connection that is made when it is needed, if what it is made of makes sense.
pub(crate) fn connection(url: String, prefix: &str, timeout: Duration) -> Result<(Client, Connection), ConnectError> {
    if prefix.contains(['{', '}']) {
        return Err(ConnectError::Prefix { prefix: prefix.to_owned() });
    }
    if timeout.is_zero() {
        return Err(ConnectError::NoTime);
    }
    let client = Client::open(url).map_err(ConnectError::url)?;
    let connection = Connection::new(client.clone(), timeout).map_err(ConnectError::url)?;
    Ok((client, connection))
}

/// A field of what `INFO` says.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Why there is no ledger, or no relay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is none that Redis could have.
    #[error("this is not the address of a Redis")]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The prefix would move a flow's keys apart in a cluster.
    #[error("the prefix `{prefix}` has a brace in it, by which a cluster would put all keys on one node")]
    Prefix {
        /// The prefix.
        prefix: String,
    },
    /// The instance has no name, or one that is too long to go into every token.
    #[error("an instance needs a name, of at most {longest} bytes")]
    Name {
        /// How long it may be.
        longest: usize,
    },
    /// The timeout is zero.
    #[error("the timeout is zero: Redis could never answer in time")]
    NoTime,
    /// Redis cannot be reached.
    #[error("Redis cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A replica takes no claims, or forgets them when it hears of its primary again; and messages that are sent to one reach only those who
    /// listen to it.
    #[error("this Redis is a replica: connect to its primary")]
    Replica,
    /// Redis is set to forget what it was told to keep.
    #[error(
        "Redis is set to evict keys when its memory is full (maxmemory-policy {policy}), and a claim that is evicted lets its \
         token be used again: set maxmemory-policy to noeviction"
    )]
    Evicts {
        /// How it chooses what to forget.
        policy: String,
    },
}

impl ConnectError {
    fn url(error: redis::RedisError) -> Self {
        Self::Url(Box::new(error))
    }

    pub(crate) fn unreachable(away: Away) -> Self {
        Self::Unreachable(Box::new(away))
    }
}

/// `INFO` tells it on services where `CONFIG` is not allowed. A limit of zero is none, and then nothing is evicted.
fn check_eviction(memory: &str) -> Result<(), ConnectError> {
    let limited = field(memory, "maxmemory").is_none_or(|bytes| bytes != "0");
    match field(memory, "maxmemory_policy") {
        Some("noeviction") => Ok(()),
        Some(policy) if limited => Err(ConnectError::Evicts { policy: policy.to_owned() }),
        Some(policy) => {
            tracing::warn!(
                target: "rounds",
                policy,
                "Redis would evict claims if its memory had a limit: set maxmemory-policy to noeviction"
            );
            Ok(())
        }
        None => {
            tracing::warn!(target: "rounds", "Redis does not say whether it evicts keys: see that it does not");
            Ok(())
        }
    }
}

/// How much memory a Redis has, if it says so; otherwise as much as it is good for by any means.
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
        assert!(says("maxmemory_policy:allkeys-lru\r\n").is_err(), "no limit is known");
    }

    #[test]
    fn shares_are_parts_of_what_redis_has() {
        assert_eq!(memory_for_claims("maxmemory:5000\r\n"), 5000);
        for unlimited in ["maxmemory:0\r\n", "maxmemory:all of it\r\n", ""] {
            assert_eq!(memory_for_claims(unlimited), 1 << 30, "{unlimited}");
        }
    }
}
