//! [`Recorder`]: what the register does not know, such as why a leg was refused.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use rounds::{
    FlowId,
    observe::{Event, Observe, Refusal, Station},
    time::Timestamp,
};

/// How many refusals are kept, and how many events of one call on "Try it".
const REFUSALS: usize = 1000;
const EVENTS: usize = 400;

tokio::task_local! {
    /// The events of the call whose leg "Try it" sends in this task, and the number of the leg.
    static OF_THIS_LEG: (Arc<Events>, usize);
}

/// Remembers the latest refusals with their reasons, and watches the calls of "Try it". It is in memory and knows this
/// process only. Clones are the same recorder.
///
/// ```
/// # use rmcp::ServerHandler;
/// # struct Weather;
/// # impl ServerHandler for Weather {}
/// use rounds::Rounds;
/// use rounds_desk::{Desk, Recorder};
///
/// let recorder = Recorder::new();
/// let server = Rounds::builder(Weather).register().observe(recorder.clone()).build()?;
/// let desk = Desk::new(&server).recorder(&recorder).try_it();
/// # let _ = desk;
/// # Ok::<(), rounds::BuildError>(())
/// ```
///
/// A leg that is not refused costs one look at a flag for each of its events.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Recorded>);

#[derive(Default)]
struct Recorded {
    refusals: Mutex<VecDeque<Refused>>,
    /// Whether a call of "Try it" is kept.
    watches: AtomicBool,
    /// The calls of "Try it", by their flow.
    watched: Mutex<HashMap<FlowId, Weak<Events>>>,
}

/// A leg that was refused.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) flow: FlowId,
    pub(crate) round: u32,
    pub(crate) refusal: Refusal,
    pub(crate) at: Timestamp,
}

/// One event of a call on "Try it".
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The number of the leg, counted from one.
    pub(crate) leg: usize,
    pub(crate) station: Station,
}

/// The events of one call on "Try it".
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Vec<Seen>>);

impl Events {
    pub(crate) fn all(&self) -> Vec<Seen> {
        locked(&self.0).clone()
    }

    fn push(&self, leg: usize, event: &Event<'_>) {
        let mut events = locked(&self.0);
        if events.len() < EVENTS {
            events.push(Seen { leg, station: event.station.clone() });
        }
    }
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// The refusals of legs of this flow, oldest first, by the flow's name.
    pub(crate) fn refusals(&self, flow: FlowId) -> Vec<Refused> {
        locked(&self.0.refusals).iter().filter(|refused| refused.flow == flow).cloned().collect()
    }

    /// Runs the leg with this number, and records its events and those of its flow.
    pub(crate) async fn watch<T>(&self, events: Arc<Events>, number: usize, leg: impl Future<Output = T>) -> T {
        self.0.watches.store(true, Ordering::Relaxed);
        OF_THIS_LEG.scope((events, number), leg).await
    }

    fn refused(&self, event: &Event<'_>, refusal: Refusal) {
        // Of a state that was not opened, the flow is not known.
        let Some(flow) = event.flow else { return };
        let at = Timestamp::from(SystemTime::now());
        let mut refusals = locked(&self.0.refusals);
        if refusals.len() >= REFUSALS {
            refusals.pop_front();
        }
        refusals.push_back(Refused { flow, round: event.round, refusal, at });
    }

    /// The call on "Try it" that an event belongs to, and the number of its leg.
    fn call_of(&self, event: &Event<'_>) -> Option<(Arc<Events>, usize)> {
        if !self.0.watches.load(Ordering::Relaxed) {
            return None;
        }
        let mut watched = locked(&self.0.watched);
        if let Ok((events, leg)) = OF_THIS_LEG.try_with(Clone::clone) {
            if let Some(flow) = event.flow {
                watched.retain(|_, events| events.strong_count() > 0);
                watched.insert(flow, Arc::downgrade(&events));
            }
            return Some((events, leg));
        }
        // A handler that waits between two legs.
        Some((watched.get(&event.flow?)?.upgrade()?, event.round as usize + 1))
    }
}

impl Observe for Recorder {
    fn event(&self, event: &Event<'_>) {
        if let Station::Refused(refusal) = event.station {
            self.refused(event, *refusal);
        }
        if let Some((events, leg)) = self.call_of(event) {
            events.push(leg, event);
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("refusals", &locked(&self.0.refusals).len()).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
