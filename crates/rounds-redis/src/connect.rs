//! Connecting: the conditions that a Redis must meet before claims are stored in it.

use std::time::Duration;

use redis::Client;
use rounds::ledger::kit::{Freeing, Shares};

use crate::{
    connection::{Away, Connection},
    ledger::RedisLedger,
};

/// Configures a [`RedisLedger`]. Made by [`RedisLedger::builder`].
#[derive(Clone)]
pub struct RedisLedgerBuilder {
    url: String,
    prefix: String,
    timeout: Duration,
    anonymous_bytes: Option<usize>,
    principal_bytes: Option<usize>,
    freeing_bytes: usize,
}

impl RedisLedgerBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            prefix: "rounds".to_owned(),
            timeout: Duration::from_secs(1),
            anonymous_bytes: None,
            principal_bytes: None,
            freeing_bytes: Freeing::BYTES,
        }
    }

    /// Sets the prefix of every key, which a colon follows: `rounds` by default. Services that share a Redis need
    /// different prefixes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the timeout of one call to Redis, including a reconnection: one second by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
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

    /// Connects, and checks that this Redis keeps claims.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the configuration is wrong, or if Redis cannot be reached, is a replica, or is configured to
    /// evict keys. The token of an evicted claim could be used again.
    pub async fn connect(self) -> Result<RedisLedger, ConnectError> {
        let (_, connection) = connection(self.url, &self.prefix, self.timeout)?;
        let memory = connection.info("memory").await.map_err(ConnectError::unreachable)?;
        check_eviction(&memory)?;
        // A hosted Redis may hide its role. It is accepted: it is not a replica that the operator chose by mistake.
        let replication = connection.info("replication").await.map_err(ConnectError::unreachable)?;
        if field(&replication, "role") == Some("slave") {
            return Err(ConnectError::Replica);
        }
        let shares = Shares::new(
            self.anonymous_bytes.unwrap_or_else(|| memory_for_claims(&memory) / 2),
            self.principal_bytes.unwrap_or_else(|| memory_for_claims(&memory) / 10),
        );
        Ok(RedisLedger::on(connection, &self.prefix, shares, Freeing::new(self.freeing_bytes)))
    }
}

impl std::fmt::Debug for RedisLedgerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may contain a password.
        f.debug_struct("RedisLedgerBuilder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Checks the configuration and returns a connection that is opened on first use.
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

/// The value of a field in the reply to `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Reason why a ledger or a relay could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is not a Redis URL.
    #[error("this is not the address of a Redis: write it like redis://127.0.0.1:6379/")]
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
    fn url(error: redis::RedisError) -> Self {
        Self::Url(Box::new(error))
    }

    pub(crate) fn unreachable(away: Away) -> Self {
        Self::Unreachable(Box::new(away))
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
