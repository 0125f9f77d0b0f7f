//! The ledger on SQLite.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rounds::{
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, OwnerLost, Spill,
        documents::Documents,
        kit::{Freeing, Shares, Waiter, Waiting, until_changed},
        register::{FlowChange, Register},
    },
    time::{BoxFuture, Timestamp},
};

use super::{
    open::SqliteLedgerBuilder,
    reader::Reader,
    steps::{OfFlow, Outcome, Spilled, Step},
    writer::Writer,
};
use crate::{
    claims::{Bid, Kept, Key, millis, random, released_state, sweep_at_random_times},
    error::{OpenError, StoreError},
};

/// Keeps claims, replies and the other records of a flow in one SQLite file, over restarts of the server.
///
/// Clones share the connection. Several processes on the same host may use the same file; hosts may not share it over a
/// network file system.
///
/// # What a commit guarantees
///
/// The file is in WAL mode with `synchronous = FULL`: what was acknowledged survives the end of the process and a power
/// failure. A claimed leg takes two commits, and legs that run at the same time share them.
///
/// # When the file cannot be written
///
/// A step fails if another process holds the write lock for longer than [the timeout](SqliteLedgerBuilder::timeout), if
/// the disk is full, or if the file is read-only. The leg then ends with a retryable error, and nothing runs that could
/// not be claimed. The [`StoreError`] in the log says what to do, and the ledger continues by itself after that.
///
/// # One caller among many
///
/// If the server tells principals apart, a process limits [the bytes of one
/// principal](SqliteLedgerBuilder::principal_bytes), and [the bytes of all callers without a
/// principal](SqliteLedgerBuilder::anonymous_bytes). At its limit a caller gets a retryable error, and other callers are
/// not affected.
///
/// # What the file contains
///
/// Digests in place of names and answers, times, and sealed bytes. The guide `rounds::guide::stores` has the schema.
#[derive(Debug, Clone)]
pub struct SqliteLedger(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    writer: Writer,
    pub(super) reader: Reader,
    timeout: Duration,
    /// Identifies the waiters of this process.
    instance: [u8; 16],
    pub(super) waiting: Waiting,
    pub(super) shares: Shares,
    /// For releases that failed.
    freeing: Freeing,
}

impl SqliteLedger {
    /// Opens a file with every default, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// [`OpenError`], as for [`SqliteLedgerBuilder::open`].
    pub async fn open(file: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::builder(file).open().await
    }

    /// Returns a builder, to open a file with a configuration.
    pub fn builder(file: impl Into<PathBuf>) -> SqliteLedgerBuilder {
        SqliteLedgerBuilder::new(file.into())
    }

    pub(super) fn on(writer: Writer, reader: Reader, timeout: Duration, shares: Shares, freeing: Freeing) -> Self {
        let inner = Arc::new(Inner {
            writer,
            reader,
            // A step may wait for the one before it, and then for the file.
            timeout: timeout.saturating_mul(2),
            instance: random(),
            waiting: Waiting::default(),
            shares,
            freeing,
        });
        tokio::spawn(sweep_at_random_times(Arc::downgrade(&inner), Inner::sweep));
        Self(inner)
    }

    /// Removes records that have expired. Every process does so about once a minute by itself.
    pub async fn sweep(&self) {
        self.0.sweep().await;
    }

    pub(super) async fn claim_round(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        of_flow: Option<OfFlow>,
    ) -> Result<Claimed, LedgerError> {
        let counts = matches!(id.what, ClaimKind::Round(_));
        let room = if counts { self.0.shares.has_room(request.keep, Shares::ROUND_BYTES) } else { Ok(()) };
        let (key, bid, instance) = (Key::of(id), Bid::of(&request), self.0.instance);
        // Registered before the step: if the owner releases the round right after it was seen running, it must find a
        // waiter.
        let waiter = self.0.waiting.enter(id);
        let claimed = match self.0.take(Step::Claim { key, bid, instance, fits: room.is_ok(), of_flow }).await? {
            Outcome::Fresh { fence, spilled } => {
                if counts {
                    self.0.shares.add(request.keep, Shares::ROUND_BYTES);
                }
                Claimed::Fresh { fence: fence.try_into().map_err(|_| StoreError::Garbage)?, spilled }
            }
            Outcome::Running => Claimed::Running(Box::pin(self.clone().changed(id, waiter))),
            Outcome::Done(reply) => Claimed::Done(reply),
            Outcome::AnsweredOtherwise => Claimed::AnsweredOtherwise,
            Outcome::Dead => Claimed::Dead,
            Outcome::Cancelled => Claimed::Cancelled,
            _ => {
                return Err(room.err().unwrap_or_else(|| StoreError::Garbage.into()));
            }
        };
        Ok(claimed)
    }

    pub(super) async fn settle_round(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: Option<Box<FlowChange>>,
    ) -> Result<bool, LedgerError> {
        let counted = change.as_ref().map(|change| change.counted(false));
        let added = counted.into_iter().chain(spill.as_ref().map(Spill::counted));
        let (key, spent) = (Key::of(id), spent.into_iter().map(Key::of).collect());
        let spill = spill.map(Spilled::of);
        let step = Step::Settle { key, fence: fence.into(), outcome: reply, spill, spent, change };
        let settled = self.0.shares.count(added, self.0.is(step)).await?;
        self.0.waiting.wake(id);
        Ok(settled)
    }

    pub(super) async fn release_round(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: Option<Box<FlowChange>>,
    ) -> Result<bool, LedgerError> {
        if unless_awaited && self.0.waiting.is_awaited(id) {
            return Ok(true);
        }
        let released = self.0.is(self.0.release(id, fence, orphan, unless_awaited, change.clone())).await;
        if released.is_err() && !unless_awaited {
            let (ledger, bytes) = (self.0.clone(), change.as_ref().map_or(0, |change| change.bytes(true)));
            self.0.freeing.free(bytes, Freeing::WITHIN, move || {
                let (ledger, change) = (ledger.clone(), change.clone());
                Box::pin(async move {
                    ledger.is(ledger.release(id, fence, orphan, false, change)).await?;
                    ledger.waiting.wake(id);
                    Ok(true)
                })
            });
        }
        let kept = released?;
        if !kept {
            self.0.waiting.wake(id);
        }
        Ok(kept)
    }

    async fn changed(self, id: ClaimId, waiter: Waiter) {
        let is_running = || {
            let look = Step::Look { key: Key::of(id), instance: self.0.instance };
            let ledger = self.0.clone();
            async move { ledger.is(look).await.unwrap_or(false) }
        };
        until_changed(waiter, is_running).await;
    }
}

impl Inner {
    pub(super) async fn take(&self, step: Step) -> Result<Outcome, StoreError> {
        self.writer.take(step, self.timeout).await
    }

    pub(super) async fn is(&self, step: Step) -> Result<bool, StoreError> {
        match self.take(step).await? {
            Outcome::Bool(is) => Ok(is),
            _ => Err(StoreError::Garbage),
        }
    }

    pub(super) async fn count(&self, step: Step) -> Result<u64, StoreError> {
        match self.take(step).await? {
            Outcome::Count(count) => Ok(count),
            _ => Err(StoreError::Garbage),
        }
    }

    async fn sweep(&self) {
        loop {
            match self.is(Step::Sweep).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    return tracing::warn!(target: "rounds", error = &error as &dyn std::error::Error, "expired records could not be removed");
                }
            }
        }
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: Option<Box<FlowChange>>,
    ) -> Step {
        let (key, state, instance) = (Key::of(id), released_state(orphan), self.instance);
        Step::Release { key, fence: fence.into(), state, unless_awaited, instance, change }
    }
}

impl Ledger for SqliteLedger {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let added = [spill.counted()];
            let step = async { self.0.is(Step::Spill(Spilled::of(spill))).await.map(|_| true) };
            self.0.shares.count(added, step).await.map(drop)
        })
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(self.claim_round(id, request, None))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let round = match id.what {
            ClaimKind::Round(number) => Some(number),
            _ => None,
        };
        let step = Step::Renew { key: Key::of(id), fence: fence.into(), lease_until: millis(lease_until), round };
        Box::pin(async move { Ok(self.0.is(step).await?) })
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.settle_round(id, fence, reply, spill, spent, None))
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(self.release_round(id, fence, orphan, unless_awaited, None))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), LedgerError>> {
        // A sweep is a write: it fails where a claim would fail.
        Box::pin(async move { Ok(self.0.is(Step::Sweep).await.map(drop)?) })
    }

    fn register(&self) -> Option<&dyn Register> {
        Some(self)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

impl Spilled {
    pub(super) fn of(spill: Spill) -> Self {
        Self { key: Key::of(spill.id), keep: Kept::of(spill.keep), state: spill.state }
    }
}
