//! The register: one record for each flow that has asked, kept in the same store as the flow's claims.
//!
//! A record has plain columns, which a list needs, and sealed parts. It changes in the same atomic step as the claim of
//! the flow's round, so that the two cannot disagree. [`Ledger::register`](super::Ledger::register) says whether a
//! ledger keeps one.

mod flow;
#[cfg(any(test, feature = "test"))]
pub mod suite;
mod timeline;
mod watch;

pub use flow::{
    FlowChange, FlowCounts, FlowCursor, FlowEnd, FlowFilter, FlowOwner, FlowPage, FlowPart, FlowRecord, FlowSet,
    FlowStatus, FlowSummary, UnknownStatus,
};
pub use timeline::{FlowStation, Timeline, TimelineEntry};
pub use watch::{Changed, Watch, Watcher};

use super::{ClaimId, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, Spill};
use crate::{
    server::seal::FlowId,
    shared::clock::{BoxFuture, Timestamp},
};

/// A store of flow records, beside the claims of a [`Ledger`](super::Ledger).
///
/// Its first four methods are steps of the ledger that also change the record of the flow. A step and its change happen
/// together or not at all. While the register is in use, the server takes these steps instead of those of
/// [`Ledger`](super::Ledger) itself. Where a change meets a record, the store applies it with
/// [`FlowRecord::apply`] or in the same way; where there is none, it begins with [`FlowRecord::new`].
///
/// [`Ledger::renew`](super::Ledger::renew) extends the record too: if the claim is of the round that the record is
/// working on, the owner's lease and, where it is later, the end of [`FlowSummary::open_until`] move with it.
pub trait Register: Send + Sync {
    /// Records a flow that asks for the first time, and the state that its token could not carry, before the token is
    /// sent.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if it does not fit. The token is not sent then.
    fn begin(&self, change: FlowChange, spill: Option<Spill>) -> BoxFuture<'_, Result<(), LedgerError>>;

    /// Claims a round to answer, or an effect to run, as [`Ledger::claim`](super::Ledger::claim) does.
    ///
    /// - If the record of the flow is cancelled, the result is [`Claimed::Cancelled`], and nothing changes.
    /// - If the claim is fresh, the change is applied.
    /// - If the claim is answered otherwise or dead, that is entered in the timeline, with the leg and the time of
    ///   `change.entry`: see [`Timeline::refuse`]. A record that was working on a round whose owner is lost for good
    ///   is failed from then on.
    /// - Otherwise the record stays as it is. It is never created by a claim that is not fresh.
    ///
    /// Effects bring no change: for them only the first rule matters.
    ///
    /// # Errors
    ///
    /// As for [`Ledger::claim`](super::Ledger::claim).
    fn claim_with(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        change: Option<FlowChange>,
    ) -> BoxFuture<'_, Result<Claimed, LedgerError>>;

    /// Records the reply of the owner, as [`Ledger::settle`](super::Ledger::settle) does, and applies the change if the
    /// owner still has the claim.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if the spill or the part does not fit: then nothing was recorded.
    fn settle_with(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// Gives up the claim, as [`Ledger::release`](super::Ledger::release) does, and applies the change if a claim was
    /// released: it was running with this fence, and no leg waited for it that counts.
    fn release_with(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: FlowChange,
    ) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// One record with its timeline and its sealed parts, with its status at this time. None if there is none, or it was
    /// deleted.
    fn get(&self, id: FlowId, now: Timestamp) -> BoxFuture<'_, Result<Option<FlowRecord>, LedgerError>>;

    /// The records that the filter lets through, oldest first, at most [`FlowFilter::most`] of them.
    ///
    /// Records that are created, ended or removed between two pages may be in none of them; every other record is in
    /// exactly one.
    fn list(&self, filter: FlowFilter) -> BoxFuture<'_, Result<FlowPage, LedgerError>>;

    /// Counts the records with this status at this time, or all records, by their targets.
    ///
    /// It counts without reading records in full, so that a page may show the counts of 100,000 flows. A store whose
    /// cost grows with the number of records counts at most `most` of them, and says so.
    ///
    /// Records that change meanwhile are counted as they were before or after.
    fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> BoxFuture<'_, Result<FlowCounts, LedgerError>>;

    /// Cancels a flow. From then on every claim of it is refused with [`Claimed::Cancelled`], and the run that has the
    /// round can neither renew nor settle it. Effects that run are left to their owner.
    ///
    /// Returns the status before. If that was not [open](FlowStatus::is_open), nothing has changed. None if there is no
    /// record.
    fn cancel(&self, id: FlowId, end: FlowEnd) -> BoxFuture<'_, Result<Option<FlowStatus>, LedgerError>>;

    /// Deletes records, and returns how many. A deleted record is neither listed nor found, and nothing of its contents
    /// is kept. A flow that was open is cancelled: its id is kept as long as its tokens could be used.
    fn delete(&self, which: FlowSet, end: FlowEnd) -> BoxFuture<'_, Result<u64, LedgerError>>;

    /// Removes records whose [time](FlowSummary::kept_until) is over, at most so many, and returns how many. A store
    /// that does that by itself may return zero.
    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>>;

    /// Watches the changes that any instance makes from now on.
    fn watch(&self) -> BoxFuture<'_, Result<Watch, LedgerError>>;
}
