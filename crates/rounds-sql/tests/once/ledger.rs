//! A ledger that stops the process at a moment, to be killed there.

use rounds::{
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, OwnerLost, Spill},
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
        self.0.renew(id, fence, lease_until)
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
}
