//! Tasks whose run is lost: another instance continues them, whichever comes across one first.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use rmcp::{
    Peer, RoleServer, ServerHandler,
    model::{ProtocolVersion, RequestId, RequestMetaObject},
    service::RequestContext,
};

use super::{
    TaskService,
    call::Player,
    record::NextLeg,
    store::{self, Unkept},
    table::TaskKey,
};
use crate::server::{
    elsewhere::ElsewhereService,
    engine::{core::Core, handlers::Handlers},
    ledger::{LedgerError, documents::DocumentKind},
};

/// How many tasks a sweep looks at in one step, and how many documents one step removes.
const AT_ONCE: usize = 100;

/// How often documents whose time is over are removed: after so many sweeps.
const REMOVES: u32 = 20;

impl TaskService {
    /// Whether lost tasks are to be looked for and are not yet.
    pub(crate) fn is_to_sweep(&self, core: &Core) -> bool {
        store::documents(core).is_some() && !self.sweeps.load(Ordering::Relaxed)
    }
}

impl<H: ServerHandler> Player<H> {
    /// Takes over a task whose run is lost, or ends it if it cannot go on.
    pub(super) async fn care_for(&self, key: TaskKey, context: RequestContext<RoleServer>) -> Result<(), Unkept> {
        let (now, keep, run) = (self.core.now(), self.core.lifetimes.round, self.new_run());
        let Some(lease) = run.lease.clone() else {
            self.tasks.change(&self.core, key, |record| record.is_late(now).then(|| record.expire(now, keep))).await?;
            return Ok(());
        };
        let live = self.tasks.runs.find(key).map(|live| live.holder);
        let cared = self.tasks.change(&self.core, key, |record| {
            if !record.needs_care(now) {
                return None;
            }
            if live.is_some_and(|live| record.is_still_run_by(live, lease.until)) {
                return Some((None, record.clone()));
            }
            let leg = record.care(lease.clone(), now, keep);
            Some((leg, record.clone()))
        });
        if let Some((Some(leg), record)) = cared.await? {
            let NextLeg { state, .. } = &leg;
            tracing::info!(target: "rounds", is_first = state.is_none(), "a task whose instance is lost goes on here");
            self.go_on(key, run, &record, &leg, context);
        }
        Ok(())
    }

    /// Looks for such tasks from now on, at random times. Every instance does so.
    pub(crate) fn sweep_from_now_on(&self, context: &RequestContext<RoleServer>) {
        if !self.tasks.is_to_sweep(&self.core) || self.tasks.sweeps.swap(true, Ordering::Relaxed) {
            return;
        }
        let sweeper = Sweeper {
            tasks: Arc::downgrade(&self.tasks),
            core: Arc::downgrade(&self.core),
            handlers: self.handlers.clone(),
            elsewhere: self.elsewhere.clone(),
            peer: context.peer.clone(),
        };
        let (over, clock, lease) = (self.tasks.over.clone(), self.core.clock.clone(), self.core.limits.lease);
        tokio::spawn(async move {
            let sweeping = async {
                for number in 1.. {
                    let Some(player) = sweeper.player() else { return };
                    let pause = pause(lease, player.core.random()[0]);
                    drop(player);
                    clock.sleep(pause).await;
                    let Some(player) = sweeper.player() else { return };
                    if let Err(error) = player.sweep(&sweeper, number % REMOVES == 0).await {
                        tracing::warn!(target: "rounds", %error, "tasks could not be swept; the next sweep may do it");
                    }
                }
            };
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = sweeping => {}
            }
        });
    }

    /// Takes over what is due. Tasks that cannot go on here, such as those sealed under a key that this instance does not
    /// have, stay due and must not hide those behind them.
    async fn sweep(&self, sweeper: &Sweeper<H>, removes: bool) -> Result<(), Unkept> {
        let Some(documents) = store::documents(&self.core) else { return Ok(()) };
        let (now, mut last) = (self.core.now(), None);
        loop {
            let page = documents.due(DocumentKind::Task, now, last, AT_ONCE).await?;
            for due in &page {
                match self.care_for(due.id.key, sweeper.context()).await {
                    Ok(()) => {}
                    Err(error @ Unkept::Ledger(LedgerError::Unavailable(_))) => return Err(error),
                    Err(error) => {
                        tracing::debug!(target: "rounds", %error, "a task whose instance is lost cannot go on here");
                    }
                }
            }
            last = page.last().copied();
            if page.len() < AT_ONCE {
                break;
            }
        }
        while removes && documents.sweep(self.core.now(), AT_ONCE).await? == AT_ONCE as u64 {}
        Ok(())
    }
}

/// Between a half and a whole lease, so that the instances of a fleet do not sweep at once.
fn pause(lease: Duration, random: u8) -> Duration {
    lease / 2 + lease / 2 * u32::from(random) / 255
}

/// What a sweep needs. It keeps no server alive.
struct Sweeper<H> {
    tasks: Weak<TaskService>,
    core: Weak<Core>,
    handlers: Handlers<H>,
    elsewhere: Option<Arc<ElsewhereService>>,
    /// The peer of a request that has ended: a leg needs one, and what is sent through it is lost.
    peer: Peer<RoleServer>,
}

impl<H: ServerHandler> Sweeper<H> {
    fn player(&self) -> Option<Player<H>> {
        let (tasks, core) = (self.tasks.upgrade()?, self.core.upgrade()?);
        Some(Player { tasks, core, handlers: self.handlers.clone(), elsewhere: self.elsewhere.clone() })
    }

    /// The context of a leg that no request of its caller brings.
    fn context(&self) -> RequestContext<RoleServer> {
        context_without_request(self.peer.clone())
    }
}

/// The context of a leg of a modern client that is played without a request.
pub(super) fn context_without_request(peer: Peer<RoleServer>) -> RequestContext<RoleServer> {
    let [version, _] = RequestMetaObject::DRAFT_REQUIRED_KEYS;
    let mut context = RequestContext::new(RequestId::Number(0), peer);
    context.meta.0.0.insert(version.to_owned(), ProtocolVersion::V_2026_07_28.as_str().into());
    context
}
