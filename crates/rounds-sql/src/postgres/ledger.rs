//! The ledger on Postgres.

use std::sync::Arc;

use rounds::{
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, OwnerLost, Spill,
        documents::Documents,
        kit::{Freeing, Shares, Unconfirmed, Waiter, Waiting, until_changed},
        register::{FlowChange, Register},
    },
    time::{BoxFuture, Timestamp},
};
use sqlx::{FromRow, query_as};

use super::{
    connect::PostgresLedgerBuilder,
    connections::{Call, Connections},
    register::{bind_change, bind_spill},
};
use crate::{
    claims::{Bid, Kept, Key, first_fence, millis, random, released_state, sweep_at_random_times, what},
    error::{OpenError, StoreError},
};

/// Keeps claims, replies and the other records of a flow in Postgres, for all instances of a server.
///
/// Every step is one call of a function in the database and one round trip: two for a claimed leg. Clones share the
/// connections, of which there are eight at most.
///
/// # What a commit guarantees
///
/// A step has succeeded when Postgres has committed it, with `synchronous_commit` as the database is configured, but
/// never off. What a failover to a replica can lose is in the guide `rounds::guide::stores`.
///
/// # When Postgres is away
///
/// Each call ends within [the timeout](PostgresLedgerBuilder::timeout). If it fails, the leg ends with a retryable error,
/// and nothing runs that could not be claimed. The ledger reconnects by itself. A claim whose reply was lost, or whose
/// release failed, is freed in the background as soon as Postgres can be reached, within its lease or a minute. [A limit
/// in bytes](PostgresLedgerBuilder::freeing_bytes) bounds how many claims wait for that.
///
/// # One caller among many
///
/// If the server tells principals apart, an instance limits [the bytes of one
/// principal](PostgresLedgerBuilder::principal_bytes), and [the bytes of all callers without a
/// principal](PostgresLedgerBuilder::anonymous_bytes). At its limit a caller gets a retryable error, and other callers
/// are not affected.
///
/// # What Postgres sees
///
/// Digests in place of names and answers, times, and sealed bytes. The guide `rounds::guide::stores` has the schema.
#[derive(Debug, Clone)]
pub struct PostgresLedger(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) connections: Connections,
    /// Identifies the waiters of this process.
    instance: [u8; 16],
    pub(super) waiting: Waiting,
    pub(super) shares: Shares,
    freeing: Freeing,
}

/// The reply to a request for a claim.
#[derive(Debug)]
struct Reply {
    outcome: String,
    fence: Option<i64>,
    content: Option<Vec<u8>>,
}

type ReplyRow = (String, Option<i64>, Option<Vec<u8>>);

impl PostgresLedger {
    /// Connects with every default, to a database such as `postgres://user@127.0.0.1/database`.
    ///
    /// # Errors
    ///
    /// [`OpenError`], as for [`PostgresLedgerBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder, to connect with a configuration.
    pub fn builder(url: impl Into<String>) -> PostgresLedgerBuilder {
        PostgresLedgerBuilder::new(url.into())
    }

    pub(super) fn on(connections: Connections, shares: Shares, freeing: Freeing) -> Self {
        let inner = Arc::new(Inner { connections, instance: random(), waiting: Waiting::default(), shares, freeing });
        tokio::spawn(sweep_at_random_times(Arc::downgrade(&inner), Inner::sweep));
        Self(inner)
    }

    /// Removes records that have expired. Every instance does so about once a minute by itself.
    pub async fn sweep(&self) {
        self.0.sweep().await;
    }

    /// Claims. In a server with a register, `of_flow` is the change of the record, or none for an effect.
    pub(super) async fn claim_round(
        &self,
        id: ClaimId,
        request: ClaimRequest,
        of_flow: Option<Option<FlowChange>>,
    ) -> Result<Claimed, LedgerError> {
        let counts = matches!(id.what, ClaimKind::Round(_));
        let room = if counts { self.0.shares.has_room(request.keep, Shares::ROUND_BYTES) } else { Ok(()) };
        let (bid, claimant) = (Bid::of(&request), random());
        // Registered before the call: if the owner releases the round right after it was seen running, it must find a
        // waiter.
        let waiter = self.0.waiting.enter(id);
        // If the reply is lost, the claim may have been taken without this caller knowing.
        let unconfirmed = Unconfirmed::new(|| self.abandon(id, claimant, &request));
        let reply = self.0.claim(id, &bid, claimant, room.is_ok(), of_flow.as_ref()).await?;
        unconfirmed.confirm();
        let claimed = match (reply.outcome.as_str(), reply.fence) {
            ("fresh", Some(fence)) => {
                if counts {
                    self.0.shares.add(request.keep, Shares::ROUND_BYTES);
                }
                Claimed::Fresh { fence: fence.try_into().map_err(|_| StoreError::Garbage)?, spilled: reply.content }
            }
            ("running", _) => Claimed::Running(Box::pin(self.clone().changed(id, waiter))),
            ("done", _) => Claimed::Done(reply.content),
            ("other", _) => Claimed::AnsweredOtherwise,
            ("dead", _) => Claimed::Dead,
            ("cancelled", _) => Claimed::Cancelled,
            _ => return Err(room.err().unwrap_or_else(|| StoreError::Garbage.into())),
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
        change: Option<FlowChange>,
    ) -> Result<bool, LedgerError> {
        let added = change.iter().map(|change| change.counted(false)).chain(spill.as_ref().map(Spill::counted));
        let step = self.0.settle(id, fence, reply, spill.as_ref(), &spent, change.as_ref());
        let settled = self.0.shares.count(added, step).await?;
        self.0.waiting.wake(id);
        Ok(settled)
    }

    pub(super) async fn release_round(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: Option<FlowChange>,
    ) -> Result<bool, LedgerError> {
        if unless_awaited && self.0.waiting.is_awaited(id) {
            return Ok(true);
        }
        let released = self.0.release(id, fence, orphan, unless_awaited, change.as_ref()).await;
        if released.is_err() && !unless_awaited {
            let (ledger, bytes) = (self.0.clone(), change.as_ref().map_or(0, |change| change.bytes(true)));
            self.0.freeing.free(bytes, Freeing::WITHIN, move || {
                let (ledger, change) = (ledger.clone(), change.clone());
                Box::pin(async move {
                    ledger.release(id, fence, orphan, false, change.as_ref()).await?;
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
            let ledger = self.0.clone();
            async move { ledger.look(id).await.unwrap_or(false) }
        };
        until_changed(waiter, is_running).await;
    }

    /// Frees a claim whose claimant never learned of it.
    fn abandon(&self, id: ClaimId, claimant: [u8; 16], request: &ClaimRequest) {
        let ledger = self.0.clone();
        self.0.freeing.free(0, request.lease.max(Freeing::WITHIN), move || {
            let ledger = ledger.clone();
            Box::pin(async move {
                let is_free = ledger.abandon(id, claimant).await?;
                if is_free {
                    ledger.waiting.wake(id);
                }
                Ok(is_free)
            })
        });
    }
}

impl Inner {
    async fn claim(
        &self,
        id: ClaimId,
        bid: &Bid,
        claimant: [u8; 16],
        fits: bool,
        of_flow: Option<&Option<FlowChange>>,
    ) -> Result<Reply, StoreError> {
        let first = first_fence();
        let call = |_| -> Call<ReplyRow> {
            let call = keyed(id, if of_flow.is_some() { CLAIM_WITH } else { CLAIM });
            let call = call.bind(bid.answers.clone()).bind(bid.keep.now).bind(bid.keep.until).bind(bid.lease_until);
            let call = call.bind(bid.dies).bind(claimant.to_vec()).bind(self.instance.to_vec()).bind(first).bind(fits);
            match of_flow {
                Some(change) => bind_change(call, change.as_ref()),
                None => call,
            }
        };
        let (outcome, fence, content) = self.connections.call(call).await?;
        Ok(Reply { outcome, fence, content })
    }

    async fn spill(&self, spill: &Spill) -> Result<(), StoreError> {
        let first = first_fence();
        let (Kept { now, until }, state) = (Kept::of(spill.keep), &spill.state);
        let spilled = self.connections.call(|_| -> Call<(i32,)> {
            let call = keyed(spill.id, "SELECT 1 FROM rounds_spill($1, $2, $3, $4, $5, $6)");
            call.bind(now).bind(until).bind(state.clone()).bind(first)
        });
        spilled.await.map(drop)
    }

    async fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> Result<bool, StoreError> {
        let (fence, lease_until) = (i64::from(fence), millis(lease_until));
        let renew = |_| match id.what {
            ClaimKind::Round(number) => {
                let call = keyed(id, "SELECT rounds_renew_round($1, $2, $3, $4, $5)");
                call.bind(fence).bind(lease_until).bind(i64::from(number))
            }
            _ => keyed(id, "SELECT rounds_renew($1, $2, $3, $4)").bind(fence).bind(lease_until),
        };
        self.is(renew).await
    }

    async fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<&Spill>,
        spent: &[ClaimId],
        change: Option<&FlowChange>,
    ) -> Result<bool, StoreError> {
        let spent: Vec<_> = spent.iter().map(|effect| what(*effect)).collect();
        let first = first_fence();
        let settle = |again| {
            let call = keyed(id, if change.is_some() { SETTLE_WITH } else { SETTLE });
            let call = call.bind(i64::from(fence)).bind(again).bind(reply.clone());
            let call = bind_spill(call, spill).bind(first).bind(spent.clone());
            match change {
                Some(change) => bind_change(call, Some(change)),
                None => call,
            }
        };
        self.is(settle).await
    }

    async fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
        change: Option<&FlowChange>,
    ) -> Result<bool, StoreError> {
        let release = |_| {
            let call = keyed(id, if change.is_some() { RELEASE_WITH } else { RELEASE }).bind(i64::from(fence));
            let call = call.bind(released_state(orphan) as i16).bind(unless_awaited).bind(self.instance.to_vec());
            match change {
                Some(change) => bind_change(call, Some(change)),
                None => call,
            }
        };
        self.is(release).await
    }

    async fn abandon(&self, id: ClaimId, claimant: [u8; 16]) -> Result<bool, StoreError> {
        self.is(|_| keyed(id, "SELECT rounds_abandon($1, $2, $3)").bind(claimant.to_vec())).await
    }

    async fn look(&self, id: ClaimId) -> Result<bool, StoreError> {
        self.is(|_| keyed(id, "SELECT rounds_look($1, $2, $3)").bind(self.instance.to_vec())).await
    }

    async fn sweep(&self) {
        loop {
            match self.is(|_| query_as("SELECT rounds_sweep()")).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    return tracing::warn!(target: "rounds", error, "expired records could not be removed");
                }
            }
        }
    }

    async fn is(&self, call: impl Fn(bool) -> Call<(bool,)>) -> Result<bool, StoreError> {
        self.connections.call(call).await.map(|(is,)| is)
    }
}

const CLAIM: &str =
    "SELECT outcome, new_fence, content FROM rounds_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
const CLAIM_WITH: &str = "SELECT outcome, new_fence, content \
     FROM rounds_claim_with($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, ROW($12, $13, $14, $15, $16, $17, $18, $19, \
     $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)::rounds_change)";
const SETTLE: &str = "SELECT rounds_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
const SETTLE_WITH: &str = "SELECT rounds_settle_with($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, ROW($12, $13, $14, \
     $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)::rounds_change)";
const RELEASE: &str = "SELECT rounds_release($1, $2, $3, $4, $5, $6)";
const RELEASE_WITH: &str = "SELECT rounds_release_with($1, $2, $3, $4, $5, $6, ROW($7, $8, $9, $10, $11, $12, $13, $14, \
     $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)::rounds_change)";

/// A call whose first two values are the key of a claim.
fn keyed<T>(id: ClaimId, statement: &'static str) -> Call<T>
where
    T: for<'r> FromRow<'r, sqlx::postgres::PgRow>,
{
    let Key { flow, what } = Key::of(id);
    query_as(statement).bind(flow).bind(what)
}

impl Ledger for PostgresLedger {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let step = async { self.0.spill(&spill).await.map(|()| true) };
            self.0.shares.count([spill.counted()], step).await.map(drop)
        })
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(self.claim_round(id, request, None))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move { Ok(self.0.renew(id, fence, lease_until).await?) })
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
        Box::pin(async move { Ok(self.0.is(|_| query_as("SELECT true")).await.map(drop)?) })
    }

    fn register(&self) -> Option<&dyn Register> {
        Some(self)
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}
