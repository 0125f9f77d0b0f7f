//! One leg: from the request that came in to the response that goes out.
//!
//! open ─▶ claim ─▶ resume ─▶ run until it ends or asks ─▶ gate ─▶ seal ─▶ record ─▶ response

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        InputRequest, InputRequests, InputRequiredResult, InputResponses, RequestMetaObject, RequestParamsMeta as _,
    },
    service::RequestContext,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    answer::Answers,
    core::Core,
    effects::{Answered, Effects},
    exchange::{Exchange, Response},
    frame::{Call, Driver, Ending, Frame, Handler, Listener, Resumption, Step, Times},
    handlers::Handlers,
    journal::{Fault, Journal},
    legacy::shim,
    link::Link,
    relay::Relay,
    reply::Reply,
    route::{self, Errand, Routed},
    stop::{Stop, not_spilled, overtaken, unavailable},
    view::{RoundId, View},
    weight,
};
#[cfg(feature = "test")]
use crate::server::seal::journal::Pages;
use crate::{
    server::{
        ledger::{ClaimId, ClaimRequest, Claimed, Fence, LedgerError, OwnerLost, Retention, Spill},
        policy::{
            error::{Failure, FlowError, Meaning},
            gate::{Era, Peer},
            observe::{Event, Outcome, Station, Tracing},
        },
        seal::{
            Digest,
            envelope::{Again, Binding, Envelope, Kept, Method, Resume, Span},
            refusal::Refusal,
            token,
        },
    },
    shared::{
        clock::{BoxFuture, Timestamp},
        order,
    },
};

/// Where a question says how long it is good for.
const EXPIRES_IN: &str = "rounds/expiresInMs";

/// A request, and the context it came with. In a box: a future has room for all it was given until it ends, and this is handed
/// on through several of them.
type Given<X> = Box<(X, RequestContext<RoleServer>)>;

/// Plays one leg and gives what goes back to the client.
pub(crate) fn play<'a, X: Exchange, H: ServerHandler>(
    core: &'a Arc<Core>,
    handlers: &'a Handlers<H>,
    request: X,
    context: RequestContext<RoleServer>,
) -> impl Future<Output = Result<X::Response, ErrorData>> + Send + 'a {
    let given = Box::new((request, context));
    caught(boxed(|| async move { Leg::new(core, &given).play(handlers, given).await }))
}

/// A future in a box, made in its place: `Box::pin` may copy all the room that it has.
#[inline(always)]
fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// What the application plugged in, such as its observer or its way to tell principals, may panic as well; whoever waits would be
/// left without an answer.
///
/// A leg is large, and comes in a box: rmcp moves the future of a request around, with room for the largest of all of them.
fn caught<T, E: From<Stop>>(mut leg: impl Future<Output = Result<T, E>> + Unpin) -> impl Future<Output = Result<T, E>> {
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut leg).poll(cx))) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(Stop::panicked().into())),
    })
}

/// Calls a handler.
#[expect(clippy::boxed_local, reason = "what a future captures it has room for until it ends: here for a pointer")]
fn call<X: Exchange, H: ServerHandler>(
    handler: &H,
    given: Given<X>,
) -> impl Future<Output = Result<X::Response, ErrorData>> + Send {
    let (request, context) = *given;
    request.call(handler, context)
}

/// Calls a handler for a client of the legacy era. Not within those who call it: their every call would have the room on the
/// stack that this takes.
#[inline(never)]
fn shimmed<X: Exchange, H: ServerHandler>(handler: Arc<H>, given: Given<X>, view: Arc<View>) -> Handler {
    Box::pin(async move {
        let (request, context) = *given;
        shim::call(&*handler, request, view, context).await.map(|response| Box::new(response.into()))
    })
}

/// Shows a durable handler its past, and gives what it comes to after it. Nothing is asked, claimed, had or recorded.
#[cfg(feature = "test")]
pub(crate) async fn rehearse<X: Exchange, H: ServerHandler>(
    core: &Arc<Core>,
    handler: &Arc<H>,
    request: X,
    context: RequestContext<RoleServer>,
    pages: Pages,
) -> Rehearsed {
    let mut given = Box::new((request, context));
    let mut leg = Leg::new(core, &given);
    leg.of(RoundId::new(core.new_flow(), 0));
    let view = leg.view(handler, None, None, None, true, &given);
    let _ = view.frame.journal.set(Box::new(Journal::dry(pages, &core.limits)));
    view.put(&mut given.1);
    let handler = handler.clone();
    let called = Box::pin(async move { call(&*handler, given).await.map(|response| Box::new(response.into())) });
    let mut driver = Driver::new(view.frame.clone(), 0, called, None, None);
    let step = poll_fn(|cx| driver.poll_step(cx)).await;
    drop(driver);
    Rehearsed { fault: view.frame.journal.get().and_then(|journal| journal.fault_at(&step)), step }
}

/// What a handler came to that was only shown its past.
#[cfg(feature = "test")]
pub(crate) struct Rehearsed {
    pub(crate) fault: Option<Fault>,
    pub(crate) step: Step,
}

/// Plays a leg that landed on another instance, for a handler that waits here. None when it was cancelled: nobody waits for its
/// reply.
pub(super) async fn play_errand<X: Exchange>(
    core: &Arc<Core>,
    errand: Errand,
    leg_token: CancellationToken,
) -> Option<Vec<u8>> {
    let peer = Peer { era: Era::Modern, capabilities: errand.capabilities(), back_channel: false };
    let answers = errand.answers();
    let Errand { binding, over_http, state, trace, .. } = errand;
    let mut leg = Leg { core, binding, peer, over_http, round: RoundId::UNKNOWN, known: false };
    let opened = leg.open(&state);
    let span = Tracing::errand(leg.known.then_some(leg.round.flow), leg.round.number, trace);
    let played = Box::pin(async {
        match leg.opened(opened) {
            Ok(envelope) => leg.wake::<X>(envelope, answers, None, leg_token).await,
            Err(stop) => Err(stop),
        }
    });
    match caught(played).instrument(span).await {
        Ok(response) => Reply::encode(Ok(&response)),
        Err(Stop { outcome: Outcome::Cancelled, .. }) => None,
        Err(stop) => Reply::encode::<X::Response>(Err(&stop.error)),
    }
}

/// Refuses a leg whose state or answers are not even of the right type.
pub(crate) fn refuse_unreadable(core: &Core, method: Method, params: Option<&Value>) -> ErrorData {
    let target = params.and_then(|params| params.get("name").or(params.get("uri"))).and_then(Value::as_str);
    let (flow, round, target) = (None, 0, target.unwrap_or_default());
    let error = Refusal::frozen();
    let ended = Station::Ended(Outcome::Error { code: error.code.0 });
    for station in &[Station::Refused(Refusal::WrongType), ended] {
        core.observe(&Event { flow, round, method, target, station });
    }
    error
}

struct Leg<'a> {
    core: &'a Arc<Core>,
    binding: Binding,
    peer: Peer,
    over_http: bool,
    /// Of a flow that is drawn anew for a first leg, and comes from the state when there is one.
    round: RoundId,
    /// Whether the flow is known by now.
    known: bool,
}

/// How the handler's part of a leg ended.
enum Ran {
    Stepped(Step),
    /// The client went away, and nobody else waits.
    Cancelled,
    /// Another instance took the round over.
    Overtaken,
}

/// What a leg comes to: its response, and what there is to know of the token in it, if it asks.
type Concluded<R> = Result<(Option<Minted>, R), Stop>;

/// A token that is about to leave.
struct Minted {
    span: Span,
    /// What it could not carry.
    spill: Option<Vec<u8>>,
    /// The effects that it carries the values of, of those that this leg has claimed.
    spent: Vec<ClaimId>,
}

impl<'a> Leg<'a> {
    fn new<X: Exchange>(core: &'a Arc<Core>, (request, context): &(X, RequestContext<RoleServer>)) -> Self {
        let principal = core.identify(context);
        Self {
            core,
            binding: Binding {
                principal: principal.as_ref().map(crate::Principal::digest),
                method: X::METHOD,
                target: request.target().to_owned(),
                arguments: Digest::of_arguments(request.arguments()),
            },
            peer: Peer::of(context),
            over_http: crate::server::engine::core::is_over_http(context),
            round: RoundId::UNKNOWN,
            known: false,
        }
    }

    /// Plays it, within a span that knows its flow from the beginning.
    async fn play<X: Exchange, H: ServerHandler>(
        mut self,
        handlers: &Handlers<H>,
        mut given: Given<X>,
    ) -> Result<X::Response, ErrorData> {
        let opened = given.0.state().take().map(|token| (self.open(&token), token));
        if opened.is_none() {
            self.of(RoundId::new(self.core.new_flow(), 0));
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
        mut given: Given<X>,
        opened: Option<(Result<Box<Envelope>, Refusal>, String)>,
    ) -> (Result<X::Response, ErrorData>, Outcome) {
        let sent = given.0.answers().take().unwrap_or_default();
        let depends_on_answers = opened.is_some() || !sent.is_empty();
        let played = match opened {
            None => self.begin(&handlers.of(self.peer.era), given, sent).await,
            Some((opened, token)) => match self.opened(opened) {
                Ok(envelope) => match self.elsewhere(&envelope) {
                    Some(route) => self.route::<X>(route, &token, envelope, sent, &given.1.ct).await,
                    None if envelope.resume.waits() => {
                        let (_, RequestContext { ct, peer, meta, .. }) = *given;
                        self.wake::<X>(envelope, sent, Some(Link::new(peer, &meta)), ct).await
                    }
                    None => self.go_on(handlers, given, envelope, sent).await,
                },
                Err(stop) => Err(stop),
            },
        };
        let (played, outcome) = match played {
            Ok(mut response) => {
                if depends_on_answers {
                    response.forbid_caching();
                }
                let outcome = response.outcome();
                (Ok(response), outcome)
            }
            Err(Stop { error, outcome, .. }) => (Err(error), outcome),
        };
        self.event(&Station::Ended(outcome));
        (played, outcome)
    }

    /// The first leg: there is nothing to claim yet.
    async fn begin<X: Exchange, H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        mut given: Given<X>,
        sent: InputResponses,
    ) -> Result<X::Response, Stop> {
        let deadline = self.core.now() + self.core.flow_deadline;
        *given.0.answers() = (!sent.is_empty()).then(|| without_refused_content(sent.clone()));
        let answers = (!sent.is_empty()).then(|| Answers::unsolicited(sent));
        let view = self.view(handler, answers, None, None, false, &given);
        let frame = view.frame.clone();
        let (asked, response) = self.run(handler, given, view, None, deadline).await?;
        // An unknown round is free: a question whose token carries everything needs no record before its answer arrives.
        if let Some(Minted { span, spill: Some(state), .. }) = asked {
            let spill = Spill { id: self.round.next().claim(), keep: self.keep(span), state };
            if let Err(error) = self.core.spill(spill).await {
                frame.abort();
                return Ok(X::Response::failed(not_spilled(error))?);
            }
        }
        self.asked(&response);
        Ok(response)
    }

    /// A leg that goes on with a flow: it runs when the round is its own, and otherwise gets what that run replied.
    async fn go_on<X: Exchange, H: ServerHandler>(
        &self,
        handlers: &Handlers<H>,
        mut given: Given<X>,
        envelope: Box<Envelope>,
        mut sent: InputResponses,
    ) -> Result<X::Response, Stop> {
        let (bid, orphan) = (self.bid(&envelope, &mut sent), OwnerLost::Free);
        let (fence, spilled) = match self.claim(bid, envelope.span.expires_at, &given.1.ct).await? {
            Won::Run { fence, spilled } => (fence, spilled),
            Won::Reply(reply) => return self.replay::<X>(&reply),
        };
        let deadline = envelope.span.deadline;
        let held = Held { fence, orphan, answers: bid.answers };
        let answered = Answered { span: envelope.span, fence };
        let again = match envelope.resume.again(spilled.as_deref()) {
            Ok(again) => again,
            Err(refusal) => {
                self.give_back(fence).await;
                return Err(self.refuse(refusal));
            }
        };
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
                let journal = Journal::resumed(pages, &envelope.asked, sent, &self.core.limits, self.core.now());
                // A frame is made for this leg, so nobody has set it before.
                let _ = view.frame.journal.set(Box::new(journal));
                view
            }
        };
        let frame = view.frame.clone();
        let concluded = self.run(handler, given, view, Some(held), deadline).await;
        let recorded = self.record::<X>(held, concluded, &frame).await;
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
        let bid = self.bid(&envelope, &mut sent);
        let fence = match self.claim(bid, envelope.span.expires_at, &leg_token).await? {
            Won::Run { fence, .. } => fence,
            Won::Reply(reply) => return self.replay::<X>(&reply),
        };
        let held = Held { fence, orphan: bid.orphan, answers: bid.answers };
        let deadline = envelope.span.deadline;
        let Some((frame, concluded)) = self.resume::<X>(sent, link, leg_token, held, deadline).await else {
            self.give_back(fence).await;
            return Err(self.refuse(Refusal::FrameGone));
        };
        let recorded = self.record::<X>(held, concluded, &frame).await;
        if recorded.is_err() {
            // A handler that waits for the answer to what did not leave waits for nothing.
            frame.abort();
        }
        recorded
    }

    /// Gives back a round that was claimed and not run: whoever has its handler may still answer.
    async fn give_back(&self, fence: Fence) {
        // A ledger that is away may do it later, and otherwise the lease lapses.
        drop(self.core.ledger.release(self.round.claim(), fence, OwnerLost::Free, false).await);
    }

    /// What a leg brings along to claim its round. Of the answers, those to what was asked count.
    fn bid(&self, envelope: &Envelope, sent: &mut InputResponses) -> ClaimRequest {
        sent.retain(|key, _| envelope.asked.iter().any(|asked| asked.key == *key));
        ClaimRequest {
            answers: Digest::of_answers(envelope.flow, sent),
            keep: self.keep(envelope.span),
            lease: self.core.limits.lease,
            orphan: if envelope.resume.waits() { OwnerLost::Dead } else { OwnerLost::Free },
        }
    }

    /// Where the handler waits, if that is on another instance.
    fn elsewhere(&self, envelope: &Envelope) -> Option<(Arc<dyn Relay>, String)> {
        let (Some(relay), Resume::FrameAt(owner)) = (&self.core.relay, &envelope.resume) else { return None };
        (relay.here() != owner).then(|| (relay.clone(), owner.clone()))
    }

    /// Hands the leg to the instance where its handler waits.
    async fn route<X: Exchange>(
        &self,
        (relay, owner): (Arc<dyn Relay>, String),
        state: &str,
        envelope: Box<Envelope>,
        mut sent: InputResponses,
        leg_token: &CancellationToken,
    ) -> Result<X::Response, Stop> {
        self.event(&Station::Routed { to: owner.clone() });
        let mut bid = self.bid(&envelope, &mut sent);
        let errand = Errand::new(self.binding.clone(), self.over_http, self.peer.capabilities, state, &sent);
        match route::hand(self.core, &relay, &owner, errand, leg_token).await? {
            Routed::Cancelled => Err(Stop::cancelled()),
            Routed::Reply(reply) => match Reply::decode::<X::Response>(&reply) {
                Some(reply) => Ok(reply?),
                None => Err(self.refuse(Refusal::ReplyGone)),
            },
            // It may be at work all the same, as what it says gets lost: then its reply will be where all replies are.
            Routed::Silent(away) => {
                bid.keep = self.keep(envelope.span);
                match self.claim(bid, envelope.span.expires_at, leg_token).await? {
                    Won::Reply(reply) => self.replay::<X>(&reply),
                    Won::Run { fence, .. } => {
                        self.give_back(fence).await;
                        Err(away.map_or_else(|| self.refuse(Refusal::FrameGone), |away| FlowError::retry(away).into()))
                    }
                }
            }
            // It may have replied before it went, and its reply is still there.
            Routed::Gone => match self.core.claim(self.round.claim(), bid).await {
                Ok(Claimed::Done(Some(reply))) => self.replay::<X>(&reply),
                Ok(Claimed::Fresh { fence, .. }) => {
                    self.give_back(fence).await;
                    Err(self.refuse(Refusal::FrameGone))
                }
                // A full ledger has no record of the round, and so no reply.
                Ok(_) | Err(LedgerError::Full { .. }) => Err(self.refuse(Refusal::FrameGone)),
                Err(away) => Err(unavailable(away).into()),
            },
        }
    }

    fn view<X: Exchange, H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        answers: Option<Answers>,
        onces: Option<Effects>,
        state: Option<String>,
        solicited: bool,
        (request, context): &(X, RequestContext<RoleServer>),
    ) -> Arc<View> {
        let peer = self.peer;
        let Binding { method, target, principal, .. } = &self.binding;
        let (arguments, principal) = (request.arguments(), *principal);
        // The state of the handler goes with its view, as the context does.
        let context_bytes = weight::of_context(context) + state.as_ref().map_or(0, String::len);
        let call = Call { method: *method, target, arguments, principal, context_bytes, answers, onces };
        // A handler that wants to reach another client says so.
        let link = (peer.era == Era::Legacy).then(|| Link::of(context));
        let frame = Frame::new(self.core.clone(), self.round.flow, call, peer, link);
        View::new(self.round, peer, state, solicited, handler.clone(), frame)
    }

    fn open(&mut self, state: &str) -> Result<Box<Envelope>, Refusal> {
        let plaintext = token::open(&self.core.keys(), self.core.limits.token_bytes, state)?;
        // In a box, as it is handed on through several futures.
        let envelope = Box::new(Envelope::from_bytes(&plaintext)?);
        // Known from here on, so that a refusal can be told of its flow.
        self.of(RoundId::new(envelope.flow, envelope.round));
        envelope.check(&self.binding, self.core.now())?;
        if self.peer.era == Era::Legacy {
            return Err(Refusal::LegacyClient);
        }
        Ok(envelope)
    }

    /// Says what came of opening the state.
    fn opened(&self, opened: Result<Box<Envelope>, Refusal>) -> Result<Box<Envelope>, Stop> {
        opened.inspect(|_| self.event(&Station::Opened)).map_err(|refusal| self.refuse(refusal))
    }

    /// Claims the round, waiting for an equal leg that is at work on it.
    async fn claim(
        &self,
        mut bid: ClaimRequest,
        expires_at: Timestamp,
        leg_token: &CancellationToken,
    ) -> Result<Won, Stop> {
        let give_up = bid.keep.now + self.core.limits.wait;
        let mut told = false;
        loop {
            bid.keep.now = self.core.now();
            let claimed = self.core.claim(self.round.claim(), bid).await;
            let waiting = match claimed.map_err(unavailable)? {
                Claimed::Fresh { fence, .. } if expires_at <= bid.keep.now => {
                    drop(self.core.ledger.release(self.round.claim(), fence, bid.orphan, false).await);
                    return Err(self.refuse(Refusal::Expired));
                }
                Claimed::Fresh { fence, spilled } => {
                    self.event(&Station::Claimed { fence });
                    return Ok(Won::Run { fence, spilled });
                }
                Claimed::Done(Some(reply)) => return Ok(Won::Reply(reply)),
                Claimed::Done(None) => return Err(self.refuse(Refusal::ReplyGone)),
                Claimed::AnsweredOtherwise => return Err(self.refuse(Refusal::AnsweredOtherwise)),
                Claimed::Dead => return Err(self.refuse(Refusal::Dead)),
                Claimed::Running(waiting) => waiting,
            };
            if !std::mem::replace(&mut told, true) {
                self.event(&Station::Waiting);
            }
            let left = give_up.since(bid.keep.now);
            if left.is_zero() {
                return Err(FlowError::retry("an equal request is still being worked on").into());
            }
            // The one at work may be gone: its lease tells.
            let lease = self.core.clock.sleep(left.min(bid.lease));
            // In a box, as few have to wait.
            Box::pin(async {
                tokio::select! {
                    () = waiting => Ok(()),
                    () = lease => Ok(()),
                    () = leg_token.cancelled() => Err(Stop::cancelled()),
                }
            })
            .await?;
        }
    }

    /// Runs the handler from the top, until it ends or asks.
    async fn run<X: Exchange, H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        mut given: Given<X>,
        view: Arc<View>,
        held: Option<Held>,
        deadline: Timestamp,
    ) -> Concluded<X::Response> {
        // The leg's own token counts only as far as `hold_on` says, as rmcp cancels it when the leg is answered. The handler's
        // outlives the leg, and tells whatever the handler started when its part is over, however it ended.
        let leg_token = std::mem::replace(&mut given.1.ct, CancellationToken::new());
        if held.is_none() && leg_token.is_cancelled() {
            given.1.ct.cancel();
        }
        let over = given.1.ct.clone().drop_guard();
        let handler = handler.clone();
        let (frame, era) = (view.frame.clone(), self.peer.era);
        let called: Handler = match era {
            Era::Modern => {
                view.put(&mut given.1);
                self.event(&Station::Started);
                let (frame, round) = (view.frame.clone(), view.round.number);
                // From here on there is one as long as the handler keeps it, or its context.
                drop(view);
                boxed(|| async move {
                    let returned = call(&*handler, given).await;
                    frame.came_to(round, returned).0.map(|response| Box::new(response.into()))
                })
            }
            Era::Legacy => shimmed(handler, given, view),
        };
        let driver = Driver::new(frame.clone(), self.round.number, called, Some(leg_token), Some(over));
        self.drive::<X>(driver, &frame, held, deadline).await
    }

    /// Wakes the handler that waits under the flow's name, and lets it run until it ends or asks again. None when no
    /// handler waits here.
    async fn resume<X: Exchange>(
        &self,
        answers: InputResponses,
        link: Option<Link>,
        leg_token: CancellationToken,
        held: Held,
        deadline: Timestamp,
    ) -> Option<(Arc<Frame>, Concluded<X::Response>)> {
        let frame = self.core.frames.find(self.round.flow)?;
        let mut driver = *frame.resume(self.round.number).await?;
        self.event(&Station::Resumed);
        driver.take_up(Resumption { answers, link: link.map(Box::new), peer: self.peer, leg: leg_token });
        let concluded = self.drive::<X>(driver, &frame, Some(held), deadline).await;
        Some((frame, concluded))
    }

    /// Polls a handler until it ends or asks, and leaves it where it belongs after that.
    async fn drive<X: Exchange>(
        &self,
        mut driver: Driver,
        frame: &Frame,
        held: Option<Held>,
        deadline: Timestamp,
    ) -> Concluded<X::Response> {
        let ran = self.hold(held, &mut driver).await;
        let asked = matches!(ran, Ran::Stepped(Step::Asked(_)));
        // What a durable handler has been through travels with the client: the next leg goes through it again, on any
        // instance.
        if !asked || frame.journal.get().is_some() {
            // The handler's destructors run before the leg is answered, unless it is in the middle of an effect.
            drop(driver);
            return self.conclude::<X>(ran, frame, deadline);
        }
        if let Err(error) = driver.take_place() {
            return Ok((None, X::Response::failed(error)?));
        }
        let concluded = self.conclude::<X>(ran, frame, deadline);
        if let Ok((Some(minted), _)) = &concluded {
            driver.park(minted.span);
        }
        concluded
    }

    /// Polls the handler until it ends or asks, and keeps the claim meanwhile.
    async fn hold(&self, held: Option<Held>, driver: &mut Driver) -> Ran {
        // Most handlers come to something at once.
        match poll_fn(|cx| Poll::Ready(driver.poll_step(cx))).await {
            Poll::Ready(step) => Ran::Stepped(step),
            Poll::Pending => Box::pin(self.hold_on(held, driver)).await,
        }
    }

    /// The same, for one that does not.
    ///
    /// When the client goes away, the handler's token is cancelled, and a handler that has not asked runs on to its end, as rmcp
    /// has it. One that has asked, or asks then, has a grace period. Neither is told to stop as long as an equal leg waits for the reply.
    async fn hold_on(&self, held: Option<Held>, driver: &mut Driver) -> Ran {
        let leg_token = driver.leg().unwrap_or_default();
        // Without a claim no other leg can wait.
        let _forwarding = if held.is_none() { driver.forward() } else { None };
        let (mut renewal, mut grace) = (held.map(|_| self.core.clock.sleep(self.core.limits.lease / 3)), None);
        loop {
            let (is_there, in_grace) = (driver.listener() == Listener::Client, grace.is_some());
            let run = poll_fn(|cx| match driver.poll_step(cx) {
                Poll::Ready(step) => Poll::Ready(Some(step)),
                Poll::Pending if !in_grace && driver.waits_in_vain() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            tokio::select! {
                biased;
                // First, so that no poll of the handler finds its token behind the leg's.
                () = leg_token.cancelled(), if is_there => match self.is_awaited(held).await {
                    true => driver.go_on_for_equal_leg(),
                    false => driver.tell_to_stop(),
                },
                step = run => match step {
                    Some(step) => return Ran::Stepped(step),
                    None if self.is_awaited(held).await => driver.go_on_for_equal_leg(),
                    None => grace = Some(self.grace()),
                },
                () = over(&mut grace) => {
                    if !self.give_up(held).await {
                        return Ran::Cancelled;
                    }
                    driver.go_on_for_equal_leg();
                    grace = None;
                }
                () = over(&mut renewal) => {
                    let Some(pause) = self.renew(held).await else { return Ran::Overtaken };
                    renewal = Some(self.core.clock.sleep(pause));
                    // An equal leg may go away as well, and says so to nobody.
                    if driver.listener() == Listener::EqualLeg && !self.is_awaited(held).await {
                        driver.tell_to_stop();
                    }
                }
            }
        }
    }

    /// Says that this leg is still at work, and returns when to say so again. None when another leg has the round.
    async fn renew(&self, held: Option<Held>) -> Option<Duration> {
        let lease = self.core.limits.lease;
        match self.core.ledger.renew(self.round.claim(), held?.fence, self.core.now() + lease).await {
            Ok(true) => Some(lease / 3),
            Ok(false) => None,
            // A ledger that is away says nothing about who owns the round; settling will. It may be back long before the lease lapses.
            Err(_) => Some(lease / 30),
        }
    }

    /// Whether an equal leg waits for this one's reply.
    async fn is_awaited(&self, held: Option<Held>) -> bool {
        // No run has this fence, so nothing is released.
        self.give_up(held.map(|held| Held { fence: NO_FENCE, ..held })).await
    }

    /// Gives the claim up, unless an equal leg waits for the reply: then it is true.
    async fn give_up(&self, held: Option<Held>) -> bool {
        let Some(Held { fence, orphan, .. }) = held else { return false };
        self.core.ledger.release(self.round.claim(), fence, orphan, true).await.unwrap_or(false)
    }

    /// How long a handler has that was told to stop.
    fn grace(&self) -> BoxFuture<'static, ()> {
        match self.core.limits.grace {
            Duration::ZERO => Box::pin(std::future::ready(())),
            grace => self.core.clock.sleep(grace),
        }
    }

    /// What the handler's part comes to: a response, with its questions sealed.
    fn conclude<X: Exchange>(&self, ran: Ran, frame: &Frame, deadline: Timestamp) -> Concluded<X::Response> {
        let step = match ran {
            Ran::Stepped(step) => step,
            Ran::Cancelled => return Err(Stop::cancelled()),
            Ran::Overtaken => return Err(overtaken()),
        };
        let journal = frame.journal.get();
        if let Some(fault) = journal.and_then(|journal| journal.fault_at(&step)) {
            if matches!(fault, Fault::Diverged { .. }) {
                self.event(&Station::Refused(Refusal::Diverged));
            }
            return Err(FlowError::from(fault).into());
        }
        let (asks, resume, times) = match step {
            Step::Ended(Ending::Panicked) => return Err(Stop::panicked()),
            Step::Ended(Ending::Expired) => return Ok((None, X::Response::failed(FlowError::DeadlinePassed)?)),
            Step::Ended(Ending::Aborted) => return Err(self.refuse(Refusal::FrameGone)),
            Step::Ended(Ending::Returned(Err(Failure { meaning: meaning @ Meaning::Unreadable, .. }))) => {
                // One that can read its state, as after a rollback, may still go on.
                return Err(Stop { meaning, ..self.refuse(Refusal::HandlerState) });
            }
            Step::Ended(Ending::Returned(returned)) => {
                let asks = match X::Response::from_result(*returned?).map(Response::into_asks) {
                    Some(Ok(asks)) => asks,
                    Some(Err(complete)) => return Ok((None, complete)),
                    None => return Err(ErrorData::internal_error("a result of another request", None).into()),
                };
                (asks, None, Times::of_round(self.core.round_lifetime))
            }
            Step::Asked(round) => {
                let asks = order::asks(round.requests, round.order);
                let resume = journal
                    .map_or_else(|| self.core.frame_here(), |journal| Resume::Journal(journal.pages(round.waiting)));
                (asks, Some(resume), round.times)
            }
        };
        match self.seal(asks, resume, times, frame, deadline) {
            Ok((minted, asks)) => Ok((Some(minted), asks.into())),
            Err(error) => Ok((None, X::Response::failed(error)?)),
        }
    }

    /// Lets the questions through the gate and seals what the flow knows into their state.
    fn seal(
        &self,
        mut asks: InputRequiredResult,
        resume: Option<Resume>,
        times: Times,
        frame: &Frame,
        deadline: Timestamp,
    ) -> Result<(Minted, InputRequiredResult), FlowError> {
        let limits = &self.core.limits;
        let mut requests = asks.input_requests.take().unwrap_or_default();
        requests.values_mut().for_each(order::say_fields);
        let kept = asks.request_state.take();
        if requests.is_empty() && kept.is_none() && resume.is_none() {
            return Err(FlowError::NothingAsked);
        }
        if requests.len() > limits.questions {
            return Err(FlowError::TooManyQuestions { asks: requests.len(), limit: limits.questions });
        }
        if self.round.number >= limits.rounds {
            return Err(FlowError::TooManyRounds { limit: limits.rounds });
        }
        if resume.is_none()
            && let Some(key) = requests.keys().find(|key| frame.answers().clashes(key))
        {
            return Err(FlowError::DuplicateKey { key: key.clone() });
        }
        if let Some(error) = frame.onces.get().and_then(Effects::cannot_ask).filter(|_| resume.is_none()) {
            return Err(error);
        }
        let asked = self.peer.admit(&requests)?;
        self.core.require_principal(self.binding.principal.is_some(), self.over_http)?;

        let now = self.core.now();
        let expires_at = (now + times.lifetime).min(deadline);
        if expires_at <= now {
            return Err(FlowError::DeadlinePassed);
        }
        let span = Span { issued_at: now, expires_at, deadline };
        let mut envelope = Envelope {
            flow: self.round.flow,
            round: self.round.next().number,
            span,
            binding: &self.binding,
            resume: resume.unwrap_or_else(|| {
                let answers = frame.answers();
                let settled = answers.settled(&asked);
                let onces = frame.onces.get().map(Effects::recorded).unwrap_or_default();
                Resume::of(Kept { settled, onces, state: kept }, answers.posing())
            }),
            asked,
        };
        let spent =
            frame.onces.get().map(|onces| onces.spent(|name| envelope.resume.carries(name))).unwrap_or_default();
        let (state, spill) = self.mint(&mut envelope)?;
        if self.core.announce_expiry {
            let left = expires_at.since(now).min(times.patience);
            let meta = asks.meta.get_or_insert_default();
            meta.0.insert(EXPIRES_IN.to_owned(), millis(left).into());
            for (key, time) in times.less {
                if let Some(meta) = requests.get_mut(&key).and_then(meta_of) {
                    meta.get_or_insert_default().0.0.insert(EXPIRES_IN.to_owned(), millis(time.min(left)).into());
                }
            }
        }
        asks.input_requests = (!requests.is_empty()).then_some(requests);
        asks.request_state = Some(state);
        Ok((Minted { span, spill, spent }, asks))
    }

    /// Seals what the flow knows into a token, or most of it into the ledger where it is too large and may spill.
    fn mint(&self, envelope: &mut Envelope<&Binding, &str>) -> Result<(String, Option<Vec<u8>>), FlowError> {
        let limits = &self.core.limits;
        let seal =
            |envelope: &Envelope<_, _>| token::seal(&self.core.keys(), self.core.new_nonce(), envelope.to_plaintext());
        let fits = |state: String| match state.len() {
            bytes if bytes > limits.token_bytes => Err(FlowError::StateTooLarge { bytes, limit: limits.token_bytes }),
            _ => Ok(state),
        };
        match fits(seal(envelope)) {
            Err(_) if limits.spills => {
                let spill = envelope.resume.spill();
                let (bytes, limit) = (spill.as_ref().map_or(0, Vec::len), limits.spill_bytes);
                if bytes > limit {
                    return Err(FlowError::StateTooLarge { bytes, limit });
                }
                Ok((fits(seal(envelope))?, spill))
            }
            sealed => Ok((sealed?, None)),
        }
    }

    /// How long a round is remembered: longer than its token is good, as an instance whose clock is behind may still take
    /// it, and a leg that waits past its end is not to find the outcome forgotten.
    fn keep(&self, span: Span) -> Retention {
        self.core.keep(span.remembered_until(), self.binding.principal)
    }

    /// Records the reply before it leaves, or gives the round back when the fault was ours.
    async fn record<X: Exchange>(
        &self,
        Held { fence, orphan, answers }: Held,
        concluded: Concluded<X::Response>,
        frame: &Frame,
    ) -> Result<X::Response, Stop> {
        let (minted, concluded) = match concluded {
            Ok((minted, response)) => (minted, Ok(response)),
            Err(stop) => (None, Err(stop)),
        };
        let reply = match &concluded {
            Err(stop) if stop.reopens() => {
                let released = self.core.ledger.release(self.round.claim(), fence, orphan, false).await;
                // A lease that lapses does the same, only later.
                drop(released);
                return concluded.map_err(|stop| stop.for_good(orphan));
            }
            Err(stop) => Reply::encode::<X::Response>(Err(&stop.error)),
            Ok(response) => Reply::encode(Ok(response)),
        };
        let reply = reply.filter(|reply| reply.len() <= self.core.limits.reply_bytes);
        let (spill, spent) = match minted {
            Some(Minted { span, spill, spent }) => {
                let spill = spill.map(|state| Spill { id: self.round.next().claim(), keep: self.keep(span), state });
                (spill, spent)
            }
            // The flow is over.
            None => (None, frame.onces.get().map(|onces| onces.spent(|_| true)).unwrap_or_default()),
        };
        match self.core.settle(self.round.claim(), fence, answers, reply, spill, spent).await {
            Ok(true) => concluded.inspect(|response| self.asked(response)),
            Ok(false) => Err(overtaken().for_good(orphan)),
            Err(error) => {
                if let LedgerError::Full { .. } = error {
                    self.give_back(fence).await;
                }
                Err(Stop::from(unavailable(error)).for_good(orphan))
            }
        }
    }

    /// The reply of an equal leg. Its questions pass the gate again: this request may declare less.
    fn replay<X: Exchange>(&self, reply: &[u8]) -> Result<X::Response, Stop> {
        let Some(response) = Reply::decode::<X::Response>(reply) else {
            return Err(self.refuse(Refusal::ReplyGone));
        };
        self.event(&Station::Replayed);
        match response?.into_asks() {
            Err(complete) => Ok(complete),
            Ok(asks) => match self.peer.admit(asks.input_requests.as_ref().unwrap_or(&InputRequests::new())) {
                Ok(_) => Ok(self.aged(asks).into()),
                Err(error) => Ok(X::Response::failed(error)?),
            },
        }
    }

    /// The questions of an earlier reply, with less time left to answer them.
    fn aged(&self, mut asks: InputRequiredResult) -> InputRequiredResult {
        let keys = self.core.keys();
        let open = |state: &String| token::open(&keys, self.core.limits.token_bytes, state).ok();
        let plaintext = asks.request_state.as_ref().and_then(open);
        let issued_at = plaintext.and_then(|plaintext| Some(Envelope::from_bytes(&plaintext).ok()?.span.issued_at));
        let Some(issued_at) = issued_at else { return asks };
        let age = millis(self.core.now().since(issued_at));
        let of_questions = asks.input_requests.iter_mut().flat_map(|requests| requests.values_mut()).filter_map(told);
        let of_round = asks.meta.as_mut().and_then(|meta| meta.0.get_mut(EXPIRES_IN));
        for left in of_questions.chain(of_round) {
            *left = left.as_u64().unwrap_or_default().saturating_sub(age).into();
        }
        asks
    }

    /// It is known of which round this leg is.
    fn of(&mut self, round: RoundId) {
        (self.round, self.known) = (round, true);
    }

    fn refuse(&self, refusal: Refusal) -> Stop {
        self.event(&Station::Refused(refusal));
        Refusal::frozen().into()
    }

    fn asked(&self, response: &impl Response) {
        if let Some(asks) = response.asks().filter(|_| self.core.is_observed()) {
            let keys = order::keys(asks);
            let bytes = asks.request_state.as_ref().map_or(0, String::len);
            self.event(&Station::Asked { keys, bytes });
        }
    }

    fn event(&self, station: &Station) {
        self.core.observe(&Event {
            flow: self.known.then_some(self.round.flow),
            round: self.round.number,
            method: self.binding.method,
            target: &self.binding.target,
            station,
        });
    }
}

/// The metadata of a question, where it has a place for them.
fn meta_of(request: &mut InputRequest) -> Option<&mut Option<RequestMetaObject>> {
    match request {
        InputRequest::Elicitation(request) => Some(request.params.meta_mut()),
        InputRequest::CreateMessage(request) => Some(request.params.meta_mut()),
        _ => None,
    }
}

/// The time that a question was told when it was asked. One that comes out of a record has its metadata beside its parameters.
fn told(request: &mut InputRequest) -> Option<&mut Value> {
    let (aside, within) = match request {
        InputRequest::Elicitation(request) => (&mut request.extensions, request.params.meta_mut()),
        InputRequest::CreateMessage(request) => (&mut request.extensions, request.params.meta_mut()),
        _ => return None,
    };
    aside.get_mut::<RequestMetaObject>().or(within.as_mut())?.0.0.get_mut(EXPIRES_IN)
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Becomes ready when this time is over. Without one, it does not.
async fn over(time: &mut Option<BoxFuture<'static, ()>>) {
    match time {
        Some(time) => time.await,
        None => std::future::pending().await,
    }
}

/// A fence that no run has: they are counted from one.
const NO_FENCE: Fence = 0;

/// A claim that this leg holds.
#[derive(Clone, Copy)]
struct Held {
    fence: Fence,
    orphan: OwnerLost,
    answers: Digest,
}

/// What a leg has won when it claimed a round.
enum Won {
    Run { fence: Fence, spilled: Option<Vec<u8>> },
    Reply(Vec<u8>),
}

/// A handler that reads the answers as they came does not find content that nobody agreed to.
fn without_refused_content(mut sent: InputResponses) -> InputResponses {
    for answer in sent.values_mut().filter_map(Value::as_object_mut) {
        if matches!(answer.get("action").and_then(|action| action.as_str()), Some("decline" | "cancel")) {
            answer.remove("content");
        }
    }
    sent
}
