//! Connecting: the conditions that a Postgres must meet before claims are stored in it, and its schema.

use std::time::Duration;

use rounds::ledger::kit::{Freeing, Shares};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{connections::Connections, ledger::PostgresLedger};
use crate::{
    claims::SHARES,
    error::{OpenError, StoreError},
};

/// The schema of the store, by version.
const SCHEMA: [&str; 1] = [include_str!("store-1.sql")];

/// The schema of documents. It is a part of its own, so that an instance of an older release can still start beside
/// this one.
const DOCUMENTS: [&str; 1] = [include_str!("documents-1.sql")];

/// The index with which flows are counted, for the same reason.
const COUNTS: [&str; 1] = [include_str!("counts-1.sql")];

/// How long a migration may take: several instances wait for each other.
const MIGRATION: Duration = Duration::from_secs(60);

/// Configures a [`PostgresLedger`]. Made by [`PostgresLedger::builder`].
#[derive(Clone)]
pub struct PostgresLedgerBuilder {
    url: String,
    timeout: Duration,
    anonymous_bytes: usize,
    principal_bytes: usize,
    freeing_bytes: usize,
}

impl PostgresLedgerBuilder {
    pub(crate) fn new(url: String) -> Self {
        let (anonymous_bytes, principal_bytes) = SHARES;
        Self { url, timeout: Duration::from_secs(1), anonymous_bytes, principal_bytes, freeing_bytes: Freeing::BYTES }
    }

    /// Sets the timeout of one call to Postgres, including a reconnection: one second by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many bytes the records of all callers without a principal may take together, if the server tells
    /// principals apart: half a gibibyte by default. Each instance counts only the records that it created.
    pub fn anonymous_bytes(mut self, bytes: usize) -> Self {
        self.anonymous_bytes = bytes;
        self
    }

    /// Sets how many bytes the records of one principal may take: a tenth of a gibibyte by default. Each instance counts
    /// only the records that it created.
    pub fn principal_bytes(mut self, bytes: usize) -> Self {
        self.principal_bytes = bytes;
        self
    }

    /// Sets how many bytes the claims may take in this process that wait to be freed, because Postgres did not confirm that they were
    /// taken or released:
    /// 32 MiB by default. If more claims have to be freed, their leases have to lapse, and the log says how many.
    pub fn freeing_bytes(mut self, bytes: usize) -> Self {
        self.freeing_bytes = bytes;
        self
    }

    /// Connects, checks that this Postgres keeps claims, and brings the schema up to date.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the configuration is wrong, or if Postgres cannot be reached, is a replica, does not let the user
    /// create tables while they are missing, or has the schema of a newer version.
    pub async fn connect(self) -> Result<PostgresLedger, OpenError> {
        let connections = connections(&self.url, self.timeout).await?;
        let shares = Shares::new(self.anonymous_bytes, self.principal_bytes);
        Ok(PostgresLedger::on(connections, shares, Freeing::new(self.freeing_bytes)))
    }
}

impl std::fmt::Debug for PostgresLedgerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may contain a password.
        f.debug_struct("PostgresLedgerBuilder").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Connections to a Postgres that was found fit, with the schema of this version.
pub(super) async fn connections(url: &str, timeout: Duration) -> Result<Connections, OpenError> {
    if timeout.is_zero() {
        return Err(OpenError::NoTime);
    }
    let options = options(url)?;
    let connecting = tokio::time::timeout(timeout, options.connect()).await;
    let mut connection = connecting.map_err(|_| StoreError::Silent { after: timeout })??;
    let ready = async {
        check_role(&mut connection).await?;
        let options = durable(options, &mut connection).await?;
        migrate(&mut connection, "store", &SCHEMA).await?;
        migrate(&mut connection, "documents", &DOCUMENTS).await?;
        migrate(&mut connection, "counts", &COUNTS).await?;
        // It may have failed to say goodbye, which changes nothing.
        let _ = connection.close().await;
        Ok(Connections::new(options, timeout))
    };
    let within = timeout.max(MIGRATION);
    tokio::time::timeout(within, ready).await.map_err(|_| StoreError::Silent { after: within })?
}

/// Claims need the isolation level that the functions are written for, whatever the default of the database is.
fn options(url: &str) -> Result<PgConnectOptions, OpenError> {
    let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| OpenError::Url(Box::new(error)))?;
    Ok(options.application_name("rounds").options([("default_transaction_isolation", "read committed")]))
}

async fn check_role(connection: &mut PgConnection) -> Result<(), OpenError> {
    let reads =
        sqlx::query_scalar("SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'");
    match reads.fetch_one(connection).await? {
        true => Err(OpenError::Replica),
        false => Ok(()),
    }
}

/// Waits for the disk at every commit, even if the database is configured not to: a claim that was lost in a crash could
/// be taken again.
async fn durable(options: PgConnectOptions, connection: &mut PgConnection) -> Result<PgConnectOptions, OpenError> {
    let off = sqlx::query_scalar("SELECT current_setting('synchronous_commit') = 'off'").fetch_one(connection).await?;
    Ok(if off { options.options([("synchronous_commit", "on")]) } else { options })
}

/// Brings a part of the schema up to date, if it is not. One transaction, under an advisory lock: a second instance
/// waits, and an interrupted one leaves nothing behind.
pub(crate) async fn migrate(
    connection: &mut PgConnection,
    part: &'static str,
    schema: &[&'static str],
) -> Result<(), OpenError> {
    let known = schema.len() as i64;
    // A user that may not create tables can use those that exist.
    if version(connection, part).await? == known {
        return Ok(());
    }
    /// An arbitrary number, the same for all versions.
    const LOCK: i64 = 0x726f_756e_6473;
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS rounds_schema (part text NOT NULL PRIMARY KEY, version bigint NOT NULL)")
        .execute(&mut *transaction)
        .await?;
    let found = version(&mut transaction, part).await?;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    for migration in schema.iter().skip(found as usize) {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    let record =
        "INSERT INTO rounds_schema VALUES ($1, $2) ON CONFLICT (part) DO UPDATE SET version = excluded.version";
    sqlx::query(record).bind(part).bind(known).execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

async fn version(connection: &mut PgConnection, part: &str) -> Result<i64, sqlx::Error> {
    let exists = sqlx::query_scalar("SELECT to_regclass('rounds_schema') IS NOT NULL");
    if !exists.fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    let version = sqlx::query_scalar("SELECT version FROM rounds_schema WHERE part = $1").bind(part);
    Ok(version.fetch_optional(connection).await?.unwrap_or(0))
}
