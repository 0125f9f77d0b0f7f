//! The runs of this process: the legs that tasks play here.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::{record::Holder, table::TaskKey};
use crate::server::engine::task::TaskLeg;

/// The runs of this process, by their task.
#[derive(Default)]
pub(super) struct Runs(Arc<Mutex<HashMap<TaskKey, Arc<Live>>>>);

/// A run, seen from requests that do not own it.
pub(super) struct Live {
    pub(super) key: TaskKey,
    pub(super) holder: Holder,
    /// Cancels its leg.
    pub(super) cancel: CancellationToken,
    /// Its leg, which has its progress.
    pub(super) leg: TaskLeg,
}

/// A run, for its owner: it is in the list until this is dropped.
pub(super) struct Running {
    live: Arc<Live>,
    runs: Arc<Mutex<HashMap<TaskKey, Arc<Live>>>>,
}

impl Runs {
    pub(super) fn enter(&self, live: Live) -> Running {
        let live = Arc::new(live);
        lock(&self.0).insert(live.key, live.clone());
        Running { live, runs: self.0.clone() }
    }

    pub(super) fn find(&self, key: TaskKey) -> Option<Arc<Live>> {
        lock(&self.0).get(&key).cloned()
    }
}

impl std::ops::Deref for Running {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut runs = lock(&self.runs);
        // A later run of the same task may be in its place.
        if runs.get(&self.live.key).is_some_and(|live| Arc::ptr_eq(live, &self.live)) {
            runs.remove(&self.live.key);
        }
    }
}

fn lock(runs: &Mutex<HashMap<TaskKey, Arc<Live>>>) -> MutexGuard<'_, HashMap<TaskKey, Arc<Live>>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}
