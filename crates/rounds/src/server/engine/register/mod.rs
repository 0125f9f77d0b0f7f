//! The engine's side of the register: what a leg records of its flow, and how a cancelled flow ends here.

pub(crate) mod details;
pub(crate) mod journal;
mod recording;
mod watch;

pub(crate) use recording::Recording;
pub(crate) use watch::{AT_ONCE, sweep_all};

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
    time::Duration,
};

use tokio_util::sync::{CancellationToken, DropGuard};

use super::{core::Core, frame::Frame};
use crate::{
    server::{
        ledger::{
            record::Place,
            register::{FlowEnd, FlowPart, Register},
        },
        policy::limits::Limits,
        seal::{FlowId, envelope::CLOCK_SKEW},
    },
    shared::clock::Timestamp,
};

/// A server's settings for its register, and the legs that it runs for recorded flows.
pub(crate) struct Registering {
    /// How long the record of an ended flow is kept.
    pub(crate) retention: Duration,
    /// The name of this instance in records.
    pub(crate) instance: String,
    /// The handlers that legs run now, by their flow's id in the ledger.
    running: Mutex<HashMap<FlowId, Weak<Frame>>>,
    /// Whether the task that watches for cancellations has started.
    watches: AtomicBool,
    /// Ends that task with the server.
    over: CancellationToken,
    _ends: DropGuard,
}

impl Registering {
    pub(crate) fn new(retention: Duration, instance: String) -> Self {
        let over = CancellationToken::new();
        let _ends = over.clone().drop_guard();
        Self { retention, instance, running: Mutex::default(), watches: AtomicBool::new(false), over, _ends }
    }

    /// Lets a cancellation reach this handler until the result is dropped.
    pub(super) fn run<'a>(&'a self, flow: FlowId, frame: &Arc<Frame>) -> RunningFlow<'a> {
        self.running().insert(flow, Arc::downgrade(frame));
        RunningFlow { register: self, flow }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<FlowId, Weak<Frame>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A leg that runs the handler of a recorded flow.
pub(super) struct RunningFlow<'a> {
    register: &'a Registering,
    flow: FlowId,
}

impl Drop for RunningFlow<'_> {
    fn drop(&mut self) {
        self.register.running().remove(&self.flow);
    }
}

/// How long after its expiry a token may still be accepted, and a leg may still wait for its outcome.
pub(crate) fn slack(limits: &Limits) -> Duration {
    CLOCK_SKEW + limits.wait
}

impl Core {
    /// The register, if this server keeps one.
    pub(crate) fn register(&self) -> Option<&dyn Register> {
        self.registering.as_ref().and_then(|_| self.ledger.register())
    }

    /// The end of a flow at this time.
    pub(crate) fn flow_end(&self, now: Timestamp) -> FlowEnd {
        let retention = self.registering.as_ref().map_or(Duration::ZERO, |register| register.retention);
        FlowEnd { now, retention, slack: slack(&self.limits) }
    }

    /// Ends the handlers of a flow that was cancelled, where they wait and where they run.
    pub(crate) fn abort_flow(&self, id: FlowId) {
        let running = self.registering.as_ref().and_then(|register| register.running().get(&id)?.upgrade());
        for frame in self.frames.of_record(id).into_iter().chain(running) {
            frame.abort();
        }
    }

    /// A part of a record, sealed as the ledger gets it.
    pub(crate) fn sealed_part(&self, flow: FlowId, number: u32, plaintext: Vec<u8>) -> FlowPart {
        FlowPart { number, sealed: self.sealed(Place::Part(flow, number), plaintext) }
    }
}
