//! The claim on the round that a leg answers.

use std::time::Duration;

use rmcp::model::InputResponses;
use tokio_util::sync::CancellationToken;

use super::Leg;
use crate::{
    server::{
        engine::stop::{Stop, unavailable},
        ledger::{ClaimRequest, Claimed, Fence, OwnerLost, Retention},
        policy::{error::FlowError, observe::Station},
        seal::{
            Digest,
            envelope::{Envelope, Span},
            refusal::Refusal,
        },
    },
    shared::clock::Timestamp,
};

/// A claim that this leg holds.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) fence: Fence,
    pub(super) orphan: OwnerLost,
    pub(super) answers: Digest,
}

/// What a leg has won when it claimed a round.
pub(super) enum Won {
    Run { fence: Fence, spilled: Option<Vec<u8>> },
    Reply(Vec<u8>),
}

/// A fence that no run has: they are counted from one.
pub(super) const NO_FENCE: Fence = 0;

impl Leg<'_> {
    /// What a leg brings along to claim its round. Of the answers, those to what was asked count.
    pub(super) fn bid(&self, envelope: &Envelope, sent: &mut InputResponses) -> ClaimRequest {
        sent.retain(|key, _| envelope.asked.iter().any(|asked| asked.key == *key));
        ClaimRequest {
            answers: Digest::of_answers(envelope.flow, sent),
            keep: self.keep(envelope.span),
            lease: self.core.limits.lease,
            orphan: if envelope.resume.waits() { OwnerLost::Dead } else { OwnerLost::Free },
        }
    }

    /// Claims the round, waiting for an equal leg that is at work on it.
    pub(super) async fn claim(
        &self,
        mut bid: ClaimRequest,
        expires_at: Timestamp,
        leg_token: &CancellationToken,
    ) -> Result<Won, Stop> {
        let give_up = bid.keep.now + self.core.limits.wait;
        let mut told = false;
        loop {
            bid.keep.now = self.core.now();
            let claimed = self.core.claim(self.round.claim(), bid).await;
            let waiting = match claimed.map_err(unavailable)? {
                Claimed::Fresh { fence, .. } if expires_at <= bid.keep.now => {
                    drop(self.core.ledger.release(self.round.claim(), fence, bid.orphan, false).await);
                    return Err(self.refuse(Refusal::Expired));
                }
                Claimed::Fresh { fence, spilled } => {
                    self.event(&Station::Claimed { fence });
                    return Ok(Won::Run { fence, spilled });
                }
                Claimed::Done(Some(reply)) => return Ok(Won::Reply(reply)),
                Claimed::Done(None) => return Err(self.refuse(Refusal::ReplyGone)),
                Claimed::AnsweredOtherwise => return Err(self.refuse(Refusal::AnsweredOtherwise)),
                Claimed::Dead => return Err(self.refuse(Refusal::Dead)),
                Claimed::Running(waiting) => waiting,
            };
            if !std::mem::replace(&mut told, true) {
                self.event(&Station::Waiting);
            }
            let left = give_up.since(bid.keep.now);
            if left.is_zero() {
                return Err(FlowError::retry("an equal request is still being worked on").into());
            }
            // The one at work may be gone: its lease tells.
            let lease = self.core.clock.sleep(left.min(bid.lease));
            // In a box, as few have to wait.
            Box::pin(async {
                tokio::select! {
                    () = waiting => Ok(()),
                    () = lease => Ok(()),
                    () = leg_token.cancelled() => Err(Stop::cancelled()),
                }
            })
            .await?;
        }
    }

    /// Gives back a round that was claimed and not run: whoever has its handler may still answer.
    pub(super) async fn give_back(&self, fence: Fence) {
        // A ledger that is away may do it later, and otherwise the lease lapses.
        drop(self.core.ledger.release(self.round.claim(), fence, OwnerLost::Free, false).await);
    }

    /// Says that this leg is still at work, and returns when to say so again. None when another leg has the round.
    pub(super) async fn renew(&self, held: Option<Held>) -> Option<Duration> {
        let lease = self.core.limits.lease;
        match self.core.ledger.renew(self.round.claim(), held?.fence, self.core.now() + lease).await {
            Ok(true) => Some(lease / 3),
            Ok(false) => None,
            // A ledger that is away says nothing about who owns the round; settling will. It may be back long before the lease lapses.
            Err(_) => Some(lease / 30),
        }
    }

    /// Whether an equal leg waits for this one's reply.
    pub(super) async fn is_awaited(&self, held: Option<Held>) -> bool {
        // No run has this fence, so nothing is released.
        self.give_up(held.map(|held| Held { fence: NO_FENCE, ..held })).await
    }

    /// Gives the claim up, unless an equal leg waits for the reply: then it is true.
    pub(super) async fn give_up(&self, held: Option<Held>) -> bool {
        let Some(Held { fence, orphan, .. }) = held else { return false };
        self.core.ledger.release(self.round.claim(), fence, orphan, true).await.unwrap_or(false)
    }

    /// How long a round is remembered: longer than its token is good, as an instance whose clock is behind may still take
    /// it, and a leg that waits past its end is not to find the outcome forgotten.
    pub(super) fn keep(&self, span: Span) -> Retention {
        self.core.keep(span.remembered_until(), self.binding.principal)
    }
}
