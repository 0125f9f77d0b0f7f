//! A ledger in memory that counts as one elsewhere, so that it is given sealed values.

use rounds::{
    FlowId,
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill},
    register::{
        FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register, Watch,
    },
    time::{BoxFuture, Timestamp},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Clones share the same store.
#[derive(Clone, Default)]
pub(crate) struct Apart {
    pub(crate) kept: MemoryLedger,
    /// The sealed bytes that it was given.
    pub(crate) given: Arc<Mutex<Vec<u8>>>,
    /// The records that are exchanged on the way out.
    pub(crate) exchanged: Arc<Mutex<HashMap<FlowId, FlowId>>>,
    /// Whether the reply of a round waits for ever to be recorded.
    stalls: Arc<AtomicBool>,
    settled_effects: Arc<AtomicUsize>,
}

impl Apart {
    fn register(&self) -> &dyn Register {
        Ledger::register(&self.kept).unwrap()
    }

    /// Lets the replies of rounds wait for ever before they are recorded, as in a process that is about to be killed.
    pub(crate) fn never_settle_rounds(&self, never: bool) {
        self.stalls.store(never, Ordering::SeqCst);
    }

    pub(crate) fn settled_effects(&self) -> usize {
        self.settled_effects.load(Ordering::SeqCst)
    }

    fn given(&self, bytes: &[u8]) {
        self.given.lock().unwrap().extend(bytes);
    }

    fn changed(&self, change: &FlowChange) {
        self.given(change.part.as_ref().map_or(&[], |part| &part.sealed));
        self.given(format!("{:?}", change.summary).as_bytes());
    }
}

impl Ledger for Apart {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.given(&spill.state);
        self.kept.spill(spill)
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        self.kept.claim(id, request)
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.kept.renew(id, fence, lease_until)
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.given(reply.as_deref().unwrap_or_default());
        Box::pin(async move {
            let settled = self.kept.settle(id, fence, reply, spill, spent).await;
            self.settled_effects.fetch_add(usize::from(matches!(id.what, ClaimKind::Once(_))), Ordering::SeqCst);
            settled
        })
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.kept.release(id, fence, orphan, unless_awaited)
    }

    fn register(&self) -> Option<&dyn Register> {
        Some(self)
    }
}

impl Register for Apart {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.changed(&change);
        self.register().begin(change, spill)
    }

    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        self.register().claim_with(id, request, change)
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
        self.given(reply.as_deref().unwrap_or_default());
        self.changed(&change);
        Box::pin(async move {
            if self.stalls.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.register().settle_with(id, fence, reply, spill, spent, change).await
        })
    }

    fn release_with(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.register().release_with(id, fence, orphan, unless_awaited, change)
    }

    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>> {
        let other = self.exchanged.lock().unwrap().get(&id).copied();
        Box::pin(async move {
            let record = self.register().get(other.unwrap_or(id), now).await?;
            Ok(record.map(|mut record| {
                record.summary.id = id;
                record
            }))
        })
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        self.register().list(filter)
    }

    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        self.register().count(status, now, most)
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        self.register().cancel(id, end)
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.register().delete(which, end)
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.register().sweep(now, most)
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        self.register().watch()
    }
}
