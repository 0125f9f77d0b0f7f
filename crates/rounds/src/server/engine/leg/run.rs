//! Running the handler until it ends or asks, while the claim is held.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use rmcp::{ErrorData, RoleServer, ServerHandler, model::InputResponses, service::RequestContext};
use tokio_util::sync::CancellationToken;

use super::{Arrived, Leg, boxed, seal::Concluded};
use crate::{
    server::{
        engine::{
            admission,
            answer::Answers,
            claim::{ClaimGuard, Lease},
            effects::Effects,
            exchange::{Exchange, Response},
            frame::{Driver, Frame, FrameCall, FrameStep, Handler, Listener, Resumption},
            legacy::shim,
            link::Link,
            register::details::HandlerPart,
            stand_in::StandIn,
            view::View,
            weight,
        },
        policy::{gate::Era, observe::Station},
        seal::envelope::Binding,
    },
    shared::clock::{BoxFuture, Timestamp},
};

/// How the handler's part of a leg ended.
pub(super) enum Ran {
    Stepped(FrameStep),
    /// The client is gone, and no equal leg waits.
    Cancelled,
    /// Another instance took the round over.
    Overtaken,
}

impl Leg<'_> {
    pub(super) fn view<X: Exchange, H: ServerHandler>(
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
        let (arguments, principal, caller) = (request.arguments(), *principal, self.principal.clone());
        // The state of the handler goes with its view, as the context does.
        let context_bytes = weight::of_context(context) + state.as_ref().map_or(0, String::len);
        let call = FrameCall { method: *method, target, arguments, principal, caller, context_bytes, answers, onces };
        // A handler that wants to reach another client says so.
        let link = (peer.era == Era::Legacy).then(|| Link::of(context));
        let frame = Frame::new(self.core.clone(), self.round.flow, call, peer, link);
        if let Some(task) = &self.task {
            task.is_called_with(&frame);
        }
        View::new(self.round, peer, state, solicited, handler.clone(), frame, self.identity.refused())
    }

    /// Runs the handler from the top, until it ends or asks.
    pub(super) async fn run<X: Exchange, H: ServerHandler>(
        &self,
        handler: &Arc<H>,
        mut given: Arrived<X>,
        view: Arc<View>,
        claim: Option<&ClaimGuard>,
        deadline: Timestamp,
    ) -> Concluded<X::Response> {
        // The leg's own token counts only as far as `hold_on` says, as rmcp cancels it when the leg is answered. The handler's
        // outlives the leg, and tells whatever the handler started when its part is over, however it ended.
        let leg_token = std::mem::replace(&mut given.1.ct, CancellationToken::new());
        if claim.is_none() && leg_token.is_cancelled() {
            given.1.ct.cancel();
        }
        let over = given.1.ct.clone().drop_guard();
        let handler = handler.clone();
        let (frame, era) = (view.frame.clone(), self.peer.era);
        let called: Handler = match era {
            Era::Modern if self.core.targets.pushes(&self.binding.target) => {
                self.event(&Station::Started);
                stood_in(handler, given, view)
            }
            Era::Modern if admission::is_admitted_first::<X>(&view) => {
                view.put(&mut given.1);
                self.event(&Station::Started);
                admitted(handler, given, view)
            }
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
        self.drive::<X>(driver, &frame, claim, deadline).await
    }

    /// Wakes the handler that waits under the flow's name, and lets it run until it ends or asks again. None when no
    /// handler waits here.
    pub(super) async fn resume<X: Exchange>(
        &self,
        answers: InputResponses,
        link: Option<Link>,
        leg_token: CancellationToken,
        claim: &ClaimGuard,
        deadline: Timestamp,
    ) -> Option<(Arc<Frame>, Concluded<X::Response>)> {
        let frame = self.core.frames.find(self.round.flow)?;
        let mut driver = *frame.driver_at(self.round.number).await?;
        self.event(&Station::Resumed);
        frame.took(HandlerPart::Continued);
        driver.take_up(Resumption { answers, link: link.map(Box::new), peer: self.peer, leg: leg_token });
        let concluded = self.drive::<X>(driver, &frame, Some(claim), deadline).await;
        Some((frame, concluded))
    }

    /// Polls a handler until it ends or asks, and leaves it where it belongs after that.
    pub(super) async fn drive<X: Exchange>(
        &self,
        mut driver: Driver,
        frame: &Frame,
        claim: Option<&ClaimGuard>,
        deadline: Timestamp,
    ) -> Concluded<X::Response> {
        let ran = self.hold(claim, &mut driver).await;
        let asked = matches!(ran, Ran::Stepped(FrameStep::Asked(_)));
        // What a durable handler has been through travels with the client: the next leg goes through it again, on any
        // instance.
        if !asked || frame.journal().is_some() {
            // The handler's destructors run before the leg is answered, unless it is in the middle of an effect.
            drop(driver);
            return self.conclude::<X>(ran, frame, deadline);
        }
        self.core.draining.waits(&self.binding.target);
        if let Err(error) = driver.take_place_between_legs() {
            return Ok((None, X::Response::failed(error)?));
        }
        let concluded = self.conclude::<X>(ran, frame, deadline);
        if let Ok((Some(minted), _)) = &concluded {
            driver.park(minted.span);
        }
        concluded
    }

    /// Polls the handler until it ends or asks, and keeps the claim meanwhile.
    pub(super) async fn hold(&self, claim: Option<&ClaimGuard>, driver: &mut Driver) -> Ran {
        // Most handlers come to something at once.
        match poll_fn(|cx| Poll::Ready(driver.poll_step(cx))).await {
            Poll::Ready(step) => Ran::Stepped(step),
            Poll::Pending => Box::pin(self.hold_on(claim, driver)).await,
        }
    }

    /// The same, for one that does not.
    ///
    /// When the client goes away, the handler's token is cancelled, and a handler that has not asked runs on to its end, as rmcp
    /// has it. One that has asked, or asks then, has a grace period. Neither is told to stop as long as an equal leg waits for the reply.
    pub(super) async fn hold_on(&self, claim: Option<&ClaimGuard>, driver: &mut Driver) -> Ran {
        let leg_token = driver.leg().unwrap_or_default();
        // Without a claim no other leg can wait.
        let _forwarding = if claim.is_none() { driver.forward() } else { None };
        let (mut lease, mut grace) = (claim.map(ClaimGuard::lease), None);
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
                () = leg_token.cancelled(), if is_there => match is_awaited(claim).await {
                    true => driver.go_on_for_equal_leg(),
                    false => driver.tell_to_stop(),
                },
                step = run => match step {
                    Some(step) => return Ran::Stepped(step),
                    None if is_awaited(claim).await => driver.go_on_for_equal_leg(),
                    None => grace = Some(self.grace()),
                },
                () = over(&mut grace) => {
                    if !release_unless_awaited(claim).await {
                        return Ran::Cancelled;
                    }
                    driver.go_on_for_equal_leg();
                    grace = None;
                }
                () = due(&mut lease) => {
                    if !renew(&mut lease).await {
                        return Ran::Overtaken;
                    }
                    // An equal leg may be gone as well, without notice.
                    if driver.listener() == Listener::EqualLeg && !is_awaited(claim).await {
                        driver.tell_to_stop();
                    }
                }
            }
        }
    }

    /// How long a handler has that was told to stop.
    pub(super) fn grace(&self) -> BoxFuture<'static, ()> {
        match self.core.limits.grace {
            Duration::ZERO => Box::pin(std::future::ready(())),
            grace => self.core.clock.sleep(grace),
        }
    }
}

/// Calls a handler.
#[expect(clippy::boxed_local, reason = "what a future captures it has room for until it ends: here for a pointer")]
pub(super) fn call<X: Exchange, H: ServerHandler>(
    handler: &H,
    given: Arrived<X>,
) -> impl Future<Output = Result<X::Response, ErrorData>> + Send {
    let (request, context) = *given;
    request.call(handler, context)
}

/// Calls the handler of a tool once the call is admitted. Apart from the others, so that those have no space for it.
#[inline(never)]
fn admitted<X: Exchange, H: ServerHandler>(handler: Arc<H>, given: Arrived<X>, view: Arc<View>) -> Handler {
    let (frame, round) = (view.frame.clone(), view.round.number);
    Box::pin(async move {
        let returned = admit_and_call(&*handler, given, view).await;
        frame.came_to(round, returned).0.map(|response| Box::new(response.into()))
    })
}

async fn admit_and_call<X: Exchange, H: ServerHandler>(
    handler: &H,
    given: Arrived<X>,
    view: Arc<View>,
) -> Result<X::Response, ErrorData> {
    Box::pin(admission::admit(handler, &given.0, &given.1, &view)).await?;
    drop(view);
    call(handler, given).await
}

/// Calls a handler for a client of the legacy era. Not inlined: every call of its callers would reserve
/// its stack frame.
#[inline(never)]
pub(super) fn shimmed<X: Exchange, H: ServerHandler>(handler: Arc<H>, given: Arrived<X>, view: Arc<View>) -> Handler {
    Box::pin(async move {
        let (request, context) = *given;
        shim::call(&*handler, request, view, context).await.map(|response| Box::new(response.into()))
    })
}

/// Calls a handler of a modern client with a stand-in for its peer. Not inlined, for the same reason.
#[inline(never)]
fn stood_in<X: Exchange, H: ServerHandler>(handler: Arc<H>, mut given: Arrived<X>, view: Arc<View>) -> Handler {
    let stand_in = StandIn::put(&view.frame, &mut given.1);
    view.put(&mut given.1);
    let (frame, round) = (view.frame.clone(), view.round.number);
    if admission::is_admitted_first::<X>(&view) {
        return Box::pin(async move {
            let returned = stand_in.attend(pin!(admit_and_call(&*handler, given, view))).await;
            frame.came_to(round, returned).0.map(|response| Box::new(response.into()))
        });
    }
    drop(view);
    boxed(|| async move {
        let returned = stand_in.attend(pin!(call(&*handler, given))).await;
        frame.came_to(round, returned).0.map(|response| Box::new(response.into()))
    })
}

/// Becomes ready when this time is over. Without one, it does not.
pub(super) async fn over(time: &mut Option<BoxFuture<'static, ()>>) {
    match time {
        Some(time) => time.await,
        None => std::future::pending().await,
    }
}

/// Resolves when the lease is to be renewed. Without a claim, it does not.
async fn due(lease: &mut Option<Lease<'_>>) {
    match lease {
        Some(lease) => lease.due().await,
        None => std::future::pending().await,
    }
}

async fn renew(lease: &mut Option<Lease<'_>>) -> bool {
    match lease {
        Some(lease) => lease.renew().await,
        None => true,
    }
}

/// Whether an equal leg waits for this one's reply. Without a claim, none can.
async fn is_awaited(claim: Option<&ClaimGuard>) -> bool {
    match claim {
        Some(claim) => claim.is_awaited().await,
        None => false,
    }
}

/// Gives the claim up, unless an equal leg waits for the reply. Returns whether one does.
async fn release_unless_awaited(claim: Option<&ClaimGuard>) -> bool {
    match claim {
        Some(claim) => claim.release_unless_awaited().await,
        None => false,
    }
}
