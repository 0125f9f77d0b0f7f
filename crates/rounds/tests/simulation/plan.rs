//! What a seed stands for: settings, load and faults.

use std::time::Duration;

use crate::rng::Rng;

/// The settings, the load and the faults of a simulation.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) instances: usize,
    pub(crate) flows: u32,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    /// How long a token is good, and how long a flow may take.
    pub(crate) round: Duration,
    pub(crate) flow: Duration,
    /// Flows are spread over this time.
    pub(crate) load: Duration,
    /// The longest work of a handler.
    pub(crate) work: Duration,
    /// The longest way of a message, in milliseconds.
    pub(crate) latency: u64,
    /// How many of a thousand messages are lost.
    pub(crate) loss: u64,
    /// How many of a thousand legs the client gives up early.
    pub(crate) impatient: u64,
    /// Bytes of claims that wait to be freed.
    pub(crate) freeing: usize,
    pub(crate) faults: Vec<Scheduled>,
}

/// A fault, and when it begins.
#[derive(Debug, Clone)]
pub(crate) struct Scheduled {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An instance is killed, and another one starts in its place.
    Kill(usize),
    /// An instance stands still.
    Pause(usize),
    /// An instance does not reach the relay. It notices at once, or when a ping is not answered.
    CutRelay { slot: usize, silent: bool },
    /// An instance does not reach the store.
    CutStore(usize),
    /// The store stands still. What arrives meanwhile is carried out later.
    PauseStore,
    /// The store is not there. What arrives meanwhile is lost, and what was recorded is not.
    RestartStore,
    /// The relay stands still.
    PauseRelay,
    /// The relay loses every subscription.
    RestartRelay,
}

impl Plan {
    pub(crate) fn of(rng: &mut Rng) -> Self {
        let seconds = Duration::from_secs;
        let lease = seconds(rng.pick(&[6, 12, 30]));
        let instances = rng.pick(&[2, 3]);
        let mut plan = Self {
            instances,
            flows: 3 + rng.below(8) as u32,
            lease,
            wait: seconds(rng.pick(&[10, 15, 30])),
            round: seconds(rng.pick(&[25, 300, 300])),
            flow: seconds(rng.pick(&[60, 3600, 3600])),
            load: seconds(rng.pick(&[2, 10, 25])),
            work: Duration::from_millis(rng.pick(&[0, 200, 3_000, 25_000])),
            latency: rng.pick(&[3, 20, 150]),
            loss: rng.pick(&[0, 0, 5, 20]),
            impatient: rng.pick(&[0, 0, 80]),
            freeing: 64 << 10,
            faults: Vec::new(),
        };
        for _ in 0..rng.pick(&[0, 1, 2, 3, 5]) {
            plan.add_fault(rng);
        }
        plan.faults.sort_by_key(|fault| fault.at);
        plan
    }

    fn add_fault(&mut self, rng: &mut Rng) {
        let slot = rng.below(self.instances as u64) as usize;
        let fault = match rng.below(10) {
            0 | 1 => Fault::Kill(slot),
            2 => Fault::Pause(slot),
            3 | 9 => Fault::CutRelay { slot, silent: rng.in_thousand(500) },
            4 => Fault::CutStore(slot),
            5 | 6 => Fault::PauseStore,
            7 => Fault::RestartStore,
            _ => rng.pick(&[Fault::PauseRelay, Fault::RestartRelay]),
        };
        let most = if matches!(fault, Fault::CutRelay { .. }) { 20_000 } else { 9_000 };
        let mut lasts = rng.millis(100, most);
        let at = rng.millis(200, 30_000);
        if fault.is_of_store() {
            // Longer, and the owner of a claim could not renew it: a flow may be lost to that, and no check could say much.
            lasts = lasts.min(self.lease / 3);
            let apart = |other: &&Scheduled| {
                let gap = self.lease;
                other.fault.is_of_store() && at < other.at + other.lasts + gap && other.at < at + lasts + gap
            };
            if self.faults.iter().any(|other| apart(&other)) {
                return;
            }
        }
        self.faults.push(Scheduled { at, lasts, fault });
    }

    /// When the last fault is over.
    pub(crate) fn calm_from(&self) -> Duration {
        self.faults.iter().map(|fault| fault.at + fault.lasts).max().unwrap_or_default()
    }
}

impl Fault {
    pub(crate) fn is_of_store(self) -> bool {
        matches!(self, Self::CutStore(_) | Self::PauseStore | Self::RestartStore)
    }
}
