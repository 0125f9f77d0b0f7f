//! The ledger of [`rounds`] on Redis, and the relay that carries a leg to the instance where its handler waits: for a
//! server of more than one process.
//!
//! ```no_run
//! use rounds::{KeyRing, Rounds};
//! use rounds_redis::{RedisLedger, RedisRelay};
//! # struct Weather;
//! # impl rmcp::ServerHandler for Weather {}
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Rounds::builder(Weather)
//!     .keys(KeyRing::from_file("keys")?)
//!     .audience("weather-prod")
//!     .ledger(RedisLedger::connect("redis://127.0.0.1/").await?)
//!     .relay(RedisRelay::connect("redis://127.0.0.1/", "weather-1").await?)
//!     .build()?;
//! # Ok(()) }
//! ```
//!
//! The relay is for handlers with an `Ask`, which wait in memory. All other handlers continue on any instance without
//! one.
//!
//! Redis 7 or later. It has to keep what it was told to keep: `maxmemory-policy noeviction`. What a failover can lose, and
//! what narrows it, is in the guide `rounds::guide::deploying`.

mod address;
mod connect;
mod connection;
mod documents;
mod ledger;
mod register;
mod relay;
mod scripts;
mod subscription;
mod tls;

pub use address::RedisAddress;
pub use connect::{ConnectError, RedisLedgerBuilder};
pub use ledger::RedisLedger;
pub use relay::{RedisRelay, RedisRelayBuilder};
pub use tls::RedisTls;
