//! The server half: handlers that ask.

mod builder;
pub mod confirm;
pub(crate) mod elsewhere;
pub(crate) mod engine;
pub(crate) mod flows;
pub(crate) mod form;
mod handler;
pub(crate) mod health;
#[cfg(feature = "http")]
pub mod http;
pub mod ledger;
#[cfg(any(feature = "metrics", feature = "otel"))]
pub mod metrics;
pub(crate) mod policy;
mod rounds;
pub(crate) mod seal;
pub(crate) mod service;
pub(crate) mod shape;
#[cfg(feature = "http")]
mod streamable_http;
pub(crate) mod tasks;
pub mod transport;

pub use builder::{BuildError, ChangeKeysError, RoundsBuilder};
pub use rounds::{Rounds, Wrap};
