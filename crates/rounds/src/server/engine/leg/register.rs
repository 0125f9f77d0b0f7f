//! What a leg records of its flow in the register.

use rmcp::model::{InputRequiredResult, InputResponses};

use super::{Leg, seal::Minted};
use crate::{
    server::{
        engine::{
            claim::ClaimGuard,
            effects::Effects,
            exchange::Response,
            frame::Frame,
            register::{
                Recording, Registering,
                details::{CallToWrite, FlowEffect, PartToWrite, RecordedLeg, elsewhere_of},
            },
            reply::Reply,
            stop::Stop,
        },
        ledger::{
            PrincipalShare,
            register::{FlowChange, FlowOwner, FlowStation, FlowStatus, FlowSummary, TimelineEntry},
        },
        seal::{
            Digest,
            envelope::{Envelope, Method, Span},
        },
    },
    shared::{clock::Timestamp, order},
};

/// The longest text of a plain column in bytes, and the largest number of keys in one.
const COLUMN_BYTES: usize = 128;
const COLUMN_KEYS: usize = 64;

impl Leg<'_> {
    /// The flow asks for the first time: its record, with the call and its questions.
    pub(super) fn first_asked(&self, minted: &Minted, response: &impl Response, frame: &Frame) -> Option<FlowChange> {
        let register = self.core.registering.as_ref()?;
        let (now, span) = (self.core.now(), minted.span);
        let mut change = self.change(register, now, span, FlowStatus::Waiting, FlowStation::Asked);
        (change.summary.round, change.summary.created) = (1, now);
        self.waits(register, &mut change.summary, response, span);
        let principal = self.principal.as_ref().map(crate::Principal::as_str);
        let target = &*self.binding.target;
        let arguments = frame.arguments.as_deref();
        let call = CallToWrite { flow: self.round.flow, method: self.binding.method, target, principal, arguments };
        let questions = response.asks().and_then(|asks| asks.input_requests.as_ref());
        let part = PartToWrite {
            call: Some(call),
            questions,
            elsewhere: elsewhere_of(questions),
            ..self.part(register, Some(minted), response.asks(), frame)
        };
        self.write(&mut change, 0, part);
        Some(change)
    }

    /// The leg claims its round.
    pub(super) fn recording(&self, envelope: &Envelope) -> Option<Box<Recording>> {
        let register = self.core.registering.as_ref()?;
        let (now, span) = (self.core.now(), envelope.span);
        let mut claimed = self.change(register, now, span, FlowStatus::Working, FlowStation::Claimed);
        claimed.summary.open = columns(envelope.asked.iter().map(|asked| &*asked.key));
        claimed.summary.owner = Some(FlowOwner { instance: register.instance.clone(), lease_until: None });
        let kept_for = super::super::register::slack(&self.core.limits) + register.retention;
        Some(Box::new(Recording { claimed, waits_until: span.expires_at, kept_for }))
    }

    /// The leg has a reply.
    pub(super) fn settled<R: Response>(
        &self,
        claim: &ClaimGuard,
        concluded: &Result<R, Stop>,
        minted: Option<&Minted>,
        answers: Option<&InputResponses>,
        reply: Option<&[u8]>,
        frame: &Frame,
    ) -> Option<Box<FlowChange>> {
        let (register, recording) = (self.core.registering.as_ref()?, claim.recording()?);
        let now = self.core.now();
        let (status, station) = match (concluded, minted) {
            (Ok(_), Some(_)) => (FlowStatus::Waiting, FlowStation::Asked),
            (Ok(_), None) => (FlowStatus::Completed, FlowStation::Completed),
            (Err(_), _) => (FlowStatus::Failed, FlowStation::Failed),
        };
        let mut change = recording.ended(now, status, station);
        let asks = concluded.as_ref().ok().and_then(Response::asks);
        let mut part = PartToWrite { answers, ..self.part(register, minted, asks, frame) };
        match (concluded, minted) {
            (Ok(response), Some(minted)) => {
                change.summary.round += 1;
                self.waits(register, &mut change.summary, response, minted.span);
                part.questions = response.asks().and_then(|asks| asks.input_requests.as_ref());
                part.elsewhere = elsewhere_of(part.questions);
            }
            (outcome, _) => {
                change.summary.open.clear();
                change.summary.kept_until = now + register.retention;
                let text = reply.and_then(Reply::json);
                match outcome {
                    Ok(_) => part.result = text,
                    Err(_) => part.error = text,
                }
            }
        }
        self.write(&mut change, self.round.number, part);
        Some(Box::new(change))
    }

    /// What every leg records: where it ran, what it ran, and what it sent.
    fn part<'a>(
        &self,
        register: &'a Registering,
        minted: Option<&Minted>,
        asks: Option<&'a InputRequiredResult>,
        frame: &Frame,
    ) -> PartToWrite<'a> {
        let token = asks.and_then(|asks| asks.request_state.as_ref()).map(String::len);
        let spilled = minted.and_then(|minted| minted.spill.as_ref()).map(Vec::len);
        let open = minted.map(|minted| minted.open.clone()).unwrap_or_default();
        PartToWrite {
            leg: Some(RecordedLeg { instance: &register.instance, handler: frame.part(), token, spilled }),
            effects: self.effects(frame),
            journal: frame.journal().map(|journal| journal.added(open)),
            ..PartToWrite::default()
        }
    }

    fn effects(&self, frame: &Frame) -> Vec<FlowEffect> {
        let names = frame.onces.get().map(Effects::ran_names).unwrap_or_default();
        let key = |name: &str| format!("{:?}", Digest::of_effect(self.round.flow, name));
        names.into_iter().map(|name| FlowEffect::new(name.clone(), key(&name))).collect()
    }

    /// The record of a flow that waits for the answers to this response.
    fn waits(&self, register: &Registering, summary: &mut FlowSummary, response: &impl Response, span: Span) {
        let keys = response.asks().map(order::keys).unwrap_or_default();
        summary.open = columns(keys.iter().map(|key| &**key));
        summary.open_until = span.expires_at;
        summary.kept_until = span.expires_at + super::super::register::slack(&self.core.limits) + register.retention;
        let waits_here = self.core.frames.find(self.round.flow).is_some();
        summary.owner = waits_here.then(|| FlowOwner { instance: register.instance.clone(), lease_until: None });
    }

    fn change(
        &self,
        register: &Registering,
        now: Timestamp,
        span: Span,
        status: FlowStatus,
        station: FlowStation,
    ) -> FlowChange {
        let share = self.core.share(self.binding.principal);
        let summary = FlowSummary {
            id: self.round.claim_id().flow,
            method: self.binding.method,
            target: self.plain_target(),
            principal: if let PrincipalShare::Principal(digest) = share { Some(digest) } else { None },
            created: span.issued_at,
            changed: now,
            deadline: span.deadline,
            status,
            round: self.round.number,
            open: Vec::new(),
            open_until: span.expires_at,
            kept_until: now + register.retention,
            owner: None,
            keys: vec![self.core.record_keys().sealing().id],
        };
        FlowChange { summary, entry: TimelineEntry { leg: self.round.number, station, at: now }, part: None, share }
    }

    /// The target as a plain column has it. The URI of a resource may say as much as arguments do, so only its scheme is
    /// plain.
    fn plain_target(&self) -> String {
        let target = &*self.binding.target;
        match self.binding.method {
            Method::Resource => {
                column(target.split_inclusive(':').next().filter(|scheme| scheme.ends_with(':')).unwrap_or_default())
            }
            _ => column(target),
        }
    }

    fn write(&self, change: &mut FlowChange, number: u32, mut part: PartToWrite<'_>) {
        let plaintext = part.fit(self.core.limits.record_bytes);
        change.part = Some(self.core.sealed_part(change.summary.id, number, plaintext));
    }
}

fn columns<'k>(keys: impl Iterator<Item = &'k str>) -> Vec<String> {
    keys.take(COLUMN_KEYS).map(column).collect()
}

fn column(text: &str) -> String {
    let ends = text.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|end| *end <= COLUMN_BYTES).last().unwrap_or_default();
    text[..end].to_owned()
}
