//! A leg that a task plays, as far as the engine has to know of it.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicU8, Ordering},
};

use super::frame::Frame;
use crate::server::{policy::principal::Principal, seal::FlowId};

/// What a task says of a leg that it plays. It travels in the request's extensions, where no client can put it.
#[derive(Clone, Default)]
pub(crate) struct TaskLeg(Arc<Said>);

#[derive(Default)]
struct Said {
    /// The flow of a first leg: played again, it continues the same flow.
    flow: Option<FlowId>,
    /// The caller of the task, where the leg is played without a request of the caller's.
    caller: Option<Option<Principal>>,
    /// The handler, once it is called or resumed.
    called: OnceLock<Weak<Frame>>,
}

impl TaskLeg {
    pub(crate) fn new(flow: Option<FlowId>, caller: Option<Option<Principal>>) -> Self {
        Self(Arc::new(Said { flow, caller, called: OnceLock::new() }))
    }

    pub(crate) fn flow(&self) -> Option<FlowId> {
        self.0.flow
    }

    pub(crate) fn caller(&self) -> Option<&Option<Principal>> {
        self.0.caller.as_ref()
    }

    /// The handler is called, and polled before the leg is pending again.
    pub(super) fn is_called_with(&self, frame: &Arc<Frame>) {
        let _ = self.0.called.set(Arc::downgrade(frame));
    }

    /// Whether an effect of the handler is under way: what it comes to is not recorded yet.
    pub(crate) fn has_effect(&self) -> bool {
        self.0.called.get().and_then(Weak::upgrade).is_some_and(|frame| frame.has_effect())
    }

    pub(crate) fn is_called(&self) -> bool {
        self.0.called.get().is_some()
    }

    /// The flow of the handler, if it can be run again from the top because it is of a shape that is written for that.
    pub(crate) fn runs_again_as(&self) -> Option<FlowId> {
        let frame = self.0.called.get().and_then(Weak::upgrade)?;
        frame.shapes.can_run_again().then_some(frame.flow)
    }
}

/// Which extractors a handler has used.
#[derive(Default)]
pub(super) struct Shapes(AtomicU8);

impl Shapes {
    const LINEAR: u8 = 1;
    const RESUMED: u8 = 2;

    pub(super) fn note(&self, extractor: &str) {
        let shape = if extractor == "Ask" { Self::LINEAR } else { Self::RESUMED };
        self.0.fetch_or(shape, Ordering::Relaxed);
    }

    fn can_run_again(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::RESUMED
    }
}
