//! Sealing: the state of a flow, encrypted into `requestState` and bound to the request it belongs to.
//!
//! [`KeyRing`] holds the keys, [`token`] the wire format, [`envelope`] the contents and their bindings. The format and
//! the reasons for it are in the guide, [`token`](crate::guide::token).

pub(crate) mod attempt;
pub(crate) mod cipher;
mod decimal;
pub(crate) mod digest;
pub(crate) mod envelope;
mod format;
#[cfg(test)]
pub(crate) mod golden;
mod inspect;
pub(crate) mod journal;
pub(crate) mod message;
pub(crate) mod page;
pub(crate) mod refusal;
pub(crate) mod ring;
pub(crate) mod token;

pub use digest::Digest;
pub use envelope::{FlowId, NotAFlowId};
pub use format::Format;
pub use inspect::OpenedToken;
pub use refusal::Refusal;
pub use ring::{KeyError, KeyRing};
