//! The task that ends the handlers of cancelled flows on this instance, and removes records whose time is over.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use super::super::core::Core;
use crate::{
    server::{
        ledger::{
            LedgerError,
            register::{Changed, FlowStatus, Register, Watch},
        },
        policy::error::with_sources,
    },
    shared::clock::{Clock, Timestamp},
};

/// How many records one step of a sweep removes, and a page of a count has.
pub(crate) const AT_ONCE: usize = 500;

/// The shortest time between two sweeps of an instance. Each adds a random part of the same length, so that the
/// instances of a fleet do not sweep at once.
const SWEEP: Duration = Duration::from_secs(5 * 60);

/// How long the task waits before it watches a store again that is away.
const AWAY: Duration = Duration::from_secs(1);

impl Core {
    /// Starts the task, with the first leg that records something here.
    pub(crate) fn watch_register(self: &Arc<Self>) {
        let Some(register) = &self.registering else { return };
        if register.watches.load(Ordering::Relaxed) || register.watches.swap(true, Ordering::Relaxed) {
            return;
        }
        let (core, clock) = (Arc::downgrade(self), self.clock.clone());
        let over = register.over.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = watch(core, clock) => {}
            }
        });
    }

    fn next_sweep(&self) -> Duration {
        let [random, ..] = self.random();
        SWEEP + SWEEP * u32::from(random) / 255
    }
}

async fn watch(core: Weak<Core>, clock: Arc<dyn Clock>) {
    let mut missed = false;
    loop {
        let Some(here) = core.upgrade() else { return };
        let mut changes = match here.register() {
            Some(register) => register.watch().await.ok(),
            None => return,
        };
        if missed && changes.is_some() {
            here.abort_cancelled().await;
        }
        let mut sweep = clock.sleep(here.next_sweep());
        drop(here);
        missed = true;
        if changes.is_none() {
            clock.sleep(AWAY).await;
            continue;
        }
        loop {
            tokio::select! {
                changed = next(&mut changes) => match (changed, core.upgrade()) {
                    (Some(Changed { id, status: FlowStatus::Cancelled }), Some(core)) => core.abort_flow(id),
                    (Some(_), Some(_)) => {}
                    _ => break,
                },
                () = &mut sweep => {
                    let Some(core) = core.upgrade() else { return };
                    let swept = match core.register() {
                        Some(register) => sweep_all(register, core.now()).await,
                        None => return,
                    };
                    if let Err(error) = swept {
                        tracing::warn!(target: "rounds", error = with_sources(&error), "the register could not be swept; the next sweep may do it");
                    }
                    sweep = clock.sleep(core.next_sweep());
                }
            }
        }
    }
}

/// Removes all records whose time is over. Returns how many.
pub(crate) async fn sweep_all(register: &dyn Register, now: Timestamp) -> Result<u64, LedgerError> {
    let mut removed = 0;
    loop {
        let swept = register.sweep(now, AT_ONCE).await?;
        removed += swept;
        if swept < AT_ONCE as u64 {
            return Ok(removed);
        }
    }
}

async fn next(changes: &mut Option<Watch>) -> Option<Changed> {
    match changes {
        Some(changes) => changes.next().await,
        None => None,
    }
}

impl Core {
    /// Ends the handlers here whose flow was cancelled while no change was seen.
    async fn abort_cancelled(&self) {
        let Some((register, running)) = self.register().zip(self.registering.as_ref()) else { return };
        let running: Vec<_> = running.running().keys().copied().collect();
        for id in self.frames.in_records().into_iter().chain(running) {
            let record = register.get(id, self.now()).await;
            if let Ok(Some(record)) = record
                && record.summary.status == FlowStatus::Cancelled
            {
                self.abort_flow(id);
            }
        }
    }
}
