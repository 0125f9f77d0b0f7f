//! Recording the reply of a leg, and replaying that of an equal one.

use std::sync::atomic::Ordering;

use rmcp::model::{InputRequests, InputRequiredResult, InputResponses};

use super::{
    Leg,
    seal::{Concluded, Minted, millis, told},
};
use crate::{
    server::{
        engine::{
            claim::ClaimGuard,
            exchange::{Exchange, Response},
            frame::Frame,
            reply::Reply,
            stop::{Stop, overtaken, unavailable},
        },
        ledger::{LedgerError, OwnerLost, Spill},
        policy::{measure::Limit, observe::Station},
        seal::{envelope::Envelope, refusal::Refusal, token},
    },
    shared::wire::EXPIRES_IN,
};

impl Leg<'_> {
    /// Records the reply before it leaves, or gives the round back when the fault was ours.
    pub(super) async fn record<X: Exchange>(
        &self,
        mut claim: ClaimGuard,
        concluded: Concluded<X::Response>,
        answers: Option<InputResponses>,
        frame: &Frame,
    ) -> Result<X::Response, Stop> {
        let (minted, concluded) = match concluded {
            Ok((minted, response)) => (minted, Ok(response)),
            Err(mut stop) => {
                self.name_flow(&mut stop);
                (None, Err(stop))
            }
        };
        let reply = match &concluded {
            Err(stop) if stop.reopens() => {
                let orphan = claim.owner_lost();
                claim.release().await;
                return concluded.map_err(|stop| stop.for_good(orphan));
            }
            Err(stop) => Reply::encode::<X::Response>(Err(&stop.error)),
            Ok(response) => Reply::encode(Ok(response)),
        };
        let reply = self.kept(reply);
        let change = self.settled(&claim, &concluded, minted.as_ref(), answers.as_ref(), reply.as_deref(), frame);
        let (spill, spent) = match minted {
            Some(Minted { span, spill, spent, .. }) => {
                let spill = spill.map(|state| Spill { id: self.round.next().claim_id(), keep: self.keep(span), state });
                (spill, spent)
            }
            // The flow is over.
            None => (None, frame.onces.get().map(|onces| onces.spent(|_| true)).unwrap_or_default()),
        };
        let orphan = claim.owner_lost();
        // The handler of a waiting flow does not run again, so its reply must not be lost with a single answer of the ledger.
        let again = (orphan == OwnerLost::Dead).then(|| (spill.clone(), spent.clone(), change.clone()));
        let mut settled = claim.settle(reply, spill, spent, change).await;
        if let (Some((spill, spent, change)), Err(LedgerError::Unavailable(_))) = (again, &settled) {
            let reply = self.kept(match &concluded {
                Err(stop) => Reply::encode::<X::Response>(Err(&stop.error)),
                Ok(response) => Reply::encode(Ok(response)),
            });
            // Boxed because it is rare, and every leg's future would be larger.
            settled = Box::pin(claim.settle_again(reply, spill, spent, change)).await;
        }
        match settled {
            Ok(true) => concluded.inspect(|response| self.report_questions(response)),
            Ok(false) if self.is_cancelled().await => Err(self.refuse(Refusal::Cancelled)),
            Ok(false) => Err(overtaken().for_good(orphan)),
            Err(error) => {
                match error {
                    LedgerError::Full { .. } => claim.give_back().await,
                    // The ledger may have settled the claim without saying so.
                    _ => claim.forget(),
                }
                Err(Stop::from(unavailable(error)).for_good(orphan))
            }
        }
    }

    /// The reply as it is kept for equal legs: none if it is too large.
    pub(super) fn kept(&self, reply: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let is_small = |reply: &Vec<u8>| reply.len() <= self.core.limits.reply_bytes;
        if reply.as_ref().is_some_and(|reply| !is_small(reply)) {
            self.core.limit_reached(Limit::ReplyBytes);
        }
        reply.filter(is_small)
    }

    /// The reply of an equal leg. Its questions pass the gate again: this request may declare less.
    pub(super) fn replay<X: Exchange>(&self, reply: &[u8]) -> Result<X::Response, Stop> {
        let Some(response) = Reply::decode::<X::Response>(reply) else {
            return Err(self.refuse(Refusal::ReplyGone));
        };
        self.replays.store(true, Ordering::Relaxed);
        self.event(&Station::Replayed);
        self.note_replay();
        match response?.into_asks() {
            Err(complete) => Ok(complete),
            Ok(asks) => match self.peer.admit(asks.input_requests.as_ref().unwrap_or(&InputRequests::new())) {
                Ok(_) => Ok(self.aged(asks).into()),
                Err(error) => Ok(X::Response::failed(error)?),
            },
        }
    }

    /// The questions of an earlier reply, with less time left to answer them.
    pub(super) fn aged(&self, mut asks: InputRequiredResult) -> InputRequiredResult {
        let keys = self.core.keys();
        let open = |state: &String| token::open(&keys, self.core.limits.token_bytes, state).ok();
        let plaintext = asks.request_state.as_ref().and_then(open);
        let issued_at = plaintext.and_then(|plaintext| Some(Envelope::from_bytes(&plaintext).ok()?.span.issued_at));
        let Some(issued_at) = issued_at else { return asks };
        let age = millis(self.core.now().since(issued_at));
        let of_questions = asks.input_requests.iter_mut().flat_map(|requests| requests.values_mut()).filter_map(told);
        let of_round = asks.meta.as_mut().and_then(|meta| meta.0.get_mut(EXPIRES_IN));
        for left in of_questions.chain(of_round) {
            *left = left.as_u64().unwrap_or_default().saturating_sub(age).into();
        }
        asks
    }
}
