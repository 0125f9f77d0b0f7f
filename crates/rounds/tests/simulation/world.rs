//! What everything in a simulation shares: the time, the randomness of the network, and the history.

use std::{
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rounds::time::{BoxFuture, Clock};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{history::Event, plan::Plan, rng::Rng};

/// What everything in a simulation shares.
pub(crate) struct World {
    began: Instant,
    pub(crate) plan: Plan,
    rng: Mutex<Rng>,
    history: Mutex<Vec<(u64, Event)>>,
    numbers: AtomicU32,
}

impl World {
    pub(crate) fn new(plan: Plan, rng: Rng) -> Arc<Self> {
        let (rng, history) = (Mutex::new(rng), Mutex::default());
        Arc::new(Self { began: Instant::now(), plan, rng, history, numbers: AtomicU32::new(0) })
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap()
    }

    /// How long a message takes from one place to another.
    pub(crate) fn latency(&self) -> Duration {
        let most = self.plan.latency;
        self.rng().millis(1, most)
    }

    /// Whether the next message is lost.
    pub(crate) fn loses(&self) -> bool {
        let loss = self.plan.loss;
        loss > 0 && self.rng().in_thousand(loss)
    }

    pub(crate) fn record(&self, event: Event) {
        let now = self.now();
        self.history.lock().unwrap().push((now, event));
    }

    /// A number that nothing else in this simulation has.
    pub(crate) fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn take_history(&self) -> Vec<(u64, Event)> {
        std::mem::take(&mut self.history.lock().unwrap())
    }
}

/// Whether a process runs. A killed process is one whose every call never returns: it keeps its memory, and nothing of it is
/// seen again. Its destructors do not run, as those of a killed process do not.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Paused,
    Dead,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Runs), changed: Notify::new() })
    }

    pub(crate) fn pause(&self) {
        self.set(State::Paused);
    }

    pub(crate) fn go_on(&self) {
        self.set(State::Runs);
    }

    pub(crate) fn kill(&self) {
        self.set(State::Dead);
    }

    pub(crate) fn is_dead(&self) -> bool {
        *self.state.lock().unwrap() == State::Dead
    }

    /// Resolves while the process runs.
    pub(crate) async fn pass(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let state = *self.state.lock().unwrap();
            match state {
                State::Runs => return,
                State::Paused => changed.await,
                State::Dead => pending().await,
            }
        }
    }

    /// Resolves when the process is killed.
    pub(crate) async fn died(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_dead() {
                return;
            }
            changed.await;
        }
    }

    fn set(&self, to: State) {
        let mut state = self.state.lock().unwrap();
        if *state != State::Dead {
            *state = to;
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// The clock of one process: the time of the simulation, which stands still for a process that does not run.
pub(crate) struct ProcessClock {
    pub(crate) world: Arc<World>,
    pub(crate) gate: Arc<Gate>,
}

impl Clock for ProcessClock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(EPOCH) + Duration::from_millis(self.world.now())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (sleep, gate) = (sleep(duration), self.gate.clone());
        Box::pin(async move {
            sleep.await;
            gate.pass().await;
        })
    }
}

/// When a simulation begins, in seconds since 1970.
pub(crate) const EPOCH: u64 = 1_800_000_000;
