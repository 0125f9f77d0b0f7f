//! The eras: what is done for clients that speak a protocol from before multi-round calls.

pub(crate) mod by_era;
pub(crate) mod push;
pub(crate) mod shim;
pub(crate) mod targets;
