//! Postgres: for the instances of a fleet. Each step is one call of a function in the database, and one round trip.

mod connect;
mod connections;
mod documents;
mod ledger;
mod line;
mod register;
mod relay;

pub use connect::PostgresLedgerBuilder;
pub(crate) use connect::migrate;
pub use ledger::PostgresLedger;
pub use relay::{PostgresRelay, PostgresRelayBuilder};
