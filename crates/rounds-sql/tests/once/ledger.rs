//! A ledger that stops the process at a moment, to be killed there.

use rounds::{
    FlowId,
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, OwnerLost, Spill},
    register::{
        FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register, Watch,
    },
    time::{BoxFuture, Timestamp},
};

use crate::reach;

pub(crate) struct Stopping<L>(pub(crate) L);

fn reach_at(when: &str, id: ClaimId) {
    let what = if matches!(id.what, ClaimKind::Once(_)) { "effect" } else { "round" };
    reach(&format!("{when} {what}"));
}

impl<L: Ledger> Ledger for Stopping<L> {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.0.spill(spill)
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(async move {
            let claimed = self.0.claim(id, request).await;
            if matches!(claimed, Ok(Claimed::Fresh { .. })) {
                reach_at("claimed", id);
            }
            claimed
        })
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let renewed = self.0.renew(id, fence, lease_until).await;
            reach_at("renewed", id);
            renewed
        })
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            reach_at("settling", id);
            let settled = self.0.settle(id, fence, reply, spill, spent).await;
            reach_at("settled", id);
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
        self.0.release(id, fence, orphan, unless_awaited)
    }

    fn register(&self) -> Option<&dyn Register> {
        self.0.register().map(|_| self as &dyn Register)
    }
}

impl<L: Ledger> Stopping<L> {
    fn kept(&self) -> &dyn Register {
        self.0.register().unwrap()
    }
}

/// The steps that change the record with the claim stop as those of the ledger do.
impl<L: Ledger> Register for Stopping<L> {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.kept().begin(change, spill)
    }

    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(async move {
            let claimed = self.kept().claim_with(id, request, change).await;
            if matches!(claimed, Ok(Claimed::Fresh { .. })) {
                reach_at("claimed", id);
            }
            claimed
        })
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
        Box::pin(async move {
            reach_at("settling", id);
            let settled = self.kept().settle_with(id, fence, reply, spill, spent, change).await;
            reach_at("settled", id);
            settled
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
        self.kept().release_with(id, fence, orphan, unless_awaited, change)
    }

    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>> {
        self.kept().get(id, now)
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        self.kept().list(filter)
    }

    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        self.kept().count(status, now, most)
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        self.kept().cancel(id, end)
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.kept().delete(which, end)
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        self.kept().sweep(now, most)
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        self.kept().watch()
    }
}
