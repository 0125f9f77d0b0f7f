//! A recorder of events.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::{
    FlowId,
    observe::Refusal,
    server::policy::observe::{Event, Observe, Outcome, Station},
    shared::kind::Method,
};

/// Records events for a test. Clones record into the same list.
#[derive(Debug, Clone, Default)]
pub struct Events {
    recorded: Arc<Mutex<Vec<Recorded>>>,
    more: Arc<Notify>,
}

/// An [`Event`] that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The flow, if it was known.
    pub flow: Option<FlowId>,
    /// The round that the leg answered.
    pub round: u32,
    /// The method that was requested.
    pub method: Method,
    /// The name of the tool or prompt, or the URI of the resource.
    pub target: String,
    /// The station that the leg reached.
    pub station: Station,
}

impl Events {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// All events so far, in order.
    pub fn all(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The stations so far, in order.
    pub fn stations(&self) -> Vec<Station> {
        self.all().into_iter().map(|recorded| recorded.station).collect()
    }

    /// Waits until this many legs have reached such a station, so that a test knows where a leg is without sleeping.
    pub async fn until(&self, legs: usize, station: impl Fn(&Station) -> bool) {
        loop {
            let more = self.more.notified();
            if self.stations().iter().filter(|recorded| station(recorded)).count() >= legs {
                return;
            }
            more.await;
        }
    }

    /// How often the handler of this tool, prompt or resource ran from its beginning.
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

    /// Removes all events so far.
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
