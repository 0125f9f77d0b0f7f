//! A ledger that keeps tasks outside of the process, as a store does, without the cost of a store.

use rounds::{
    ledger::{
        ClaimId, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill,
        documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
    },
    time::{BoxFuture, Timestamp},
};

/// A ledger in memory that says of itself what a store says.
pub struct Kept(MemoryLedger);

impl Kept {
    /// An empty one.
    pub fn new() -> Self {
        Self(MemoryLedger::new())
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

type Step<'a, T> = BoxFuture<'a, Result<T, LedgerError>>;

impl Ledger for Kept {
    fn spill(&self, spill: Spill) -> Step<'_, ()> {
        self.0.spill(spill)
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> Step<'_, Claimed> {
        self.0.claim(id, request)
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> Step<'_, bool> {
        self.0.renew(id, fence, lease_until)
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> Step<'_, bool> {
        self.0.settle(id, fence, reply, spill, spent)
    }

    fn release(&self, id: ClaimId, fence: Fence, orphan: OwnerLost, unless_awaited: bool) -> Step<'_, bool> {
        self.0.release(id, fence, orphan, unless_awaited)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

impl Documents for Kept {
    fn read(&self, id: DocumentId, now: Timestamp) -> Step<'_, Option<Document>> {
        Documents::read(&self.0, id, now)
    }

    fn write(&self, id: DocumentId, before: Option<Version>, change: DocumentChange) -> Step<'_, Option<Version>> {
        Documents::write(&self.0, id, before, change)
    }

    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> Step<'_, Vec<DueDocument>> {
        self.0.due(kind, now, after, most)
    }

    fn remove(&self, id: DocumentId) -> Step<'_, bool> {
        Documents::remove(&self.0, id)
    }

    fn sweep(&self, now: Timestamp, most: usize) -> Step<'_, u64> {
        Documents::sweep(&self.0, now, most)
    }
}
