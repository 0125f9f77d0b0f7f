//! The ledger of one process.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{Bid, Claim, ClaimId, Claimed, Fence, Keep, Ledger, LedgerError, Orphan, Spill, Step};
use crate::clock::{BoxFuture, Timestamp};

/// Keeps claims and replies in this process's memory.
///
/// Claims are small records of fixed size and are kept [until their time](super::Keep), under any pressure: when there are
/// as many as the limit, new flows are refused instead. Replies are kept within a budget of bytes, and the oldest go
/// first; a retry of one that is gone gets the frozen error, and never runs again.
///
/// It forgets everything on a restart. With keys that outlive the process, a token of a [`Round`](crate::Round) that was
/// used before the restart can then be used once more until it expires; where that matters, share a ledger that outlives
/// the process too.
#[derive(Debug, Clone)]
pub struct MemoryLedger {
    table: Arc<Mutex<Table>>,
}

impl MemoryLedger {
    /// How many claims are kept by default.
    pub const CLAIMS: usize = 100_000;
    /// How many bytes of replies are kept by default.
    pub const REPLY_BYTES: usize = 64 << 20;

    /// A ledger with the default limits.
    pub fn new() -> Self {
        Self::with_limits(Self::CLAIMS, Self::REPLY_BYTES)
    }

    /// A ledger that holds this many open claims and this many bytes of replies.
    pub fn with_limits(claims: usize, reply_bytes: usize) -> Self {
        Self {
            table: Arc::new(Mutex::new(Table {
                claims: HashMap::new(),
                expiry: BinaryHeap::new(),
                replies: Replies::new(reply_bytes),
                limit: claims,
            })),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics halfway through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many claims are kept now.
    pub fn claims(&self) -> usize {
        self.table().claims.len()
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Table {
    claims: HashMap<ClaimId, Entry>,
    /// When each claim may be forgotten, the soonest first.
    expiry: BinaryHeap<Reverse<(Timestamp, ClaimId)>>,
    replies: Replies,
    limit: usize,
}

#[derive(Debug, Default)]
struct Entry {
    claim: Claim,
    /// Wakes those who wait for the reply. There only while somebody waits.
    awaited: Option<Arc<Notify>>,
    /// What the round's token could not carry. There only until it is settled.
    spill: Option<Vec<u8>>,
}

impl Table {
    fn forget_expired(&mut self, now: Timestamp) {
        while let Some(&Reverse((until, id))) = self.expiry.peek() {
            if now < until {
                return;
            }
            self.expiry.pop();
            let running = self.claims.get(&id).and_then(|entry| entry.claim.running_until());
            if let Some(lease_until) = running.filter(|lease_until| now < *lease_until) {
                self.expiry.push(Reverse((lease_until, id)));
            } else {
                self.claims.remove(&id);
                self.replies.remove(id);
            }
        }
    }

    fn entry(&mut self, id: ClaimId, keep: Keep) -> &mut Entry {
        self.claims.entry(id).or_insert_with(|| {
            self.expiry.push(Reverse((keep.until, id)));
            Entry::default()
        })
    }

    /// Changes a claim and wakes whoever waits for the outcome.
    fn change<T>(&mut self, id: ClaimId, change: impl FnOnce(&mut Claim) -> T) -> Option<T> {
        let entry = self.claims.get_mut(&id)?;
        let outcome = change(&mut entry.claim);
        if let Some(awaited) = entry.awaited.take_if(|_| entry.claim.running_until().is_none()) {
            awaited.notify_waiters();
        }
        Some(outcome)
    }
}

impl Ledger for MemoryLedger {
    fn admit(&self, id: ClaimId, keep: Keep, spill: Option<Vec<u8>>) -> BoxFuture<'_, Result<(), LedgerError>> {
        let mut table = self.table();
        table.forget_expired(keep.now);
        let admitted = if table.claims.len() < table.limit {
            table.entry(id, keep).spill = spill;
            Ok(())
        } else {
            Err(LedgerError::Full { limit: table.limit })
        };
        ready(admitted)
    }

    fn claim(&self, id: ClaimId, bid: Bid) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        let mut table = self.table();
        table.forget_expired(bid.keep.now);
        let entry = table.entry(id, bid.keep);
        let now = bid.keep.now;
        let claimed = match entry.claim.take(bid.answers, now, now + bid.lease, bid.orphan) {
            Step::Fresh(fence) => Claimed::Fresh { fence, spilled: entry.spill.clone() },
            Step::Running => {
                let awaited = entry.awaited.get_or_insert_default().clone();
                Claimed::Running(Box::pin(wait(awaited)))
            }
            Step::Done => Claimed::Done(table.replies.get(id)),
            Step::AnsweredOtherwise => Claimed::AnsweredOtherwise,
            Step::Dead => Claimed::Dead,
        };
        ready(Ok(claimed))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let renewed = self.table().change(id, |claim| claim.renew(fence, lease_until));
        ready(Ok(renewed.unwrap_or(false)))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let mut table = self.table();
        let settled = table.change(id, |claim| claim.settle(fence)).unwrap_or(false);
        if settled {
            if let Some(entry) = table.claims.get_mut(&id) {
                entry.spill = None;
            }
            if let Some(reply) = reply {
                table.replies.insert(id, reply);
            }
            if let Some(Spill { id, keep, state }) = spill {
                table.entry(id, keep).spill = Some(state);
            }
        }
        ready(Ok(settled))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: Orphan,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let mut table = self.table();
        let awaited = |entry: &Entry| entry.awaited.as_ref().is_some_and(|awaited| Arc::strong_count(awaited) > 1);
        let kept = unless_awaited && table.claims.get(&id).is_some_and(awaited);
        if !kept {
            table.change(id, |claim| claim.release(fence, orphan));
        }
        ready(Ok(kept))
    }
}

/// Waits to be woken. `Notified` registers when it is made, so no wake-up between the claim and the first poll is lost.
fn wait(awaited: Arc<Notify>) -> impl Future<Output = ()> {
    let notified = awaited.clone().notified_owned();
    async move {
        notified.await;
        drop(awaited);
    }
}

fn ready<T: Send + 'static>(outcome: Result<T, LedgerError>) -> BoxFuture<'static, Result<T, LedgerError>> {
    Box::pin(std::future::ready(outcome))
}

/// Replies within a budget of bytes, the oldest dropped first.
#[derive(Debug)]
struct Replies {
    kept: HashMap<ClaimId, Vec<u8>>,
    order: VecDeque<ClaimId>,
    bytes: usize,
    budget: usize,
}

impl Replies {
    fn new(budget: usize) -> Self {
        Self { kept: HashMap::new(), order: VecDeque::new(), bytes: 0, budget }
    }

    fn get(&self, id: ClaimId) -> Option<Vec<u8>> {
        self.kept.get(&id).cloned()
    }

    fn insert(&mut self, id: ClaimId, reply: Vec<u8>) {
        if reply.len() > self.budget {
            return;
        }
        self.bytes += reply.len();
        self.order.push_back(id);
        self.kept.insert(id, reply);
        while self.bytes > self.budget
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: ClaimId) {
        if let Some(reply) = self.kept.remove(&id) {
            self.bytes -= reply.len();
            // The order keeps names of replies that expired; they are worth a sweep when they are most of it.
            if self.order.len() > 2 * self.kept.len() + 16 {
                self.order.retain(|id| self.kept.contains_key(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ledger::{What, suite},
        seal::{Digest, FlowId},
    };

    #[tokio::test]
    async fn it_passes_the_suite() {
        suite::run(|| async { MemoryLedger::new() }).await;
    }

    fn round(number: u32) -> ClaimId {
        ClaimId { flow: FlowId::from_bytes([1; 16]), what: What::Round(number) }
    }

    fn keep(now: u64, until: u64) -> Keep {
        Keep { now: Timestamp::from_millis(now), until: Timestamp::from_millis(until) }
    }

    fn bid(now: u64, until: u64) -> Bid {
        Bid {
            answers: Digest::of_principal("yes"),
            keep: keep(now, until),
            lease: std::time::Duration::from_millis(30),
            orphan: Orphan::Free,
        }
    }

    #[tokio::test]
    async fn when_claims_are_full_new_flows_are_shed_and_open_ones_go_on() {
        let ledger = MemoryLedger::with_limits(2, 1 << 20);
        ledger.admit(round(1), keep(0, 100), None).await.unwrap();
        ledger.admit(round(2), keep(0, 200), None).await.unwrap();
        let shed = ledger.admit(round(3), keep(0, 200), None).await;
        assert!(matches!(shed, Err(LedgerError::Full { limit: 2 })));
        assert!(matches!(ledger.claim(round(1), bid(0, 100)).await, Ok(Claimed::Fresh { fence: 1, .. })));
        assert!(
            matches!(ledger.claim(round(4), bid(0, 300)).await, Ok(Claimed::Fresh { fence: 1, .. })),
            "the next round of a flow"
        );
        assert!(ledger.admit(round(3), keep(99, 200), None).await.is_err(), "no claim goes before its time");
        assert!(ledger.admit(round(3), keep(200, 300), None).await.is_ok());
    }

    #[tokio::test]
    async fn a_claim_at_work_outlives_its_expiry_and_is_forgotten_after_its_lease() {
        let ledger = MemoryLedger::new();
        assert!(matches!(ledger.claim(round(1), bid(90, 100)).await, Ok(Claimed::Fresh { fence: 1, .. })));
        ledger.admit(round(2), keep(110, 200), None).await.unwrap();
        assert_eq!(ledger.claims(), 2);
        assert!(ledger.settle(round(1), 1, None, None).await.unwrap());
        ledger.admit(round(3), keep(121, 200), None).await.unwrap();
        assert_eq!(ledger.claims(), 2);
    }

    #[tokio::test]
    async fn the_oldest_reply_goes_first_and_its_claim_stays() {
        let ledger = MemoryLedger::with_limits(10, 20);
        for number in 1..=3 {
            let Ok(Claimed::Fresh { fence, .. }) = ledger.claim(round(number), bid(0, 100)).await else {
                panic!("a new round is free");
            };
            assert!(ledger.settle(round(number), fence, Some(vec![0; 9]), None).await.unwrap());
        }
        let again = |number| ledger.claim(round(number), bid(1, 100));
        assert!(matches!(again(1).await, Ok(Claimed::Done(None))), "gone, and not free again");
        assert!(matches!(again(2).await, Ok(Claimed::Done(Some(_)))));
        assert!(matches!(again(3).await, Ok(Claimed::Done(Some(_)))));
    }

    #[tokio::test]
    async fn a_round_that_is_over_needs_no_state_any_more() {
        let ledger = MemoryLedger::new();
        ledger.admit(round(1), keep(0, 100), Some(vec![0; 9])).await.unwrap();
        assert!(matches!(ledger.claim(round(1), bid(0, 100)).await, Ok(Claimed::Fresh { spilled: Some(_), .. })));
        assert!(ledger.settle(round(1), 1, None, None).await.unwrap());
        assert_eq!(ledger.table().claims[&round(1)].spill, None);
    }

    #[tokio::test]
    async fn nothing_is_left_when_all_has_expired() {
        let ledger = MemoryLedger::new();
        for number in 1..=100 {
            let claimed = ledger.claim(round(number), bid(0, u64::from(number))).await;
            assert!(matches!(claimed, Ok(Claimed::Fresh { fence: 1, .. })));
            ledger.settle(round(number), 1, Some(vec![1, 2, 3]), None).await.unwrap();
        }
        ledger.admit(round(101), keep(1000, 2000), None).await.unwrap();
        let table = ledger.table();
        assert_eq!((table.claims.len(), table.replies.bytes, table.replies.kept.len()), (1, 0, 0));
        assert!(table.expiry.len() == 1 && table.replies.order.len() <= 16);
    }
}
