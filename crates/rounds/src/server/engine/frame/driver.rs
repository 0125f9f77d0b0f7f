//! The driver: it owns the future of a handler, and polls it.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use rmcp::{ErrorData, model::ServerResult};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Frame,
    ask::Looked,
    left::{Left, drop_handler},
    step::{Ending, FrameStep, Listener, Resumption},
};
use crate::{
    server::{
        engine::{answer::Received, frames::Slot, poll},
        policy::{
            error::{Failure, FlowError},
            notes::Notes,
            observe::{Outcome, Station},
        },
    },
    shared::clock::{BoxFuture, Timestamp},
};

/// A question on its way to a client of the legacy era, until its answer arrives.
type PushedQuestion = BoxFuture<'static, Result<Received, FlowError>>;

/// A handler's future. Its result is boxed because it is moved many times.
pub(in crate::server::engine) type Handler = BoxFuture<'static, Result<Box<ServerResult>, ErrorData>>;

/// Owns a handler's future, and polls it.
pub(crate) struct Driver {
    pub(super) frame: Arc<Frame>,
    pub(super) handler: Option<Handler>,
    /// How the handler ended while no leg was in flight. Boxed, because a waiting handler would need the space.
    pub(super) ending: Option<Box<Ending>>,
    /// Cancels the handler's own token when its part is over, or before that when it is told to stop.
    pub(super) over: Option<DropGuard>,
    /// Whether a leg has this driver.
    pub(super) in_flight: bool,
    /// The token of that leg.
    pub(super) leg: Option<CancellationToken>,
    /// Who waits for that leg's reply.
    pub(super) listener: Listener,
    /// Whether the handler has asked in this run. A durable one goes through what it has asked on earlier legs.
    pub(super) asked: bool,
    pub(super) round: u32,
    /// How many of them were pushed, which tokens do not count.
    pub(super) pushed: u32,
    /// Questions that are being pushed, by their id, each with the time at which it was pushed.
    pub(super) pushes: Vec<(u32, Timestamp, PushedQuestion)>,
    /// The frame's place among those that wait.
    pub(super) slot: Option<Slot>,
    /// When the flow's time is over; none before the handler waits for the first time.
    pub(super) deadline: Option<Timestamp>,
    /// Fires when no leg came back in time, or when the flow's time is over while a leg is in flight.
    pub(super) timer: Option<BoxFuture<'static, ()>>,
    /// Where it goes on between legs.
    pub(super) runtime: Option<Handle>,
    /// Errors that this run has made, should it return one of them. In a box, as few runs have any.
    pub(super) notes: Option<Box<Notes>>,
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
            asked: frame.journal().is_some(),
            frame,
            handler: Some(handler),
            ending: None,
            over,
            in_flight: true,
            leg,
            listener: Listener::Client,
            round,
            pushed: 0,
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
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<FrameStep> {
        let waker = Waker::from(self.frame.clone());
        let inner = &mut Context::from_waker(&waker);
        loop {
            if self.is_aborted(cx) {
                return Poll::Ready(FrameStep::Ended(Ending::Aborted));
            }
            if self.is_over(inner) {
                return Poll::Ready(self.expired());
            }
            if let Some(ending) = self.poll_handler(inner) {
                let ending = if self.drop_handler() { ending } else { Ending::Panicked };
                if self.in_flight {
                    return Poll::Ready(FrameStep::Ended(ending));
                }
                self.ending = Some(Box::new(ending));
            }
            if self.in_flight
                && let Some(ending) = self.ending.take()
            {
                return Poll::Ready(FrameStep::Ended(*ending));
            }
            match self.look_at_questions() {
                Looked::Nothing if self.waits_too_long(inner) => return Poll::Ready(self.expired()),
                Looked::Nothing => return Poll::Pending,
                Looked::Again => {}
                Looked::Asked(round) => {
                    self.round = round.number;
                    (self.in_flight, self.asked, self.leg) = (false, true, None);
                    return Poll::Ready(FrameStep::Asked(round));
                }
            }
        }
    }

    /// A poll begins, unless it has been ordered to stop.
    pub(super) fn is_aborted(&mut self, cx: &Context<'_>) -> bool {
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

    /// Whether the flow's time is over, for a leg whose handler does not come to something at once.
    pub(super) fn waits_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline.filter(|_| self.in_flight && self.timer.is_none()) else { return false };
        self.timer = Some(self.sleep_until(deadline));
        self.is_over(cx)
    }

    pub(super) fn expired(&self) -> FrameStep {
        if !self.in_flight {
            self.frame.event(self.round, &Station::Ended(Outcome::Expired));
        }
        FrameStep::Ended(Ending::Expired)
    }

    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
    }

    pub(super) fn sleep_until(&self, moment: Timestamp) -> BoxFuture<'static, ()> {
        let core = &self.frame.core;
        core.clock.sleep(moment.since(core.now()))
    }

    pub(super) fn poll_handler(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
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
            Ok(Poll::Ready(Err(error))) => Some(Ending::Returned(Err(match &self.notes {
                Some(notes) => notes.failure(error),
                None => Failure::is_reply(error),
            }))),
            Err(_) => Some(Ending::Panicked),
        }
    }

    /// Pushes what was not pushed yet. It is a round of its own, and is limited like one. The pushes of what was withdrawn are
    /// dropped, which tells the client.
    // Not within `poll_step`, whose every poll would have the room on the stack that this takes.
    /// Drops the handler's future, if it is still there. False when that panics.
    pub(super) fn drop_handler(&mut self) -> bool {
        self.pushes.clear();
        let dropped = drop_handler(&self.frame, self.handler.take());
        self.over = None;
        dropped
    }
}

/// Drops the handler: at once, or in a task of its own as soon as the effects that it has begun have come to their end.
impl Drop for Driver {
    fn drop(&mut self) {
        // The place is free before a leg learns of the end.
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
