//! One leg: from the request that came in to the response that goes out.
//!
//! open ─▶ claim ─▶ resume ─▶ run until it ends or asks ─▶ gate ─▶ seal ─▶ record ─▶ response

mod claim;
mod elsewhere;
mod errand;
mod identity;
mod open;
mod record;
mod register;
#[cfg(feature = "test")]
mod rehearse;
mod run;
mod seal;

pub(crate) use elsewhere::peek;
pub(super) use errand::play_errand;
pub(crate) use identity::key_of;
pub(crate) use open::refuse_unreadable;
#[cfg(feature = "test")]
pub(crate) use rehearse::{Rehearsed, rehearse};

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::SystemTime,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{ErrorCode, InputResponses},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::{claim::Won, identity::Identity, seal::Minted};
use super::{
    answer::Answers,
    core::Core,
    effects::{AnsweredRound, Effects},
    elsewhere::Continued,
    exchange::{Exchange, Response},
    handlers::Handlers,
    journal::Journal,
    link::Link,
    stop::{Stop, not_spilled},
    task::TaskLeg,
    view::RoundId,
};
use crate::{
    server::{
        ledger::{Spill, register::FlowStatus},
        policy::{
            error::Meaning,
            gate::Peer,
            observe::{Event, FailedLeg, Outcome, Station, Tracing},
            principal::Principal,
        },
        seal::{
            Digest,
            envelope::{Again, Binding, Envelope},
            refusal::Refusal,
        },
    },
    shared::order,
};

/// A request, and the context it came with. In a box: a future has room for all it was given until it ends, and this is handed
/// on through several of them.
type Arrived<X> = Box<(X, RequestContext<RoleServer>)>;

/// Plays one leg and gives what goes back to the client.
pub(crate) fn play<'a, X: Exchange, H: ServerHandler>(
    core: &'a Arc<Core>,
    handlers: &'a Handlers<H>,
    request: X,
    context: RequestContext<RoleServer>,
) -> impl Future<Output = Result<X::Response, ErrorData>> + Send + 'a {
    let given = Box::new((request, context));
    caught(boxed(|| async move { Leg::new(core, &given.0, &given.1).play(handlers, given).await }))
}

/// The same for a leg that may outlive its request.
pub(crate) fn play_owned<X: Exchange, H: ServerHandler>(
    core: Arc<Core>,
    handlers: Handlers<H>,
    request: X,
    context: RequestContext<RoleServer>,
) -> impl Future<Output = Result<X::Response, ErrorData>> + Send + Unpin + 'static {
    let given = Box::new((request, context));
    caught(boxed(|| async move { Leg::new(&core, &given.0, &given.1).play(&handlers, given).await }))
}

/// A future in a box, made in its place: `Box::pin` may copy all the room that it has.
#[inline(always)]
fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// Answers a panic with an error. Code of the application, such as its observer or its `Identify`, may panic, and the client would get no
/// answer.
///
/// A leg is a large future and comes boxed: rmcp moves the future of a request, and reserves the size of the largest.
fn caught<T, E: From<Stop>>(mut leg: impl Future<Output = Result<T, E>> + Unpin) -> impl Future<Output = Result<T, E>> {
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut leg).poll(cx))) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(Stop::panicked().into())),
    })
}

struct Leg<'a> {
    core: &'a Arc<Core>,
    binding: Binding,
    /// The caller, for the handler and the register. None in a leg that another instance handed over, whose handler knows it.
    principal: Option<Principal>,
    peer: Peer,
    over_http: bool,
    /// The flow is new for a first leg, and comes from the state of a later one.
    round: RoundId,
    /// Whether the flow is known by now.
    known: bool,
    /// Whether the client gave this first leg an identity.
    identity: Identity,
    /// Whether the server plays it itself, so that the client need not be of the modern era.
    continued: bool,
    /// Of a call that is or may become a task.
    task: Option<TaskLeg>,
    /// When it arrived, if an observer measures.
    arrived: Option<SystemTime>,
    /// Whether it gets the reply of an equal leg.
    replays: AtomicBool,
}

impl<'a> Leg<'a> {
    fn new<X: Exchange>(core: &'a Arc<Core>, request: &X, context: &RequestContext<RoleServer>) -> Self {
        let principal = core.identify(context);
        Self {
            core,
            binding: Binding {
                principal: principal.as_ref().map(Principal::digest),
                method: X::METHOD,
                target: request.target().to_owned(),
                arguments: Digest::of_arguments(request.arguments()),
            },
            principal,
            peer: Peer::of(context),
            over_http: crate::server::engine::core::is_over_http(context),
            round: RoundId::UNKNOWN,
            known: false,
            identity: Identity::None,
            continued: core.elsewhere.is_some() && context.extensions.get::<Continued>().is_some(),
            task: context.extensions.get::<TaskLeg>().cloned(),
            arrived: core.measured_now(),
            replays: AtomicBool::new(false),
        }
    }

    /// Plays it, within a span that knows its flow from the beginning.
    async fn play<X: Exchange, H: ServerHandler>(
        mut self,
        handlers: &Handlers<H>,
        mut given: Arrived<X>,
    ) -> Result<X::Response, ErrorData> {
        let opened = given.0.state().take().map(|token| (self.open(&token), token));
        if opened.is_none() {
            let flow = self.identify(&given.1).unwrap_or_else(|| self.core.new_flow());
            self.of(RoundId::new(flow, 0));
        }
        let flow = self.known.then_some(self.round.flow);
        let span = Tracing::span(X::METHOD, given.0.target(), &given.1, flow, self.round.number);
        // Pinned where it is made: it is large, and `instrument` would move it.
        let mut played = pin!(self.play_opened(handlers, given, opened));
        let (played, outcome) = poll_fn(|cx| span.in_scope(|| played.as_mut().poll(cx))).await;
        Tracing::ended(&span, outcome);
        played
    }

    async fn play_opened<X: Exchange, H: ServerHandler>(
        &self,
        handlers: &Handlers<H>,
        mut given: Arrived<X>,
        opened: Option<(Result<Box<Envelope>, Refusal>, String)>,
    ) -> (Result<X::Response, ErrorData>, Outcome) {
        let mut sent = given.0.answers().take().unwrap_or_default();
        let depends_on_answers = opened.is_some() || !sent.is_empty();
        let played = match opened {
            None => match self.identity {
                // A plain call is not recorded under its key, so that it does not matter that the key cannot be used.
                Identity::None | Identity::Refused(_) => self.begin(&handlers.of(self.peer.era), given, sent).await,
                Identity::Key => self.begin_once(&handlers.of(self.peer.era), given, sent).await,
            },
            Some((opened, token)) => match self.opened(opened) {
                Ok(envelope) => {
                    self.take_decisions(&envelope, &mut sent, &given.1);
                    match self.away(&envelope) {
                        Some(route) => self.route::<X>(route, &token, envelope, sent, &given.1.ct).await,
                        None if envelope.resume.waits() => {
                            let (_, RequestContext { ct, peer, meta, extensions, .. }) = *given;
                            if let Some(task) = &self.task
                                && let Some(frame) = self.core.frames.find(envelope.flow)
                            {
                                task.is_called_with(&frame);
                            }
                            self.wake::<X>(envelope, sent, Some(Link::new(peer, &meta, &extensions)), ct).await
                        }
                        None => self.play_round(handlers, given, envelope, sent).await,
                    }
                }
                Err(stop) => Err(stop),
            },
        };
        let (played, outcome, ends_flow) = match played {
            Ok(mut response) => {
                if depends_on_answers {
                    response.forbid_caching();
                }
                let outcome = response.outcome();
                (Ok(response), outcome, outcome != Outcome::InputRequired)
            }
            Err(mut stop) => {
                if let Some(task) = &self.task {
                    task.note_error(stop.is_of_handler());
                }
                let ends_flow = self.ends_flow(&stop);
                self.failed(&mut stop);
                (Err(stop.error), stop.outcome, ends_flow)
            }
        };
        let ends_flow = ends_flow && !self.replays.load(Ordering::Relaxed);
        self.tell(&Station::Ended(outcome), ends_flow);
        (played, outcome)
    }

    /// The first leg: there is nothing to claim yet.
    async fn begin<X: Exchange, H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        mut given: Arrived<X>,
        sent: InputResponses,
    ) -> Result<X::Response, Stop> {
        self.core.may_start(&self.binding.target)?;
        let deadline = self.core.now() + self.core.lifetimes.flow(&self.binding.target);
        *given.0.answers() = (!sent.is_empty()).then(|| without_refused_content(sent.clone()));
        let answers = (!sent.is_empty()).then(|| Answers::unsolicited(sent));
        let view = self.view(handler, answers, None, None, false, &given);
        let frame = view.frame.clone();
        let (asked, response) = self.run(handler, given, view, None, deadline).await?;
        // An unknown round is free: a question whose token carries everything needs no record before its answer arrives.
        if let Some(minted) = asked {
            if let Some(why) = self.identity.refused() {
                frame.abort();
                return Err(ErrorData::invalid_params(why, None).into());
            }
            let change = self.first_asked(&minted, &response, &frame).map(Box::new);
            let Minted { span, spill, .. } = minted;
            let spill = spill.map(|state| Spill { id: self.round.next().claim_id(), keep: self.keep(span), state });
            if change.is_some() || spill.is_some() {
                self.core.watch_register();
                if let Err(error) = self.core.begin(change, spill).await {
                    frame.abort();
                    return Ok(X::Response::failed(not_spilled(error))?);
                }
            }
        }
        self.report_questions(&response);
        Ok(response)
    }

    /// Plays the leg of a later round: it runs if this leg gets the claim, and otherwise gets what that run replied.
    async fn play_round<X: Exchange, H: ServerHandler>(
        &self,
        handlers: &Handlers<H>,
        mut given: Arrived<X>,
        envelope: Box<Envelope>,
        mut sent: InputResponses,
    ) -> Result<X::Response, Stop> {
        let decisions = self.decisions(&envelope, &given.1);
        let request = self.bid(&envelope, &mut sent);
        let (claim, spilled) = match self.claim(request, &envelope, &given.1.ct).await? {
            Won::Run { claim, spilled } => (claim, spilled),
            Won::Reply(reply) => return self.replay::<X>(&reply),
        };
        let deadline = envelope.span.deadline;
        let answered = AnsweredRound { span: envelope.span, fence: claim.fence() };
        let again = match envelope.resume.again(spilled.as_deref()) {
            Ok(again) => again,
            Err(refusal) => {
                claim.give_back().await;
                return Err(self.refuse(refusal));
            }
        };
        let mut recorded_answers = self.recorded(&sent);
        self.leave_void(&mut sent, decisions.as_ref());
        let handler = &*handlers.of(self.peer.era);
        let view = match again {
            Again::Handler(kept, posed) => {
                let answers = Answers::solicited(&kept.settled, posed, &envelope.asked, &sent);
                let onces = Effects::of(kept.onces, answered);
                let view = self.view(handler, Some(answers), Some(onces), kept.state.clone(), true, &given);
                *given.0.answers() = Some(without_refused_content(sent));
                *given.0.state() = kept.state;
                view
            }
            Again::Journal(pages) => {
                let onces = Effects::of(vec![], answered);
                let view = self.view(handler, None, Some(onces), None, true, &given);
                let journal = Journal::resumed(pages, &envelope.asked, sent, &self.core.limits, self.core.now())
                    .with_texts(self.core.texts.clone());
                // The frame is new, so its journal is not set yet.
                view.frame.replay(|| journal);
                view
            }
        };
        let frame = view.frame.clone();
        let running = self.core.registering.as_ref().map(|register| register.run(self.round.claim_id().flow, &frame));
        let concluded = self.run(handler, given, view, Some(&claim), deadline).await;
        drop(running);
        self.tell_unlike(&envelope.asked, decisions.as_ref(), recorded_answers.as_mut(), &frame).await;
        let recorded = self.record::<X>(claim, concluded, recorded_answers, &frame).await;
        if recorded.is_err() {
            // A handler that waits for the answer to what did not leave waits for nothing.
            frame.abort();
        }
        recorded
    }

    /// A leg that goes on with a flow whose handler waits here, if it does.
    async fn wake<X: Exchange>(
        &self,
        envelope: Box<Envelope>,
        mut sent: InputResponses,
        link: Option<Link>,
        leg_token: CancellationToken,
    ) -> Result<X::Response, Stop> {
        let request = self.bid(&envelope, &mut sent);
        let claim = match self.claim(request, &envelope, &leg_token).await? {
            Won::Run { claim, .. } => claim,
            Won::Reply(reply) => return self.replay::<X>(&reply),
        };
        let recorded_answers = self.recorded(&sent);
        let deadline = envelope.span.deadline;
        let Some((frame, concluded)) = self.resume::<X>(sent, link, leg_token, &claim, deadline).await else {
            claim.give_back().await;
            return Err(self.refuse(Refusal::FrameGone));
        };
        let recorded = self.record::<X>(claim, concluded, recorded_answers, &frame).await;
        if recorded.is_err() {
            // A handler that waits for the answer to what did not leave waits for nothing.
            frame.abort();
        }
        recorded
    }

    /// Tells the call that it gets, or may get, the reply of an equal leg.
    fn note_replay(&self) {
        if let Some(task) = &self.task {
            task.note_replay();
        }
    }

    /// The answers, where the server keeps a register.
    fn recorded(&self, sent: &InputResponses) -> Option<InputResponses> {
        self.core.registering.as_ref().map(|_| sent.clone())
    }

    /// Whether the flow was cancelled, by what the register says.
    async fn is_cancelled(&self) -> bool {
        let Some(register) = self.core.register() else { return false };
        let record = register.get(self.round.claim_id().flow, self.core.now()).await;
        matches!(record, Ok(Some(record)) if record.summary.status == FlowStatus::Cancelled)
    }

    /// Logs that this leg failed, and names its flow to the client.
    fn failed(&self, stop: &mut Stop) {
        self.name_flow(stop);
        let Stop { error, outcome, meaning, cause } = stop;
        // A refusal is an event of its own, with its reason.
        if *outcome == Outcome::Cancelled || *meaning == Meaning::Refused {
            return;
        }
        self.core.failed(&FailedLeg {
            flow: self.known.then(|| self.round.claim_id().flow),
            round: self.round.number,
            target: &self.binding.target,
            instance: self.core.instance(),
            code: error.code.0,
            error: &error.message,
            cause: cause.as_deref(),
        });
    }

    /// Puts the register's id of the flow into an error of the server's own, so that a user can quote what an operator
    /// looks for. The errors of handlers stay as they are, and so does the frozen one.
    pub(super) fn name_flow(&self, stop: &mut Stop) {
        let is_ours = stop.cause.is_some() || stop.outcome == Outcome::Panicked;
        if !self.known || !is_ours || stop.error.code != ErrorCode::INTERNAL_ERROR {
            return;
        }
        if let Value::Object(data) = stop.error.data.get_or_insert_with(|| json!({})) {
            data.insert("flow".to_owned(), self.round.claim_id().flow.to_string().into());
        }
    }

    /// Whether the flow is over after this error. A refused state is not the end of its flow, and a client that has a state
    /// may send it again if its round stays open.
    fn ends_flow(&self, stop: &Stop) -> bool {
        stop.meaning != Meaning::Refused && (self.round.number == 0 || !stop.reopens())
    }

    /// It is known of which round this leg is.
    fn of(&mut self, round: RoundId) {
        (self.round, self.known) = (round, true);
    }

    fn report_questions(&self, response: &impl Response) {
        if let Some(asks) = response.asks().filter(|_| self.core.is_observed()) {
            let keys = order::keys(asks);
            let bytes = asks.request_state.as_ref().map_or(0, String::len);
            self.event(&Station::Asked { keys, bytes });
        }
    }

    fn event(&self, station: &Station) {
        self.tell(station, false);
    }

    fn tell(&self, station: &Station, ends_flow: bool) {
        self.core.observe(&Event {
            flow: self.known.then_some(self.round.flow),
            round: self.round.number,
            method: self.binding.method,
            target: &self.binding.target,
            station,
            elapsed: self.arrived.map(|arrived| self.core.clock.now().duration_since(arrived).unwrap_or_default()),
            ends_flow,
        });
    }
}

/// Removes the content of declined and cancelled answers, for handlers that read the raw answers.
fn without_refused_content(mut sent: InputResponses) -> InputResponses {
    for answer in sent.values_mut().filter_map(Value::as_object_mut) {
        if matches!(answer.get("action").and_then(|action| action.as_str()), Some("decline" | "cancel")) {
            answer.remove("content");
        }
    }
    sent
}
