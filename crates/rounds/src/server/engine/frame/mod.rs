//! A frame: a handler's future that waits for its user, kept alive between legs.
//!
//! [`Frame`] is what the handler's questions, the legs and the driver share. [`Driver`] owns the future and is the only one
//! to poll it: in the task of the leg that has it, and between legs in a task that lasts for one poll, whenever something
//! wakes it, so that timers, locks and `select!` behave as everywhere else. The frame is the waker of all of it: it knows who
//! has the driver. [`Frames`](super::frames::Frames) finds a frame by its flow.

mod answering;
mod ask;
mod cancel;
mod driver;
mod effect;
mod left;
mod park;
mod question;
mod state;
mod step;

pub(crate) use answering::Answering;
pub(crate) use driver::Driver;
pub(super) use driver::Handler;
pub(crate) use question::{Declared, OpenQuestion, PendingAnswer};
pub(crate) use step::{Ending, FrameStep, Listener, Resumption, Times};

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};

use rmcp::{ErrorData, RoleServer, model::JsonObject, service::RequestContext};
use tokio::sync::oneshot;

use self::{effect::Effect, question::PendingQuestion, state::FrameState};
use super::{
    answer::Answers, core::Core, effects::Effects, exchange::Response, journal::Journal, link::Link,
    register::details::HandlerPart, task::Shapes,
};
use crate::{
    server::{
        policy::{
            error::FlowError,
            gate::Peer,
            legacy::Legacy,
            observe::{Event, Station},
            principal::Principal,
        },
        seal::{Digest, FlowId, envelope::Method},
    },
    shared::{clock::Timestamp, order},
};

/// What a handler's questions, the legs of its flow, and its driver share.
pub(crate) struct Frame {
    pub(crate) core: Arc<Core>,
    pub(crate) flow: FlowId,
    method: Method,
    target: Box<str>,
    /// The arguments of the call as JSON text, for a question that has to be read off them.
    pub(crate) arguments: Option<Box<str>>,
    /// What the handler was given when it was called. It may still ask on its own account after it has waited. In a box, as most that
    /// wait have none.
    answers: Mutex<Option<Box<Answers>>>,
    /// What came of the questions that the handler declares, when its own code was not run for them.
    declared: Mutex<Option<Box<Declared>>>,
    /// The effects that have happened in this flow.
    pub(crate) onces: Lazily<Effects>,
    pub(super) principal: Option<Digest>,
    /// The same, by name. In a box, because few calls have one.
    caller: Option<Box<Principal>>,
    /// What the context that the handler was called with takes.
    context_bytes: usize,
    /// How many views of a leg there are. Without one, nothing is left of the context, which has one.
    views: AtomicU32,
    /// The memory of what was made for the handler beside its future.
    beside: AtomicUsize,
    /// Whether questions are rejected because the caller has no principal.
    asks_nobody: bool,
    /// What the latest leg did with the handler, for the register.
    part: Mutex<HandlerPart>,
    pub(super) shapes: Shapes,
    /// What a durable handler has been through. A frame with one is not kept between legs.
    journal: OnceLock<Box<Journal>>,
    state: Mutex<FrameState>,
}

/// The answers that a handler may look at, while it does.
pub(crate) struct AnswersGuard<'a>(MutexGuard<'a, Option<Box<Answers>>>);

impl Deref for AnswersGuard<'_> {
    type Target = Answers;

    fn deref(&self) -> &Answers {
        self.0.as_ref().expect("they are there from when they are locked")
    }
}

impl DerefMut for AnswersGuard<'_> {
    fn deref_mut(&mut self) -> &mut Answers {
        self.0.as_mut().expect("they are there from when they are locked")
    }
}

/// What a frame has no room for before it is looked at: few that wait need it.
pub(crate) struct Lazily<T>(OnceLock<Box<T>>);

impl<T> Lazily<T> {
    /// It, if it is there.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get().map(|value| &**value)
    }
}

impl<T> From<Option<T>> for Lazily<T> {
    fn from(value: Option<T>) -> Self {
        Self(value.map_or_else(OnceLock::new, |value| Box::new(value).into()))
    }
}

impl<T: Default> Deref for Lazily<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_or_init(Box::default)
    }
}

/// What a frame has to know of the call that it is for.
pub(crate) struct FrameCall<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a str,
    pub(crate) arguments: Option<&'a JsonObject>,
    pub(crate) principal: Option<Digest>,
    pub(crate) caller: Option<Principal>,
    /// What its context takes of memory, about.
    pub(crate) context_bytes: usize,
    pub(crate) answers: Option<Answers>,
    pub(crate) onces: Option<Effects>,
}

impl Frame {
    /// Whether to wake this waker is to wake the frame.
    pub(super) fn is_woken_by(&self, waker: &Waker) -> bool {
        let before = std::mem::take(&mut self.state().woken);
        waker.wake_by_ref();
        let mut state = self.state();
        let woken = state.woken;
        state.woken |= before;
        woken
    }

    pub(crate) fn new(core: Arc<Core>, flow: FlowId, call: FrameCall<'_>, peer: Peer, link: Option<Link>) -> Arc<Self> {
        let state = FrameState {
            unlinked: link.is_none(),
            link: link.map(Box::new),
            peer,
            open: Vec::new(),
            answered: None,
            next_number: 0,
            awaited: None,
            waits_since: Timestamp::from_millis(0),
            parked: None,
            wanted: None,
            aborted: false,
            ended: false,
            outlived: Vec::new(),
            cancelled: false,
            effects: 0,
            closed: false,
            polling: false,
            woken: false,
            unsettled: false,
            waker: None,
        };
        Arc::new(Self {
            flow,
            method: call.method,
            target: call.target.into(),
            arguments: call.arguments.and_then(text_of),
            answers: Mutex::new(call.answers.map(Box::new)),
            declared: Mutex::default(),
            onces: call.onces.into(),
            principal: call.principal,
            caller: call.caller.map(Box::new),
            context_bytes: call.context_bytes,
            views: AtomicU32::new(0),
            beside: AtomicUsize::new(0),
            asks_nobody: call.principal.is_none() && core.requires_principal(),
            part: Mutex::new(HandlerPart::Ran),
            shapes: Shapes::default(),
            journal: OnceLock::new(),
            state: Mutex::new(state),
            core,
        })
    }

    /// A leg did this with the handler.
    pub(crate) fn took(&self, part: HandlerPart) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }

    /// What the latest leg did with the handler.
    pub(crate) fn part(&self) -> HandlerPart {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answers that the handler may look at.
    pub(crate) fn answers(&self) -> AnswersGuard<'_> {
        let mut answers = self.lock_answers();
        answers.get_or_insert_default();
        AnswersGuard(answers)
    }

    /// Whether the handler asked something else under this key than what its answer is to.
    pub(crate) fn found_unlike(&self, key: &str) -> bool {
        let has_strayed = self.journal().is_some_and(|journal| journal.has_not_reached(key));
        has_strayed || self.lock_answers().as_ref().is_some_and(|answers| answers.is_unlike(key))
    }

    fn lock_answers(&self) -> MutexGuard<'_, Option<Box<Answers>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the answers that came uninvited.
    fn forget_unsolicited(&self) {
        let mut answers = self.lock_answers();
        if answers.as_mut().is_some_and(|answers| answers.forget_unsolicited()) {
            *answers = None;
        }
    }

    /// Ends the leg in the handler's place, whose own code is not run.
    pub(crate) fn declare(&self, declared: Declared) {
        *self.declared.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(declared));
    }

    /// What a call came to, and whether that was declared: its error then only says that the handler was not run.
    pub(crate) fn came_to<R: Response>(
        &self,
        round: u32,
        returned: Result<R, ErrorData>,
    ) -> (Result<R, ErrorData>, bool) {
        let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Err(_), Some(declared)) = (&returned, declared) else { return (returned, false) };
        self.event(round, &Station::Withheld);
        self.took(HandlerPart::Withheld);
        let instead = match *declared {
            Declared::Asks(requests, order) => Ok(order::asks(requests, order).into()),
            Declared::Failed(error) => R::failed(error).map_err(ErrorData::from),
        };
        (instead, true)
    }

    fn state(&self) -> MutexGuard<'_, FrameState> {
        // Author code never runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Poses a question to the client. What this returns resolves to its answer.
    pub(crate) fn pose(
        self: &Arc<Self>,
        mut question: OpenQuestion,
        key_is_default: bool,
    ) -> Result<PendingAnswer, FlowError> {
        let mut state = self.state();
        if state.ended {
            return Err(FlowError::FlowEnded);
        }
        let taken = |state: &FrameState, key: &str| state.open.iter().any(|open| *open.question.key == *key);
        if taken(&state, &question.key) {
            if !key_is_default {
                return Err(FlowError::DuplicateKey { key: question.key.to_string() });
            }
            let free = (2..).map(|n| format!("{}_{n}", question.key)).find(|key| !taken(&state, key));
            question.key = free.unwrap_or_default().into();
            // Its field has the name of the key that it was made of.
            question.form = None;
        }
        let id = state.number();
        // Most handlers have one question open, and wait with it for long.
        state.open.reserve_exact(1);
        state.open.push(PendingQuestion { id, asked: false, question, sent: None, waker: None });
        if !state.polling {
            wake(state);
        }
        Ok(PendingAnswer { frame: self.clone(), id })
    }

    /// A name that no other question has.
    pub(crate) fn new_name(&self) -> String {
        format!("{}-{}", self.flow, self.state().number())
    }

    /// The principal that the flow belongs to.
    /// What is called: a tool, a prompt or a resource.
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn caller(&self) -> Option<&Principal> {
        self.caller.as_deref()
    }

    /// The client of the leg in flight.
    pub(crate) fn link(&self) -> Option<Link> {
        self.state().link.as_deref().cloned()
    }

    /// Lets the handler reach the client of the leg that it was called in.
    pub(crate) fn reach(&self, context: &RequestContext<RoleServer>) {
        let mut state = self.state();
        if state.unlinked {
            state.set_link(Some(Box::new(Link::of(context))));
        }
    }

    /// Looks at what the latest leg's client can be asked.
    pub(crate) fn with_peer<T>(&self, look: impl FnOnce(&Peer) -> T) -> T {
        look(&self.state().peer)
    }

    /// Hands the driver to a leg that answers this round. None when the frame is over, or waits for another round.
    pub(crate) async fn driver_at(&self, round: u32) -> Option<Box<Driver>> {
        let coming = {
            let mut state = self.state();
            if state.closed || state.awaited.take_if(|awaited| awaited.get() == round).is_none() {
                return None;
            }
            if let Some(driver) = state.parked.take() {
                return Some(driver);
            }
            // It is being polled, and comes when that is done.
            let (wanted, coming) = oneshot::channel();
            state.wanted = Some(wanted);
            coming
        };
        coming.await.ok()
    }

    /// An effect begins. Until what this gives is dropped, the handler is not.
    pub(crate) fn begin_effect(self: &Arc<Self>) -> Effect {
        self.state().effects += 1;
        Effect { frame: self.clone() }
    }

    /// Whether an effect is under way.
    pub(crate) fn has_effect(&self) -> bool {
        self.state().effects > 0
    }

    /// Whether the handler lives only to end an effect that it has begun.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state().cancelled
    }

    /// Ends the handler, wherever it is.
    pub(crate) fn abort(&self) {
        let mut state = self.state();
        state.aborted = true;
        wake(state);
    }

    /// Becomes ready when the handler is gone: for what outlives it.
    pub(crate) fn until_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let (outlived, ended) = oneshot::channel();
        let mut state = self.state();
        if !state.ended {
            state.outlived.push(outlived);
        }
        // Nothing is ever sent: the other half is dropped, now or at the end.
        async { drop(ended.await) }
    }

    /// Tells every task that still waits for an answer that there will be none.
    fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.set_link(None);
        let (open, outlived) = (std::mem::take(&mut state.open), std::mem::take(&mut state.outlived));
        drop(state);
        drop(outlived);
        open.into_iter().filter_map(|open| open.waker).for_each(Waker::wake);
    }

    /// A leg that waits for the driver learns that it will not come. Whether the handler is in the middle of an effect.
    fn close(&self) -> bool {
        let mut state = self.state();
        (state.closed, state.cancelled) = (true, true);
        let at_work = state.effects > 0;
        // An `Ask` that outlives its handler keeps this frame, and is not to keep the task as well.
        let left = (state.wanted.take(), state.waker.take());
        drop(state);
        drop(left);
        at_work
    }

    /// Says whether the handler's questions are complete. Until they are, none of them is sent.
    pub(super) fn settle(&self, settled: bool) {
        self.state().unsettled = !settled;
    }

    /// Says how much memory is kept for the handler beside its future.
    pub(super) fn keep_beside(&self, bytes: usize) {
        self.beside.store(bytes, Ordering::Relaxed);
    }

    /// There is one view more, of a leg from the inside.
    pub(super) fn is_viewed(&self) {
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one view less.
    pub(super) fn was_viewed(&self) {
        self.views.fetch_sub(1, Ordering::Relaxed);
    }

    /// Since when it waits for a leg, if it does.
    pub(super) fn waits_since(&self) -> Option<Timestamp> {
        let state = self.state();
        state.awaited.map(|_| state.waits_since)
    }

    /// What is counted for it while it waits, beside its driver.
    fn bytes(&self) -> usize {
        let questions: usize = self.state().open.iter().map(PendingQuestion::bytes).sum();
        let caller = self.caller.as_ref().map_or(0, |caller| size_of::<Principal>() + caller.as_str().len());
        let texts = caller + self.target.len() + self.arguments.as_ref().map_or(0, |arguments| arguments.len());
        let context = if self.views.load(Ordering::Relaxed) > 0 { self.context_bytes } else { 0 };
        let answers = self.lock_answers().as_ref().map_or(0, |answers| answers.bytes());
        let onces = self.onces.get().map_or(0, Effects::bytes);
        let journal = self.journal().map_or(0, Journal::kept_bytes);
        let beside = self.beside.load(Ordering::Relaxed);
        size_of::<Self>() + questions + texts + context + answers + onces + journal + beside
    }

    /// How long the user has to answer a round of this call.
    pub(crate) fn round_lifetime(&self) -> std::time::Duration {
        self.core.lifetimes.round(&self.target)
    }

    /// How long this call may take in all.
    pub(crate) fn flow_deadline(&self) -> std::time::Duration {
        self.core.lifetimes.flow(&self.target)
    }

    /// What is done when the handler asks a client of the legacy era.
    pub(crate) fn legacy(&self) -> Legacy {
        self.core.legacy(&self.target)
    }

    pub(crate) fn event(&self, round: u32, station: &Station) {
        let (flow, method, target) = (Some(self.flow), self.method, &*self.target);
        let ends_flow = matches!(station, Station::Ended(_));
        self.core.observe(&Event { flow, round, method, target, station, elapsed: None, ends_flow });
    }
}

/// The JSON text of these arguments, in an allocation of exactly its length. Most are short, and a text that had to be made
/// shorter would be allocated twice.
fn text_of(arguments: &JsonObject) -> Option<Box<str>> {
    let mut short = [0; 256];
    let mut rest = &mut short[..];
    if serde_json::to_writer(&mut rest, arguments).is_err() {
        return serde_json::to_string(arguments).ok().map(String::into_boxed_str);
    }
    let left = rest.len();
    str::from_utf8(&short[..short.len() - left]).ok().map(Box::from)
}

/// Has the driver polled: by the leg that has it, or else in a task.
fn wake(mut state: MutexGuard<'_, FrameState>) {
    state.woken = true;
    let (parked, waker) = (state.parked.take(), state.waker.take());
    drop(state);
    if let Some(driver) = parked {
        driver.poll_alone();
    }
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Wake for Frame {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        wake(self.state());
    }
}
