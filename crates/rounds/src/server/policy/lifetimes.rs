//! How long rounds and flows may take, for the server and for single targets.

use std::{collections::HashMap, time::Duration};

/// The longest lifetime of a round or flow that can be set for a target: 30 days.
pub(crate) const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long rounds and flows may take.
#[derive(Debug)]
pub(crate) struct Lifetimes {
    pub(crate) round: Duration,
    pub(crate) flow: Duration,
    pub(crate) of_targets: HashMap<String, TargetLifetimes>,
}

/// The settings of one target.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TargetLifetimes {
    pub(crate) round: Option<Duration>,
    pub(crate) flow: Option<Duration>,
}

impl Lifetimes {
    /// How long the user has to answer a round of this target.
    pub(crate) fn round(&self, target: &str) -> Duration {
        self.of(target).and_then(|set| set.round).unwrap_or(self.round)
    }

    /// How long a flow of this target may take in all.
    pub(crate) fn flow(&self, target: &str) -> Duration {
        self.of(target).and_then(|set| set.flow).unwrap_or(self.flow)
    }

    fn of(&self, target: &str) -> Option<&TargetLifetimes> {
        if self.of_targets.is_empty() { None } else { self.of_targets.get(target) }
    }

    /// Every lifetime that was set, with its name in errors.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let targets = self.of_targets.values().flat_map(|set| {
            let (round, flow) = (set.round, set.flow);
            [round.map(|round| ("round lifetime", round)), flow.map(|flow| ("flow deadline", flow))]
        });
        [("round lifetime", self.round), ("flow deadline", self.flow)].into_iter().chain(targets.flatten())
    }
}
