//! SQLite: one file, for the processes of one host.

mod documents;
mod flows;
mod ledger;
mod open;
mod reader;
mod register;
mod steps;
mod writer;

pub use ledger::SqliteLedger;
pub use open::SqliteLedgerBuilder;
pub(crate) use open::migrate;
