//! Parts of a ledger on a store that several processes share: limits for each caller, and waiters that are woken.
//!
//! They are for a crate that implements [`Ledger`](super::Ledger), and keep their counts in this process: neither needs a
//! call to the store.

mod shares;
mod waiting;

pub use shares::Shares;
pub use waiting::{Waiter, Waiting};
