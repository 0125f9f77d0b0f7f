//! What a ledger is given to keep, sealed on the way in and opened on the way out: no ledger sees a reply, the value of an
//! effect or a state, but for the one in memory, which is where the keys are.

use super::core::Core;
use crate::{
    server::{
        ledger::{
            ClaimId, ClaimRequest, Claimed, Fence, LedgerError, PrincipalShare, Retention, Spill, record::Place,
            sealed::Sealed,
        },
        seal::Digest,
    },
    shared::clock::Timestamp,
};

impl Core {
    /// Records what the first token of a flow could not carry.
    pub(crate) async fn spill(&self, spill: Spill) -> Result<(), LedgerError> {
        self.ledger.spill(self.sealed_spill(spill)).await
    }

    /// Whose share of the ledger the records of this principal count against. A ledger elsewhere does not get the digest itself, by which it
    /// could check whether a name that it knows is among them.
    pub(crate) fn share(&self, principal: Option<Digest>) -> PrincipalShare {
        match principal {
            None if self.identifies_principals() => PrincipalShare::Anonymous,
            None => PrincipalShare::Common,
            Some(principal) if self.keeps_to_itself() => PrincipalShare::Principal(principal.half()),
            Some(principal) => PrincipalShare::Principal(self.record_keys().sealing().share(principal)),
        }
    }

    /// How long a record is kept from now on, of a flow of this principal.
    pub(crate) fn keep(&self, until: Timestamp, principal: Option<Digest>) -> Retention {
        Retention { now: self.now(), until: until + self.limits.wait, share: self.share(principal) }
    }

    /// Claims. What cannot be opened is as good as gone: it is never taken for something that has not happened.
    pub(crate) async fn claim(&self, id: ClaimId, bid: ClaimRequest) -> Result<Claimed, LedgerError> {
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
        spent: Vec<ClaimId>,
    ) -> Result<bool, LedgerError> {
        let outcome = outcome.map(|outcome| self.sealed(Place::Outcome(id, answers), outcome));
        let spill = spill.map(|spill| self.sealed_spill(spill));
        self.ledger.settle(id, fence, outcome, spill, spent).await
    }

    fn sealed_spill(&self, spill: Spill) -> Spill {
        Spill { state: self.sealed(Place::Spill(spill.id), spill.state), ..spill }
    }

    /// Whether the ledger is in the memory of this process, where the keys are.
    fn keeps_to_itself(&self) -> bool {
        self.ledger.is_beside_the_keys(Sealed)
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
