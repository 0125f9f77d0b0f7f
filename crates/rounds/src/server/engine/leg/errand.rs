//! Legs whose handler waits on another instance: handing one over, and playing one that was handed over.

use std::sync::{Arc, atomic::AtomicBool};

use rmcp::model::InputResponses;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Leg, caught, claim::Won, identity::Identity};
use crate::server::{
    engine::{
        claim::ClaimGuard,
        core::Core,
        exchange::Exchange,
        relay::Relay,
        reply::Reply,
        route::{self, Errand, Routed},
        stop::{Stop, unavailable},
        view::RoundId,
    },
    ledger::{Claimed, LedgerError},
    policy::{
        error::FlowError,
        gate::{Era, Peer},
        observe::{Outcome, Station, Tracing},
    },
    seal::{
        envelope::{Envelope, Resume},
        refusal::Refusal,
    },
};

/// Plays a leg that landed on another instance, for a handler that waits here. None when it was cancelled: no instance waits for its
/// reply.
pub(in crate::server::engine) async fn play_errand<X: Exchange>(
    core: &Arc<Core>,
    errand: Errand,
    leg_token: CancellationToken,
) -> Option<Vec<u8>> {
    let peer = Peer { era: Era::Modern, capabilities: errand.capabilities(), back_channel: false };
    let answers = errand.answers();
    let Errand { binding, over_http, state, trace, .. } = errand;
    let round = RoundId::UNKNOWN;
    let (principal, known, identity, continued, task) = (None, false, Identity::None, false, None);
    let (arrived, replays) = (core.measured_now(), AtomicBool::new(false));
    let mut leg =
        Leg { core, binding, principal, peer, over_http, round, known, identity, continued, task, arrived, replays };
    let opened = leg.open(&state);
    let span = Tracing::errand(leg.known.then_some(leg.round.flow), leg.round.number, trace);
    let played = Box::pin(async {
        match leg.opened(opened) {
            Ok(envelope) => leg.wake::<X>(envelope, answers, None, leg_token).await,
            Err(stop) => Err(stop),
        }
    });
    match caught(played).instrument(span).await {
        Ok(response) => Reply::encode(Ok(&response)),
        Err(Stop { outcome: Outcome::Cancelled, .. }) => None,
        Err(mut stop) => {
            leg.failed(&mut stop);
            Reply::encode::<X::Response>(Err(&stop.error))
        }
    }
}

impl Leg<'_> {
    /// Where the handler waits, if that is on another instance.
    pub(super) fn away(&self, envelope: &Envelope) -> Option<(Arc<dyn Relay>, String)> {
        let (Some(relay), Resume::FrameAt(owner)) = (&self.core.relay, &envelope.resume) else { return None };
        (relay.here() != owner).then(|| (relay.clone(), owner.clone()))
    }

    /// Hands the leg to the instance where its handler waits.
    pub(super) async fn route<X: Exchange>(
        &self,
        (relay, owner): (Arc<dyn Relay>, String),
        state: &str,
        envelope: Box<Envelope>,
        mut sent: InputResponses,
        leg_token: &CancellationToken,
    ) -> Result<X::Response, Stop> {
        self.event(&Station::Routed { to: owner.clone() });
        self.note_replay();
        // Its time is that of the leg's arrival, and so is the deadline for whatever the leg waits for.
        let bid = self.bid(&envelope, &mut sent);
        let errand = Errand::new(self.binding.clone(), self.over_http, self.peer.capabilities, state, &sent);
        match route::hand(self.core, &relay, &owner, errand, leg_token).await? {
            Routed::Cancelled => Err(Stop::cancelled()),
            Routed::Reply(reply) => match Reply::decode::<X::Response>(&reply) {
                Some(reply) => reply.map_err(Stop::relayed),
                None => Err(self.refuse(Refusal::ReplyGone)),
            },
            // It may be at work all the same, as what it says gets lost: then its reply will be where all replies are.
            Routed::Silent(away) => match self.claim(bid, &envelope, leg_token).await? {
                Won::Reply(reply) => self.replay::<X>(&reply),
                Won::Run { claim, .. } => {
                    claim.give_back().await;
                    Err(away.map_or_else(|| self.refuse(Refusal::FrameGone), |away| FlowError::retry(away).into()))
                }
            },
            // The owner may have replied before it went, and its reply is still kept.
            Routed::Gone => match self.core.claim(self.round.claim_id(), bid, None).await {
                Ok(Claimed::Done(Some(reply))) => self.replay::<X>(&reply),
                Ok(Claimed::Fresh { fence, .. }) => {
                    ClaimGuard::new(self.core, self.round.claim_id(), fence, &bid, None).give_back().await;
                    Err(self.refuse(Refusal::FrameGone))
                }
                // A full ledger has no record of the round, and so no reply.
                Ok(_) | Err(LedgerError::Full { .. }) => Err(self.refuse(Refusal::FrameGone)),
                Err(away) => Err(unavailable(away).into()),
            },
        }
    }
}
