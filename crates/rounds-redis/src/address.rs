//! Where Redis is: at one address, or where its sentinels say that the primary is.

use std::{fmt, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError};

use crate::{connect::ConnectError, tls::RedisTls};

const SENTINEL: &str = "redis+sentinel://";
const SENTINEL_WITH_TLS: &str = "rediss+sentinel://";

/// The port of a sentinel whose address has none.
const SENTINEL_PORT: u16 = 26379;

/// The address of a Redis, for data of the application's own beside the claims.
///
/// A connection that the `redis` crate opens stays where it is for as long as it does not break. After a failover that may
/// be a primary that was demoted, which rejects every write: a command with `READONLY`, and a transaction with `EXECABORT`.
/// When a write fails or gets no answer, take a new [`client`](Self::client).
#[derive(Debug, Clone)]
pub struct RedisAddress(Address);

impl RedisAddress {
    /// Parses a URL, as [`RedisLedger::builder`](crate::RedisLedger::builder) does.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Url`] if it is not the address of a Redis.
    pub fn new(url: &str, tls: &RedisTls) -> Result<Self, ConnectError> {
        Address::parse(url, tls).map(Self).map_err(ConnectError::url)
    }

    /// A client for the Redis that is the primary now, which sentinels are asked for if the URL names some.
    ///
    /// # Errors
    ///
    /// The error of the last sentinel, if none of them answers within this time or knows the primary.
    pub async fn client(&self, timeout: Duration) -> Result<Client, RedisError> {
        self.0.client(timeout).await
    }
}

/// Where Redis is.
#[derive(Clone)]
pub(crate) enum Address {
    At(Box<Client>),
    Sentinels(Arc<Sentinels>),
}

/// The sentinels of a primary.
pub(crate) struct Sentinels {
    nodes: Vec<Client>,
    /// The name under which they know the primary.
    name: String,
    /// How to talk to the primary: user, password, database.
    settings: ConnectionInfo,
    with_tls: bool,
    tls: RedisTls,
}

impl Address {
    /// Parses `redis://`, `rediss://`, `redis+unix://`, and for sentinels
    /// `redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]]/NAME[/DATABASE]`, or `rediss+sentinel://` with TLS.
    pub(crate) fn parse(url: &str, tls: &RedisTls) -> Result<Self, RedisError> {
        if let Some(rest) = url.strip_prefix(SENTINEL) {
            return Sentinels::parse(rest, false, tls).map(Self::sentinels);
        }
        if let Some(rest) = url.strip_prefix(SENTINEL_WITH_TLS) {
            return Sentinels::parse(rest, true, tls).map(Self::sentinels);
        }
        Ok(Self::At(Box::new(tls.client(url.into_connection_info()?)?)))
    }

    fn sentinels(sentinels: Sentinels) -> Self {
        Self::Sentinels(Arc::new(sentinels))
    }

    /// A client for the Redis that is the primary now. Sentinels are asked one after the other, each within this time.
    pub(crate) async fn client(&self, timeout: Duration) -> Result<Client, RedisError> {
        match self {
            Self::At(client) => Ok((**client).clone()),
            Self::Sentinels(sentinels) => sentinels.primary(timeout).await,
        }
    }
}

impl Sentinels {
    fn parse(rest: &str, with_tls: bool, tls: &RedisTls) -> Result<Self, RedisError> {
        let wrong = |why| RedisError::from((ErrorKind::InvalidClientConfig, why));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(wrong("name the primary behind the sentinels, as in redis+sentinel://10.0.0.7:26379/mymaster"));
        }
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), authority),
        };
        // The host is replaced by the one that the sentinels name.
        let settings = format!("redis://{credentials}primary/{database}").into_connection_info()?;
        let node = |host: &str| {
            // The brackets of an IPv6 address end before its port.
            let has_port = host.rfind(':') > host.rfind(']');
            let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
            let scheme = if with_tls { "rediss" } else { "redis" };
            tls.client(format!("{scheme}://{host}{port}/").into_connection_info()?)
        };
        let nodes = hosts.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { nodes, name: name.to_owned(), settings, with_tls, tls: tls.clone() })
    }

    async fn primary(&self, timeout: Duration) -> Result<Client, RedisError> {
        let mut failed = None;
        for node in &self.nodes {
            match self.ask(node, timeout).await {
                Ok(Some((host, port))) => {
                    let address = match self.with_tls {
                        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
                        false => ConnectionAddr::Tcp(host, port),
                    };
                    return self.tls.client(self.settings.clone().set_addr(address));
                }
                // Another one may know it.
                Ok(None) => {
                    failed = Some(RedisError::from((
                        ErrorKind::InvalidClientConfig,
                        "a sentinel does not know a primary of this name: check the name in the URL",
                    )));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| (ErrorKind::InvalidClientConfig, "the URL names no sentinel").into()))
    }

    async fn ask(&self, node: &Client, timeout: Duration) -> Result<Option<(String, u16)>, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(Some(timeout));
        let mut connection = node.get_multiplexed_async_connection_with_config(&config).await?;
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name).query_async(&mut connection).await
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A URL may contain a password.
        f.write_str("Address")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_sentinels_names_them_the_primary_and_how_to_talk_to_it() {
        let url = "redis+sentinel://ann:s%40cret@10.0.0.7:26380,[::1],b.internal/mymaster/3";
        let Ok(Address::Sentinels(parsed)) = Address::parse(url, &RedisTls::default()) else { panic!("{url}") };
        let at = |node: &Client| node.get_connection_info().addr().to_string();
        assert_eq!(
            parsed.nodes.iter().map(at).collect::<Vec<_>>(),
            ["10.0.0.7:26380", "::1:26379", "b.internal:26379"]
        );
        let settings = parsed.settings.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("ann"), Some("s@cret"), 3));
        assert!(parsed.nodes[0].get_connection_info().redis_settings().password().is_none(), "a sentinel has its own");
        assert_eq!(parsed.name, "mymaster");
    }

    #[test]
    fn sentinels_without_the_name_of_a_primary_are_rejected() {
        for url in ["redis+sentinel://10.0.0.7", "redis+sentinel://10.0.0.7/", "redis+sentinel:///mymaster"] {
            assert!(Address::parse(url, &RedisTls::default()).is_err(), "{url}");
        }
    }
}
