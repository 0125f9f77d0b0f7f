//! The databases that have transactions for effects. The statements are the same for all.

use std::time::Duration;

use sqlx::{Database, Pool, Transaction};

use crate::{claims::clock, error::OpenError};

/// The schema of the table, by version.
const SCHEMA: [&str; 1] = [include_str!("effects-1.sql")];

/// Limit on the rows that one statement removes.
const SWEPT: i64 = 1000;

type Result<T, E = sqlx::Error> = std::result::Result<T, E>;

/// A database in whose transactions effects can run: SQLite or Postgres. It cannot be implemented elsewhere.
pub trait TransactionDatabase: Database + sealed::Steps {}

pub(super) mod sealed {
    use super::*;

    /// The steps of an effect.
    pub trait Steps: Database {
        fn migrate(on: &mut Self::Connection) -> impl Future<Output = Result<(), OpenError>> + Send;
        /// Removes rows of flows that are over, and returns whether there may be more.
        fn sweep(pool: &Pool<Self>) -> impl Future<Output = Result<bool>> + Send;
        /// How long a transaction may be open, if it keeps others from writing, given the lease of a claim.
        fn bound(lease: Duration) -> Option<Duration>;
        fn begin(pool: &Pool<Self>) -> impl Future<Output = Result<Transaction<'static, Self>>> + Send;
        /// Takes the row of an effect. Returns the value if it has run.
        fn take(
            on: &mut Self::Connection,
            key: &str,
            kept_until: i64,
        ) -> impl Future<Output = Result<Option<String>>> + Send;
        fn record(on: &mut Self::Connection, key: &str, value: &str) -> impl Future<Output = Result<()>> + Send;
        fn find(pool: &Pool<Self>, key: &str) -> impl Future<Output = Result<Option<String>>> + Send;
    }
}

macro_rules! effects_on {
    ($database:ty, $connection:ty, $migrate:path, $begin:literal, $bound:expr) => {
        impl TransactionDatabase for $database {}

        impl sealed::Steps for $database {
            async fn migrate(on: &mut $connection) -> Result<(), OpenError> {
                $migrate(on, "effects", &SCHEMA).await
            }

            async fn sweep(pool: &Pool<Self>) -> Result<bool> {
                let sweep = sqlx::query(
                    "DELETE FROM rounds_effects WHERE effect IN
                     (SELECT effect FROM rounds_effects WHERE kept_until < $1 ORDER BY kept_until LIMIT $2)",
                );
                let swept = sweep.bind(clock()).bind(SWEPT).execute(pool).await?.rows_affected();
                Ok(swept == SWEPT.unsigned_abs())
            }

            fn bound(lease: Duration) -> Option<Duration> {
                $bound(lease)
            }

            async fn begin(pool: &Pool<Self>) -> Result<Transaction<'static, Self>> {
                pool.begin_with($begin).await
            }

            async fn take(on: &mut $connection, key: &str, kept_until: i64) -> Result<Option<String>> {
                let take = sqlx::query(
                    "INSERT INTO rounds_effects (effect, value, created, kept_until) VALUES ($1, '', $2, $3)
                     ON CONFLICT DO NOTHING",
                );
                if take.bind(key).bind(clock()).bind(kept_until).execute(&mut *on).await?.rows_affected() == 1 {
                    return Ok(None);
                }
                let value = sqlx::query_scalar("SELECT value FROM rounds_effects WHERE effect = $1");
                value.bind(key).fetch_one(on).await.map(Some)
            }

            async fn record(on: &mut $connection, key: &str, value: &str) -> Result<()> {
                let record = sqlx::query("UPDATE rounds_effects SET value = $2 WHERE effect = $1");
                record.bind(key).bind(value).execute(on).await.map(drop)
            }

            async fn find(pool: &Pool<Self>, key: &str) -> Result<Option<String>> {
                let value = sqlx::query_scalar("SELECT value FROM rounds_effects WHERE effect = $1");
                value.bind(key).fetch_optional(pool).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
effects_on!(sqlx::Sqlite, sqlx::SqliteConnection, crate::sqlite::migrate, "BEGIN IMMEDIATE", |lease| Some(lease / 6));

#[cfg(feature = "postgres")]
effects_on!(sqlx::Postgres, sqlx::PgConnection, crate::postgres::migrate, "BEGIN", |_| None);
