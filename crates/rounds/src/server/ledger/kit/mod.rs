//! Parts of a ledger on a store that several processes share: limits for each caller, waiters that are woken, and claims
//! that are freed in the background.
//!
//! They are for a crate that implements [`Ledger`](super::Ledger), and keep their counts in this process: counting needs no
//! call to the store.

mod background;
mod claimed;
mod shares;
mod waiting;

pub use background::{Freeing, Unconfirmed, until_changed, until_there};
pub use claimed::SelfClaimed;
pub use shares::Shares;
pub use waiting::{Waiter, Waiting};
