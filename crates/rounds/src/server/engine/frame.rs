//! A frame: a handler's future that waits for its user, kept alive between legs.
//!
//! [`Frame`] is what the handler's questions, the legs and the driver share. [`Driver`] owns the future and is the only one
//! to poll it: in the task of the leg that has it, and between legs in a task that lasts for one poll, whenever something
//! wakes it, so that timers, locks and `select!` behave as everywhere else. The frame is the waker of all of it: it knows who
//! has the driver. [`Frames`](super::frames::Frames) finds a frame by its flow.

use std::{
    borrow::Cow,
    convert::Infallible,
    num::NonZeroU32,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer,
    model::{
        ElicitRequest, ElicitRequestParams::FormElicitationParams as Form, InputRequest, InputRequests, InputResponses,
        JsonObject, ServerResult,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio::{runtime::Handle, sync::oneshot, task::coop::has_budget_remaining};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    answer::{Answers, Received},
    core::Core,
    effects::Effects,
    exchange::Response,
    frames::Slot,
    journal::{Fault, Journal},
    legacy::push::Push,
    link::Link,
    poll,
};
use crate::{
    server::{
        form::MakeForm,
        policy::{
            error::{Failure, FlowError, Meaning},
            gate::{Era, Peer},
            legacy::Legacy,
            notes::Notes,
            observe::{Event, Outcome, Station},
        },
        seal::{
            Digest, FlowId,
            digest::Fingerprint,
            envelope::{Method, QuestionKind, Span},
            journal::Waiting,
        },
    },
    shared::{
        clock::{BoxFuture, Timestamp},
        order,
    },
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
    /// What the context that the handler was called with takes.
    context_bytes: usize,
    /// How many views of a leg there are. Without one, nothing is left of the context, which has one.
    views: AtomicU32,
    /// Whether nobody may be asked, as nobody is signed in.
    asks_nobody: bool,
    /// What a durable handler has been through. A frame with one is not kept between legs.
    pub(crate) journal: OnceLock<Box<Journal>>,
    state: Mutex<State>,
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
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a str,
    pub(crate) arguments: Option<&'a JsonObject>,
    pub(crate) principal: Option<Digest>,
    /// What its context takes of memory, about.
    pub(crate) context_bytes: usize,
    pub(crate) answers: Option<Answers>,
    pub(crate) onces: Option<Effects>,
}

struct State {
    /// The way to the client of the leg in flight. None when no leg is, or its client is connected to another instance.
    link: Option<Box<Link>>,
    /// Whether the leg in flight is the one that the frame was made for, and nothing wanted to reach its client yet: most handlers
    /// never do.
    unlinked: bool,
    /// What the latest leg's client can be asked.
    peer: Peer,
    /// The questions that have no answer yet, in the order of asking.
    open: Vec<Open>,
    /// Answers that were not taken yet by what waits for them.
    answered: Option<Box<Answered>>,
    next_number: u32,
    /// The round that a leg may answer, once: none while one is at it. What a ledger knows of the round may get lost; this
    /// is here as long as the handler.
    awaited: Option<NonZeroU32>,
    /// Since when it is awaited.
    waits_since: Timestamp,
    /// The driver, while nobody polls it between two legs.
    parked: Option<Box<Driver>>,
    /// A leg that came for the driver while it was polled.
    wanted: Option<oneshot::Sender<Box<Driver>>>,
    aborted: bool,
    /// The handler is over: nobody is there to be asked.
    ended: bool,
    /// Those who wait for that.
    outlived: Vec<oneshot::Sender<Infallible>>,
    /// The leg is gone, and the handler lives only to end an effect that it has begun.
    cancelled: bool,
    /// How many effects are under way.
    effects: u32,
    /// The driver is gone: no leg will ever have it.
    closed: bool,
    /// Whether the driver is polling just now, and will look at what is open when it is done.
    polling: bool,
    /// Whether something wants to be polled that was not, since the last poll began.
    woken: bool,
    /// The task of whoever has the driver.
    waker: Option<Waker>,
}

impl State {
    /// From here on the client is reached this way, or not at all.
    fn set_link(&mut self, link: Option<Box<Link>>) {
        (self.link, self.unlinked) = (link, false);
    }

    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// Leaves an answer for what waits for it, which is to be woken.
    fn answer(&mut self, open: Open, received: Result<Received, FlowError>) -> Option<Waker> {
        let next = self.answered.take();
        self.answered = Some(Box::new(Answered { id: open.id, received, next }));
        open.waker
    }

    /// Takes the answer to this question, if there is one.
    fn take_answer(&mut self, id: u32) -> Option<Result<Received, FlowError>> {
        let mut place = &mut self.answered;
        while place.as_ref()?.id != id {
            place = &mut place.as_mut()?.next;
        }
        let Answered { received, next, .. } = *place.take()?;
        *place = next;
        Some(received)
    }

    /// Takes out a question that has no answer yet.
    fn take_open(&mut self, id: u32) -> Option<Open> {
        let place = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.remove(place))
    }
}

/// A question that has no answer yet.
struct Open {
    id: u32,
    /// Whether the client knows of it: it was pushed, or asked in the latest round.
    asked: bool,
    question: OpenQuestion,
    /// What it takes to send it again, should no answer come. It waits for long, and is kept as what takes little memory: the message
    /// of a form, and anything else as JSON text.
    sent: Option<Arc<str>>,
    /// What waits for its answer.
    waker: Option<Waker>,
}

/// An answer that was not taken yet, and the one that came before it.
struct Answered {
    id: u32,
    received: Result<Received, FlowError>,
    next: Option<Box<Answered>>,
}

impl Open {
    /// What is sent to the client, under its key.
    fn send(&mut self) -> Option<(String, InputRequest)> {
        self.asked = true;
        let mut request = *self.question.request.take()?;
        self.sent = match (self.question.form, &request) {
            (Some(_), InputRequest::Elicitation(ElicitRequest { params: Form { message, .. }, .. })) => {
                let question = &self.question.message;
                Some(if **question == **message { question.clone() } else { message.as_str().into() })
            }
            _ => {
                self.question.form = None;
                order::say_fields(&mut request);
                serde_json::to_string(&request).ok().map(Arc::from)
            }
        };
        Some((self.question.key.to_string(), request))
    }

    /// What is counted for it while it waits.
    fn bytes(&self) -> usize {
        let OpenQuestion { key, message, .. } = &self.question;
        let sent = self.sent.as_ref().filter(|sent| !Arc::ptr_eq(sent, message));
        size_of::<Self>() + key.len() + message.len() + sent.map_or(0, |sent| sent.len())
    }

    /// What the journal of a durable handler says of it.
    fn waiting(&self) -> Option<Waiting> {
        let OpenQuestion { key, digest, message, until, .. } = &self.question;
        let (key, text) = (key.to_string(), message.to_string().into());
        Some(Waiting { key, question: (*digest)?, text, until: *until })
    }

    /// It was sent, and no answer came: it is to be sent again.
    fn take_back(&mut self) -> Result<(), FlowError> {
        let unreadable = |error| FlowError::failed(format!("the question cannot be asked again: {error}"));
        self.question.request = match (self.question.form, self.sent.take()) {
            (Some(form), Some(message)) => Some(Box::new(form(&self.question.key)?.request(message.to_string()))),
            (None, Some(text)) => {
                let mut request = serde_json::from_str(&text).map_err(unreadable)?;
                order::restore_fields(&mut request);
                Some(Box::new(request))
            }
            (_, None) => return Ok(()),
        };
        Ok(())
    }
}

/// A question, ready to be asked.
pub(crate) struct OpenQuestion {
    pub(crate) key: Arc<str>,
    pub(crate) kind: QuestionKind,
    /// What is to be sent; nothing for a checkpoint, which only comes back.
    pub(crate) request: Option<Box<InputRequest>>,
    /// How it is made of its key, if it is a form.
    pub(crate) form: Option<MakeForm>,
    /// By what a durable handler knows it again.
    pub(crate) digest: Option<Fingerprint>,
    pub(crate) message: Arc<str>,
    /// Until when this question may wait, if not as long as any.
    pub(crate) until: Option<Timestamp>,
}

/// What came of the questions that a handler declares: its own code has not been run.
pub(crate) enum Declared {
    /// These, in this order where it is another than that of their keys.
    Asks(InputRequests, Option<Value>),
    Failed(FlowError),
}

/// A leg that goes on with a frame.
pub(crate) struct Resumption {
    pub(crate) answers: InputResponses,
    /// None when its client is connected to another instance.
    pub(crate) link: Option<Box<Link>>,
    pub(crate) peer: Peer,
    /// The token of the leg.
    pub(crate) leg: CancellationToken,
}

/// Who waits for the reply of the leg in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Client,
    /// The client is gone, and a leg with equal answers waits.
    EqualLeg,
    None,
}

/// What a handler has come to.
pub(crate) enum Step {
    /// It asks, and waits.
    Asked(Round),
    Ended(Ending),
}

/// The questions that a handler waits for.
pub(crate) struct Round {
    pub(crate) number: u32,
    pub(crate) requests: InputRequests,
    /// In which order they were asked, where it is another than that of their keys.
    pub(crate) order: Option<Value>,
    /// The questions of a durable handler, as it knows them again.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) times: Times,
}

/// How much time there is for the questions of a round.
pub(crate) struct Times {
    /// How long the round lives: as long as any, or as its most patient question.
    pub(crate) lifetime: Duration,
    /// How long the client may take for all of it: as long as the most patient question.
    pub(crate) patience: Duration,
    /// The questions that have less time than that, by key.
    pub(crate) less: Vec<(String, Duration)>,
}

impl Times {
    /// Of a round whose questions have as much time as it has.
    pub(crate) const fn of_round(lifetime: Duration) -> Self {
        Self { lifetime, patience: lifetime, less: Vec::new() }
    }

    /// Of a round with these questions.
    fn of(open: &[Open], default: Duration, now: Timestamp) -> Self {
        let time = |open: &Open| open.question.until.map_or(default, |until| until.since(now));
        let patience = open.iter().map(time).max().unwrap_or(default);
        let less = open.iter().filter(|open| time(open) < patience);
        let less = less.map(|open| (open.question.key.to_string(), time(open)));
        Self { lifetime: default.max(patience), patience, less: less.collect() }
    }
}

pub(crate) enum Ending {
    Returned(Result<Box<ServerResult>, Failure>),
    Panicked,
    /// Its time is over.
    Expired,
    /// A leg gave it up.
    Aborted,
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

    /// Whether a durable handler is at work just now.
    fn is_durable(&self) -> bool {
        self.journal.get().is_some_and(|journal| journal.is_entered())
    }

    pub(crate) fn new(core: Arc<Core>, flow: FlowId, call: Call<'_>, peer: Peer, link: Option<Link>) -> Arc<Self> {
        let state = State {
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
            waker: None,
        };
        Arc::new(Self {
            flow,
            method: call.method,
            target: call.target.into(),
            arguments: call.arguments.and_then(|given| serde_json::to_string(given).ok()).map(String::into_boxed_str),
            answers: Mutex::new(call.answers.map(Box::new)),
            declared: Mutex::default(),
            onces: call.onces.into(),
            principal: call.principal,
            context_bytes: call.context_bytes,
            views: AtomicU32::new(0),
            asks_nobody: call.principal.is_none() && core.requires_principal(),
            journal: OnceLock::new(),
            state: Mutex::new(state),
            core,
        })
    }

    /// The answers that the handler may look at.
    pub(crate) fn answers(&self) -> AnswersGuard<'_> {
        let mut answers = self.lock_answers();
        answers.get_or_insert_default();
        AnswersGuard(answers)
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
        let instead = match *declared {
            Declared::Asks(requests, order) => Ok(order::asks(requests, order).into()),
            Declared::Failed(error) => R::failed(error).map_err(ErrorData::from),
        };
        (instead, true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Author code never runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a question. What this gives becomes its answer.
    pub(crate) fn open(
        self: &Arc<Self>,
        mut question: OpenQuestion,
        key_is_default: bool,
    ) -> Result<Opened, FlowError> {
        let mut state = self.state();
        if state.ended {
            return Err(FlowError::FlowEnded);
        }
        let taken = |state: &State, key: &str| state.open.iter().any(|open| *open.question.key == *key);
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
        state.open.push(Open { id, asked: false, question, sent: None, waker: None });
        if !state.polling {
            wake(state);
        }
        Ok(Opened { frame: self.clone(), id })
    }

    /// A name that no other question has.
    pub(crate) fn new_name(&self) -> String {
        format!("{}-{}", self.flow, self.state().number())
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
    pub(crate) async fn resume(&self, round: u32) -> Option<Box<Driver>> {
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

    /// Whoever still waits for an answer learns that there will be none.
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
        let questions: usize = self.state().open.iter().map(Open::bytes).sum();
        let texts = self.target.len() + self.arguments.as_ref().map_or(0, |arguments| arguments.len());
        let context = if self.views.load(Ordering::Relaxed) > 0 { self.context_bytes } else { 0 };
        let answers = self.lock_answers().as_ref().map_or(0, |answers| answers.bytes());
        let onces = self.onces.get().map_or(0, Effects::bytes);
        let journal = self.journal.get().map_or(0, |journal| journal.kept_bytes());
        size_of::<Self>() + questions + texts + context + answers + onces + journal
    }

    /// What is done when the handler asks a client of the legacy era.
    pub(crate) fn legacy(&self) -> Legacy {
        self.core.legacy(&self.target)
    }

    pub(crate) fn event(&self, round: u32, station: &Station) {
        let (flow, method, target) = (Some(self.flow), self.method, &*self.target);
        self.core.observe(&Event { flow, round, method, target, station });
    }
}

/// Has the driver polled: by whoever has it, or else in a task.
fn wake(mut state: MutexGuard<'_, State>) {
    state.woken = true;
    let (parked, waker) = (state.parked.take(), state.waker.take());
    drop(state);
    if let Some(driver) = parked {
        driver.go_on();
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

/// An effect under way.
pub(crate) struct Effect {
    frame: Arc<Frame>,
}

impl Drop for Effect {
    fn drop(&mut self) {
        let mut state = self.frame.state();
        state.effects -= 1;
        if state.effects == 0 && state.cancelled {
            wake(state);
        }
    }
}

/// A question that was opened. It is ready with its answer, and is withdrawn when this is dropped.
pub(crate) struct Opened {
    frame: Arc<Frame>,
    id: u32,
}

impl Future for Opened {
    type Output = Result<Received, FlowError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.frame.state();
        if let Some(received) = state.take_answer(self.id) {
            return Poll::Ready(received);
        }
        let Some(open) = state.open.iter_mut().find(|open| open.id == self.id) else {
            return Poll::Ready(Err(FlowError::FlowEnded));
        };
        let same = open.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let old = if same { None } else { open.waker.replace(cx.waker().clone()) };
        // A task may be dropped with it, and whatever that has.
        drop(state);
        drop(old);
        // Most handlers await it themselves, and are polled with the frame's own waker.
        if !same && cx.waker().data() != Arc::as_ptr(&self.frame).cast() && poll::is_blocked(&self.frame, cx.waker()) {
            return Poll::Ready(Err(FlowError::Blocked));
        }
        Poll::Pending
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut state = self.frame.state();
        let withdrawn = state.take_open(self.id);
        let untaken = state.take_answer(self.id);
        // A push that is under way is dropped by the driver.
        if state.polling || withdrawn.is_none() {
            drop(state);
        } else {
            wake(state);
        }
        drop((withdrawn, untaken));
    }
}

/// A handler's future. Its result is in a box, as it goes through many hands.
pub(super) type Handler = BoxFuture<'static, Result<Box<ServerResult>, ErrorData>>;

/// Owns a handler's future, and polls it.
pub(crate) struct Driver {
    frame: Arc<Frame>,
    handler: Option<Handler>,
    /// The handler ended while no leg was there to be told. In a box, as there is room for it while the handler waits.
    ending: Option<Box<Ending>>,
    /// Cancels the handler's own token when its part is over, or before that when it is told to stop.
    over: Option<DropGuard>,
    /// Whether a leg has this driver.
    in_flight: bool,
    /// The token of that leg.
    leg: Option<CancellationToken>,
    /// Who waits for that leg's reply.
    listener: Listener,
    /// Whether the handler has asked in this run. A durable one goes through what it has asked on earlier legs.
    asked: bool,
    round: u32,
    /// Questions that are being pushed, by their id.
    pushes: Vec<(u32, BoxFuture<'static, Result<Received, FlowError>>)>,
    /// The frame's place among those that wait.
    slot: Option<Slot>,
    /// When the flow's time is over; none before the handler waits for the first time.
    deadline: Option<Timestamp>,
    /// Fires when nobody came back in time, or when the flow's time is over while a leg is in flight.
    timer: Option<BoxFuture<'static, ()>>,
    /// Where it goes on between legs.
    runtime: Option<Handle>,
    /// Errors that this run has made, should it return one of them. In a box, as few runs have any.
    notes: Option<Box<Notes>>,
}

impl Driver {
    /// A driver for a handler whose first leg answers `round`, and has the token `leg`. The handler's own token is `over`.
    pub(crate) fn new(
        frame: Arc<Frame>,
        round: u32,
        handler: Handler,
        leg: Option<CancellationToken>,
        over: Option<DropGuard>,
    ) -> Self {
        Self {
            asked: frame.journal.get().is_some(),
            frame,
            handler: Some(handler),
            ending: None,
            over,
            in_flight: true,
            leg,
            listener: Listener::Client,
            round,
            pushes: Vec::new(),
            slot: None,
            deadline: None,
            timer: None,
            runtime: None,
            notes: None,
        }
    }

    /// Polls the handler until it has come to something that the leg in flight has to know. After an ending it is over, and
    /// is to be dropped.
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let waker = Waker::from(self.frame.clone());
        let inner = &mut Context::from_waker(&waker);
        loop {
            if self.is_aborted(cx) {
                return Poll::Ready(Step::Ended(Ending::Aborted));
            }
            if self.is_over(inner) {
                return Poll::Ready(self.expired());
            }
            if let Some(ending) = self.poll_handler(inner) {
                let ending = if self.drop_handler() { ending } else { Ending::Panicked };
                if self.in_flight {
                    return Poll::Ready(Step::Ended(ending));
                }
                self.ending = Some(Box::new(ending));
            }
            if self.in_flight
                && let Some(ending) = self.ending.take()
            {
                return Poll::Ready(Step::Ended(*ending));
            }
            match self.look_at_questions() {
                Looked::Nothing if self.waits_too_long(inner) => return Poll::Ready(self.expired()),
                Looked::Nothing => return Poll::Pending,
                Looked::Again => {}
                Looked::Asked(round) => {
                    self.round = round.number;
                    (self.in_flight, self.asked, self.leg) = (false, true, None);
                    return Poll::Ready(Step::Asked(round));
                }
            }
        }
    }

    /// A poll begins, unless it has been ordered to stop.
    fn is_aborted(&mut self, cx: &Context<'_>) -> bool {
        let mut state = self.frame.state();
        state.polling = true;
        state.woken = false;
        let same = state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let old = if same { None } else { state.waker.replace(cx.waker().clone()) };
        let aborted = state.aborted;
        drop(state);
        drop(old);
        aborted
    }

    /// Goes on with a leg, whose answers it takes up.
    pub(crate) fn take_up(&mut self, Resumption { mut answers, link, peer, leg }: Resumption) {
        // Time is measured again if the handler does not come to something at once.
        self.timer = None;
        (self.in_flight, self.leg, self.listener) = (true, Some(leg), Listener::Client);
        let mut state = self.frame.state();
        state.peer = peer;
        state.set_link(link);
        let mut wakers = Vec::new();
        for mut open in std::mem::take(&mut state.open) {
            let asked = std::mem::take(&mut open.asked);
            let received = match answers.remove(&*open.question.key).filter(|_| asked) {
                Some(raw) => Ok(Received::read(open.question.kind, Cow::Owned(raw))),
                None => match open.take_back() {
                    Ok(()) => {
                        state.open.push(open);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            wakers.extend(state.answer(open, received));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The token of the leg in flight.
    pub(crate) fn leg(&self) -> Option<CancellationToken> {
        self.leg.clone()
    }

    pub(crate) fn listener(&self) -> Listener {
        self.listener
    }

    /// Has the handler's token cancelled with the leg's for as long as the result is kept: by the thread that cancels the leg's, as a
    /// handler that is busy in a poll may look at its token.
    pub(crate) fn forward(&mut self) -> Option<BoxFuture<'static, ()>> {
        let (leg, token) = (self.leg.clone()?, self.over.take()?.disarm());
        self.over = Some(token.clone().drop_guard());
        let forward = Waker::from(Arc::new(Forward(token)));
        let mut cancelled = Box::pin(leg.cancelled_owned());
        if cancelled.as_mut().poll(&mut Context::from_waker(&forward)).is_ready() {
            forward.wake();
        }
        Some(cancelled)
    }

    /// The client is gone, and the handler goes on for a leg with equal answers.
    pub(crate) fn go_on_for_equal_leg(&mut self) {
        self.listener = Listener::EqualLeg;
    }

    /// The client is gone, and no other leg waits: tells the handler, and withdraws what was pushed.
    pub(crate) fn tell_to_stop(&mut self) {
        self.listener = Listener::None;
        self.over = None;
        self.pushes.clear();
    }

    /// Whether the handler has asked, and nobody is there to answer.
    pub(crate) fn waits_in_vain(&self) -> bool {
        self.asked && self.listener == Listener::None
    }

    /// Whether a question would not reach anybody. The leg finds out who else waits when its client has just gone.
    fn is_unheard(&self) -> bool {
        match self.listener {
            Listener::Client => self.leg.as_ref().is_some_and(CancellationToken::is_cancelled),
            Listener::EqualLeg => false,
            Listener::None => true,
        }
    }

    /// Whether the flow's time is over, for a leg whose handler does not come to something at once.
    fn waits_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline.filter(|_| self.in_flight && self.timer.is_none()) else { return false };
        self.timer = Some(self.sleep_until(deadline));
        self.is_over(cx)
    }

    fn expired(&self) -> Step {
        if !self.in_flight {
            self.frame.event(self.round, &Station::Ended(Outcome::Expired));
        }
        Step::Ended(Ending::Expired)
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
    }

    fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()> {
        let core = &self.frame.core;
        core.clock.sleep(moment.since(core.now()))
    }

    fn poll_handler(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        self.poll_pushes(cx);
        let handler = self.handler.as_mut()?;
        let mut poll = || {
            let poll = || catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
            let (polled, notes) = poll::within(&self.frame, poll);
            if let Some(notes) = notes {
                self.notes.get_or_insert_default().extend(notes);
            }
            polled
        };
        let mut polled = poll();
        if matches!(polled, Ok(Poll::Pending)) && self.frame.is_durable() {
            // What only puts itself off until it is polled again, as `yield_now` does, is not left waiting.
            self.frame.state().woken = false;
            polled = poll();
        }
        match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(Ok(result))) => Some(Ending::Returned(Ok(result))),
            Ok(Poll::Ready(Err(error))) => {
                let meaning = self.notes.as_ref().map_or(Meaning::Final, |notes| notes.meaning(&error));
                Some(Ending::Returned(Err(Failure { error, meaning })))
            }
            Err(_) => Some(Ending::Panicked),
        }
    }

    fn poll_pushes(&mut self, cx: &mut Context<'_>) {
        let mut answered = Vec::new();
        self.pushes.retain_mut(|(id, push)| match push.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(received) => {
                answered.push((*id, received));
                false
            }
        });
        for (id, received) in answered {
            self.answer(id, received);
        }
    }

    fn answer(&self, id: u32, received: Result<Received, FlowError>) {
        let mut state = self.frame.state();
        let Some(open) = state.take_open(id) else { return };
        let waker = state.answer(open, received);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The handler has yielded. What it asks is sent together, if a leg is there to send it.
    fn look_at_questions(&mut self) -> Looked {
        let mut state = self.frame.state();
        state.polling = false;
        if !self.in_flight || self.handler.is_none() {
            return Looked::Nothing;
        }
        if self.frame.is_durable() && (state.woken || !has_budget_remaining()) {
            // It has not come to rest: a combinator wants to be polled again, or tokio puts it off for the sake of other tasks.
            wake(state);
            return Looked::Nothing;
        }
        let State { open, peer, effects, .. } = &mut *state;
        let journal = self.frame.journal.get().filter(|_| peer.era == Era::Modern);
        let permitted = |open: &Open| {
            if self.frame.asks_nobody {
                return Err(FlowError::NoPrincipal);
            }
            if let Some(error) = journal
                .and_then(|journal| journal.cannot_ask().or(self.frame.onces.get().and_then(Effects::cannot_ask)))
            {
                return Err(error);
            }
            open.question.request.as_ref().map_or(Ok(()), |request| peer.permits(open.question.kind, request))
        };
        if let Some((id, refused)) = open.iter().find_map(|open| Some((open.id, permitted(open).err()?))) {
            drop(state);
            self.answer(id, Err(refused));
            return Looked::Again;
        }
        if open.is_empty() && *effects == 0 && self.frame.is_durable() {
            drop(state);
            return self.stray();
        }
        if !open.is_empty() && self.is_unheard() {
            self.asked = true;
            return Looked::Nothing;
        }
        match peer.era {
            Era::Legacy => {
                drop(state);
                self.push()
            }
            _ if open.is_empty() => Looked::Nothing,
            _ => {
                let number = self.round + 1;
                let now = self.frame.core.now();
                let times = Times::of(open, self.frame.core.round_lifetime, now);
                let sent = |open: &&Open| open.question.request.is_some();
                let order = order::of_keys(open.iter().filter(sent).map(|open| &*open.question.key));
                let mut requests = InputRequests::new();
                // One by one: to collect them is to sort them first, and most often there is one.
                requests.extend(open.iter_mut().filter_map(Open::send));
                let waiting = open.iter().filter_map(Open::waiting).collect();
                state.set_link(None);
                state.awaited = NonZeroU32::new(number);
                state.waits_since = now;
                Looked::Asked(Round { number, requests, order, waiting, times })
            }
        }
    }

    /// A durable handler waits for something that nobody will record: it would wait for it again on every leg.
    fn stray(&mut self) -> Looked {
        if let Some(journal) = self.frame.journal.get() {
            journal.set_fault(Fault::Strayed);
        }
        self.drop_handler();
        self.ending = Some(Box::new(Ending::Aborted));
        Looked::Again
    }

    /// Pushes what was not pushed yet. It is a round of its own, and is limited like one. The pushes of what was withdrawn are
    /// dropped, which tells the client.
    // Not within `poll_step`, whose every poll would have the room on the stack that this takes.
    #[inline(never)]
    fn push(&mut self) -> Looked {
        let frame = self.frame.clone();
        let core = &frame.core;
        let state = frame.state();
        let is_open = |id: u32| state.open.iter().any(|open| open.id == id);
        let withdrawn: Vec<_> = self.pushes.extract_if(.., |(id, _)| !is_open(*id)).collect();
        let first = state.open.iter().find(|open| !open.asked).map(|open| open.id);
        let (link, asks) = (state.link.as_deref().cloned(), state.open.len());
        drop(state);
        drop(withdrawn);
        let (Some(link), Some(first)) = (link, first) else { return Looked::Nothing };
        if let Err(error) = self.admit_push(asks) {
            self.answer(first, Err(error));
            return Looked::Again;
        }
        self.asked = true;
        let mut state = frame.state();
        let mut pushed = Vec::new();
        for open in state.open.iter_mut().filter(|open| !open.asked) {
            open.asked = true;
            let OpenQuestion { key, kind, request, message, until, .. } = &mut open.question;
            let Some(request) = request.take() else { continue };
            let push = Push {
                link: link.clone(),
                kind: *kind,
                request: *request,
                patience: until.map_or(core.round_lifetime, |until| until.since(core.now())),
                message: message.clone(),
            };
            self.pushes.push((open.id, Box::pin(push.send(core.clock.clone()))));
            pushed.push(key.to_string());
        }
        drop(state);
        for key in &pushed {
            self.frame.event(self.round, &Station::Pushed { key: key.clone() });
        }
        Looked::Again
    }

    /// Whether there may be another round of pushes, with so many questions open. The first takes a place among those who wait, and
    /// starts the clock.
    fn admit_push(&mut self, asks: usize) -> Result<(), FlowError> {
        let core = &self.frame.core;
        if asks > core.limits.questions {
            return Err(FlowError::TooManyQuestions { asks, limit: core.limits.questions });
        }
        if self.round >= core.limits.rounds {
            return Err(FlowError::TooManyRounds { limit: core.limits.rounds });
        }
        let (starts, time) = (self.slot.is_none(), core.flow_deadline);
        self.take_place()?;
        if starts {
            self.timer = Some(self.frame.core.clock.sleep(time));
        }
        self.round += 1;
        Ok(())
    }

    /// Drops the handler's future, if it is still there. False when that panics.
    fn drop_handler(&mut self) -> bool {
        self.pushes.clear();
        let dropped = drop_handler(&self.frame, self.handler.take());
        self.over = None;
        dropped
    }

    /// Takes a place among the handlers that wait, if there is one left, with room for what is kept of this one.
    pub(crate) fn take_place(&mut self) -> Result<(), FlowError> {
        // They were there for the leg that they came with.
        self.frame.forget_unsolicited();
        let bytes = self.bytes();
        match &mut self.slot {
            Some(slot) => slot.resize(bytes),
            None => {
                self.slot = Some(Slot::take(&self.frame, bytes)?);
                Ok(())
            }
        }
    }

    /// What is counted for it while it waits: what the library keeps, with the handler's future and without what that has on the
    /// heap.
    fn bytes(&self) -> usize {
        let futures = self.handler.iter().map(|handler| size_of_val(&**handler));
        let pushes = self.pushes.iter().map(|(_, push)| size_of_val(&**push));
        futures.chain(pushes).fold(size_of::<Self>() + self.frame.bytes(), |bytes, future| bytes + future)
    }

    /// Waits for the next leg, and no longer than until its round is over.
    pub(crate) fn park(mut self, span: Span) {
        self.deadline = Some(span.deadline);
        self.timer = Some(self.sleep_until(span.expires_at));
        self.runtime = Some(Handle::current());
        let waker = Waker::from(self.frame.clone());
        if self.is_over(&mut Context::from_waker(&waker)) {
            drop(self.expired());
            return;
        }
        Box::new(self).rest();
    }

    /// Nothing is left to be polled: the driver is where whoever needs it finds it.
    fn rest(self: Box<Self>) {
        let frame = self.frame.clone();
        let mut state = frame.state();
        if let Some(wanted) = state.wanted.take() {
            drop(state);
            // It is polled there, whatever has happened meanwhile. A leg that is gone leaves a handler that nobody can wake.
            drop(wanted.send(self));
        } else if state.woken || state.aborted {
            drop(state);
            self.go_on();
        } else {
            state.parked = Some(self);
            // The task that had it is not to be kept.
            let left = state.waker.take();
            drop(state);
            drop(left);
        }
    }

    /// Polls a handler that something else than a leg has woken.
    fn go_on(mut self: Box<Self>) {
        let Some(runtime) = self.runtime.clone() else { return };
        runtime.spawn(async move {
            if std::future::poll_fn(|cx| Poll::Ready(self.poll_step(cx).is_pending())).await {
                self.rest();
            }
        });
    }
}

/// Cancels a token when it is woken.
struct Forward(CancellationToken);

impl Wake for Forward {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}

/// Drops the handler: at once, or in a task of its own as soon as the effects that it has begun have come to their end.
impl Drop for Driver {
    fn drop(&mut self) {
        // Whoever hears of the end finds the place free.
        self.slot = None;
        // What was pushed is withdrawn at once: an answer would have the handler go on.
        self.pushes.clear();
        let at_work = self.frame.close();
        if self.handler.is_none() {
            return;
        }
        let left = Left { frame: self.frame.clone(), handler: self.handler.take(), _over: self.over.take() };
        if let (true, Ok(runtime)) = (at_work, Handle::try_current()) {
            runtime.spawn(left.at_work());
        }
    }
}

/// What is left of a handler that is over.
struct Left {
    frame: Arc<Frame>,
    handler: Option<Handler>,
    /// What the handler started is told when it is gone.
    _over: Option<DropGuard>,
}

impl Left {
    /// Lets it end the effects that it has begun, for as long as a flow may take.
    async fn at_work(mut self) {
        let core = self.frame.core.clone();
        let mut longest = core.clock.sleep(core.flow_deadline);
        std::future::poll_fn(|cx| {
            // An effect may come to its end in another task.
            let old = self.frame.state().waker.replace(cx.waker().clone());
            drop(old);
            let Some(handler) = &mut self.handler else { return Poll::Ready(()) };
            let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
            let over = !matches!(polled, Ok(Poll::Pending)) || self.frame.state().effects == 0;
            if over || longest.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        drop_handler(&self.frame, self.handler.take());
        // An `Ask` that outlives its handler keeps the frame, and is not to keep the task as well.
        self.frame.close();
    }
}

/// Drops a handler. Its destructors are the author's code, and may panic: then it is false.
fn drop_handler(frame: &Frame, handler: Option<Handler>) -> bool {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(handler)));
    frame.end();
    dropped.is_ok()
}

enum Looked {
    /// There is nothing to tell.
    Nothing,
    /// Something changed: poll again.
    Again,
    Asked(Round),
}
