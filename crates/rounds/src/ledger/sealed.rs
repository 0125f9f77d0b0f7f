//! What a ledger is given to keep, sealed on the way in and opened on the way out: no ledger sees a reply, the value of an
//! effect or a state, but for [the one in memory](super::MemoryLedger), which is where the keys are.

use std::any::Any;

use super::{Bid, ClaimId, Claimed, Fence, Keep, LedgerError, MemoryLedger, Spill};
use crate::{
    rounds::Core,
    seal::{Digest, record::Place},
};

impl Core {
    /// Lets a new flow in, with what its first token could not carry.
    pub(crate) async fn admit(&self, id: ClaimId, keep: Keep, spill: Option<Vec<u8>>) -> Result<(), LedgerError> {
        let spill = spill.map(|state| self.sealed(Place::Spill(id), state));
        self.ledger.admit(id, keep, spill).await
    }

    /// Claims. What cannot be opened is as good as gone: it is never taken for something that has not happened.
    pub(crate) async fn claim(&self, id: ClaimId, bid: Bid) -> Result<Claimed, LedgerError> {
        Ok(match self.ledger.claim(id, bid).await? {
            Claimed::Done(Some(kept)) => Claimed::Done(self.opened(Place::Outcome(id, bid.answers), kept)),
            Claimed::Fresh { fence, spilled: Some(kept) } => {
                Claimed::Fresh { fence, spilled: self.opened(Place::Spill(id), kept) }
            }
            claimed => claimed,
        })
    }

    /// Records what came of a claim that was answered like this.
    pub(crate) async fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        answers: Digest,
        outcome: Option<Vec<u8>>,
        spill: Option<Spill>,
    ) -> Result<bool, LedgerError> {
        let outcome = outcome.map(|outcome| self.sealed(Place::Outcome(id, answers), outcome));
        let spill = spill.map(|spill| Spill { state: self.sealed(Place::Spill(spill.id), spill.state), ..spill });
        self.ledger.settle(id, fence, outcome, spill).await
    }

    /// Whether the ledger is in the memory of this process, where the keys are.
    fn keeps_to_itself(&self) -> bool {
        (&*self.ledger as &dyn Any).is::<MemoryLedger>()
    }

    fn sealed(&self, place: Place, plaintext: Vec<u8>) -> Vec<u8> {
        if self.keeps_to_itself() {
            return plaintext;
        }
        place.seal(&self.record_keys(), self.new_nonce(), &plaintext)
    }

    fn opened(&self, place: Place, sealed: Vec<u8>) -> Option<Vec<u8>> {
        if self.keeps_to_itself() {
            return Some(sealed);
        }
        let opened = place.open(&self.record_keys(), sealed);
        opened
            .inspect_err(|error| tracing::warn!(target: "rounds", %error, "a record of the ledger does not open"))
            .ok()
    }
}
