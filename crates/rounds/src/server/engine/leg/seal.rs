//! The questions that leave: through the gate, sealed.

use std::time::Duration;

use rmcp::{
    ErrorData,
    model::{InputRequest, InputRequiredResult, RequestMetaObject, RequestParamsMeta as _},
};
use serde_json::Value;

use super::{Leg, run::Ran};
use crate::{
    server::{
        engine::{
            effects::Effects,
            exchange::{Exchange, Response},
            frame::{Ending, Frame, FrameStep, Times},
            journal::Fault,
            stop::{Stop, overtaken},
        },
        ledger::ClaimId,
        policy::{
            error::{Failure, FlowError, Meaning},
            observe::Station,
        },
        seal::{
            Format,
            envelope::{Binding, Envelope, HandlerRecord, Resume, Span},
            journal::WaitingQuestion,
            refusal::Refusal,
            token,
        },
    },
    shared::{clock::Timestamp, order, wire::EXPIRES_IN},
};

/// A token that is about to leave.
pub(super) struct Minted {
    pub(super) span: Span,
    /// What it could not carry.
    pub(super) spill: Option<Vec<u8>>,
    /// The effects that it carries the values of, of those that this leg has claimed.
    pub(super) spent: Vec<ClaimId>,
    /// The open questions of a durable handler, for the record of its journal.
    pub(super) open: Vec<WaitingQuestion>,
}

/// What a leg comes to: its response, and what there is to know of the token in it, if it asks.
pub(super) type Concluded<R> = Result<(Option<Minted>, R), Stop>;

impl Leg<'_> {
    /// What the handler's part comes to: a response, with its questions sealed.
    pub(super) fn conclude<X: Exchange>(&self, ran: Ran, frame: &Frame, deadline: Timestamp) -> Concluded<X::Response> {
        let step = match ran {
            Ran::Stepped(step) => step,
            Ran::Cancelled => return Err(Stop::cancelled()),
            Ran::Overtaken => return Err(overtaken()),
        };
        let journal = frame.journal();
        if let Some(fault) = journal.and_then(|journal| journal.fault_at(&step)) {
            if matches!(fault, Fault::Diverged { .. }) {
                self.event(&Station::Refused(Refusal::Diverged));
            }
            return Err(FlowError::from(fault).into());
        }
        let mut open = vec![];
        let (asks, resume, times) = match step {
            FrameStep::Ended(Ending::Panicked) => return Err(Stop::panicked()),
            FrameStep::Ended(Ending::Expired) => return Ok((None, X::Response::failed(FlowError::DeadlinePassed)?)),
            FrameStep::Ended(Ending::Aborted) => return Err(self.refuse(Refusal::FrameGone)),
            FrameStep::Ended(Ending::Returned(Err(Failure {
                meaning: meaning @ Meaning::Unreadable, cause, ..
            }))) => {
                // One that can read its state, as after a rollback, may still go on.
                return Err(Stop { meaning, cause, ..self.refuse(Refusal::HandlerState) });
            }
            FrameStep::Ended(Ending::Returned(Err(Failure { meaning: Meaning::InWords, error, .. }))) => {
                return Ok((None, X::Response::in_words(error)?));
            }
            FrameStep::Ended(Ending::Returned(returned)) => {
                let asks = match X::Response::from_result(*returned?).map(Response::into_asks) {
                    Some(Ok(asks)) => asks,
                    Some(Err(complete)) => return Ok((None, complete)),
                    None => return Err(ErrorData::internal_error("a result of another request", None).into()),
                };
                (asks, None, Times::of_round(self.core.lifetimes.round(&self.binding.target)))
            }
            FrameStep::Asked(round) => {
                let asks = order::asks(round.requests, round.order);
                let resume = journal.map_or_else(
                    || self.core.frame_here(),
                    |journal| {
                        if self.core.format == Format::Previous {
                            self.core.texts.keep(&round.waiting);
                        }
                        if self.core.registering.is_some() {
                            open.clone_from(&round.waiting);
                        }
                        Resume::of_journal(journal.pages(round.waiting), self.core.format)
                    },
                );
                (asks, Some(resume), round.times)
            }
        };
        match self.seal(asks, resume, times, frame, deadline) {
            Ok((minted, asks)) => Ok((Some(Minted { open, ..minted }), asks.into())),
            Err(error) => {
                self.core.note_limit(&error);
                Ok((None, X::Response::failed(error)?))
            }
        }
    }

    /// Lets the questions through the gate and seals what the flow knows into their state.
    pub(super) fn seal(
        &self,
        mut asks: InputRequiredResult,
        resume: Option<Resume>,
        times: Times,
        frame: &Frame,
        deadline: Timestamp,
    ) -> Result<(Minted, InputRequiredResult), FlowError> {
        let limits = &self.core.limits;
        let mut requests = asks.input_requests.take().unwrap_or_default();
        let decided_by = self.place_elsewhere(&mut requests, frame)?;
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
        let (times, deadline) = match decided_by {
            Some(until) => self.until_decided(until, now, deadline),
            None => (times, deadline),
        };
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
                Resume::of(HandlerRecord { settled, onces, state: kept }, answers.posing())
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
        Ok((Minted { span, spill, spent, open: vec![] }, asks))
    }

    /// The times of a round that waits for a decision: the flow lasts as long, and a while longer to go on with it.
    fn until_decided(&self, until: Timestamp, now: Timestamp, deadline: Timestamp) -> (Times, Timestamp) {
        let (patience, after) = (until.since(now), self.core.lifetimes.round(&self.binding.target));
        let times = Times { patience, ..Times::of_round(patience + after) };
        (times, deadline.max(until + after))
    }

    /// Seals what the flow knows into a token, or most of it into the ledger where it is too large and may spill.
    pub(super) fn mint(&self, envelope: &mut Envelope<&Binding, &str>) -> Result<(String, Option<Vec<u8>>), FlowError> {
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
}

/// The metadata of a question, where it has a place for them.
pub(super) fn meta_of(request: &mut InputRequest) -> Option<&mut Option<RequestMetaObject>> {
    match request {
        InputRequest::Elicitation(request) => Some(request.params.meta_mut()),
        InputRequest::CreateMessage(request) => Some(request.params.meta_mut()),
        _ => None,
    }
}

/// The time that a question was told when it was asked. One that comes out of a record has its metadata beside its parameters.
pub(super) fn told(request: &mut InputRequest) -> Option<&mut Value> {
    let (aside, within) = match request {
        InputRequest::Elicitation(request) => (&mut request.extensions, request.params.meta_mut()),
        InputRequest::CreateMessage(request) => (&mut request.extensions, request.params.meta_mut()),
        _ => return None,
    };
    aside.get_mut::<RequestMetaObject>().or(within.as_mut())?.0.0.get_mut(EXPIRES_IN)
}

pub(super) fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}
