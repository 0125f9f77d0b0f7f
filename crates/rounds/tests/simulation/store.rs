//! A store that the instances share, and their ledgers on it. A ledger here does what those on Redis and in SQL do, with the
//! same parts (`rounds::ledger::kit`); between it and the store is a network that delays and loses.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rounds::{
    ledger::{
        Claim, ClaimId, ClaimRequest, ClaimStep, Claimed, Fence, Ledger, LedgerError, OwnerLost, Spill,
        kit::{Freeing, Unconfirmed, Waiter, Waiting, until_changed},
    },
    time::{BoxFuture, Timestamp},
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use crate::{
    history::Event,
    world::{EPOCH, Gate, World},
};

/// How long an instance waits for the store.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long a waiter counts after its last look, in milliseconds.
const COUNTS: u64 = 3_000;

/// The store.
pub(crate) struct Store {
    pub(crate) gate: Arc<Gate>,
    /// How often it was started: what arrived before is lost.
    starts: AtomicU64,
    records: Mutex<BTreeMap<ClaimId, Record>>,
}

#[derive(Default)]
struct Record {
    claim: Claim,
    /// Tells the request of the current run from all others.
    claimant: u32,
    reply: Option<Vec<u8>>,
    spilled: Option<Vec<u8>>,
    /// By instance: since when it waits, and until when that counts.
    waiters: BTreeMap<String, (u64, u64)>,
}

impl Record {
    fn waits(&mut self, instance: &str, now: u64) {
        let waits = self.waiters.entry(instance.to_owned()).or_insert((now, now));
        if waits.1 < now {
            waits.0 = now;
        }
        waits.1 = now + COUNTS;
    }
}

impl Store {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { gate: Gate::new(), starts: AtomicU64::new(0), records: Mutex::default() })
    }

    /// Loses the calls that wait to be carried out.
    pub(crate) fn restart(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }

    fn record(&self, id: ClaimId, change: impl FnOnce(&mut Record)) {
        change(self.records().entry(id).or_default());
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<ClaimId, Record>> {
        self.records.lock().unwrap()
    }
}

/// The ledger of one process.
#[derive(Clone)]
pub(crate) struct SimulatedLedger {
    pub(crate) world: Arc<World>,
    pub(crate) store: Arc<Store>,
    pub(crate) instance: String,
    pub(crate) gate: Arc<Gate>,
    /// Whether the network between this process and the store is gone.
    pub(crate) cut: Arc<AtomicBool>,
    waiting: Waiting,
    freeing: Freeing,
}

impl SimulatedLedger {
    pub(crate) fn new(
        world: &Arc<World>,
        store: &Arc<Store>,
        instance: &str,
        gate: &Arc<Gate>,
        cut: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            world: world.clone(),
            store: store.clone(),
            instance: instance.to_owned(),
            gate: gate.clone(),
            cut: cut.clone(),
            waiting: Waiting::default(),
            freeing: Freeing::new(world.plan.freeing),
        }
    }

    /// Calls the store. The step may happen although the caller does not learn of it, also after the caller has given up.
    async fn call<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Store, u64) -> T + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.gate.pass().await;
        let until = Instant::now() + TIMEOUT;
        let (world, store, cut) = (self.world.clone(), self.store.clone(), self.cut.clone());
        let (there, back) = ((world.latency(), world.loses()), (world.latency(), world.loses()));
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            sleep(there.0).await;
            if there.1 || cut.load(Ordering::Relaxed) {
                return world.record(Event::Lost);
            }
            let starts = store.starts.load(Ordering::Relaxed);
            store.gate.pass().await;
            if store.starts.load(Ordering::Relaxed) != starts {
                return;
            }
            let answer = step(&store, world.now());
            sleep(back.0).await;
            if back.1 || cut.load(Ordering::Relaxed) {
                return world.record(Event::Lost);
            }
            let _ = sender.send(answer);
        });
        let answer = timeout_at(until, receiver).await;
        if !matches!(answer, Ok(Ok(_))) {
            sleep_until(until).await;
        }
        self.gate.pass().await;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(LedgerError::Unavailable("the store did not answer in time".into())),
        }
    }

    /// Frees a claim whose claimant never learned of it.
    fn abandon(&self, id: ClaimId, claimant: u32, lease: Duration) {
        let ledger = self.clone();
        self.freeing.free(0, lease.max(Freeing::WITHIN), move || {
            let ledger = ledger.clone();
            Box::pin(async move {
                let found = ledger.call(move |store, _| {
                    let mut found = false;
                    store.record(id, |record| {
                        let fence = record.claim.fence();
                        found = record.claimant == claimant && record.claim.is_run_by(fence);
                        if found {
                            record.claim.release(fence, OwnerLost::Free);
                        }
                    });
                    found
                });
                let found = found.await?;
                if found {
                    ledger.waiting.wake(id);
                }
                Ok(found)
            })
        });
    }

    async fn claim_round(&self, id: ClaimId, request: ClaimRequest) -> Result<Claimed, LedgerError> {
        let claimant = self.world.number();
        let waiter = self.waiting.enter(id);
        let unconfirmed = Unconfirmed::new(|| self.abandon(id, claimant, request.lease));
        let (world, instance) = (self.world.clone(), self.instance.clone());
        let claimed = self.call(move |store, now| {
            let mut claimed = None;
            store.record(id, |record| claimed = Some(take(&world, &instance, id, request, claimant, record, now)));
            claimed
        });
        let claimed = claimed.await?;
        unconfirmed.confirm();
        Ok(match claimed {
            Some((ClaimStep::Fresh(fence), spilled)) => Claimed::Fresh { fence, spilled },
            Some((ClaimStep::Running, _)) => Claimed::Running(Box::pin(self.clone().changed(id, waiter))),
            Some((ClaimStep::Done, reply)) => Claimed::Done(reply),
            Some((ClaimStep::AnsweredOtherwise, _)) => Claimed::AnsweredOtherwise,
            Some((ClaimStep::Dead, _)) | None => Claimed::Dead,
        })
    }

    /// Resolves when a claim may have stopped running, or when the store cannot tell.
    async fn changed(self, id: ClaimId, waiter: Waiter) {
        let look = || async {
            let instance = self.instance.clone();
            let looked = self.call(move |store, now| {
                let mut runs = false;
                store.record(id, |record| {
                    runs = record.claim.running_until().is_some();
                    if runs {
                        record.waits(&instance, now);
                    }
                });
                runs
            });
            looked.await.unwrap_or(false)
        };
        until_changed(waiter, look).await;
    }
}

/// Requests a claim in the store, and returns the reply or the spilled state with what came of it.
fn take(
    world: &World,
    instance: &str,
    id: ClaimId,
    request: ClaimRequest,
    claimant: u32,
    record: &mut Record,
    now: u64,
) -> (ClaimStep, Option<Vec<u8>>) {
    let keep = request.keep.now;
    let lapsed = record.claim.running_until().filter(|until| *until <= keep);
    let step = record.claim.take(request.answers, keep, keep + request.lease, request.orphan);
    if let (Some(lapsed), ClaimStep::Fresh(_) | ClaimStep::Dead) = (lapsed, step) {
        let waits = record.waiters.values().filter(|(_, until)| *until >= now).map(|(since, _)| *since).min();
        if let Some(waits_since) = waits {
            let lapsed = lapsed.as_millis().saturating_sub(EPOCH * 1000);
            world.record(Event::Lapsed { claim: format!("{id:?}"), lapsed, waits_since });
        }
    }
    let kept = match step {
        ClaimStep::Fresh(_) => {
            record.claimant = claimant;
            record.spilled.clone()
        }
        ClaimStep::Running => {
            record.waits(instance, now);
            None
        }
        ClaimStep::Done => record.reply.clone(),
        _ => None,
    };
    (step, kept)
}

impl Ledger for SimulatedLedger {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(self.call(move |store, _| store.record(spill.id, |record| record.spilled = Some(spill.state))))
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(self.claim_round(id, request))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.call(move |store, _| {
            let mut renewed = false;
            store.record(id, |record| renewed = record.claim.renew(fence, lease_until));
            renewed
        }))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        _spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let settled = self.call(move |store, _| {
                let mut settled = false;
                store.record(id, |record| {
                    settled = record.claim.settle(fence);
                    if settled {
                        (record.reply, record.spilled) = (reply, None);
                    }
                });
                if let Some(spill) = spill.filter(|_| settled) {
                    store.record(spill.id, |record| record.spilled = Some(spill.state));
                }
                settled
            });
            let settled = settled.await?;
            self.waiting.wake(id);
            Ok(settled)
        })
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            if unless_awaited && self.waiting.is_awaited(id) {
                return Ok(true);
            }
            let instance = self.instance.clone();
            let release = move |store: &Store, now: u64| {
                let mut awaited = false;
                store.record(id, |record| {
                    let waits = |(name, (_, until)): (&String, &(u64, u64))| *name != instance && *until >= now;
                    awaited = unless_awaited && record.waiters.iter().any(waits);
                    if !awaited {
                        record.claim.release(fence, orphan);
                    }
                });
                awaited
            };
            let released = self.call(release.clone()).await;
            if released.is_err() && !unless_awaited {
                let ledger = self.clone();
                self.freeing.free(0, Freeing::WITHIN, move || {
                    let (ledger, release) = (ledger.clone(), release.clone());
                    Box::pin(async move {
                        ledger.call(release).await?;
                        ledger.waiting.wake(id);
                        Ok(true)
                    })
                });
            }
            let kept = released?;
            if !kept {
                self.waiting.wake(id);
            }
            Ok(kept)
        })
    }
}
