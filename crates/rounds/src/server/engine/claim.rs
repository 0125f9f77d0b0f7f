//! A claim as its owner sees it: acquired, held, renewed, and settled or released. Rounds and effects are claimed alike.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{core::Core, register::Recording};
use crate::{
    server::{
        ledger::{ClaimId, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, Spill, register::FlowChange},
        policy::error::FlowError,
        seal::Digest,
    },
    shared::clock::{BoxFuture, Timestamp},
};

/// What became of an attempt to claim.
pub(super) enum Acquired {
    /// The claim is this run's, with the state that spilled for it, if any.
    Held(ClaimGuard, Option<Vec<u8>>),
    /// An equal run has settled it, with this outcome if it is still kept.
    Done(Option<Vec<u8>>),
    AnsweredOtherwise,
    Dead,
    /// The flow was cancelled.
    FlowCancelled,
    /// An equal run still holds it after the longest wait.
    StillRunning,
    /// The leg was cancelled while it waited.
    Cancelled,
}

/// Claims, and waits while an equal run holds the claim, for [`Limits::wait`](crate::Limits::wait) at most.
///
/// An effect names the round that it belongs to. `waits` is called before each wait.
pub(super) async fn acquire(
    core: &Arc<Core>,
    id: ClaimId,
    mut request: ClaimRequest,
    recording: Option<Box<Recording>>,
    leg_token: Option<&CancellationToken>,
    round: Option<OwnRound>,
    mut waits: impl FnMut(),
) -> Result<Acquired, FlowError> {
    let give_up = request.keep.now + core.limits.wait;
    // Kept until the next claim has answered, so that the owner finds a waiter in between.
    let mut awaited = None;
    loop {
        request.keep.now = core.now();
        if let Some(round) = round {
            round.check(core, request.keep.now).await?;
        }
        let now = request.keep.now;
        let change = recording.as_ref().map(|recording| recording.claimed(now, now + request.lease));
        let mut running = match core.claim(id, request, change).await.map_err(FlowError::retry)? {
            Claimed::Fresh { fence, spilled } => {
                return Ok(Acquired::Held(ClaimGuard::new(core, id, fence, &request, recording), spilled));
            }
            Claimed::Done(outcome) => return Ok(Acquired::Done(outcome)),
            Claimed::AnsweredOtherwise => return Ok(Acquired::AnsweredOtherwise),
            Claimed::Dead => return Ok(Acquired::Dead),
            Claimed::Cancelled => return Ok(Acquired::FlowCancelled),
            Claimed::Running(running) => running,
        };
        waits();
        let left = give_up.since(request.keep.now);
        if left.is_zero() {
            return Ok(Acquired::StillRunning);
        }
        // The owner may have crashed: then its lease lapses, at a time that only the ledger knows.
        let lapse = core.clock.sleep(left.min(request.lease / LOOKS));
        // Boxed because few legs wait, and every leg's future would be larger.
        let cancelled = Box::pin(async {
            tokio::select! {
                biased;
                () = &mut running => false,
                () = lapse => false,
                () = cancelled(leg_token) => true,
            }
        });
        if cancelled.await {
            return Ok(Acquired::Cancelled);
        }
        awaited.replace(running);
    }
}

/// How often a waiter claims again during one lease. It takes over from a lost owner at most this part of a lease late.
const LOOKS: u32 = 10;

async fn cancelled(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

/// The round that an effect belongs to, and that its run claimed.
#[derive(Clone, Copy)]
pub(super) struct OwnRound {
    pub(super) id: ClaimId,
    pub(super) fence: Fence,
    pub(super) expires_at: Timestamp,
}

impl OwnRound {
    /// Checks that an effect may begin that the ledger does not know.
    ///
    /// It may not in a run that lost its round and has not noticed for so long that the effects of the run that replied are forgotten.
    /// That happens after the round's token has expired, when no other run begins any more: so a run that still has the round then keeps
    /// it.
    async fn check(self, core: &Core, now: Timestamp) -> Result<(), FlowError> {
        if now < self.expires_at { Ok(()) } else { self.renew(core, now).await }
    }

    /// Checks that this run still has the round: no other run has taken it over, and the flow was not cancelled.
    pub(super) async fn renew(self, core: &Core, now: Timestamp) -> Result<(), FlowError> {
        match core.ledger.renew(self.id, self.fence, now + core.limits.lease).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(FlowError::retry("another instance took the round over or has replied, or the flow was cancelled"))
            }
            Err(error) => Err(FlowError::retry(error)),
        }
    }
}

/// A claim that this run holds. If it is dropped before it was settled or released, as by a panic, it is released.
pub(super) struct ClaimGuard {
    core: Arc<Core>,
    id: ClaimId,
    /// None once it was settled or released.
    fence: Option<Fence>,
    owner_lost: OwnerLost,
    answers: Digest,
    /// What the register knows of it.
    recording: Option<Box<Recording>>,
}

impl ClaimGuard {
    pub(super) fn new(
        core: &Arc<Core>,
        id: ClaimId,
        fence: Fence,
        request: &ClaimRequest,
        recording: Option<Box<Recording>>,
    ) -> Self {
        let (core, fence) = (core.clone(), Some(fence));
        Self { core, id, fence, owner_lost: request.orphan, answers: request.answers, recording }
    }

    pub(super) fn recording(&self) -> Option<&Recording> {
        self.recording.as_deref()
    }

    /// The fence that this run holds the claim under.
    pub(super) fn fence(&self) -> Fence {
        self.fence.unwrap_or(NO_FENCE)
    }

    /// What becomes of the claim when its owner is lost or gives it up.
    pub(super) fn owner_lost(&self) -> OwnerLost {
        self.owner_lost
    }

    /// The lease of the claim, from now on.
    pub(super) fn lease(&self) -> Lease<'_> {
        Lease { claim: self, due: self.core.clock.sleep(self.core.limits.lease / 3) }
    }

    /// Whether an equal leg waits for the outcome.
    pub(super) async fn is_awaited(&self) -> bool {
        // No run has this fence, so nothing is released.
        self.core.ledger.release(self.id, NO_FENCE, self.owner_lost, true).await.unwrap_or(false)
    }

    /// Releases the claim, unless an equal leg waits for the outcome. Returns whether one does.
    pub(super) async fn release_unless_awaited(&self) -> bool {
        let recording = self.recording.as_deref();
        self.core.release(self.id, self.fence(), self.owner_lost, true, recording).await.unwrap_or(false)
    }

    /// Releases the claim, as if its owner had been lost.
    pub(super) async fn release(self) {
        let owner_lost = self.owner_lost;
        self.release_as(owner_lost).await;
    }

    /// Releases the claim on something that has not run: another run may claim it.
    pub(super) async fn give_back(self) {
        self.release_as(OwnerLost::Free).await;
    }

    async fn release_as(mut self, owner_lost: OwnerLost) {
        let Some(fence) = self.fence.take() else { return };
        // If the ledger is away, it may release the claim later, and otherwise the lease lapses.
        drop(self.core.release(self.id, fence, owner_lost, false, self.recording.as_deref()).await);
    }

    /// Records the outcome. False when another run has taken the claim over.
    ///
    /// On an error the claim is still held: dropping it releases it.
    pub(super) async fn settle(
        &mut self,
        outcome: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: Option<Box<FlowChange>>,
    ) -> Result<bool, LedgerError> {
        let settled = self.core.settle(self.id, self.fence(), self.answers, outcome, spill, spent, change).await;
        if settled.is_ok() {
            self.fence = None;
        }
        settled
    }

    /// Records the outcome after the ledger did not say whether it did, for one lease at most. Only for a claim that no other
    /// run can take over, so that a settled one was settled by this run.
    ///
    /// Other legs get `retry` meanwhile, because the claim still runs.
    pub(super) async fn settle_again(
        &mut self,
        outcome: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: Option<Box<FlowChange>>,
    ) -> Result<bool, LedgerError> {
        let (core, lease) = (self.core.clone(), self.core.limits.lease);
        let give_up = core.now() + lease;
        loop {
            core.clock.sleep(pause(lease, false)).await;
            let fence = self.fence();
            let settled = self.settle(outcome.clone(), spill.clone(), spent.clone(), change.clone()).await;
            let settled = match settled {
                // An earlier attempt may have settled it.
                Ok(false) => match self.is_settled().await {
                    Err(away) => {
                        self.fence = Some(fence);
                        Err(away)
                    }
                    known => known,
                },
                settled => settled,
            };
            match settled {
                Err(LedgerError::Unavailable(_)) if core.now() < give_up => {}
                settled => return settled,
            }
        }
    }

    /// Whether a leg with the same answers was settled.
    async fn is_settled(&self) -> Result<bool, LedgerError> {
        let Self { core, id, .. } = self;
        let (lease, orphan) = (core.limits.lease, self.owner_lost);
        let keep = core.keep(core.now() + lease, None);
        let request = ClaimRequest { answers: self.answers, keep, lease, orphan };
        match core.claim(*id, request, None).await? {
            Claimed::Done(_) => Ok(true),
            Claimed::Fresh { fence, .. } => {
                // Not recorded: the ledger has lost the claim.
                Self::new(core, *id, fence, &request, None).release().await;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Leaves the claim to its lease.
    pub(super) fn forget(mut self) {
        self.fence = None;
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let (Some(fence), Ok(runtime)) = (self.fence.take(), Handle::try_current()) else { return };
        let (core, id, owner_lost, recording) = (self.core.clone(), self.id, self.owner_lost, self.recording.take());
        runtime.spawn(async move { core.release(id, fence, owner_lost, false, recording.as_deref()).await });
    }
}

/// A fence that no run has: they are counted from one.
const NO_FENCE: Fence = 0;

/// The lease of a claim that is held: it has to be renewed before it lapses.
pub(super) struct Lease<'a> {
    claim: &'a ClaimGuard,
    due: BoxFuture<'static, ()>,
}

impl Lease<'_> {
    /// Resolves when it is time to renew.
    pub(super) async fn due(&mut self) {
        self.due.as_mut().await;
    }

    /// Renews the lease. False when another run has taken the claim over.
    pub(super) async fn renew(&mut self) -> bool {
        let ClaimGuard { core, id, .. } = self.claim;
        let lease = core.limits.lease;
        let renewed = core.ledger.renew(*id, self.claim.fence(), core.now() + lease).await;
        // A ledger that is away does not say who owns the claim; settling will. It may be back long before the lease lapses.
        self.due = core.clock.sleep(pause(lease, renewed.is_ok()));
        renewed.unwrap_or(true)
    }
}

fn pause(lease: Duration, renewed: bool) -> Duration {
    if renewed { lease / 3 } else { lease / 30 }
}
