//! Policies: the capability gate, limits, principals, errors and events.

pub(crate) mod capabilities;
pub(crate) mod elsewhere;
pub(crate) mod error;
pub(crate) mod failure;
pub(crate) mod gate;
pub(crate) mod legacy;
pub(crate) mod lifetimes;
pub(crate) mod limits;
pub(crate) mod measure;
pub(crate) mod notes;
pub(crate) mod observe;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "http")]
pub(crate) mod places;
pub(crate) mod principal;
pub(crate) mod targets;
