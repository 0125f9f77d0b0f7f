//! The instruments: their names, what they count, and their labels. The same for every outlet.

use std::{sync::Arc, time::Duration};

use crate::shared::kind::Method;

/// Where measurements go.
pub(super) trait Outlet: Send + Sync + 'static {
    /// Counts one more.
    fn add(&self, counter: Counter, labels: Labels);

    /// Records how long something took.
    fn record(&self, timer: Timer, labels: Labels, time: Duration);
}

/// What only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    FlowsStarted,
    Flows,
    Legs,
    Rounds,
    Questions,
    Refusals,
    Effects,
    Claims,
    StoreFailures,
    LimitsReached,
}

impl Counter {
    pub(super) const ALL: &[Self] = &[
        Self::FlowsStarted,
        Self::Flows,
        Self::Legs,
        Self::Rounds,
        Self::Questions,
        Self::Refusals,
        Self::Effects,
        Self::Claims,
        Self::StoreFailures,
        Self::LimitsReached,
    ];

    /// Its name, without prefix and unit, and what it says.
    const fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::FlowsStarted => ("flows_started", "Flows whose handler began to run"),
            Self::Flows => ("flows", "Flows that ended, by outcome"),
            Self::Legs => ("legs", "Requests that were answered, by outcome"),
            Self::Rounds => ("rounds", "Rounds of questions that were sent to a client"),
            Self::Questions => ("questions", "Questions that were sent to a client"),
            Self::Refusals => ("refusals", "States that were refused, by reason"),
            Self::Effects => ("effects", "Effects that ran, and effects whose recorded value was returned"),
            Self::Claims => ("claims", "Claims that the store decided on, by outcome"),
            Self::StoreFailures => ("store_failures", "Calls to the store that failed, by reason"),
            Self::LimitsReached => ("limits_reached", "Limits that were reached"),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.described().0
    }

    pub(super) const fn help(self) -> &'static str {
        self.described().1
    }
}

/// How long things take, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    Leg,
    Station,
    Answer,
    Store,
}

impl Timer {
    pub(super) const ALL: &[Self] = &[Self::Leg, Self::Station, Self::Answer, Self::Store];

    /// Its name, without prefix and unit, and what it says.
    const fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Leg => ("leg_duration", "Time that a request took"),
            Self::Station => ("station_duration", "Time from the arrival of a request until it reached a station"),
            Self::Answer => ("answer_duration", "Time from a question to its answer, which a person needed"),
            Self::Store => ("store_duration", "Time that a call to the store took"),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.described().0
    }

    pub(super) const fn help(self) -> &'static str {
        self.described().1
    }
}

/// What is read when it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gauge {
    WaitingHandlers,
    WaitingBytes,
    OldestWait,
    Sessions,
    Draining,
    Limit,
}

impl Gauge {
    pub(super) const ALL: &[Self] =
        &[Self::WaitingHandlers, Self::WaitingBytes, Self::OldestWait, Self::Sessions, Self::Draining, Self::Limit];

    /// Its name, without prefix and unit, and what it says.
    const fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::WaitingHandlers => ("waiting_handlers", "Handlers that wait for an answer"),
            Self::WaitingBytes => ("waiting_bytes", "Memory of the handlers that wait for an answer, in bytes"),
            Self::OldestWait => ("oldest_wait_seconds", "How long the oldest handler has been waiting for its answer"),
            Self::Sessions => ("sessions", "Sessions of legacy clients over HTTP"),
            Self::Draining => ("draining", "Whether the server drains, and starts no flow that waits in memory"),
            Self::Limit => ("limit", "Limits of the server that a gauge can be compared with"),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.described().0
    }

    pub(super) const fn help(self) -> &'static str {
        self.described().1
    }
}

impl Timer {
    /// The upper bounds of the buckets, in seconds: milliseconds for machines, minutes for people.
    pub(super) const fn bounds(self) -> &'static [f64] {
        match self {
            Self::Answer => &[1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 86400.0],
            _ => &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0],
        }
    }
}

/// The labels of a series: a target, if it has one, and up to two others whose values the library chooses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Labels {
    target: Option<(Method, Option<Arc<str>>)>,
    others: [Option<(&'static str, &'static str)>; 2],
}

impl Labels {
    pub(super) const fn none() -> Self {
        Self { target: None, others: [None; 2] }
    }

    /// The labels of a target. Without a name it is one of those that share the label `other`.
    pub(super) const fn of(method: Method, name: Option<Arc<str>>) -> Self {
        Self { target: Some((method, name)), others: [None; 2] }
    }

    /// One more label.
    pub(super) fn and(mut self, key: &'static str, value: &'static str) -> Self {
        let free = self.others.iter_mut().find(|other| other.is_none()).expect("no instrument has more labels");
        *free = Some((key, value));
        self
    }

    /// Keys and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let target = self.target.iter().flat_map(|(method, name)| {
            [("method", method.as_str()), ("target", name.as_deref().unwrap_or(Self::OTHER))]
        });
        target.chain(self.others.iter().flatten().copied())
    }

    /// The value of `target` for every name that the server does not have.
    const OTHER: &'static str = "other";
}
