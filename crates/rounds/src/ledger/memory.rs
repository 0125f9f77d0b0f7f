//! The ledger of one process.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hashbrown::HashTable;
use tokio::sync::Notify;

use super::{Bid, Claim, ClaimId, Claimed, Fence, Keep, Ledger, LedgerError, Orphan, Spill, Step, What};
use crate::clock::{BoxFuture, Timestamp};

/// Keeps claims and replies in this process's memory.
///
/// Claims are small records of fixed size and are kept [until their time](super::Keep), under any pressure: when there are
/// as many as the limit, new flows are refused instead. Replies are kept within a budget of bytes, and the oldest go
/// first; a retry of one that is gone gets the frozen error, and never runs again.
///
/// States that [spill](crate::RoundsBuilder::spill) are in neither budget: each is as large as
/// [`Limits::spill_bytes`](crate::Limits::spill_bytes) at most, and is kept as long as its round. Rounds and effects of flows that were let in
/// are kept beyond the limit of claims.
///
/// It forgets everything on a restart. With keys that outlive the process, a token of a [`Round`](crate::Round) that was
/// used before the restart can then be used once more until it expires; where that matters, share a ledger that outlives
/// the process too.
///
/// It lives where the keys do, and is the only ledger that gets replies, values of effects and states as they are, and not
/// [sealed](super::Ledger): one that wraps it gets them sealed.
#[derive(Clone)]
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
                places: HashTable::new(),
                entries: Vec::new(),
                free: Vec::new(),
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
        self.table().places.len()
    }
}

/// Without anything that somebody said.
impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        f.debug_struct("MemoryLedger")
            .field("claims", &table.places.len())
            .field("limit", &table.limit)
            .field("reply_bytes", &table.replies.bytes)
            .finish_non_exhaustive()
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

/// Claims one after the other, and where each of them is: what is looked up is small, and stays small when there are many.
struct Table {
    /// Where in `entries` a claim is, by its name. The hash of the name is kept beside it: to grow, nothing else is looked at.
    places: HashTable<(u64, usize)>,
    entries: Vec<Entry>,
    /// The places in `entries` that no claim has.
    free: Vec<usize>,
    /// When each claim may be forgotten, the soonest first.
    expiry: BinaryHeap<Reverse<(Timestamp, usize)>>,
    replies: Replies,
    limit: usize,
}

struct Entry {
    id: ClaimId,
    claim: Claim,
    /// Wakes those who wait for the reply. There only while somebody waits.
    awaited: Option<Arc<Notify>>,
    kept: Kept,
}

/// What is kept beside a claim.
#[derive(Default)]
enum Kept {
    #[default]
    Nothing,
    /// What the round's token could not carry, until it is settled.
    Spill(Box<[u8]>),
    Reply(Spot),
}

impl Kept {
    fn spill(state: Option<Vec<u8>>) -> Self {
        state.map_or(Self::Nothing, |state| Self::Spill(state.into()))
    }
}

impl Table {
    fn forget_expired(&mut self, now: Timestamp) {
        while let Some(&Reverse((until, place))) = self.expiry.peek() {
            if now < until {
                return;
            }
            self.expiry.pop();
            let running = self.entries[place].claim.running_until();
            if let Some(lease_until) = running.filter(|lease_until| now < *lease_until) {
                self.expiry.push(Reverse((lease_until, place)));
            } else {
                self.forget(place);
            }
        }
    }

    fn forget(&mut self, place: usize) {
        let entry = &mut self.entries[place];
        if let Kept::Reply(spot) = mem::take(&mut entry.kept) {
            self.replies.remove(spot);
        }
        entry.awaited = None;
        if let Ok(found) = self.places.find_entry(hash(&entry.id), |(_, found)| *found == place) {
            found.remove();
        }
        self.free.push(place);
    }

    fn find(&self, id: ClaimId) -> Option<usize> {
        let hash = hash(&id);
        let found = self.places.find(hash, |(other, place)| *other == hash && self.entries[*place].id == id);
        found.map(|(_, place)| *place)
    }

    fn get(&mut self, id: ClaimId) -> Option<&mut Entry> {
        self.find(id).map(|place| &mut self.entries[place])
    }

    fn get_or_insert(&mut self, id: ClaimId, keep: Keep) -> &mut Entry {
        let place = self.find(id).unwrap_or_else(|| self.insert(id, keep.until));
        &mut self.entries[place]
    }

    fn insert(&mut self, id: ClaimId, until: Timestamp) -> usize {
        let entry = Entry { id, claim: Claim::default(), awaited: None, kept: Kept::Nothing };
        let place = self.free.pop().unwrap_or(self.entries.len());
        match self.entries.get_mut(place) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        let hash = hash(&id);
        self.places.insert_unique(hash, (hash, place), |(hash, _)| *hash);
        self.expiry.push(Reverse((until, place)));
        place
    }
}

/// The names of flows and effects are digests here, that nobody can choose: a part of them is as good as a hash.
fn hash(id: &ClaimId) -> u64 {
    let part = |digest: &[u8]| digest.first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
    let what = match &id.what {
        What::Round(number) => u64::from(*number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        What::Once(name) => part(name.as_bytes()),
    };
    part(id.flow.as_bytes()) ^ what
}

impl Ledger for MemoryLedger {
    fn admit(&self, id: ClaimId, keep: Keep, spill: Option<Vec<u8>>) -> BoxFuture<'_, Result<(), LedgerError>> {
        let mut table = self.table();
        table.forget_expired(keep.now);
        let admitted = if table.places.len() < table.limit {
            table.get_or_insert(id, keep).kept = Kept::spill(spill);
            Ok(())
        } else {
            Err(LedgerError::Full { limit: table.limit })
        };
        ready(admitted)
    }

    fn claim(&self, id: ClaimId, bid: Bid) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        let mut table = self.table();
        table.forget_expired(bid.keep.now);
        let entry = table.get_or_insert(id, bid.keep);
        let now = bid.keep.now;
        let claimed = match entry.claim.take(bid.answers, now, now + bid.lease, bid.orphan) {
            Step::Fresh(fence) => {
                let spilled = if let Kept::Spill(state) = &entry.kept { Some(state.to_vec()) } else { None };
                Claimed::Fresh { fence, spilled }
            }
            Step::Running => {
                let awaited = entry.awaited.get_or_insert_default().clone();
                Claimed::Running(Box::pin(wait(awaited)))
            }
            Step::Done => {
                let spot = if let Kept::Reply(spot) = entry.kept { Some(spot) } else { None };
                Claimed::Done(spot.and_then(|spot| table.replies.get(spot)))
            }
            Step::AnsweredOtherwise => Claimed::AnsweredOtherwise,
            Step::Dead => Claimed::Dead,
        };
        ready(Ok(claimed))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let mut table = self.table();
        let renewed = table.get(id).is_some_and(|entry| entry.claim.renew(fence, lease_until));
        ready(Ok(renewed))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let mut table = self.table();
        let Some(place) = table.find(id) else { return ready(Ok(false)) };
        let Table { entries, replies, .. } = &mut *table;
        let entry = &mut entries[place];
        if !entry.claim.settle(fence) {
            return ready(Ok(false));
        }
        let spot = reply.and_then(|reply| replies.insert(&reply));
        entry.kept = spot.map_or(Kept::Nothing, Kept::Reply);
        if let Some(awaited) = entry.awaited.take() {
            awaited.notify_waiters();
        }
        if let Some(Spill { id, keep, state }) = spill {
            table.get_or_insert(id, keep).kept = Kept::Spill(state.into());
        }
        ready(Ok(true))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: Orphan,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let mut table = self.table();
        let Some(entry) = table.get(id) else { return ready(Ok(false)) };
        let is_awaited = entry.awaited.as_ref().is_some_and(|awaited| Arc::strong_count(awaited) > 1);
        if unless_awaited && is_awaited {
            return ready(Ok(true));
        }
        entry.claim.release(fence, orphan);
        if let Some(awaited) = entry.awaited.take_if(|_| entry.claim.running_until().is_none()) {
            awaited.notify_waiters();
        }
        ready(Ok(false))
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
///
/// They are written one after the other into large pieces of memory. In a piece of its own, each would stay behind among the
/// many that a leg needs for a moment, for minutes, and leave an allocator with holes to search.
struct Replies {
    segments: VecDeque<Segment>,
    /// The number of the first segment that is still there.
    first: u64,
    bytes: usize,
    budget: usize,
}

#[derive(Default)]
struct Segment {
    bytes: Vec<u8>,
    /// How many replies in it may still be asked for.
    wanted: usize,
}

/// Where a reply is.
#[derive(Clone, Copy)]
struct Spot {
    segment: u64,
    start: u32,
    end: u32,
}

impl Replies {
    /// How long a segment gets, in a budget that has room for many.
    const SEGMENT_BYTES: usize = 64 << 10;

    fn new(budget: usize) -> Self {
        Self { segments: VecDeque::new(), first: 0, bytes: 0, budget }
    }

    fn get(&self, Spot { segment, start, end }: Spot) -> Option<Vec<u8>> {
        let place = segment.checked_sub(self.first)?;
        let segment = self.segments.get(usize::try_from(place).ok()?)?;
        Some(segment.bytes[start as usize..end as usize].to_vec())
    }

    /// None for one that is too large to be kept.
    fn insert(&mut self, reply: &[u8]) -> Option<Spot> {
        if reply.len() > self.budget {
            return None;
        }
        let room = Self::SEGMENT_BYTES.min(self.budget / 64).max(reply.len());
        let fits = |segment: &&mut Segment| segment.bytes.len() + reply.len() <= segment.bytes.capacity();
        if self.segments.back_mut().filter(fits).is_none() {
            if let Some(full) = self.segments.back_mut() {
                // What is left in it is not in the budget.
                full.bytes.shrink_to_fit();
            }
            self.segments.push_back(Segment { bytes: Vec::with_capacity(room), wanted: 0 });
        }
        let number = self.first + self.segments.len() as u64 - 1;
        let segment = self.segments.back_mut()?;
        let start = u32::try_from(segment.bytes.len()).ok()?;
        let end = start.checked_add(reply.len().try_into().ok()?)?;
        segment.bytes.extend_from_slice(reply);
        segment.wanted += 1;
        self.bytes += reply.len();
        while self.bytes > self.budget {
            self.drop_first();
        }
        Some(Spot { segment: number, start, end })
    }

    /// Nobody will ask for it any more.
    fn remove(&mut self, spot: Spot) {
        let place = spot.segment.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(segment) = place.and_then(|place| self.segments.get_mut(place)) {
            segment.wanted -= 1;
            if segment.wanted == 0 {
                // Those before it may be wanted for longer.
                self.bytes -= segment.bytes.len();
                segment.bytes = Vec::new();
            }
        }
        while self.segments.front().is_some_and(|segment| segment.wanted == 0) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            self.bytes -= segment.bytes.len();
            self.first += 1;
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
    async fn replies_that_share_memory_come_back_as_they_were_and_go_by_age() {
        let ledger = MemoryLedger::with_limits(1000, 6400);
        let reply = |number: u32| number.to_be_bytes().repeat(8);
        for number in 1..=300 {
            assert!(matches!(ledger.claim(round(number), bid(0, 100)).await, Ok(Claimed::Fresh { fence: 1, .. })));
            assert!(ledger.settle(round(number), 1, Some(reply(number)), None).await.unwrap());
        }
        let mut kept = 0;
        for number in 1..=300 {
            match ledger.claim(round(number), bid(1, 100)).await.unwrap() {
                Claimed::Done(None) => assert_eq!(kept, 0, "{number} is gone, and an older one is not"),
                Claimed::Done(Some(again)) => {
                    assert_eq!(again, reply(number));
                    kept += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let table = ledger.table();
        assert_eq!(table.replies.bytes, kept * 32);
        assert!((6400 - 100..=6400).contains(&table.replies.bytes), "{} of 6400 bytes", table.replies.bytes);
        assert!(table.replies.segments.len() < kept);
    }

    #[test]
    fn replies_of_any_size_take_the_memory_that_they_may() {
        let budget = 4 << 20;
        for bytes in [100, (33 << 10) + 1, 65 << 10] {
            let mut replies = Replies::new(budget);
            for _ in 0..2 * budget / bytes {
                assert!(replies.insert(&vec![0; bytes]).is_some());
            }
            let held: usize = replies.segments.iter().map(|segment| segment.bytes.capacity()).sum();
            assert!(held <= budget + Replies::SEGMENT_BYTES, "{held} bytes for replies of {bytes}");
        }
    }

    #[tokio::test]
    async fn a_reply_that_is_wanted_for_long_does_not_keep_those_that_are_not() {
        let ledger = MemoryLedger::with_limits(1000, 6400);
        for number in 1..=100 {
            let until = if number == 1 { 1000 } else { 100 };
            assert!(matches!(ledger.claim(round(number), bid(0, until)).await, Ok(Claimed::Fresh { fence: 1, .. })));
            assert!(ledger.settle(round(number), 1, Some(vec![7; 32]), None).await.unwrap());
        }
        ledger.admit(round(101), keep(200, 300), None).await.unwrap();
        assert!(ledger.table().replies.bytes < 100, "no more than the segment of the one");
        assert!(
            matches!(ledger.claim(round(1), bid(201, 1000)).await, Ok(Claimed::Done(Some(reply))) if reply == [7; 32])
        );
    }

    #[tokio::test]
    async fn a_round_that_is_over_needs_no_state_any_more() {
        let ledger = MemoryLedger::new();
        ledger.admit(round(1), keep(0, 100), Some(vec![0; 9])).await.unwrap();
        assert!(matches!(ledger.claim(round(1), bid(0, 100)).await, Ok(Claimed::Fresh { spilled: Some(_), .. })));
        assert!(ledger.settle(round(1), 1, None, None).await.unwrap());
        assert!(matches!(ledger.table().get(round(1)).unwrap().kept, Kept::Nothing));
    }

    #[tokio::test]
    async fn a_ledger_that_is_printed_says_nothing_of_what_it_keeps() {
        let ledger = MemoryLedger::with_limits(9, 99);
        ledger.admit(round(1), keep(0, 100), Some(b"spilled".into())).await.unwrap();
        ledger.claim(round(2), bid(0, 100)).await.unwrap();
        assert!(ledger.settle(round(2), 1, Some(b"replied".into()), None).await.unwrap());
        assert_eq!(format!("{ledger:?}"), "MemoryLedger { claims: 2, limit: 9, reply_bytes: 7, .. }");
    }

    #[tokio::test]
    async fn claims_whose_names_hash_alike_are_two() {
        let named = |part: u64, number| {
            let mut flow = [7; 16];
            flow[..8].copy_from_slice(&part.to_le_bytes());
            ClaimId { flow: FlowId::from_bytes(flow), what: What::Round(number) }
        };
        let one = named(0, 1);
        let two = named(hash(&one) ^ hash(&named(0, 2)), 2);
        assert_eq!(hash(&one), hash(&two));
        let ledger = MemoryLedger::new();
        for (id, until) in [(one, 100), (two, 200)] {
            assert!(matches!(ledger.claim(id, bid(0, until)).await, Ok(Claimed::Fresh { fence: 1, .. })));
        }
        for (id, reply) in [(one, 1), (two, 2)] {
            assert!(ledger.settle(id, 1, Some(vec![reply]), None).await.unwrap());
        }
        assert!(matches!(ledger.claim(one, bid(1, 100)).await, Ok(Claimed::Done(Some(reply))) if reply == [1]));
        let left = ledger.claim(two, bid(150, 200)).await;
        assert!(matches!(left, Ok(Claimed::Done(Some(reply))) if reply == [2]), "the other has expired");
        assert_eq!(ledger.claims(), 1);
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
        assert_eq!((table.places.len(), table.expiry.len()), (1, 1));
        assert_eq!((table.replies.bytes, table.replies.segments.len()), (0, 0));
    }
    #[tokio::test]
    async fn a_claim_in_the_place_of_one_that_is_over_has_nothing_of_it() {
        let ledger = MemoryLedger::new();
        for number in 1..=300 {
            let now = u64::from(number) * 10;
            ledger.admit(round(number), keep(now, now + 95), Some(number.to_be_bytes().into())).await.unwrap();
            let claimed = ledger.claim(round(number), bid(now, now + 95)).await;
            let Ok(Claimed::Fresh { fence: 1, spilled: Some(state) }) = claimed else { panic!("{claimed:?}") };
            assert_eq!(state, number.to_be_bytes());
            // One in two ends, and the other is left to its lease.
            if number % 2 == 0 {
                ledger.settle(round(number), 1, Some(vec![1, 2, 3]), None).await.unwrap();
            }
        }
        assert!(ledger.table().entries.len() < 20, "places are used again");
        let claimed = ledger.claim(round(1), bid(3000, 3100)).await;
        assert!(matches!(claimed, Ok(Claimed::Fresh { fence: 1, spilled: None })), "forgotten: {claimed:?}");
    }
}
