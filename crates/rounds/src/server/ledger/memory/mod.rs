//! The ledger in the memory of one process.

mod documents;
mod flows;
mod replies;
mod shares;
mod table;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use self::{
    documents::DocumentTable,
    flows::FlowTable,
    replies::Replies,
    shares::MemoryShares,
    table::{CLAIM_BYTES, ClaimName, ClaimTable, SlotPlace, SlotState, due},
};
use crate::{
    server::{
        ledger::{
            Claim, ClaimId, ClaimKind, ClaimRequest, ClaimStep, Claimed, Fence, Ledger, LedgerError, OwnerLost,
            Retention, Spill,
            documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
            register::{
                FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStation, FlowStatus,
                Register, Watch,
            },
        },
        seal::FlowId,
    },
    shared::clock::{BoxFuture, Timestamp},
};

/// A ledger in this process's memory.
///
/// Claims are small records of one size: 64 bytes each, and 128 more while a leg runs them. They are kept for [their
/// full time](super::Retention), under any load: if another claim does not fit, the client is asked to send the same
/// request again, and nothing has run. Replies have a budget of their own, and the oldest are dropped first. A retry
/// whose reply was dropped gets the frozen error; its leg never runs again.
///
/// ```
/// use rounds::ledger::MemoryLedger;
///
/// let ledger = MemoryLedger::new().with_claim_bytes(64 << 20).with_reply_bytes(16 << 20);
/// assert_eq!(ledger.claims(), 0);
/// ```
///
/// States that [spill](crate::RoundsBuilder::spill) count with the claims, by their size, and may take half of the
/// space: a first leg can make one, and answers need the rest.
///
/// If the server identifies [principals](crate::Principal), each of them has a share of the space for claims, and all
/// callers without a principal together have another: see [`with_principal_bytes`](Self::with_principal_bytes) and
/// [`with_anonymous_bytes`](Self::with_anonymous_bytes).
///
/// A restart loses everything. With keys that outlive the process, a token of a [`Round`](crate::Round) that was used
/// before the restart can then be used once more until it expires. If that matters, share a ledger that outlives the
/// process too.
///
/// It is in the same process as the keys, and is the only ledger that gets replies, values of effects and states as
/// plain values and not [sealed](super::Ledger). A ledger that wraps it gets them sealed.
#[derive(Clone)]
pub struct MemoryLedger {
    records: Arc<Mutex<Records>>,
}

impl MemoryLedger {
    /// Default memory for claims: 384 MiB, which is about six million claims.
    pub const CLAIM_BYTES: usize = 384 << 20;
    /// Default memory for replies: 64 MiB.
    pub const REPLY_BYTES: usize = 64 << 20;

    /// Default memory for the records of flows, if the server keeps a [register](crate::RoundsBuilder::register): 256 MiB.
    pub const FLOW_BYTES: usize = 256 << 20;

    /// Default memory for [documents](super::documents): 64 MiB.
    pub const DOCUMENT_BYTES: usize = 64 << 20;

    /// A ledger with the default limits. It allocates memory as needed, and at most 512 MiB in all, or 832 MiB with a
    /// register and documents.
    pub fn new() -> Self {
        let records = Records {
            table: ClaimTable::new(),
            held: Vec::new(),
            free: Vec::new(),
            spilled: 0,
            shares: MemoryShares::new(Self::CLAIM_BYTES),
            replies: Replies::new(Self::REPLY_BYTES),
            flows: FlowTable::new(Self::FLOW_BYTES),
            documents: DocumentTable::new(Self::DOCUMENT_BYTES),
        };
        Self { records: Arc::new(Mutex::new(records)) }
    }

    /// Sets the memory limit of claims, with the states that spill. Existing records stay for their full time.
    pub fn with_claim_bytes(self, bytes: usize) -> Self {
        self.records().shares.set_limit(bytes.min(ClaimTable::MOST_BYTES));
        self
    }

    /// Sets the memory limit of the claims of all callers without a principal together: by default half of the memory
    /// for claims. It applies once the server identifies principals: if [`principal`](crate::RoundsBuilder::principal)
    /// was called, or after the first request with one.
    pub fn with_anonymous_bytes(self, bytes: usize) -> Self {
        self.records().shares.set_anonymous_limit(bytes);
        self
    }

    /// Sets the memory limit of the claims of one principal: a tenth of the memory for claims by default.
    pub fn with_principal_bytes(self, bytes: usize) -> Self {
        self.records().shares.set_principal_limit(bytes);
        self
    }

    /// Sets the memory limit of replies.
    pub fn with_reply_bytes(self, bytes: usize) -> Self {
        self.records().replies.set_budget(bytes);
        self
    }

    /// Sets the memory limit of the records of flows. One principal may take a tenth of it, and all callers without a
    /// principal together one half, once the server identifies principals.
    pub fn with_flow_bytes(self, bytes: usize) -> Self {
        self.records().flows.set_limit(bytes);
        self
    }

    /// The memory that the records of flows count now.
    pub fn flow_bytes(&self) -> usize {
        self.records().flows.bytes()
    }

    /// Sets the memory limit of [documents](super::documents). One principal may take a tenth of it, and all callers
    /// without a principal together one half, once the server identifies principals.
    pub fn with_document_bytes(self, bytes: usize) -> Self {
        self.records().documents.set_limit(bytes);
        self
    }

    /// The memory that documents count now.
    pub fn document_bytes(&self) -> usize {
        self.records().documents.bytes()
    }

    /// The number of claims that are kept now.
    pub fn claims(&self) -> usize {
        self.records().table.count()
    }

    /// The memory that they count now, with the states that spilled.
    pub fn claim_bytes(&self) -> usize {
        self.records().shares.used()
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // No code panics while it holds the lock, so the data is consistent.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints counts only, and no data of clients or handlers.
impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records();
        f.debug_struct("MemoryLedger")
            .field("claims", &records.table.count())
            .field("claim_bytes", &records.shares.used())
            .field("limit", &records.shares.limit())
            .field("reply_bytes", &records.replies.bytes())
            .finish_non_exhaustive()
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger for MemoryLedger {
    fn is_beside_the_keys(&self, _: super::sealed::Sealed) -> bool {
        true
    }

    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        let mut records = self.records();
        records.forget_expired(spill.keep.now, FORGOTTEN);
        ready(records.make_room_for(&spill).map(|()| records.keep_spill(spill)))
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        ready(self.records().claim(id, request))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        ready(Ok(self.records().renew(id, fence, lease_until)))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        ready(self.records().settle(id, fence, reply.as_deref(), spill, &spent))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        ready(Ok(self.records().release(id, fence, orphan, unless_awaited, None)))
    }

    fn register(&self) -> Option<&dyn Register> {
        Some(self)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

impl Documents for MemoryLedger {
    fn read(&self, id: DocumentId, now: Timestamp) -> BoxFuture<'_, Result<Option<Document>, LedgerError>> {
        ready(Ok(self.records().documents.read(id, now)))
    }

    fn write(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> BoxFuture<'_, Result<Option<Version>, LedgerError>> {
        let (mut records, tell) = (self.records(), change.tell);
        let written = records.documents.write(id, before, change);
        if let (Ok(Some(_)), Some(changed)) = (&written, tell) {
            records.flows.tell(changed);
        }
        ready(written)
    }

    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<DueDocument>, LedgerError>> {
        ready(Ok(self.records().documents.due(kind, now, after, most)))
    }

    fn remove(&self, id: DocumentId) -> BoxFuture<'_, Result<bool, LedgerError>> {
        ready(Ok(self.records().documents.remove(id)))
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        ready(Ok(self.records().documents.sweep(now, most)))
    }
}

impl Register for MemoryLedger {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        ready(self.records().begin(change, spill))
    }

    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        ready(self.records().claim_with(id, request, change))
    }

    fn settle_with(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        ready(self.records().settle_with(id, fence, reply.as_deref(), spill, &spent, change))
    }

    fn release_with(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        ready(Ok(self.records().release(id, fence, orphan, unless_awaited, Some(change))))
    }

    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>> {
        ready(Ok(self.records().flows.get(id, now)))
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        ready(Ok(self.records().flows.list(&filter)))
    }

    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        let (mut counted, mut after, mut seen) = (HashMap::new(), None, 0);
        loop {
            let step = COUNTED_AT_ONCE.min(most - seen);
            // Legs take their turns between two steps.
            after = self.records().flows.count(&mut counted, (status, now), after, step);
            seen += step;
            if after.is_none() || seen >= most {
                break;
            }
        }
        ready(Ok(FlowCounts { by_target: counted.into_iter().collect(), is_whole: after.is_none() }))
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        ready(Ok(self.records().cancel(id, end)))
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        let mut records = self.records();
        let flows = records.flows.of(&which);
        for id in &flows {
            records.cancel(*id, end);
            records.flows.delete(*id, end);
        }
        ready(Ok(flows.len() as u64))
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        ready(Ok(self.records().flows.sweep(now, most)))
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        let (watcher, watch) = Watch::new();
        self.records().flows.watch(watcher);
        ready(Ok(watch))
    }
}

/// How many records are counted under one lock.
const COUNTED_AT_ONCE: usize = 1000;

/// How many expired claims one step removes: more than it adds, so that expired claims do not accumulate, and few
/// enough that no leg is delayed.
const FORGOTTEN: usize = 32;

/// How many expired claims one step removes before it fails with `Full`.
const FORGOTTEN_FOR_ROOM: usize = 4096;

/// What a claim counts in addition while a leg runs it, or while it has a spilled state.
const HELD_BYTES: usize = 128;

struct Records {
    table: ClaimTable,
    /// The details of the few claims that are running or have a spilled state.
    held: Vec<Option<Box<ClaimDetails>>>,
    /// The unused places in `held`.
    free: Vec<u32>,
    /// The size of all spilled states in bytes.
    spilled: usize,
    shares: MemoryShares,
    replies: Replies,
    flows: FlowTable,
    documents: DocumentTable,
}

#[derive(Default)]
struct ClaimDetails {
    claim: Claim,
    /// Wakes the legs that wait for the reply. None if no leg waits.
    awaited: Option<Arc<Notify>>,
    /// The state that the round's token could not carry, until the round is settled.
    spill: Option<Box<[u8]>>,
}

impl ClaimDetails {
    fn bytes(&self) -> usize {
        HELD_BYTES + self.spilled()
    }

    fn spilled(&self) -> usize {
        self.spill.as_ref().map_or(0, |state| state.len())
    }

    fn is_awaited(&self) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| Arc::strong_count(awaited) > 1)
    }

    fn wake(&mut self) {
        if let Some(awaited) = self.awaited.take() {
            awaited.notify_waiters();
        }
    }
}

/// The steps that change the record of a flow as well.
impl Records {
    fn begin(&mut self, change: FlowChange, spill: Option<Spill>) -> Result<(), LedgerError> {
        self.flows.make_room(&change)?;
        if let Some(spill) = spill {
            self.forget_expired(spill.keep.now, FORGOTTEN);
            self.make_room_for(&spill)?;
            self.keep_spill(spill);
        }
        self.flows.apply(change);
        Ok(())
    }

    fn claim_with(
        &mut self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> Result<Claimed, LedgerError> {
        if self.flows.is_cancelled(id.flow) {
            return Ok(Claimed::Cancelled);
        }
        if let Some(change) = &change {
            self.flows.make_room(change)?;
        }
        let claimed = self.claim(id, request)?;
        if let Some(change) = change {
            match &claimed {
                Claimed::Fresh { .. } => self.flows.apply(change),
                Claimed::AnsweredOtherwise => self.flows.refuse(&change, FlowStation::RefusedOtherAnswers),
                Claimed::Dead => self.flows.refuse(&change, FlowStation::RefusedDead),
                _ => {}
            }
        }
        Ok(claimed)
    }

    fn settle_with(
        &mut self,
        id: ClaimId,
        fence: Fence,
        reply: Option<&[u8]>,
        spill: Option<Spill>,
        spent: &[ClaimId],
        change: FlowChange,
    ) -> Result<bool, LedgerError> {
        let is_owner = self.find_held(id).is_some_and(|(_, held)| held.claim.is_run_by(fence));
        if is_owner {
            self.flows.make_room(&change)?;
        }
        let settled = self.settle(id, fence, reply, spill, spent)?;
        if settled {
            self.flows.apply(change);
        }
        Ok(settled)
    }

    fn release(
        &mut self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: Option<FlowChange>,
    ) -> bool {
        let Some((place, held)) = self.find_held(id) else { return false };
        if unless_awaited && held.is_awaited() {
            return true;
        }
        let change = change.filter(|_| held.claim.is_run_by(fence));
        held.claim.release(fence, orphan);
        self.rest(place);
        if let Some(change) = change {
            self.flows.apply(change);
        }
        false
    }

    fn renew(&mut self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> bool {
        let renewed = self.find_held(id).is_some_and(|(_, held)| held.claim.renew(fence, lease_until));
        if let (true, ClaimKind::Round(round)) = (renewed, id.what) {
            self.flows.renew(id.flow, round, lease_until);
        }
        renewed
    }

    /// Cancels a flow: its record, and the run that has its round.
    fn cancel(&mut self, id: FlowId, end: FlowEnd) -> Option<FlowStatus> {
        let (before, round) = self.flows.cancel(id, end)?;
        let held = self.find_held(ClaimId { flow: id, what: ClaimKind::Round(round) });
        if let Some((place, held)) = held.filter(|_| before.is_open()) {
            held.claim.kill();
            self.rest(place);
        }
        Some(before)
    }
}

impl Records {
    fn claim(&mut self, id: ClaimId, request: ClaimRequest) -> Result<Claimed, LedgerError> {
        let now = request.keep.now;
        self.forget_expired(now, FORGOTTEN);
        let name = ClaimName::of(id);
        let place = match self.table.find(name) {
            Some(place) => place,
            None => {
                self.make_room(request.keep, 0)?;
                self.insert(name, request.keep)
            }
        };
        let fence = match self.table[place].state {
            SlotState::Done { answers, reply } if answers == request.answers.half() => {
                return Ok(Claimed::Done(reply.and_then(|spot| self.replies.get(spot))));
            }
            SlotState::Done { .. } => return Ok(Claimed::AnsweredOtherwise),
            SlotState::Dead => return Ok(Claimed::Dead),
            SlotState::Free(fence) => Some(fence),
            SlotState::Held(_) => None,
        };
        if let Some(fence) = fence {
            self.hold(place, ClaimDetails { claim: Claim::released(fence), ..ClaimDetails::default() });
        }
        let Some(held) = self.held_at(place) else { return Ok(Claimed::Dead) };
        Ok(match held.claim.take(request.answers, now, now + request.lease, request.orphan) {
            ClaimStep::Fresh(fence) => {
                Claimed::Fresh { fence, spilled: held.spill.as_ref().map(|state| state.to_vec()) }
            }
            ClaimStep::Running => Claimed::Running(Box::pin(wait(held.awaited.get_or_insert_default().clone()))),
            ClaimStep::AnsweredOtherwise => Claimed::AnsweredOtherwise,
            // A claim that is done is not held.
            ClaimStep::Dead | ClaimStep::Done => {
                self.rest(place);
                Claimed::Dead
            }
        })
    }

    fn settle(
        &mut self,
        id: ClaimId,
        fence: Fence,
        reply: Option<&[u8]>,
        spill: Option<Spill>,
        spent: &[ClaimId],
    ) -> Result<bool, LedgerError> {
        let Some((_, held)) = self.find_held(id) else { return Ok(false) };
        let mut claim = held.claim;
        let Some(answers) = claim.answers().filter(|_| claim.settle(fence)) else { return Ok(false) };
        if let Some(spill) = &spill {
            self.make_room_for(spill)?;
        }
        // Making space may have removed other claims and moved this one.
        let Some((place, _)) = self.find_held(id) else { return Ok(false) };
        let reply = reply.and_then(|reply| self.replies.insert(reply));
        self.put_down(place, SlotState::Done { answers: answers.half(), reply });
        self.make_spent(self.table.due(place), spent);
        if let Some(spill) = spill {
            self.keep_spill(spill);
        }
        Ok(true)
    }

    /// Limits the lifetime of spent effects to that of the round in which they ran.
    fn make_spent(&mut self, due: table::Second, spent: &[ClaimId]) {
        for id in spent {
            let Some(place) = self.table.find(ClaimName::of(*id)) else { continue };
            let is_held = matches!(self.table[place].state, SlotState::Held(_));
            if !is_held && self.table.due(place) > due {
                self.table.move_to(place, due);
            }
        }
    }

    /// Removes expired claims if needed, until a claim with so many bytes of state fits.
    fn make_room(&mut self, keep: Retention, state: usize) -> Result<(), LedgerError> {
        let Err(full) = self.fits(keep, state) else { return Ok(()) };
        for _ in 0..FORGOTTEN_FOR_ROOM / FORGOTTEN {
            if self.forget_expired(keep.now, FORGOTTEN) == 0 {
                break;
            }
            if self.fits(keep, state).is_ok() {
                return Ok(());
            }
        }
        Err(full)
    }

    fn fits(&self, keep: Retention, state: usize) -> Result<(), LedgerError> {
        let limit = self.shares.limit() / 2;
        if state > 0 && self.spilled.saturating_add(state) > limit {
            return Err(LedgerError::Full { whose: "spilled states", limit });
        }
        self.shares.fits(keep.share, (CLAIM_BYTES + HELD_BYTES).saturating_add(state))
    }

    fn make_room_for(&mut self, spill: &Spill) -> Result<(), LedgerError> {
        self.make_room(spill.keep, spill.state.len())
    }

    /// Inserts a free claim. Its space was checked before.
    fn insert(&mut self, name: ClaimName, keep: Retention) -> SlotPlace {
        let share = self.shares.charge(keep.share, CLAIM_BYTES);
        self.table.insert(name, share, SlotState::Free(0), due(keep.now, keep.until))
    }

    /// Keeps a state for the round that continues with it.
    fn keep_spill(&mut self, Spill { id, keep, state }: Spill) {
        let name = ClaimName::of(id);
        let place = self.table.find(name).unwrap_or_else(|| self.insert(name, keep));
        let claim = match self.table[place].state {
            SlotState::Free(fence) => Claim::released(fence),
            SlotState::Held(_) => match self.put_down(place, SlotState::Free(0)) {
                Some(held) => held.claim,
                None => return,
            },
            // No leg continues a round that has ended.
            SlotState::Done { .. } | SlotState::Dead => return,
        };
        self.hold(place, ClaimDetails { claim, spill: Some(state.into()), ..ClaimDetails::default() });
    }

    /// Removes at most so many expired claims, and returns how many it removed.
    fn forget_expired(&mut self, now: Timestamp, most: usize) -> usize {
        for forgotten in 0..most {
            let Some(place) = self.table.next_due(now) else { return forgotten };
            let running = self.held_at(place).and_then(|held| held.claim.running_until());
            match running.filter(|lease_until| now < *lease_until) {
                Some(lease_until) => self.table.move_to(place, due(now, lease_until)),
                None => self.forget(place),
            }
        }
        most
    }

    fn forget(&mut self, place: SlotPlace) {
        // Releases everything but the slot.
        self.put_down(place, SlotState::Dead);
        let slot = self.table.remove(place);
        self.shares.subtract(slot.share, CLAIM_BYTES);
    }

    fn find_held(&mut self, id: ClaimId) -> Option<(SlotPlace, &mut ClaimDetails)> {
        let place = self.table.find(ClaimName::of(id))?;
        Some((place, self.held_at(place)?))
    }

    fn held_at(&mut self, place: SlotPlace) -> Option<&mut ClaimDetails> {
        match self.table[place].state {
            SlotState::Held(number) => self.held[number as usize].as_deref_mut(),
            _ => None,
        }
    }

    fn hold(&mut self, place: SlotPlace, held: ClaimDetails) {
        let slot = &mut self.table[place];
        self.shares.add(slot.share, held.bytes());
        self.spilled += held.spilled();
        let held = Some(Box::new(held));
        let number = match self.free.pop() {
            Some(number) => {
                self.held[number as usize] = held;
                number
            }
            None => {
                self.held.push(held);
                self.held.len() as u32 - 1
            }
        };
        slot.state = SlotState::Held(number);
    }

    /// Drops the details of a claim if they are no longer needed: no leg runs it, and it has no spilled state.
    fn rest(&mut self, place: SlotPlace) {
        let Some(held) = self.held_at(place).filter(|held| held.claim.running_until().is_none()) else { return };
        if held.claim.is_dead() {
            self.put_down(place, SlotState::Dead);
        } else if held.spill.is_none() {
            let fence = held.claim.fence();
            self.put_down(place, SlotState::Free(fence));
        } else {
            held.wake();
        }
    }

    /// Sets the state of a claim, drops its details, and wakes the legs that wait for it.
    fn put_down(&mut self, place: SlotPlace, state: SlotState) -> Option<Box<ClaimDetails>> {
        let slot = &mut self.table[place];
        match std::mem::replace(&mut slot.state, state) {
            SlotState::Held(number) => {
                let mut held = self.held[number as usize].take()?;
                self.shares.subtract(slot.share, held.bytes());
                self.spilled -= held.spilled();
                self.free.push(number);
                held.wake();
                Some(held)
            }
            SlotState::Done { reply: Some(spot), .. } => {
                self.replies.remove(spot);
                None
            }
            _ => None,
        }
    }
}

/// Waits to be woken. `Notified` registers when it is created, so no wake-up between the claim and the first poll is
/// lost.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::{
        ledger::{ClaimKind, PrincipalShare, suite},
        seal::{Digest, FlowId},
    };

    #[tokio::test(flavor = "multi_thread")]
    async fn it_passes_the_register_suite() {
        crate::server::ledger::register::suite::run(|| async { MemoryLedger::new() }).await;
        let shared = MemoryLedger::new();
        crate::server::ledger::register::suite::run(|| async { shared.clone() }).await;
    }

    #[tokio::test]
    async fn it_passes_the_suite() {
        suite::run(|| async { MemoryLedger::new() }).await;
    }

    fn round(number: u32) -> ClaimId {
        ClaimId { flow: FlowId::from_bytes([1; 16]), what: ClaimKind::Round(number) }
    }

    fn effect(name: &str) -> ClaimId {
        ClaimId { what: ClaimKind::Once(Digest::of_once(round(1).flow, name)), ..round(1) }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn keep(now: u64, until: u64) -> Retention {
        Retention { now: at(now), until: at(until), share: PrincipalShare::Common }
    }

    fn bid(now: u64, until: u64) -> ClaimRequest {
        ClaimRequest {
            answers: Digest::of_principal("yes"),
            keep: keep(now, until),
            lease: Duration::from_secs(30),
            orphan: OwnerLost::Free,
        }
    }

    fn of(share: PrincipalShare, mut bid: ClaimRequest) -> ClaimRequest {
        bid.keep.share = share;
        bid
    }

    fn spill(number: u32, keep: Retention, state: &[u8]) -> Spill {
        Spill { id: round(number), keep, state: state.to_vec() }
    }

    async fn fresh(ledger: &MemoryLedger, id: ClaimId, bid: ClaimRequest) -> Fence {
        match ledger.claim(id, bid).await {
            Ok(Claimed::Fresh { fence, .. }) => fence,
            other => panic!("expected a fresh claim, got {other:?}"),
        }
    }

    async fn answered(ledger: &MemoryLedger, id: ClaimId, bid: ClaimRequest, reply: Option<&[u8]>) {
        let fence = fresh(ledger, id, bid).await;
        assert!(ledger.settle(id, fence, reply.map(<[u8]>::to_vec), None, vec![]).await.unwrap());
    }

    /// Space for this many claims that were answered, and for one that is running.
    const fn room(answered: usize) -> usize {
        answered * CLAIM_BYTES + HELD_BYTES
    }

    #[tokio::test]
    async fn when_it_is_full_a_new_claim_is_refused_and_one_that_has_a_record_is_not() {
        let ledger = MemoryLedger::new().with_claim_bytes(room(3));
        answered(&ledger, round(1), bid(0, 100), Some(b"1")).await;
        fresh(&ledger, round(2), bid(0, 200)).await;
        let refused = ledger.claim(round(3), bid(0, 200)).await;
        assert!(matches!(refused, Err(LedgerError::Full { limit, .. }) if limit == room(3)), "{refused:?}");
        assert!(matches!(ledger.claim(round(1), bid(0, 100)).await, Ok(Claimed::Done(Some(_)))), "done");
        assert!(matches!(ledger.claim(round(2), bid(0, 200)).await, Ok(Claimed::Running(_))), "running");
        assert_eq!(fresh(&ledger, round(2), bid(30, 200)).await, 2, "its lease has lapsed");
        assert!(!ledger.release(round(2), 2, OwnerLost::Free, false).await.unwrap());
        answered(&ledger, round(3), bid(30, 200), None).await;
        assert!(ledger.claim(round(4), bid(30, 200)).await.is_err());
        assert_eq!(fresh(&ledger, round(2), bid(30, 200)).await, 3, "it was given back");
        assert!(ledger.claim(round(4), bid(99, 200)).await.is_err(), "no claim goes before its time");
        assert!(ledger.settle(round(2), 3, None, None, vec![]).await.unwrap(), "what was claimed can be settled");
        assert!(ledger.claim(round(4), bid(99, 200)).await.is_err());
        assert_eq!(fresh(&ledger, round(4), bid(100, 200)).await, 1);
    }

    #[tokio::test]
    async fn an_anonymous_crowd_and_a_greedy_principal_leave_room_for_the_others() {
        let ledger = MemoryLedger::new().with_claim_bytes(100_000);
        let fill = async |share, from: u32| {
            for number in from..from + 10_000 {
                let claimed = ledger.claim(round(number), of(share, bid(0, 100))).await;
                let Ok(Claimed::Fresh { fence, .. }) = claimed else { return (number - from, claimed.unwrap_err()) };
                assert!(ledger.settle(round(number), fence, None, None, vec![]).await.unwrap());
            }
            panic!("nothing was refused");
        };
        let (anonymous, error) = fill(PrincipalShare::Anonymous, 0).await;
        assert_eq!(anonymous as usize, (50_000 - HELD_BYTES) / CLAIM_BYTES);
        assert!(error.to_string().contains("callers without a principal"), "{error}");
        let (greedy, error) = fill(PrincipalShare::Principal([1; 16]), 100_000).await;
        assert_eq!(greedy as usize, (10_000 - HELD_BYTES) / CLAIM_BYTES);
        assert!(error.to_string().contains("one principal"), "{error}");
        let (modest, _) = fill(PrincipalShare::Principal([2; 16]), 200_000).await;
        assert_eq!(modest, greedy);
        // After they have expired, the whole share is free again.
        let later = |share| of(share, bid(100, 200));
        for (share, number) in [(PrincipalShare::Anonymous, 1), (PrincipalShare::Principal([1; 16]), 100_001)] {
            assert!(ledger.claim(round(number), later(share)).await.is_ok());
        }
    }

    #[tokio::test]
    async fn shares_can_be_set() {
        let ledger = MemoryLedger::new().with_anonymous_bytes(room(0)).with_principal_bytes(room(1));
        assert!(ledger.claim(round(1), of(PrincipalShare::Anonymous, bid(0, 100))).await.is_err());
        let mine = PrincipalShare::Principal([1; 16]);
        fresh(&ledger, round(1), of(mine, bid(0, 100))).await;
        assert!(ledger.claim(round(2), of(mine, bid(0, 100))).await.is_err());
    }

    #[tokio::test]
    async fn a_claim_at_work_outlives_its_expiry_and_is_forgotten_after_its_lease() {
        let ledger = MemoryLedger::new();
        fresh(&ledger, round(1), bid(90, 100)).await;
        fresh(&ledger, round(2), bid(90, 100)).await;
        fresh(&ledger, round(3), bid(110, 200)).await;
        assert_eq!(ledger.claims(), 3);
        assert!(ledger.renew(round(2), 1, at(150)).await.unwrap());
        assert!(ledger.settle(round(1), 1, None, None, vec![]).await.unwrap());
        fresh(&ledger, round(4), bid(121, 200)).await;
        assert_eq!(ledger.claims(), 3, "the first is gone");
        assert!(ledger.settle(round(2), 1, None, None, vec![]).await.unwrap(), "renewed, and its owner still holds it");
    }

    #[tokio::test]
    async fn the_oldest_reply_goes_first_and_its_claim_stays() {
        let ledger = MemoryLedger::new().with_reply_bytes(28);
        for number in 1..=3 {
            answered(&ledger, round(number), bid(0, 100), Some(&[0; 9])).await;
        }
        let again = |number| ledger.claim(round(number), bid(1, 100));
        assert!(matches!(again(1).await, Ok(Claimed::Done(None))), "gone, and not free again");
        assert!(matches!(again(2).await, Ok(Claimed::Done(Some(_)))));
        assert!(matches!(again(3).await, Ok(Claimed::Done(Some(_)))));
    }

    #[tokio::test]
    async fn a_reply_that_is_wanted_for_long_does_not_keep_those_that_are_not() {
        let ledger = MemoryLedger::new().with_reply_bytes(6400);
        for number in 1..=100 {
            let until = if number == 1 { 1000 } else { 100 };
            answered(&ledger, round(number), bid(0, until), Some(&[7; 32])).await;
        }
        while ledger.claims() > 2 {
            drop(ledger.claim(round(101), bid(200, 300)).await.unwrap());
        }
        assert!(ledger.records().replies.bytes() < 110, "no more than the segment of that reply");
        let again = ledger.claim(round(1), bid(201, 1000)).await;
        assert!(matches!(again, Ok(Claimed::Done(Some(reply))) if reply == [7; 32]));
    }

    #[tokio::test]
    async fn a_round_that_is_over_needs_no_state_any_more() {
        let ledger = MemoryLedger::new();
        ledger.spill(spill(1, keep(0, 100), &[0; 900])).await.unwrap();
        assert_eq!(ledger.claim_bytes(), CLAIM_BYTES + HELD_BYTES + 900);
        let claimed = ledger.claim(round(1), bid(0, 100)).await;
        assert!(matches!(claimed, Ok(Claimed::Fresh { spilled: Some(state), .. }) if state.len() == 900));
        assert!(ledger.settle(round(1), 1, None, None, vec![]).await.unwrap());
        assert_eq!(ledger.claim_bytes(), CLAIM_BYTES);
    }

    #[tokio::test]
    async fn a_state_counts_with_its_size_and_one_that_does_not_fit_changes_nothing() {
        let ledger = MemoryLedger::new().with_claim_bytes(2 * (CLAIM_BYTES + HELD_BYTES) + 1000);
        let refused = ledger.spill(spill(1, keep(0, 100), &[0; 700])).await;
        assert!(matches!(refused, Err(LedgerError::Full { .. })), "{refused:?}");
        assert_eq!((ledger.claims(), ledger.claim_bytes()), (0, 0));
        ledger.spill(spill(1, keep(0, 100), &[1; 600])).await.unwrap();
        let fence = fresh(&ledger, round(1), bid(0, 100)).await;
        let next = || Some(spill(2, keep(0, 100), &[2; 600]));
        let refused = ledger.settle(round(1), fence, Some(vec![9]), next(), vec![]).await;
        assert!(matches!(refused, Err(LedgerError::Full { .. })), "{refused:?}");
        assert!(matches!(ledger.claim(round(1), bid(1, 100)).await, Ok(Claimed::Running(_))), "it was not settled");
        assert!(!ledger.release(round(1), fence, OwnerLost::Free, false).await.unwrap());
        let ledger = ledger.with_claim_bytes(10_000);
        let Ok(Claimed::Fresh { fence, spilled: Some(state) }) = ledger.claim(round(1), bid(1, 100)).await else {
            panic!()
        };
        assert_eq!(state, [1; 600], "a retry has its state");
        assert!(ledger.settle(round(1), fence, Some(vec![9]), next(), vec![]).await.unwrap());
        let claimed = ledger.claim(round(2), bid(1, 100)).await;
        assert!(matches!(claimed, Ok(Claimed::Fresh { spilled: Some(state), .. }) if state == [2; 600]));
    }

    #[tokio::test]
    async fn states_leave_half_of_the_room_to_claims() {
        let ledger = MemoryLedger::new().with_claim_bytes(100_000);
        for number in 0..5 {
            ledger.spill(spill(number, keep(0, 100), &[0; 10_000])).await.unwrap();
        }
        let refused = ledger.spill(spill(6, keep(0, 100), &[0; 1])).await.unwrap_err();
        assert!(refused.to_string().contains("spilled states"), "{refused}");
        for number in 10..700 {
            answered(&ledger, round(number), bid(0, 100), None).await;
        }
        answered(&ledger, round(1), bid(0, 100), None).await;
        ledger.spill(spill(6, keep(0, 100), &[0; 1])).await.unwrap();
        ledger.spill(spill(7, keep(100, 200), &[0; 50_000])).await.expect("there is room for all of them again");
    }

    #[tokio::test]
    async fn an_effect_that_is_spent_goes_with_its_round_and_the_others_stay() {
        let ledger = MemoryLedger::new();
        let fence = fresh(&ledger, round(1), bid(0, 690)).await;
        for name in ["spent", "needed"] {
            answered(&ledger, effect(name), bid(0, 3690), Some(b"value")).await;
        }
        fresh(&ledger, effect("running"), bid(0, 3690)).await;
        let spent = ["spent", "running", "unknown"].map(effect).to_vec();
        assert!(ledger.settle(round(1), fence, None, None, spent).await.unwrap());
        assert!(ledger.renew(effect("running"), 1, at(700)).await.unwrap());
        let known = async |name, now| matches!(ledger.claim(effect(name), bid(now, 3690)).await, Ok(Claimed::Done(_)));
        assert!(known("spent", 689).await && known("needed", 689).await);
        // The round is removed, and so is the effect: a claim is fresh again.
        assert!(!known("spent", 690).await && known("needed", 690).await);
        assert!(matches!(ledger.claim(effect("running"), bid(690, 3690)).await, Ok(Claimed::Running(_))));
    }

    #[tokio::test]
    async fn a_ledger_that_is_printed_says_nothing_of_what_it_keeps() {
        let ledger = MemoryLedger::new().with_claim_bytes(999);
        ledger.spill(spill(1, keep(0, 100), b"spilled")).await.unwrap();
        answered(&ledger, round(2), bid(0, 100), Some(b"replied")).await;
        let printed = format!("{ledger:?}");
        assert_eq!(printed, "MemoryLedger { claims: 2, claim_bytes: 263, limit: 999, reply_bytes: 11, .. }");
    }

    #[tokio::test]
    async fn nothing_is_left_when_all_has_expired() {
        let ledger = MemoryLedger::new();
        for number in 1..=100 {
            let bid = of(PrincipalShare::Principal([number as u8 % 7; 16]), bid(0, u64::from(number)));
            match number % 4 {
                0 => drop(fresh(&ledger, round(number), bid).await),
                1 => ledger.spill(spill(number, bid.keep, &[1; 50])).await.unwrap(),
                2 => {
                    let fence = fresh(&ledger, round(number), bid).await;
                    assert!(!ledger.release(round(number), fence, OwnerLost::Dead, false).await.unwrap());
                }
                _ => answered(&ledger, round(number), bid, Some(&[1, 2, 3])).await,
            }
        }
        while ledger.claims() > 1 {
            drop(ledger.claim(round(101), bid(1000, 2000)).await.unwrap());
        }
        let records = ledger.records();
        assert_eq!((records.shares.used(), records.spilled), (CLAIM_BYTES + HELD_BYTES, 0));
        assert_eq!((records.replies.bytes(), records.held.iter().flatten().count()), (0, 1));
    }

    /// A fiftieth of what `cargo xtask hour` plays: forty calls a second with a question, an answer and an effect, in a
    /// fiftieth of the memory. It ends after twice as many claims as are kept at a time.
    #[tokio::test]
    async fn a_busy_server_fits_into_a_fiftieth_of_the_defaults_and_each_claim_into_some_64_bytes() {
        let (budget, calls) = (MemoryLedger::CLAIM_BYTES / 50, 2000 / 50);
        let ledger = MemoryLedger::new().with_claim_bytes(budget).with_reply_bytes(MemoryLedger::REPLY_BYTES / 50);
        let mut most = 0;
        for second in 0..1400_u64 {
            for call in 0..calls {
                let number = second as u128 * 1000 + call;
                let flow =
                    FlowId::from_bytes(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes());
                let (round, name) = (ClaimId { flow, what: ClaimKind::Round(1) }, Digest::of_once(flow, "charge"));
                let effect = ClaimId { flow, what: ClaimKind::Once(name) };
                let of_round = fresh(&ledger, round, bid(second, second + 690)).await;
                answered(&ledger, effect, bid(second, second + 3690), Some(&[1; 40])).await;
                assert!(ledger.settle(round, of_round, Some(vec![2; 200]), None, vec![effect]).await.unwrap());
            }
            most = most.max(ledger.claim_bytes());
        }
        let claims = ledger.claims();
        assert!((2 * 40 * 690..2 * 40 * 692).contains(&claims), "{claims}");
        assert!(most <= claims * CLAIM_BYTES + HELD_BYTES && most <= budget, "{most} bytes for {claims} claims");
        // The fixed overhead weighs more on each of these than on each of millions of claims.
        let each = ledger.records().table.allocated() / claims;
        assert!(each <= CLAIM_BYTES + 4, "{each} bytes for each of {claims}");
    }

    #[tokio::test]
    async fn what_is_over_is_forgotten_a_few_at_a_time() {
        let ledger = MemoryLedger::new();
        for number in 1..=1000 {
            answered(&ledger, round(number), bid(0, 100), None).await;
        }
        fresh(&ledger, round(1001), bid(100, 200)).await;
        assert_eq!(ledger.claims(), 1001 - FORGOTTEN);
        let ledger = ledger.with_claim_bytes(500 * CLAIM_BYTES);
        fresh(&ledger, round(1002), bid(100, 200)).await;
        assert!(ledger.claim_bytes() <= 500 * CLAIM_BYTES, "more are removed if a claim does not fit");
    }

    #[tokio::test]
    async fn a_claim_in_the_place_of_one_that_is_over_has_nothing_of_it() {
        let ledger = MemoryLedger::new();
        for number in 1..=300 {
            let now = u64::from(number) * 10;
            ledger.spill(spill(number, keep(now, now + 95), &number.to_be_bytes())).await.unwrap();
            let claimed = ledger.claim(round(number), bid(now, now + 95)).await;
            let Ok(Claimed::Fresh { fence: 1, spilled: Some(state) }) = claimed else { panic!("{claimed:?}") };
            assert_eq!(state, number.to_be_bytes());
            // Every second claim is settled, and the others are left to their lease.
            if number % 2 == 0 {
                ledger.settle(round(number), 1, Some(vec![1, 2, 3]), None, vec![]).await.unwrap();
            }
        }
        assert!(ledger.records().held.len() < 20, "places are used again");
        let claimed = ledger.claim(round(1), bid(3000, 3100)).await;
        assert!(matches!(claimed, Ok(Claimed::Fresh { fence: 1, spilled: None })), "forgotten: {claimed:?}");
    }
}
