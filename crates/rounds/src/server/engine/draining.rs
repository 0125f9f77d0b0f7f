//! Draining: a server that is about to end starts no handler that would wait in memory.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use super::core::Core;
use crate::server::policy::error::FlowError;

/// Whether the server drains, and which targets have handlers that wait in memory.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    has_begun: AtomicBool,
    /// Targets whose handlers have waited here.
    waits: Mutex<HashSet<String>>,
    /// Notified when there may be nothing left to wait for.
    less: Notify,
}

impl Draining {
    /// More targets than a server has; resources are counted by their URIs, which a client chooses.
    const TARGETS: usize = 1000;

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// The last handler has gone, or a leg of another instance has ended.
    pub(crate) fn may_be_done(&self) {
        self.less.notify_waiters();
    }

    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// A handler of this target waits.
    pub(crate) fn waits(&self, target: &str) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if !waits.contains(target) && waits.len() < Self::TARGETS {
            waits.insert(target.to_owned());
        }
    }

    /// Whether a handler of this target has waited here.
    fn has_waited(&self, target: &str) -> bool {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }
}

impl Core {
    /// Checks that a handler may begin to wait here.
    ///
    /// # Errors
    ///
    /// [`FlowError::Retry`] while the server drains, or while the relay does not hear the other instances: legs that land
    /// there could not reach the handler.
    pub(crate) fn may_wait(&self) -> Result<(), FlowError> {
        match (self.draining.has_begun(), self.is_heard()) {
            (true, _) => Err(FlowError::retry(NotHere::Draining)),
            (_, false) => Err(FlowError::retry(NotHere::Unheard)),
            _ => Ok(()),
        }
    }

    /// Checks the same before the handler runs, if handlers of this target are known to wait.
    pub(crate) fn may_start(&self, target: &str) -> Result<(), FlowError> {
        self.may_wait().or_else(|error| if self.draining.has_waited(target) { Err(error) } else { Ok(()) })
    }

    /// Resolves when no handler waits, and no leg of another instance is served: what came of it is recorded then.
    pub(crate) async fn until_none_waits(&self) {
        loop {
            let less = self.draining.less.notified();
            if self.frames.count() == 0 && self.routes.taken().is_empty() {
                return;
            }
            less.await;
        }
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.relay.as_ref().is_none_or(|relay| relay.hears())
    }
}

/// Reason why no handler begins to wait here.
#[derive(Debug, thiserror::Error)]
enum NotHere {
    #[error("this instance is draining, and starts no call whose handler waits in memory")]
    Draining,
    #[error("the relay is not connected, so that legs from other instances could not reach a handler that waits here")]
    Unheard,
}
