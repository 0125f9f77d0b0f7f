//! The ledger of `rounds` on Redis.
