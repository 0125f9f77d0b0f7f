//! Events, recorded.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::{
    FlowId,
    observe::Refusal,
    server::policy::observe::{Event, Observe, Outcome, Station},
    shared::kind::Method,
};

/// Records what happens, for a test to look at. Clones record into the same place.
#[derive(Debug, Clone, Default)]
pub struct Events {
    recorded: Arc<Mutex<Vec<Recorded>>>,
    more: Arc<Notify>,
}

/// An [`Event`] that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The flow, where it was known.
    pub flow: Option<FlowId>,
    /// The round that the leg answered.
    pub round: u32,
    /// What was requested.
    pub method: Method,
    /// Of which tool, prompt or resource.
    pub target: String,
    /// What happened.
    pub station: Station,
}

impl Events {
    /// Nothing recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything so far, in order.
    pub fn all(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The stations so far, in order.
    pub fn stations(&self) -> Vec<Station> {
        self.all().into_iter().map(|recorded| recorded.station).collect()
    }

    /// Waits until this many legs have come to such a station: how a test knows where a leg is, without sleeping.
    pub async fn until(&self, legs: usize, station: impl Fn(&Station) -> bool) {
        loop {
            let more = self.more.notified();
            if self.stations().iter().filter(|recorded| station(recorded)).count() >= legs {
                return;
            }
            more.await;
        }
    }

    /// How often the handler of this tool, prompt or resource ran from the top.
    pub fn runs(&self, target: &str) -> usize {
        let all = self.all();
        let times = |station| all.iter().filter(|event| event.target == target && event.station == station).count();
        times(Station::Started).saturating_sub(times(Station::Withheld))
    }

    /// Why legs were refused, in order.
    pub fn refusals(&self) -> Vec<Refusal> {
        let refusal = |station| match station {
            Station::Refused(refusal) => Some(refusal),
            _ => None,
        };
        self.stations().into_iter().filter_map(refusal).collect()
    }

    /// How legs ended, in order.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |station| match station {
            Station::Ended(outcome) => Some(outcome),
            _ => None,
        };
        self.stations().into_iter().filter_map(outcome).collect()
    }

    /// Forgets everything so far.
    pub fn clear(&self) {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Observe for Events {
    fn event(&self, event: &Event<'_>) {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(Recorded {
            flow: event.flow,
            round: event.round,
            method: event.method,
            target: event.target.to_owned(),
            station: event.station.clone(),
        });
        self.more.notify_waiters();
    }
}
