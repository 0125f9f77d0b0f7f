//! The life of a claim, as a state machine: what may happen to the right to answer one round of one flow.
//!
//! `Free → Running { answers, fence, lease } → Done { answers } | Dead`
//!
//! It is pure. A ledger keeps one [`Claim`] a round and calls these transitions under its own lock; a ledger that
//! lives elsewhere implements the same transitions there. [`ledger::suite`](crate::ledger::suite) tells whether it did.

use crate::{server::seal::Digest, shared::clock::Timestamp};

/// Counts who has run a round: whoever holds a lower fence than the newest has lost it.
pub type Fence = u32;

/// What becomes of a round whose owner is gone or gives it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerLost {
    /// It can be run again: by a retry, on any instance.
    Free,
    /// It cannot: what would go on is lost.
    Dead,
}

/// The right to answer one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    fence: Fence,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
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

/// What a leg that wants to answer a round is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// It may run, under this fence.
    Fresh(Fence),
    /// The same answers are being worked on: wait.
    Running,
    /// The same answers were given before: there is, or was, a reply.
    Done,
    /// Other answers were given, or are being worked on.
    AnsweredOtherwise,
    /// The round is over for good.
    Dead,
}

impl Claim {
    /// A round that was given back, and was last run under this fence.
    pub fn released(fence: Fence) -> Self {
        Self { fence, state: State::Free }
    }

    /// A leg asks for the round.
    pub fn take(&mut self, answers: Digest, now: Timestamp, lease_until: Timestamp, orphan: OwnerLost) -> ClaimStep {
        match self.state {
            State::Running { lease_until: until, .. } if until <= now && orphan == OwnerLost::Dead => {
                self.state = State::Dead;
                ClaimStep::Dead
            }
            State::Running { answers: running, lease_until: until } => match (running == answers, until <= now) {
                (true, true) => self.run(answers, lease_until),
                (true, false) => ClaimStep::Running,
                (false, _) => ClaimStep::AnsweredOtherwise,
            },
            State::Free => self.run(answers, lease_until),
            State::Done { answers: done } if done == answers => ClaimStep::Done,
            State::Done { .. } => ClaimStep::AnsweredOtherwise,
            State::Dead => ClaimStep::Dead,
        }
    }

    fn run(&mut self, answers: Digest, lease_until: Timestamp) -> ClaimStep {
        self.fence += 1;
        self.state = State::Running { answers, lease_until };
        ClaimStep::Fresh(self.fence)
    }

    /// The owner says it is still there. False when it no longer is the owner.
    pub fn renew(&mut self, fence: Fence, until: Timestamp) -> bool {
        match &mut self.state {
            State::Running { lease_until, .. } if self.fence == fence => {
                *lease_until = until;
                true
            }
            _ => false,
        }
    }

    /// The owner has a reply. False when it no longer is the owner: then the reply is not to leave.
    pub fn settle(&mut self, fence: Fence) -> bool {
        match self.state {
            State::Running { answers, .. } if self.fence == fence => {
                self.state = State::Done { answers };
                true
            }
            _ => false,
        }
    }

    /// The owner gives up.
    pub fn release(&mut self, fence: Fence, orphan: OwnerLost) {
        if matches!(self.state, State::Running { .. }) && self.fence == fence {
            self.state = match orphan {
                OwnerLost::Free => State::Free,
                OwnerLost::Dead => State::Dead,
            };
        }
    }

    /// The fence under which it was last run; zero when it never was.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The digest of the answers that it is run with, or was settled with.
    pub fn answers(&self) -> Option<Digest> {
        match self.state {
            State::Running { answers, .. } | State::Done { answers } => Some(answers),
            State::Free | State::Dead => None,
        }
    }

    /// Whether it is over and was not answered.
    pub fn is_dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Until when somebody is at work on it.
    pub fn running_until(&self) -> Option<Timestamp> {
        match self.state {
            State::Running { lease_until, .. } => Some(lease_until),
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
