//! The waiters of this process, by claim. The claim may be running here or in another process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rounds::ledger::ClaimId;
use tokio::sync::Notify;

#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<HashMap<ClaimId, Awaited>>>);

#[derive(Debug, Default)]
struct Awaited {
    waiters: usize,
    woken: Arc<Notify>,
}

impl Waiting {
    /// Registers a waiter until the returned guard is dropped.
    pub(crate) fn enter(&self, id: ClaimId) -> Waiter {
        let mut awaited = self.awaited();
        let entry = awaited.entry(id).or_default();
        entry.waiters += 1;
        Waiter { waiting: self.clone(), id, woken: entry.woken.clone() }
    }

    pub(crate) fn is_awaited(&self, id: ClaimId) -> bool {
        self.awaited().contains_key(&id)
    }

    /// Wakes the waiters of a claim that has changed, so that they do not wait for their next look at Redis.
    pub(crate) fn wake(&self, id: ClaimId) {
        if let Some(entry) = self.awaited().get(&id) {
            entry.woken.notify_waiters();
        }
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<ClaimId, Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Waiter {
    waiting: Waiting,
    id: ClaimId,
    pub(crate) woken: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut awaited = self.waiting.awaited();
        if let Some(entry) = awaited.get_mut(&self.id) {
            entry.waiters -= 1;
            if entry.waiters == 0 {
                awaited.remove(&self.id);
            }
        }
    }
}
