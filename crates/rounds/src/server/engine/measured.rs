//! A ledger that tells observers of every call to it.

use std::{sync::Arc, time::SystemTime};

use crate::{
    server::{
        ledger::{
            ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, OwnerLost, Spill,
            documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
            register::{
                FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register, Watch,
            },
            sealed::Sealed,
        },
        policy::{
            measure::{ClaimCall, ClaimOutcome, Limit, StoreCall},
            observe::Observe,
        },
        seal::FlowId,
    },
    shared::clock::{BoxFuture, Clock, Timestamp},
};

/// Passes every step on, and measures it.
pub(crate) struct MeasuredLedger {
    inner: Arc<dyn Ledger>,
    measuring: Vec<Arc<dyn Observe>>,
    clock: Arc<dyn Clock>,
}

impl MeasuredLedger {
    pub(crate) fn new(inner: Arc<dyn Ledger>, measuring: Vec<Arc<dyn Observe>>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, measuring, clock }
    }

    fn measured<'a, T: 'a>(
        &'a self,
        step: &'static str,
        call: BoxFuture<'a, Result<T, LedgerError>>,
        claim: impl FnOnce(&T) -> Option<ClaimCall> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, LedgerError>> {
        // The time begins with the first poll. Nothing happens before it.
        Box::pin(async move {
            let begun = self.clock.now();
            let came = call.await;
            self.tell(step, begun, came.as_ref().err(), came.as_ref().ok().and_then(claim));
            came
        })
    }

    fn call<'a, T: 'a>(
        &'a self,
        step: &'static str,
        call: BoxFuture<'a, Result<T, LedgerError>>,
    ) -> BoxFuture<'a, Result<T, LedgerError>> {
        self.measured(step, call, |_| None)
    }

    fn claimed<'a>(
        &'a self,
        id: ClaimId,
        call: BoxFuture<'a, Result<Claimed, LedgerError>>,
    ) -> BoxFuture<'a, Result<Claimed, LedgerError>> {
        let is_effect = matches!(id.what, ClaimKind::Once(_));
        self.measured("claim", call, move |claimed| Some(ClaimCall { is_effect, outcome: ClaimOutcome::of(claimed) }))
    }

    fn tell(&self, step: &'static str, begun: SystemTime, failed: Option<&LedgerError>, claim: Option<ClaimCall>) {
        let took = self.clock.now().duration_since(begun).unwrap_or_default();
        let is_full = matches!(failed, Some(LedgerError::Full { .. }));
        for observer in &self.measuring {
            observer.store_called(&StoreCall { step, took, failed, claim });
            if is_full {
                observer.limit_reached(Limit::Store);
            }
        }
    }

    fn inner_register(&self) -> &dyn Register {
        self.inner.register().expect("`register` gives this one only if the inner ledger has one")
    }

    fn inner_documents(&self) -> &dyn Documents {
        self.inner.documents().expect("`documents` gives this one only if the inner ledger has them")
    }
}

#[deny(clippy::missing_trait_methods)]
impl Ledger for MeasuredLedger {
    fn is_beside_the_keys(&self, sealed: Sealed) -> bool {
        self.inner.is_beside_the_keys(sealed)
    }

    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.call("spill", self.inner.spill(spill))
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        self.claimed(id, self.inner.claim(id, request))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.call("renew", self.inner.renew(id, fence, lease_until))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.call("settle", self.inner.settle(id, fence, reply, spill, spent))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.call("release", self.inner.release(id, fence, orphan, unless_awaited))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.call("check", self.inner.check())
    }

    fn register(&self) -> Option<&dyn Register> {
        self.inner.register().map(|_| self as &dyn Register)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        self.inner.documents().map(|_| self as &dyn Documents)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Register for MeasuredLedger {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.call("begin", self.inner_register().begin(change, spill))
    }

    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        self.claimed(id, self.inner_register().claim_with(id, request, change))
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
        self.call("settle", self.inner_register().settle_with(id, fence, reply, spill, spent, change))
    }

    fn release_with(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.call("release", self.inner_register().release_with(id, fence, orphan, unless_awaited, change))
    }

    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>> {
        self.call("get_flow", self.inner_register().get(id, now))
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        self.call("list_flows", self.inner_register().list(filter))
    }

    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        self.call("count_flows", self.inner_register().count(status, now, most))
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        self.call("cancel_flow", self.inner_register().cancel(id, end))
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.call("delete_flows", self.inner_register().delete(which, end))
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.call("sweep_flows", self.inner_register().sweep(now, most))
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        self.call("watch_flows", self.inner_register().watch())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Documents for MeasuredLedger {
    fn read(&self, id: DocumentId, now: Timestamp) -> BoxFuture<'_, Result<Option<Document>, LedgerError>> {
        self.call("read_document", self.inner_documents().read(id, now))
    }

    fn write(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> BoxFuture<'_, Result<Option<Version>, LedgerError>> {
        self.call("write_document", self.inner_documents().write(id, before, change))
    }

    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<DueDocument>, LedgerError>> {
        self.call("due_documents", self.inner_documents().due(kind, now, after, most))
    }

    fn remove(&self, id: DocumentId) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.call("remove_document", self.inner_documents().remove(id))
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.call("sweep_documents", self.inner_documents().sweep(now, most))
    }
}
