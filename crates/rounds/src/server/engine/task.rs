//! A leg that a task plays, as far as the engine has to know of it.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use rmcp::{ErrorData, model::CallToolRequestParams};

use super::frame::Frame;
use crate::server::{
    policy::{observe::cut, principal::Principal},
    seal::FlowId,
};

/// What a leg and the task that it belongs to, or may become, tell each other. It travels in the request's extensions,
/// where no client can put it.
#[derive(Clone, Default)]
pub(crate) struct TaskLeg(Arc<Said>);

#[derive(Default)]
struct Said {
    /// The flow of a first leg: played again, it continues the same flow.
    flow: Option<FlowId>,
    /// The caller of the task, where the leg is played without a request of the caller's.
    caller: OnceLock<Option<Principal>>,
    /// The handler, once it is called or resumed.
    called: OnceLock<Weak<Frame>>,
    /// The latest progress.
    message: Mutex<Option<String>>,
    /// Whether the call is a task, so that its client gets no notifications.
    is_of_task: AtomicBool,
    /// Whether the leg got the reply of an equal one, or may have got it.
    is_replayed: AtomicBool,
    /// Whether the error of the latest leg is the handler's own, and no message of ours, whatever it contains.
    failed_by_handler: AtomicBool,
}

impl std::fmt::Debug for TaskLeg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskLeg").field("is_of_task", &self.0.is_of_task).finish_non_exhaustive()
    }
}

impl TaskLeg {
    pub(crate) fn new(flow: Option<FlowId>, caller: Option<Option<Principal>>) -> Self {
        let caller = caller.map_or_else(OnceLock::new, OnceLock::from);
        Self(Arc::new(Said { flow, caller, ..Said::default() }))
    }

    /// The legs that follow are played for this caller, without a request.
    pub(crate) fn goes_on_for(&self, caller: Option<Principal>) {
        let _ = self.0.caller.set(caller);
    }

    /// The call is a task from here on.
    pub(crate) fn is_of_task(&self) {
        self.0.is_of_task.store(true, Ordering::Relaxed);
    }

    /// The leg gets the reply of an equal one, or may get it.
    pub(super) fn note_replay(&self) {
        self.0.is_replayed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.0.is_replayed.load(Ordering::Relaxed)
    }

    /// The leg ends with an error, of the handler or of ours.
    pub(super) fn note_error(&self, is_of_handler: bool) {
        self.0.failed_by_handler.store(is_of_handler, Ordering::Relaxed);
    }

    /// Whether this error of the latest leg asks for a retry.
    pub(crate) fn asks_for_retry(&self, error: &ErrorData) -> bool {
        self.has_reason(error, "retry")
    }

    /// Whether this error of the latest leg says that its state was refused.
    pub(crate) fn was_refused(&self, error: &ErrorData) -> bool {
        self.has_reason(error, "invalid_request_state")
    }

    fn has_reason(&self, error: &ErrorData, reason: &str) -> bool {
        let is_ours = !self.0.failed_by_handler.load(Ordering::Relaxed);
        is_ours && error.data.as_ref().is_some_and(|data| data["reason"] == reason)
    }

    /// The latest progress, if there is some.
    pub(crate) fn message(&self) -> Option<String> {
        self.0.message.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows this progress, and returns whether the client gets no notification of it.
    pub(crate) fn show(&self, message: Option<&str>) -> bool {
        if let Some(message) = message {
            *self.0.message.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut(message).into_owned());
        }
        self.0.is_of_task.load(Ordering::Relaxed)
    }

    pub(crate) fn flow(&self) -> Option<FlowId> {
        self.0.flow
    }

    pub(crate) fn caller(&self) -> Option<&Option<Principal>> {
        self.0.caller.get()
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

    /// The call that the handler got, and who called, as long as the leg is under way.
    pub(crate) fn call(&self) -> Option<(CallToolRequestParams, Option<Principal>)> {
        let frame = self.0.called.get().and_then(Weak::upgrade)?;
        let mut call = CallToolRequestParams::new(frame.target().to_owned());
        if let Some(arguments) = &frame.arguments {
            call.arguments = Some(serde_json::from_str(arguments).ok()?);
        }
        Some((call, frame.caller().cloned()))
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
