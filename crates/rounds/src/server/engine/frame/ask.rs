//! Looking at what a handler asks after a poll: a round for a modern client, a push to a legacy one.

use std::{
    num::NonZeroU32,
    task::{Context, Poll},
};

use rmcp::model::InputRequests;
use tokio::task::coop::has_budget_remaining;

use super::{
    driver::Driver,
    question::{OpenQuestion, PendingQuestion},
    state::FrameState,
    step::{Ending, FrameRound, Times},
    wake,
};
use crate::{
    server::{
        engine::{answer::Received, effects::Effects, journal::Fault, legacy::push::Push},
        policy::{error::FlowError, gate::Era, measure::Limit, observe::Station},
    },
    shared::order,
};

impl Driver {
    pub(super) fn poll_pushes(&mut self, cx: &mut Context<'_>) {
        let mut answered = Vec::new();
        self.pushes.retain_mut(|(id, pushed_at, push)| match push.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(received) => {
                answered.push((*id, *pushed_at, received));
                false
            }
        });
        for (id, pushed_at, received) in answered {
            if received.is_ok() && self.frame.core.is_observed() {
                let after = self.frame.core.now().since(pushed_at);
                self.frame.event(self.round, &Station::Answered { after });
            }
            self.answer(id, received);
        }
    }

    pub(super) fn answer(&self, id: u32, received: Result<Received, FlowError>) {
        let mut state = self.frame.state();
        let Some(open) = state.take_open(id) else { return };
        let waker = state.answer(open, received);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The handler has yielded. What it asks is sent together, if a leg is there to send it.
    pub(super) fn look_at_questions(&mut self) -> Looked {
        let mut state = self.frame.state();
        state.polling = false;
        if !self.in_flight || self.handler.is_none() || state.unsettled {
            return Looked::Nothing;
        }
        if self.frame.is_durable() && (state.woken || !has_budget_remaining()) {
            // It has not come to rest: a combinator wants to be polled again, or tokio puts it off for the sake of other tasks.
            wake(state);
            return Looked::Nothing;
        }
        let FrameState { open, peer, effects, .. } = &mut *state;
        let journal = self.frame.journal().filter(|_| peer.era == Era::Modern);
        let permitted = |open: &PendingQuestion| {
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
        // Those that are answered elsewhere wait until no other is open, and have a round of their own.
        let all_elsewhere = open.iter().all(PendingQuestion::is_elsewhere);
        let is_now = |open: &PendingQuestion| all_elsewhere || !open.is_elsewhere();
        match peer.era {
            Era::Legacy if open.is_empty() || !all_elsewhere => {
                drop(state);
                self.push()
            }
            _ if open.is_empty() => Looked::Nothing,
            _ => {
                let number = self.round + 1 - self.pushed;
                let now = self.frame.core.now();
                let times = Times::of(open.iter().filter(|open| is_now(open)), self.frame.round_lifetime(), now);
                let sent = |open: &&PendingQuestion| open.question.request.is_some() && is_now(open);
                let order = order::of_keys(open.iter().filter(sent).map(|open| &*open.question.key));
                let mut requests = InputRequests::new();
                // One by one: to collect them is to sort them first, and most often there is one.
                requests.extend(open.iter_mut().filter(|open| is_now(open)).filter_map(PendingQuestion::send));
                let waiting = open.iter().filter(|open| is_now(open)).filter_map(PendingQuestion::waiting).collect();
                state.set_link(None);
                state.awaited = NonZeroU32::new(number);
                state.waits_since = now;
                Looked::Asked(FrameRound { number, requests, order, waiting, times })
            }
        }
    }

    /// A durable handler waits for something that is not recorded: it would wait for it again on every leg.
    pub(super) fn stray(&mut self) -> Looked {
        if let Some(journal) = self.frame.journal() {
            journal.set_fault(Fault::Strayed);
        }
        self.drop_handler();
        self.ending = Some(Box::new(Ending::Aborted));
        Looked::Again
    }

    #[inline(never)]
    pub(super) fn push(&mut self) -> Looked {
        let frame = self.frame.clone();
        let core = &frame.core;
        let state = frame.state();
        let is_open = |id: u32| state.open.iter().any(|open| open.id == id);
        let withdrawn: Vec<_> = self.pushes.extract_if(.., |(id, ..)| !is_open(*id)).collect();
        let first = state.open.iter().find(|open| !open.asked && !open.is_elsewhere()).map(|open| open.id);
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
        for open in state.open.iter_mut().filter(|open| !open.asked && !open.is_elsewhere()) {
            open.asked = true;
            let OpenQuestion { key, kind, request, message, until, .. } = &mut open.question;
            let Some(request) = request.take() else { continue };
            let push = Push {
                link: link.clone(),
                kind: *kind,
                request: *request,
                patience: until.map_or_else(|| self.frame.round_lifetime(), |until| until.since(core.now())),
                message: message.clone(),
            };
            self.pushes.push((open.id, core.now(), Box::pin(push.send(core.clock.clone()))));
            pushed.push(key.to_string());
        }
        drop(state);
        for key in &pushed {
            self.frame.event(self.round, &Station::Pushed { key: key.clone() });
        }
        Looked::Again
    }

    /// Whether there may be another round of pushes, with so many questions open. The first takes a place among the waiting calls, and
    /// starts the clock.
    pub(super) fn admit_push(&mut self, asks: usize) -> Result<(), FlowError> {
        let core = &self.frame.core;
        if asks > core.limits.questions {
            core.limit_reached(Limit::Questions);
            return Err(FlowError::TooManyQuestions { asks, limit: core.limits.questions });
        }
        if self.round >= core.limits.rounds {
            core.limit_reached(Limit::Rounds);
            return Err(FlowError::TooManyRounds { limit: core.limits.rounds });
        }
        let (starts, time) = (self.slot.is_none(), self.frame.flow_deadline());
        self.take_place()?;
        if starts {
            self.timer = Some(self.frame.core.clock.sleep(time));
        }
        self.round += 1;
        self.pushed += 1;
        Ok(())
    }
}

pub(super) enum Looked {
    /// There is nothing to tell.
    Nothing,
    /// Something changed: poll again.
    Again,
    Asked(FrameRound),
}
