//! The record of a flow while a leg has its claim: how it changes with what the claim comes to.

use crate::{
    server::ledger::{
        OwnerLost,
        register::{FlowChange, FlowStation, FlowStatus, TimelineEntry},
    },
    shared::clock::Timestamp,
};

/// The change that a claim made, from which the change of its end is made.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) claimed: FlowChange,
    /// Until when the round can be answered if the claim is given up.
    pub(crate) waits_until: Timestamp,
    /// How much longer than until then the record is kept.
    pub(crate) kept_for: std::time::Duration,
}

impl Recording {
    /// The claim was taken, or taken again, at this time.
    pub(crate) fn claimed(&self, now: Timestamp, lease_until: Timestamp) -> Box<FlowChange> {
        let mut change = Box::new(self.claimed.clone());
        (change.summary.changed, change.entry.at) = (now, now);
        change.summary.open_until = self.waits_until.max(lease_until);
        change.summary.kept_until = change.summary.open_until + self.kept_for;
        if let Some(owner) = &mut change.summary.owner {
            owner.lease_until = Some(lease_until);
        }
        change
    }

    /// The claim was given up.
    pub(crate) fn given_up(&self, now: Timestamp, owner_lost: OwnerLost) -> FlowChange {
        let (status, station) = match owner_lost {
            OwnerLost::Free => (FlowStatus::Waiting, FlowStation::Released),
            OwnerLost::Dead => (FlowStatus::Failed, FlowStation::Failed),
        };
        let mut change = self.ended(now, status, station);
        change.summary.open_until = self.waits_until;
        change.summary.kept_until = self.waits_until + self.kept_for;
        if !status.is_open() {
            change.summary.open.clear();
        }
        change
    }

    /// The leg ended with this status.
    pub(crate) fn ended(&self, now: Timestamp, status: FlowStatus, station: FlowStation) -> FlowChange {
        let mut change = self.claimed.clone();
        (change.summary.status, change.summary.changed, change.summary.owner) = (status, now, None);
        change.entry = TimelineEntry { station, at: now, ..change.entry };
        change
    }
}
