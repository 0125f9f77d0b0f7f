//! A ledger that can be made to fail, and that records its calls.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

use rounds::{
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill},
    time::{BoxFuture, Timestamp},
};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Spill,
    Claim,
    Renew,
    Settle,
    Release,
}

/// A memory ledger with faults. Clones share the same ledger.
#[derive(Clone)]
pub struct Faulty {
    kept: MemoryLedger,
    plan: Arc<Mutex<Plan>>,
    asked: Arc<watch::Sender<HashMap<Step, usize>>>,
    given: Arc<Mutex<Vec<Vec<u8>>>>,
}

#[derive(Default)]
struct Plan {
    away: HashSet<Step>,
    owner_is_lost: bool,
    records_no_effect: bool,
    forges: Option<Forges>,
}

type Forges = Box<dyn Fn(ClaimId, Vec<u8>) -> Option<Vec<u8>> + Send>;

impl Faulty {
    pub fn new() -> Self {
        Self {
            kept: MemoryLedger::new(),
            plan: Arc::default(),
            asked: Arc::new(watch::Sender::default()),
            given: Arc::default(),
        }
    }

    /// The same records through another connection, with separate faults.
    pub fn elsewhere(&self) -> Self {
        Self { kept: self.kept.clone(), ..Self::new() }
    }

    pub fn is_away_at(&self, step: Step) {
        self.plan().away.insert(step);
    }

    pub fn is_back(&self) {
        self.plan().away.clear();
    }

    /// The next claim finds that an equal leg has just claimed the round, and the owner of that claim is lost.
    pub fn lose_an_owner(&self) {
        self.plan().owner_is_lost = true;
    }

    /// Accepts the values of effects, and never confirms it.
    pub fn records_no_effect(&self) {
        self.plan().records_no_effect = true;
    }

    /// From now on, every stored record is returned altered.
    pub fn forges(&self, forge: impl Fn(ClaimId, Vec<u8>) -> Option<Vec<u8>> + Send + 'static) {
        self.plan().forges = Some(Box::new(forge));
    }

    /// All records that it was given.
    pub fn given(&self) -> Vec<Vec<u8>> {
        self.given.lock().expect("the lock is not poisoned").clone()
    }

    /// Number of claims that it holds.
    pub fn claims(&self) -> usize {
        self.kept.claims()
    }

    fn note<'a>(&self, given: impl IntoIterator<Item = &'a Vec<u8>>) {
        self.given.lock().expect("the lock is not poisoned").extend(given.into_iter().cloned());
    }

    /// Waits until this method was called that often.
    pub async fn asked(&self, step: Step, times: usize) {
        let mut asked = self.asked.subscribe();
        let enough = |asked: &HashMap<Step, usize>| asked.get(&step).is_some_and(|count| *count >= times);
        asked.wait_for(enough).await.expect("the ledger exists");
    }

    /// Number of claim calls.
    pub fn claims_so_far(&self) -> usize {
        self.asked.borrow().get(&Step::Claim).copied().unwrap_or_default()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("the lock is not poisoned")
    }

    /// Runs the call unless the ledger is away, and then wakes the tests that wait for it.
    fn when_there<'a, T: Send + 'a>(
        &'a self,
        step: Step,
        does: impl FnOnce() -> BoxFuture<'a, Result<T, LedgerError>>,
    ) -> BoxFuture<'a, Result<T, LedgerError>> {
        let away = self.plan().away.contains(&step);
        let does = (!away).then(does);
        Box::pin(async move {
            let done = match does {
                Some(does) => does.await,
                None => Err(LedgerError::Unavailable("the cable is out".into())),
            };
            self.asked.send_modify(|asked| *asked.entry(step).or_default() += 1);
            done
        })
    }
}

impl Ledger for Faulty {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.note([&spill.state]);
        self.when_there(Step::Spill, || self.kept.spill(spill))
    }

    fn claim(&self, id: ClaimId, bid: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        if std::mem::take(&mut self.plan().owner_is_lost) {
            drop(self.kept.claim(id, bid));
        }
        let claimed = self.when_there(Step::Claim, || self.kept.claim(id, bid));
        Box::pin(async move {
            let claimed = claimed.await?;
            let plan = self.plan();
            let forge = |kept: Vec<u8>| {
                plan.forges.as_ref().map_or_else(|| Some(kept.clone()), |forges| forges(id, kept.clone()))
            };
            Ok(match claimed {
                Claimed::Done(kept) => Claimed::Done(kept.and_then(forge)),
                Claimed::Fresh { fence, spilled } => Claimed::Fresh { fence, spilled: spilled.and_then(forge) },
                claimed => claimed,
            })
        })
    }

    fn renew(&self, id: ClaimId, fence: Fence, until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.when_there(Step::Renew, || self.kept.renew(id, fence, until))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.note(reply.iter().chain(spill.as_ref().map(|spill| &spill.state)));
        if self.plan().records_no_effect && matches!(id.what, ClaimKind::Once(_)) {
            return Box::pin(std::future::pending());
        }
        self.when_there(Step::Settle, || self.kept.settle(id, fence, reply, spill, spent))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.when_there(Step::Release, || self.kept.release(id, fence, orphan, unless_awaited))
    }
}
