//! Errors: what happened to a store, and what to do about it.

use std::{sync::Arc, time::Duration};

use rounds::ledger::LedgerError;

/// Reason why a step of a store failed. It is the source of a [`LedgerError::Unavailable`].
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process holds the write lock of the SQLite file.
    #[error(
        "the database file is locked by another process: end the program that holds it, keep its transactions short, \
         or raise the timeout"
    )]
    Locked(#[source] Arc<sqlx::Error>),
    /// The database, or the user, may only read.
    #[error(
        "the database is read-only: give this process the right to write the file and its folder, or connect to the \
         primary"
    )]
    ReadOnly(#[source] Arc<sqlx::Error>),
    /// The file cannot be opened. SQLite also says so if it cannot create its other files beside it.
    #[error(
        "the database file cannot be opened: check that its folder exists, and that this process may write to both; on a \
         read-only disk a server cannot run"
    )]
    Inaccessible(#[source] Arc<sqlx::Error>),
    /// The disk has no space left.
    #[error("the disk of the database is full: free some space; nothing that was acknowledged is lost")]
    DiskFull(#[source] Arc<sqlx::Error>),
    /// The file is not a database, or is damaged.
    #[error("the database is damaged, or the file is not a database: restore it from a backup, or name another file")]
    Damaged(#[source] Arc<sqlx::Error>),
    /// The user lacks a right.
    #[error("the database user lacks a right that is needed: grant it, as the guide on stores describes")]
    Denied(#[source] Arc<sqlx::Error>),
    /// No answer within the timeout.
    #[error(
        "the database did not answer within {after:?}: check its load and the connection to it, or raise the timeout"
    )]
    Silent {
        /// The timeout.
        after: Duration,
    },
    /// Another failure of the database, or of the connection to it.
    #[error("the database returned an error, or the connection to it broke: check that it runs and can be reached")]
    Failed(#[source] Arc<sqlx::Error>),
    /// A record of an unexpected form.
    #[error("the database returned a record of an unexpected form: check what else writes to the tables of rounds")]
    Garbage,
    /// Presence of instances is not known yet.
    #[error("the connection to Postgres has just been restored, and it is not known yet which instances are connected")]
    Unsettled,
}

impl StoreError {
    pub(crate) fn of(error: sqlx::Error) -> Self {
        let code = match &error {
            sqlx::Error::Database(database) => database.code().map(|code| code.into_owned()),
            _ => None,
        };
        let kind = code.as_deref().map_or(Self::Failed as fn(_) -> _, kind);
        kind(Arc::new(error))
    }

    /// Whether the same statements may succeed later: the connection broke, or the database is busy, full or read-only. A
    /// violated constraint or a mistake in a statement remains what it is.
    pub(crate) fn may_pass(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(database) => match database.code().as_deref() {
                Some(code) if code.len() == 5 => passes_by_sqlstate(code),
                Some(code) => passes_by_result_code(code),
                None => false,
            },
            _ => false,
        }
    }

    /// Whether the connection is lost, so that the same call may succeed on another.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_lost_connection(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) => true,
            // The server shuts down, has crashed, or starts.
            sqlx::Error::Database(database) => {
                database.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
            }
            _ => false,
        }
    }
}

/// The kind of an error: by its SQLSTATE, which has five characters, or by SQLite's result code, which is a shorter number.
fn kind(code: &str) -> fn(Arc<sqlx::Error>) -> StoreError {
    match code.len() {
        5 => kind_of_sqlstate(code),
        _ => kind_of_result_code(code),
    }
}

fn kind_of_sqlstate(code: &str) -> fn(Arc<sqlx::Error>) -> StoreError {
    match code {
        "25006" => StoreError::ReadOnly,
        "53100" => StoreError::DiskFull,
        "42501" | "28000" | "28P01" => StoreError::Denied,
        "55P03" => StoreError::Locked,
        code if code.starts_with("XX") => StoreError::Damaged,
        _ => StoreError::Failed,
    }
}

fn kind_of_result_code(code: &str) -> fn(Arc<sqlx::Error>) -> StoreError {
    // The low byte of an extended result code is its kind.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6) => StoreError::Locked,
        Ok(8) => StoreError::ReadOnly,
        Ok(14) => StoreError::Inaccessible,
        Ok(13) => StoreError::DiskFull,
        Ok(11 | 26) => StoreError::Damaged,
        Ok(3 | 23) => StoreError::Denied,
        _ => StoreError::Failed,
    }
}

/// Classes: connection, resources, a shutdown or a cancelled statement, the disk. Codes: serialisation failure, deadlock and
/// an unknown end; a lock; a replica; a session or transaction that was open for too long.
fn passes_by_sqlstate(code: &str) -> bool {
    ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))
        || matches!(code, "40001" | "40P01" | "40003" | "55P03" | "25006" | "25P03" | "25P04")
}

/// Busy, locked, out of memory, read-only, interrupted, an error of the disk, full, cannot be opened.
fn passes_by_result_code(code: &str) -> bool {
    matches!(code.parse::<u32>().map(|code| code & 0xff), Ok(5..=10 | 13 | 14))
}

impl From<StoreError> for LedgerError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

/// Reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is not one of a Postgres.
    #[error("this is not the address of a Postgres: write it like postgres://user@127.0.0.1:5432/database")]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The timeout is zero.
    #[error("the timeout is zero, so every call to the database would fail: set a longer one")]
    NoTime,
    /// The instance has no name, or its name is too long: the name is part of every token.
    #[error("the name of the instance must have 1 to {longest} bytes: choose another name")]
    Name {
        /// Maximum length in bytes.
        longest: usize,
    },
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    /// This Postgres is a replica, or its transactions are read-only by default.
    #[error("this Postgres only lets us read, because it is a replica or is configured so: connect to the primary")]
    Replica,
    /// A newer version of this crate has changed the schema.
    #[error(
        "the schema of the database has version {found}, and this program knows versions up to {known}: update the \
         program"
    )]
    Newer {
        /// The version in the database.
        found: i64,
        /// The newest version that this crate knows.
        known: i64,
    },
    /// The folder or the file of a SQLite database cannot be created.
    #[error("cannot create {file}: check that its folder exists and can be written")]
    File {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::of(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_would_fail_again() {
        // A broken connection, a deadlock, a full disk, a lock, a shutdown, a replica.
        for code in ["08006", "40001", "40P01", "53100", "55P03", "57P01", "57014", "25006"] {
            assert!(passes_by_sqlstate(code), "{code}");
        }
        // Unique, foreign key, syntax, missing table, division by zero, a failed transaction, a missing right.
        for code in ["23505", "23503", "42601", "42P01", "22012", "25P02", "42501"] {
            assert!(!passes_by_sqlstate(code), "{code}");
        }
        // Busy and its extended code, locked, read-only, an error of the disk, full.
        for code in ["5", "261", "6", "8", "10", "13"] {
            assert!(passes_by_result_code(code), "{code}");
        }
        // A mistake in a statement, a constraint and its extended code, a damaged file, a type that does not fit.
        for code in ["1", "19", "2067", "11", "20"] {
            assert!(!passes_by_result_code(code), "{code}");
        }
        assert!(StoreError::may_pass(&sqlx::Error::PoolTimedOut));
        assert!(!StoreError::may_pass(&sqlx::Error::RowNotFound));
    }
}
