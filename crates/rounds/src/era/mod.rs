//! The eras: what is done for clients that speak a protocol from before multi-round calls.

pub(crate) mod push;
