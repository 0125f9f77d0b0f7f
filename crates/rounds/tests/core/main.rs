//! The core on the wire: what a token is bound to, single use, the life of a claim, the gate, the limits, and hostile
//! clients.

mod binding;
mod cancel;
mod common;
mod errors;
mod events;
mod failures;
mod gate;
mod guard;
mod hostile;
#[cfg(feature = "http")]
mod http;
mod keys;
mod ledger;
mod limits;
#[cfg(feature = "otel")]
mod measured;
mod methods;
mod once;
mod principal;
mod replay;
mod room;
mod sealed;
mod spill;
mod time;
