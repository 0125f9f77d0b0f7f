//! The ledger of [`rounds`] on SQLite and on Postgres, the relay on Postgres, and effects in the author's own
//! transaction.
//!
//! **SQLite** is for a server on one host. One file keeps claims and replies over restarts:
//!
//! ```no_run
//! use rounds::{KeyRing, Rounds};
//! use rounds_sql::SqliteLedger;
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Rounds::builder(Weather)
//!     .keys(KeyRing::from_file("keys")?)
//!     .audience("weather")
//!     .ledger(SqliteLedger::open("rounds.db").await?)
//!     .build()?;
//! # Ok(()) }
//! ```
//!
//! **Postgres** is for a fleet. The relay is for handlers with an `Ask`, which wait in memory:
//!
//! ```no_run
//! use rounds::{KeyRing, Rounds};
//! use rounds_sql::{PostgresLedger, PostgresRelay};
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let url = "postgres://weather@db.internal/weather";
//! let server = Rounds::builder(Weather)
//!     .keys(KeyRing::from_file("keys")?)
//!     .audience("weather-prod")
//!     .ledger(PostgresLedger::connect(url).await?)
//!     .relay(PostgresRelay::connect(url, "weather-1").await?)
//!     .build()?;
//! # Ok(()) }
//! ```
//!
//! Tables are created and updated when a store is opened, in one transaction under a lock: several instances may start at
//! the same time, and an interrupted migration leaves nothing behind. All tables have names that begin with `rounds_`;
//! the guide `rounds::guide::stores` describes them. Every statement is a constant of this crate, and all values are bound.

mod claims;
mod documents;
mod error;
mod flows;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod once;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use error::{OpenError, StoreError};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use once::{EffectError, OnceIn, PoolOf, TransactionDatabase, prepare};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresLedger, PostgresLedgerBuilder, PostgresRelay, PostgresRelayBuilder};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteLedger, SqliteLedgerBuilder};
