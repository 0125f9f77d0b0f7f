//! The ledger of [`rounds`] on Redis, for a server that is more than one process.
//!
//! ```no_run
//! use rounds::{KeyRing, Rounds};
//! use rounds_redis::RedisLedger;
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Rounds::builder(Weather)
//!     .keys(KeyRing::from_file("keys")?)
//!     .audience("weather-prod")
//!     .ledger(RedisLedger::connect("redis://127.0.0.1/").await?)
//!     .build()?;
//! # Ok(()) }
//! ```
//!
//! Redis 7 or later. It has to keep what it was told to keep: `maxmemory-policy noeviction`. What a failover can lose, and
//! what narrows it, is in `docs/deploy.md`.

mod connect;
mod connection;
mod ledger;
mod scripts;
mod waiting;

pub use connect::{ConnectError, RedisLedgerBuilder};
pub use ledger::RedisLedger;
