//! SQLite: one file, for the processes of one host.

mod ledger;
mod open;
mod steps;
mod writer;

pub use ledger::SqliteLedger;
pub use open::SqliteLedgerBuilder;
pub(crate) use open::migrate;
