//! What a ledger is given to keep, sealed on the way in and opened on the way out: no ledger sees a reply, the value of an
//! effect or a state, but for the one in memory, which is where the keys are.

use super::{core::Core, register::Recording};
use crate::{
    server::{
        ledger::{
            ClaimId, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, PrincipalShare, Retention, Spill,
            record::Place, register::FlowChange, sealed::Sealed,
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

    /// Records a flow that asks for the first time, where the server keeps a register, and what its token could not carry.
    pub(crate) async fn begin(&self, change: Option<Box<FlowChange>>, spill: Option<Spill>) -> Result<(), LedgerError> {
        match (self.register(), change, spill) {
            (Some(register), Some(change), spill) => {
                register.begin(*change, spill.map(|spill| self.sealed_spill(spill))).await
            }
            (_, _, Some(spill)) => self.spill(spill).await,
            (_, _, None) => Ok(()),
        }
    }

    /// Gives up a claim, and records that.
    pub(crate) async fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        owner_lost: OwnerLost,
        unless_awaited: bool,
        recording: Option<&Recording>,
    ) -> Result<bool, LedgerError> {
        match (self.register(), recording) {
            (Some(register), Some(recording)) => {
                let change = recording.given_up(self.now(), owner_lost);
                register.release_with(id, fence, owner_lost, unless_awaited, change).await
            }
            _ => self.ledger.release(id, fence, owner_lost, unless_awaited).await,
        }
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
    pub(crate) async fn claim(
        &self,
        id: ClaimId,
        bid: ClaimRequest,
        change: Option<Box<FlowChange>>,
    ) -> Result<Claimed, LedgerError> {
        let claimed = match self.register() {
            Some(register) => register.claim_with(id, bid, change.map(|change| *change)).await?,
            None => self.ledger.claim(id, bid).await?,
        };
        Ok(match claimed {
            Claimed::Done(Some(kept)) => Claimed::Done(self.opened(Place::Outcome(id, bid.answers), kept)),
            Claimed::Fresh { fence, spilled: Some(kept) } => {
                Claimed::Fresh { fence, spilled: self.opened(Place::Spill(id), kept) }
            }
            claimed => claimed,
        })
    }

    /// Records what came of a claim that was answered like this.
    #[expect(clippy::too_many_arguments, reason = "one step of the ledger, with all that changes in it")]
    pub(crate) async fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        answers: Digest,
        outcome: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
        change: Option<Box<FlowChange>>,
    ) -> Result<bool, LedgerError> {
        let outcome = outcome.map(|outcome| self.sealed(Place::Outcome(id, answers), outcome));
        let spill = spill.map(|spill| self.sealed_spill(spill));
        match (self.register(), change) {
            (Some(register), Some(change)) => register.settle_with(id, fence, outcome, spill, spent, *change).await,
            _ => self.ledger.settle(id, fence, outcome, spill, spent).await,
        }
    }

    fn sealed_spill(&self, spill: Spill) -> Spill {
        Spill { state: self.sealed(Place::Spill(spill.id), spill.state), ..spill }
    }

    /// Whether the ledger is in the memory of this process, where the keys are.
    pub(crate) fn keeps_to_itself(&self) -> bool {
        self.ledger.is_beside_the_keys(Sealed)
    }

    pub(super) fn sealed(&self, place: Place, plaintext: Vec<u8>) -> Vec<u8> {
        if self.keeps_to_itself() {
            return plaintext;
        }
        place.seal(&self.record_keys(), self.new_nonce(), &plaintext)
    }

    pub(super) fn opened(&self, place: Place, sealed: Vec<u8>) -> Option<Vec<u8>> {
        if self.keeps_to_itself() {
            return Some(sealed);
        }
        let opened = place.open(&self.record_keys(), sealed);
        opened
            .inspect_err(|error| tracing::warn!(target: "rounds", %error, "a record of the ledger does not open"))
            .ok()
    }
}
