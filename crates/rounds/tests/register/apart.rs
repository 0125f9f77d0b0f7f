//! A ledger in memory that counts as one elsewhere, so that it is given sealed values.

use rounds::{
    FlowId,
    ledger::{ClaimId, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill},
    register::{FlowChange, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register, Watch},
    time::{BoxFuture, Timestamp},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Clones share the same store.
#[derive(Clone, Default)]
pub(crate) struct Apart {
    pub(crate) kept: MemoryLedger,
    /// The sealed bytes that it was given.
    pub(crate) given: Arc<Mutex<Vec<u8>>>,
    /// The records that are exchanged on the way out.
    pub(crate) exchanged: Arc<Mutex<HashMap<FlowId, FlowId>>>,
}

impl Apart {
    fn register(&self) -> &dyn Register {
        Ledger::register(&self.kept).unwrap()
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
        self.kept.settle(id, fence, reply, spill, spent)
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
        self.register().settle_with(id, fence, reply, spill, spent, change)
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
