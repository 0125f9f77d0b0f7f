//! What is done for clients of the legacy era, which speak a protocol from before multi-round calls.

pub(crate) mod push;
pub(crate) mod shim;
