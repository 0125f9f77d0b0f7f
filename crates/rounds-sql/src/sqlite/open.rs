//! Opening: the settings of the file, and its schema.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    time::Duration,
};

use rounds::ledger::kit::{Freeing, Shares};
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::time::{Instant, sleep};

use super::{ledger::SqliteLedger, reader::Reader, writer::Writer};
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

/// Configures a [`SqliteLedger`]. Made by [`SqliteLedger::builder`].
#[derive(Debug, Clone)]
pub struct SqliteLedgerBuilder {
    file: PathBuf,
    timeout: Duration,
    anonymous_bytes: usize,
    principal_bytes: usize,
    freeing_bytes: usize,
}

impl SqliteLedgerBuilder {
    pub(crate) fn new(file: PathBuf) -> Self {
        let (anonymous_bytes, principal_bytes) = SHARES;
        Self { file, timeout: Duration::from_secs(2), anonymous_bytes, principal_bytes, freeing_bytes: Freeing::BYTES }
    }

    /// Sets how long a step waits for another process that writes to the file: two seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many bytes the records of all callers without a principal may take together, if the server tells
    /// principals apart: half a gibibyte by default. Each process counts only the records that it created.
    pub fn anonymous_bytes(mut self, bytes: usize) -> Self {
        self.anonymous_bytes = bytes;
        self
    }

    /// Sets how many bytes the records of one principal may take: a tenth of a gibibyte by default. Each process counts
    /// only the records that it created.
    pub fn principal_bytes(mut self, bytes: usize) -> Self {
        self.principal_bytes = bytes;
        self
    }

    /// Sets how many bytes the claims may take in this process that wait to be freed, because the step that releases them
    /// failed:
    /// 32 MiB by default. If more claims have to be freed, their leases have to lapse, and the log says how many.
    pub fn freeing_bytes(mut self, bytes: usize) -> Self {
        self.freeing_bytes = bytes;
        self
    }

    /// Opens the file, and creates it if it is missing, readable only by its owner.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the file cannot be created, read or written, is locked for longer than the timeout, is not a
    /// SQLite database, or has the schema of a newer version.
    pub async fn open(self) -> Result<SqliteLedger, OpenError> {
        if self.timeout.is_zero() {
            return Err(OpenError::NoTime);
        }
        create(&self.file)?;
        // SQLite counts milliseconds in 32 bits.
        let options = options(&self.file, self.timeout.min(Duration::from_secs(24 * 60 * 60)));
        let mut connection = connect(&options, self.timeout).await?;
        migrate(&mut connection, "store", &SCHEMA).await?;
        migrate(&mut connection, "documents", &DOCUMENTS).await?;
        migrate(&mut connection, "counts", &COUNTS).await?;
        let writer = Writer::start(options.clone(), connection);
        Ok(SqliteLedger::on(
            writer,
            Reader::new(options),
            self.timeout,
            Shares::new(self.anonymous_bytes, self.principal_bytes),
            Freeing::new(self.freeing_bytes),
        ))
    }
}

/// Creates the file before SQLite does, which would let everyone read it. SQLite gives its other files the same rights.
fn create(file: &Path) -> Result<(), OpenError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(file) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(OpenError::File { file: file.display().to_string(), source: error })
        }
        _ => Ok(()),
    }
}

/// A commit that was acknowledged survives a power failure: `synchronous` is FULL, so that a commit waits for the disk.
fn options(file: &Path, timeout: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(timeout)
}

/// Connects. Processes that switch a new file to WAL at the same time may find it locked without SQLite waiting for it.
pub(super) async fn connect(options: &SqliteConnectOptions, timeout: Duration) -> Result<SqliteConnection, OpenError> {
    let began = Instant::now();
    loop {
        match options.connect().await.map_err(StoreError::of) {
            Err(StoreError::Locked(_)) if began.elapsed() < timeout => sleep(Duration::from_millis(20)).await,
            connected => return Ok(connected?),
        }
    }
}

/// Brings a part of the schema up to date. One transaction, under the lock of the file: a second process waits, and an
/// interrupted one leaves nothing behind.
pub(crate) async fn migrate(
    connection: &mut SqliteConnection,
    part: &'static str,
    schema: &[&'static str],
) -> Result<(), OpenError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS rounds_schema (part TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL) STRICT",
    )
    .execute(&mut *transaction)
    .await?;
    let version = sqlx::query_scalar::<_, i64>("SELECT version FROM rounds_schema WHERE part = ?");
    let version = version.bind(part).fetch_optional(&mut *transaction).await?.unwrap_or(0);
    let known = schema.len() as i64;
    if version > known {
        return Err(OpenError::Newer { found: version, known });
    }
    for migration in schema.iter().skip(version as usize) {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    let record = "INSERT INTO rounds_schema VALUES (?, ?) ON CONFLICT DO UPDATE SET version = excluded.version";
    sqlx::query(record).bind(part).bind(known).execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}
