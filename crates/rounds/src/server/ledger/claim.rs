//! The life of a claim, as a state machine: the right to answer one round of one flow.
//!
//! `Free → Running { answers, fence, lease } → Done { answers } | Dead`
//!
//! It does no I/O. A ledger keeps one [`Claim`] for each round and calls these transitions under its own lock; a ledger
//! that lives elsewhere implements the same transitions there. [`ledger::suite`](crate::ledger::suite) checks that it
//! does.

use crate::{server::seal::Digest, shared::clock::Timestamp};

/// Number of the run that holds a claim. An owner whose fence is lower than the newest has lost the claim.
pub type Fence = u32;

/// What happens to a claim whose owner is lost or gives it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerLost {
    /// A retry can run it again, on any instance.
    Free,
    /// The round cannot be run again, because its handler is lost.
    Dead,
}

/// The right to answer one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    fence: Fence,
    state: ClaimState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ClaimState {
    #[default]
    Free,
    Running {
        answers: Digest,
        lease_until: Timestamp,
    },
    Done {
        answers: Digest,
    },
    Dead,
}

/// The result of a request for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// The leg may run, with this fence.
    Fresh(Fence),
    /// A leg with the same answers runs: wait for it.
    Running,
    /// A leg with the same answers was settled: there is, or was, a reply.
    Done,
    /// A leg with other answers runs or was settled.
    AnsweredOtherwise,
    /// The claim has ended for good.
    Dead,
}

impl Claim {
    /// A claim that was released, and was last run with this fence.
    pub fn released(fence: Fence) -> Self {
        Self { fence, state: ClaimState::Free }
    }

    /// Requests the claim for a leg.
    pub fn take(&mut self, answers: Digest, now: Timestamp, lease_until: Timestamp, orphan: OwnerLost) -> ClaimStep {
        match self.state {
            ClaimState::Running { lease_until: until, .. } if until <= now && orphan == OwnerLost::Dead => {
                self.state = ClaimState::Dead;
                ClaimStep::Dead
            }
            ClaimState::Running { answers: running, lease_until: until } => match (running == answers, until <= now) {
                (true, true) => self.run(answers, lease_until),
                (true, false) => ClaimStep::Running,
                (false, _) => ClaimStep::AnsweredOtherwise,
            },
            ClaimState::Free => self.run(answers, lease_until),
            ClaimState::Done { answers: done } if done == answers => ClaimStep::Done,
            ClaimState::Done { .. } => ClaimStep::AnsweredOtherwise,
            ClaimState::Dead => ClaimStep::Dead,
        }
    }

    fn run(&mut self, answers: Digest, lease_until: Timestamp) -> ClaimStep {
        self.fence += 1;
        self.state = ClaimState::Running { answers, lease_until };
        ClaimStep::Fresh(self.fence)
    }

    /// Extends the lease of the owner. False if it is no longer the owner.
    pub fn renew(&mut self, fence: Fence, until: Timestamp) -> bool {
        match &mut self.state {
            ClaimState::Running { lease_until, .. } if self.fence == fence => {
                *lease_until = until;
                true
            }
            _ => false,
        }
    }

    /// Records that the owner has a reply. False if it is no longer the owner: then it must not send the reply.
    pub fn settle(&mut self, fence: Fence) -> bool {
        match self.state {
            ClaimState::Running { answers, .. } if self.fence == fence => {
                self.state = ClaimState::Done { answers };
                true
            }
            _ => false,
        }
    }

    /// Gives up the claim.
    pub fn release(&mut self, fence: Fence, orphan: OwnerLost) {
        if matches!(self.state, ClaimState::Running { .. }) && self.fence == fence {
            self.state = match orphan {
                OwnerLost::Free => ClaimState::Free,
                OwnerLost::Dead => ClaimState::Dead,
            };
        }
    }

    /// Ends the claim for good, also while a leg runs it: the flow was cancelled. One that was settled stays as it is.
    pub fn kill(&mut self) {
        if !matches!(self.state, ClaimState::Done { .. }) {
            self.state = ClaimState::Dead;
        }
    }

    /// Whether the run with this fence has the claim.
    pub fn is_run_by(&self, fence: Fence) -> bool {
        matches!(self.state, ClaimState::Running { .. }) && self.fence == fence
    }

    /// The fence of the last run; zero if it never ran.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The digest of the answers that it runs with or was settled with.
    pub fn answers(&self) -> Option<Digest> {
        match self.state {
            ClaimState::Running { answers, .. } | ClaimState::Done { answers } => Some(answers),
            ClaimState::Free | ClaimState::Dead => None,
        }
    }

    /// Whether it has ended without an answer.
    pub fn is_dead(&self) -> bool {
        self.state == ClaimState::Dead
    }

    /// The end of the owner's lease, if a leg runs.
    pub fn running_until(&self) -> Option<Timestamp> {
        match self.state {
            ClaimState::Running { lease_until, .. } => Some(lease_until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn metric() -> Digest {
        Digest::of_principal("metric")
    }

    fn imperial() -> Digest {
        Digest::of_principal("imperial")
    }

    fn running() -> Claim {
        let mut claim = Claim::default();
        assert_eq!(claim.take(metric(), at(0), at(30), OwnerLost::Free), ClaimStep::Fresh(1));
        claim
    }

    #[test]
    fn equal_answers_wait_and_other_answers_are_refused_while_running() {
        let mut claim = running();
        assert_eq!(claim.take(metric(), at(1), at(31), OwnerLost::Free), ClaimStep::Running);
        assert_eq!(claim.take(imperial(), at(1), at(31), OwnerLost::Free), ClaimStep::AnsweredOtherwise);
        assert_eq!(claim.running_until(), Some(at(30)), "a waiter does not extend the lease");
    }

    #[test]
    fn a_settled_claim_answers_the_same_and_refuses_other() {
        let mut claim = running();
        assert!(claim.settle(1));
        assert_eq!(claim.take(metric(), at(1), at(31), OwnerLost::Free), ClaimStep::Done);
        assert_eq!(claim.take(imperial(), at(1), at(31), OwnerLost::Free), ClaimStep::AnsweredOtherwise);
        assert_eq!(claim.take(metric(), at(9999), at(9999), OwnerLost::Dead), ClaimStep::Done, "done stays done");
        assert!(!claim.settle(1), "and is settled once");
    }

    #[test]
    fn a_lapsed_lease_is_taken_over_by_an_equal_retry_only_and_fences_the_old_owner_out() {
        let mut claim = running();
        assert_eq!(claim.take(metric(), at(29), at(59), OwnerLost::Free), ClaimStep::Running);
        assert_eq!(claim.take(imperial(), at(30), at(60), OwnerLost::Free), ClaimStep::AnsweredOtherwise);
        assert_eq!(claim.take(metric(), at(30), at(60), OwnerLost::Free), ClaimStep::Fresh(2));
        assert!(!claim.renew(1, at(90)) && !claim.settle(1));
        claim.release(1, OwnerLost::Free);
        assert_eq!(claim.running_until(), Some(at(60)), "the old owner cannot release it either");
        assert!(claim.renew(2, at(90)) && claim.settle(2));
    }

    #[test]
    fn a_lapsed_lease_of_a_flow_that_cannot_go_on_is_dead() {
        let mut claim = running();
        assert_eq!(claim.take(metric(), at(30), at(60), OwnerLost::Dead), ClaimStep::Dead);
        assert_eq!(claim.take(metric(), at(30), at(60), OwnerLost::Free), ClaimStep::Dead);
        assert!(!claim.settle(1));
    }

    #[test]
    fn a_released_claim_is_free_for_any_answers_under_the_next_fence() {
        let mut claim = running();
        claim.release(1, OwnerLost::Free);
        assert_eq!(claim.take(imperial(), at(1), at(31), OwnerLost::Free), ClaimStep::Fresh(2));
        claim.release(2, OwnerLost::Dead);
        assert_eq!(claim.take(imperial(), at(1), at(31), OwnerLost::Free), ClaimStep::Dead);
    }

    #[test]
    fn a_renewed_lease_holds_longer() {
        let mut claim = running();
        assert!(claim.renew(1, at(40)));
        assert_eq!(claim.take(metric(), at(39), at(69), OwnerLost::Free), ClaimStep::Running);
        assert_eq!(claim.take(metric(), at(40), at(70), OwnerLost::Free), ClaimStep::Fresh(2));
    }
}
