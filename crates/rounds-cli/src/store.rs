//! The stores that a server can keep its flows in, by URL. Every command that opens a store does so here.

use std::{str::FromStr, time::Duration};

use gallery::Gallery;
use rounds::{KeyRing, RoundsBuilder, ledger::kit::until_there, register::Flows};

use crate::{Failure, store_options::StoreOptions};

/// The address of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// A SQLite file.
    Sqlite(String),
    Postgres(String),
    Redis(String),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let scheme = url.split_once(':').map(|(scheme, _)| scheme);
        match scheme {
            Some("sqlite") => match url["sqlite:".len()..].trim_start_matches("//") {
                "" => Err("name the file, as in sqlite:rounds.db".to_owned()),
                // An absolute path may be written with or without an authority.
                file if url.starts_with("sqlite:///") => Ok(Self::Sqlite(format!("/{}", file.trim_start_matches('/')))),
                file => Ok(Self::Sqlite(file.to_owned())),
            },
            Some("postgres" | "postgresql") => Ok(Self::Postgres(url.to_owned())),
            // Whatever else it is, Redis's own parser says what is wrong with it: the option was once only for Redis.
            Some(_) => Ok(Self::Redis(url.to_owned())),
            None => Err("a store is sqlite:FILE, postgres://USER@HOST/DATABASE or redis://HOST/".to_owned()),
        }
    }
}

impl StoreUrl {
    /// The gallery as one instance of a server with this store. In Redis, all keys begin with the prefix.
    ///
    /// It waits for a store that is away, as the options say.
    pub(crate) async fn join(
        &self,
        prefix: &str,
        instance: &str,
        options: &StoreOptions,
    ) -> Result<RoundsBuilder<Gallery>, Failure> {
        let wait = options.store_wait.unwrap_or(Duration::MAX);
        until_there(wait, is_away, || async move {
            match self {
                Self::Sqlite(file) => join_sqlite(file, options).await,
                Self::Postgres(url) => join_postgres(url, instance, options).await,
                Self::Redis(url) => join_redis(url, prefix, instance, options).await,
            }
        })
        .await
    }

    /// The flows that the servers of this store know. They are opened with these keys and this audience, which in Redis is
    /// also the prefix.
    pub(crate) async fn flows(&self, keys: &KeyRing, audience: &str) -> Result<Flows, Failure> {
        match self {
            Self::Sqlite(file) => flows_in_sqlite(file, keys, audience).await,
            Self::Postgres(url) => flows_in_postgres(url, keys, audience).await,
            Self::Redis(url) => flows_in_redis(url, keys, audience).await,
        }
    }
}

/// Whether the store cannot be reached, and may be reached later.
fn is_away(failure: &Failure) -> bool {
    #[cfg(feature = "redis")]
    if let Failure::Store { source, .. } = failure
        && let Some(error) = source.downcast_ref()
    {
        return matches!(error, rounds_redis::ConnectError::Unreachable(_));
    }
    #[cfg(feature = "sql")]
    if let Failure::Store { source, .. } = failure
        && let Some(rounds_sql::OpenError::Store(error)) = source.downcast_ref()
    {
        return matches!(error, rounds_sql::StoreError::Silent { .. } | rounds_sql::StoreError::Failed(_));
    }
    let _ = failure;
    false
}

#[cfg(feature = "sql")]
async fn flows_in_sqlite(file: &str, keys: &KeyRing, audience: &str) -> Result<Flows, Failure> {
    let failed = |source| Failure::Store { store: file.to_owned(), source };
    // Opening a store creates it, which is right for a server only.
    std::fs::metadata(file).map_err(|error| failed(error.into()))?;
    let ledger = rounds_sql::SqliteLedger::open(file).await.map_err(|error| failed(error.into()))?;
    Ok(Flows::open(ledger, keys, Some(audience))?)
}

#[cfg(feature = "sql")]
async fn flows_in_postgres(url: &str, keys: &KeyRing, audience: &str) -> Result<Flows, Failure> {
    let failed = |source| Failure::Store { store: without_password("Postgres", url), source };
    let ledger = rounds_sql::PostgresLedger::connect(url).await.map_err(|error| failed(error.into()))?;
    Ok(Flows::open(ledger, keys, Some(audience))?)
}

#[cfg(not(feature = "sql"))]
async fn flows_in_sqlite(_file: &str, _keys: &KeyRing, _audience: &str) -> Result<Flows, Failure> {
    Err(crate::features::missing("a store in SQLite", "sql"))
}

#[cfg(not(feature = "sql"))]
async fn flows_in_postgres(_url: &str, _keys: &KeyRing, _audience: &str) -> Result<Flows, Failure> {
    Err(crate::features::missing("a store in Postgres", "sql"))
}

#[cfg(feature = "redis")]
async fn flows_in_redis(url: &str, keys: &KeyRing, audience: &str) -> Result<Flows, Failure> {
    let failed = |source| Failure::Store { store: without_password("Redis", url), source };
    let ledger = rounds_redis::RedisLedger::builder(url).prefix(audience).connect().await;
    Ok(Flows::open(ledger.map_err(|error| failed(error.into()))?, keys, Some(audience))?)
}

#[cfg(not(feature = "redis"))]
async fn flows_in_redis(_url: &str, _keys: &KeyRing, _audience: &str) -> Result<Flows, Failure> {
    Err(crate::features::missing("a store in Redis", "redis"))
}

#[cfg(feature = "sql")]
async fn join_sqlite(file: &str, options: &StoreOptions) -> Result<RoundsBuilder<Gallery>, Failure> {
    crate::sql::join_sqlite(file, options).await.map_err(|source| Failure::Store { store: file.to_owned(), source })
}

#[cfg(feature = "sql")]
async fn join_postgres(url: &str, instance: &str, options: &StoreOptions) -> Result<RoundsBuilder<Gallery>, Failure> {
    let joined = crate::sql::join_postgres(url, instance, options).await;
    joined.map_err(|source| Failure::Store { store: without_password("Postgres", url), source })
}

#[cfg(not(feature = "sql"))]
async fn join_sqlite(_file: &str, _options: &StoreOptions) -> Result<RoundsBuilder<Gallery>, Failure> {
    Err(crate::features::missing("a store in SQLite", "sql"))
}

#[cfg(not(feature = "sql"))]
async fn join_postgres(
    _url: &str,
    _instance: &str,
    _options: &StoreOptions,
) -> Result<RoundsBuilder<Gallery>, Failure> {
    Err(crate::features::missing("a store in Postgres", "sql"))
}

#[cfg(feature = "redis")]
async fn join_redis(
    url: &str,
    prefix: &str,
    instance: &str,
    options: &StoreOptions,
) -> Result<RoundsBuilder<Gallery>, Failure> {
    let joined = crate::fleet::join(url, prefix, instance, options).await;
    joined.map_err(|source| Failure::Store { store: without_password("Redis", url), source })
}

#[cfg(not(feature = "redis"))]
async fn join_redis(
    _url: &str,
    _prefix: &str,
    _instance: &str,
    _options: &StoreOptions,
) -> Result<RoundsBuilder<Gallery>, Failure> {
    Err(crate::features::missing("a store in Redis", "redis"))
}

/// The address without its password, for error messages.
#[cfg(any(feature = "redis", feature = "sql"))]
fn without_password(what: &str, url: &str) -> String {
    // Parameters may contain one, too.
    let url = url.split('?').next().unwrap_or(url);
    match url.rsplit_once('@') {
        Some((_, host)) => format!("the {what} at {host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_a_url_tells_the_store() {
        let sqlite = |file: &str| Ok(StoreUrl::Sqlite(file.to_owned()));
        for (url, store) in [
            ("sqlite:rounds.db", sqlite("rounds.db")),
            ("sqlite:a/b.db", sqlite("a/b.db")),
            ("sqlite:/var/rounds.db", sqlite("/var/rounds.db")),
            ("sqlite://rounds.db", sqlite("rounds.db")),
            ("sqlite:///var/rounds.db", sqlite("/var/rounds.db")),
            ("postgres://a@b/c", Ok(StoreUrl::Postgres("postgres://a@b/c".to_owned()))),
            ("postgresql://a@b/c", Ok(StoreUrl::Postgres("postgresql://a@b/c".to_owned()))),
            ("redis://a/", Ok(StoreUrl::Redis("redis://a/".to_owned()))),
            ("rediss://a/", Ok(StoreUrl::Redis("rediss://a/".to_owned()))),
        ] {
            assert_eq!(url.parse(), store, "{url}");
        }
        for wrong in ["", "rounds.db", "sqlite:", "sqlite://"] {
            assert!(wrong.parse::<StoreUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    #[cfg(any(feature = "redis", feature = "sql"))]
    fn passwords_are_left_out_of_messages() {
        assert_eq!(without_password("Postgres", "postgres://a:secret@b/c?password=secret"), "the Postgres at b/c");
        assert_eq!(without_password("Postgres", "postgres://b/c?password=secret"), "postgres://b/c");
    }
}
