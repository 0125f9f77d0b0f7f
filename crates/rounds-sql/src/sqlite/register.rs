//! The register on SQLite.

use rounds::{
    FlowId,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, Spill,
        register::{
            FlowChange, FlowCounts, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register, Watch,
        },
    },
    time::{BoxFuture, Timestamp},
};

use super::{
    ledger::SqliteLedger,
    steps::{OfFlow, Outcome, Spilled, Step},
};
use crate::error::StoreError;

/// The register is in the same file. [`watch`](Register::watch) tells of each change that this ledger makes. A watch ends
/// within a second after another process, or another connection, has changed the file.
impl Register for SqliteLedger {
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let added = [change.counted(true)].into_iter().chain(spill.as_ref().map(Spill::counted));
            let begin = Step::Begin { change: Box::new(change), spill: spill.map(Spilled::of) };
            self.0.shares.count(added, async { self.0.is(begin).await.map(|_| true) }).await.map(drop)
        })
    }

    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        let of_flow = OfFlow { id: id.flow, change: change.map(Box::new) };
        Box::pin(self.claim_round(id, request, Some(of_flow)))
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
        Box::pin(self.settle_round(id, fence, reply, spill, spent, Some(Box::new(change))))
    }

    fn release_with(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.release_round(id, fence, orphan, unless_awaited, Some(Box::new(change))))
    }

    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>> {
        Box::pin(async move { Ok(self.0.reader.get(id, now).await?) })
    }

    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>> {
        Box::pin(async move { Ok(self.0.reader.list(&filter).await?) })
    }

    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>> {
        Box::pin(async move { Ok(self.0.reader.count(status, now, most).await?) })
    }

    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>> {
        Box::pin(async move {
            let Outcome::Ended(ended) = self.0.take(Step::Cancel { id, end }).await? else {
                return Err(StoreError::Garbage.into());
            };
            if let Some((_, round)) = ended {
                self.0.waiting.wake(ClaimId { flow: id, what: ClaimKind::Round(round) });
            }
            Ok(ended.map(|(before, _)| before))
        })
    }

    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>> {
        Box::pin(async move { Ok(self.0.count(Step::Delete { which, end }).await?) })
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        Box::pin(async move { Ok(self.0.count(Step::SweepFlows { now, most }).await?) })
    }

    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>> {
        Box::pin(async move {
            let (watcher, watch) = Watch::new();
            self.0.is(Step::Watch(watcher)).await?;
            Ok(watch)
        })
    }
}
