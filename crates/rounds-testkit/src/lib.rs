//! What several tests of this repository need, defined once.
//!
//! Unit tests inside of `rounds` cannot use it: they would get a second copy of the crate that they test.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[cfg(feature = "cable")]
mod cable;
mod fleet;
mod fuzz;
#[cfg(feature = "http")]
mod http;
mod log;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod relay;
mod stage;
mod tool;

#[cfg(feature = "cable")]
pub use cable::Cable;
pub use fleet::Fleet;
pub use fuzz::fuzz;
#[cfg(feature = "http")]
pub use http::{http_client, install_crypto};
pub use log::Log;
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresAddress};
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use relay::{Hub, Wire, Wires};
pub use stage::{Stage, in_time};
pub use tool::{Tool, Units, units};
