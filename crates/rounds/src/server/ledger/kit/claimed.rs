//! Effects whose claim is not in the ledger.

use std::time::Duration;

/// An effect that keeps its claim itself, such as with a row in the database that it changes. For crates that run effects
/// in a way of their own.
#[doc(hidden)]
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SelfClaimed {
    /// The idempotency key: the same for every attempt in this flow, and different in every other flow.
    pub key: String,
    /// How long, from now on, a leg of this flow may reach the effect.
    pub kept_for: Duration,
    /// The lease of the round that the effect belongs to.
    pub lease: Duration,
}
