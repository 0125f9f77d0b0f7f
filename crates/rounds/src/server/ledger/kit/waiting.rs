//! The waiters of this process, by claim. The claim may be running here or in another process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::super::ClaimId;

/// The waiters of this process, by claim. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<Mutex<HashMap<ClaimId, Awaited>>>);

#[derive(Debug, Default)]
struct Awaited {
    waiters: usize,
    woken: Arc<Notify>,
}

impl Waiting {
    /// Registers a waiter until the returned guard is dropped.
    pub fn enter(&self, id: ClaimId) -> Waiter {
        let mut awaited = self.awaited();
        let entry = awaited.entry(id).or_default();
        entry.waiters += 1;
        Waiter { waiting: self.clone(), id, woken: entry.woken.clone() }
    }

    /// Whether a leg of this process waits for the claim.
    pub fn is_awaited(&self, id: ClaimId) -> bool {
        self.awaited().contains_key(&id)
    }

    /// Wakes the waiters of a claim that has changed, so that they do not wait for their next look at the store.
    pub fn wake(&self, id: ClaimId) {
        if let Some(entry) = self.awaited().get(&id) {
            entry.woken.notify_waiters();
        }
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<ClaimId, Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A leg that waits for a claim, until this is dropped.
#[derive(Debug)]
pub struct Waiter {
    waiting: Waiting,
    id: ClaimId,
    woken: Arc<Notify>,
}

impl Waiter {
    /// Resolves when [`Waiting::wake`] is called for the claim after this was polled.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
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
