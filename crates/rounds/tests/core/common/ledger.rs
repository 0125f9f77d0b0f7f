//! A ledger that can be made to fail, and that tells what was asked of it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

use rounds::{
    BoxFuture, Timestamp,
    ledger::{Bid, ClaimId, Claimed, Fence, Keep, Ledger, LedgerError, MemoryLedger, Orphan, Spill},
};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Admit,
    Claim,
    Renew,
    Settle,
    Release,
}

/// A memory ledger with faults. Clones are the same ledger.
#[derive(Clone)]
pub struct Faulty {
    kept: MemoryLedger,
    plan: Arc<Mutex<Plan>>,
    asked: Arc<watch::Sender<HashMap<Step, usize>>>,
}

#[derive(Default)]
struct Plan {
    away: HashSet<Step>,
    owner_is_lost: bool,
}

impl Faulty {
    pub fn new() -> Self {
        Self { kept: MemoryLedger::new(), plan: Arc::default(), asked: Arc::new(watch::Sender::default()) }
    }

    /// The same records through a connection of its own, with faults of its own.
    pub fn elsewhere(&self) -> Self {
        Self { kept: self.kept.clone(), ..Self::new() }
    }

    pub fn is_away_at(&self, step: Step) {
        self.plan().away.insert(step);
    }

    pub fn is_back(&self) {
        self.plan().away.clear();
    }

    /// The next claim finds that an equal leg has claimed the round just before, whose owner is never heard of again.
    pub fn lose_an_owner(&self) {
        self.plan().owner_is_lost = true;
    }

    /// Waits until this was asked of it so many times.
    pub async fn asked(&self, step: Step, times: usize) {
        let mut asked = self.asked.subscribe();
        let enough = |asked: &HashMap<Step, usize>| asked.get(&step).is_some_and(|count| *count >= times);
        asked.wait_for(enough).await.expect("the ledger is there");
    }

    /// How many claims were asked of it.
    pub fn claims_so_far(&self) -> usize {
        self.asked.borrow().get(&Step::Claim).copied().unwrap_or_default()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("nobody panics with it")
    }

    /// Does it, unless it is away; then tells whoever waits for it.
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
    fn admit(&self, id: ClaimId, keep: Keep, spill: Option<Vec<u8>>) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.when_there(Step::Admit, || self.kept.admit(id, keep, spill))
    }

    fn claim(&self, id: ClaimId, bid: Bid) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        if std::mem::take(&mut self.plan().owner_is_lost) {
            drop(self.kept.claim(id, bid));
        }
        self.when_there(Step::Claim, || self.kept.claim(id, bid))
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
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.when_there(Step::Settle, || self.kept.settle(id, fence, reply, spill))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: Orphan,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.when_there(Step::Release, || self.kept.release(id, fence, orphan, unless_awaited))
    }
}
