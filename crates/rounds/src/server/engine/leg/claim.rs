//! The claim on the round that a leg answers.

use rmcp::model::InputResponses;
use tokio_util::sync::CancellationToken;

use super::Leg;
use crate::server::{
    engine::{
        claim::{Acquired, ClaimGuard, acquire},
        stop::Stop,
    },
    ledger::{ClaimRequest, OwnerLost, Retention},
    policy::{error::FlowError, measure::Limit, observe::Station},
    seal::{
        Digest,
        envelope::{Envelope, Span},
        refusal::Refusal,
    },
};

/// What a leg has won when it claimed a round.
pub(super) enum Won {
    Run { claim: ClaimGuard, spilled: Option<Vec<u8>> },
    Reply(Vec<u8>),
}

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

    /// Claims the round, and waits for an equal leg that holds it.
    pub(super) async fn claim(
        &self,
        request: ClaimRequest,
        envelope: &Envelope,
        leg_token: &CancellationToken,
    ) -> Result<Won, Stop> {
        let mut waits = 0;
        let event = || {
            waits += 1;
            if waits == 1 {
                self.event(&Station::Waiting);
            }
        };
        let recording = self.recording(envelope);
        if recording.is_some() {
            self.core.watch_register();
        }
        let expires_at = envelope.span.expires_at;
        match acquire(self.core, self.round.claim_id(), request, recording, Some(leg_token), None, event).await? {
            Acquired::Held(claim, _) if expires_at <= self.core.now() => {
                claim.release().await;
                Err(self.refuse(Refusal::Expired))
            }
            Acquired::Held(claim, spilled) => {
                self.event(&Station::Claimed { fence: claim.fence() });
                if claim.fence() == 1 && self.core.is_observed() {
                    let after = self.core.now().since(envelope.span.issued_at);
                    self.event(&Station::Answered { after });
                }
                Ok(Won::Run { claim, spilled })
            }
            Acquired::Done(Some(reply)) => Ok(Won::Reply(reply)),
            Acquired::Done(None) => Err(self.refuse(Refusal::ReplyGone)),
            Acquired::AnsweredOtherwise => Err(self.refuse(Refusal::AnsweredOtherwise)),
            Acquired::Dead => Err(self.refuse(Refusal::Dead)),
            Acquired::FlowCancelled => Err(self.refuse(Refusal::Cancelled)),
            Acquired::StillRunning => {
                self.core.limit_reached(Limit::Wait);
                Err(FlowError::retry("an equal request is still being worked on").into())
            }
            Acquired::Cancelled => Err(Stop::cancelled()),
        }
    }

    /// How long a round is remembered: longer than its token is good, as an instance whose clock is behind may still take
    /// it, and a leg that waits past its end is not to find the outcome forgotten.
    pub(super) fn keep(&self, span: Span) -> Retention {
        self.core.keep(span.remembered_until(), self.binding.principal)
    }
}
