//! How long rounds and flows may take, for the server and for single targets.

use std::{collections::HashMap, time::Duration};

/// The longest lifetime of a round or flow that can be set for a target, and for any in a server with a register: 30 days.
pub(super) const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

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

    /// Every lifetime, with its name in errors.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        [("round lifetime", self.round), ("flow deadline", self.flow)].into_iter().chain(self.of_all_targets())
    }

    /// Those of single targets.
    pub(crate) fn of_all_targets(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let targets = self.of_targets.values().flat_map(|set| {
            let (round, flow) = (set.round, set.flow);
            [round.map(|round| ("round lifetime", round)), flow.map(|flow| ("flow deadline", flow))]
        });
        targets.flatten()
    }

    /// The name of one that is too long, if there is one. Without a register, the server's own may be as long as they like:
    /// nothing but a token and a waiting handler has to last.
    pub(crate) fn too_long(&self, has_register: bool) -> Option<&'static str> {
        let is_long = |(_, time): &(&str, Duration)| *time > LONGEST;
        let found = if has_register { self.all().find(is_long) } else { self.of_all_targets().find(is_long) };
        found.map(|(what, _)| what)
    }
}
