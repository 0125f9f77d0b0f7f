//! The relay: how a leg reaches the instance where its handler waits.

use std::sync::{Arc, Weak};

use super::{core::Core, route};
use crate::shared::clock::BoxFuture;

/// Carries messages between the instances of a fleet, so that a leg of an [`Ask`](crate::Ask) may land on any of them.
///
/// A relay only carries: what a message says is sealed under the server's keys and addressed to one instance, so that who can
/// read or write what carries it can neither read nor forge one. A message may get lost, arrive twice, or arrive late; it may not
/// be kept for an instance that is gone.
pub trait Relay: Send + Sync + 'static {
    /// The name of this instance. No other has it, nor has the one that ran here before a restart.
    fn here(&self) -> &str;

    /// Sends a message to another instance. False when it is certain that no instance of that name is connected. One that is not sent within
    /// two seconds is given up, as if this had failed. A report is as large as the result of a call.
    fn post(&self, to: &str, message: Vec<u8>) -> BoxFuture<'_, Result<bool, RelayError>>;

    /// Whether messages for this instance arrive, as far as is known without asking. While they do not, no handler begins to
    /// wait here: a leg that lands on another instance could not reach it. By default, they do.
    fn hears(&self) -> bool {
        true
    }

    /// Hands what comes for this instance to the inbox from now on. It is called once, by the server that this relay is for.
    fn listen(&self, inbox: Inbox);
}

/// A message could not be sent: what carries it is away.
#[derive(Debug, thiserror::Error)]
#[error("the relay cannot be reached")]
pub struct RelayError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl RelayError {
    /// It could not, for this reason.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(source.into())
    }
}

/// Where the messages for this instance go. It does not keep the server alive.
#[derive(Clone)]
pub struct Inbox(Weak<Core>);

impl Inbox {
    pub(crate) fn of(core: &Arc<Core>) -> Self {
        Self(Arc::downgrade(core))
    }

    /// Takes a message, which is at work from then on. To be called in a Tokio runtime. A message that is not for this instance,
    /// or was not sealed by one of its fleet, is logged and dropped.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn deliver(&self, message: &[u8]) {
        if let Some(core) = self.0.upgrade() {
            route::deliver(&core, message);
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}
