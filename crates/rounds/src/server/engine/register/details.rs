//! What the sealed parts of a record say.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::{InputRequests, InputResponses};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::journal::{FlowJournal, Missing, NoJournal};
use crate::{
    server::{
        ledger::register::FlowRecord,
        policy::elsewhere::PosedElsewhere,
        seal::{FlowId, journal::Pages},
    },
    shared::kind::Method,
};

/// One part as it is written. Texts that are JSON themselves are written as they are, and parsed when they are read.
#[derive(Serialize, Default)]
pub(crate) struct PartToWrite<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<CallToWrite<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leg: Option<RecordedLeg<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answers: Option<&'a InputResponses>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) effects: Vec<FlowEffect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) questions: Option<&'a InputRequests>,
    /// What is not on the wire of those that are answered elsewhere.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) elsewhere: BTreeMap<&'a str, &'a PosedElsewhere>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
    /// What the leg added to the journal of a durable handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) journal: Option<Pages>,
    /// The size of what was left out because it is too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) omitted: Option<usize>,
}

/// The call that a flow began with.
#[derive(Serialize, Clone)]
pub(crate) struct CallToWrite<'a> {
    pub(crate) flow: FlowId,
    pub(crate) method: Method,
    pub(crate) target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<&'a str>,
}

/// The leg that wrote a part.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct RecordedLeg<T> {
    pub(crate) instance: T,
    pub(crate) handler: HandlerPart,
    /// The length of the token that it sent, and the size of what the token could not carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spilled: Option<usize>,
}

/// What a leg did with the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HandlerPart {
    /// It ran the handler from its beginning.
    Ran,
    /// It continued the handler where it waited.
    Continued,
    /// It did not run the handler: a question that the handler declares came first, or has ended the call.
    Withheld,
}

/// The questions that are answered elsewhere among these, by their keys.
pub(crate) fn elsewhere_of(requests: Option<&InputRequests>) -> BTreeMap<&str, &PosedElsewhere> {
    let requests = requests.into_iter().flatten();
    requests.filter_map(|(key, request)| Some((key.as_str(), PosedElsewhere::of(request)?))).collect()
}

impl PartToWrite<'_> {
    /// The part in bytes. What is larger than the limit is left out, and the part says so.
    pub(crate) fn fit(&mut self, limit: usize) -> Vec<u8> {
        let write = |part: &Self| serde_json::to_vec(part).expect("a part has no type that JSON cannot write");
        let mut whole = write(self);
        // The journal goes first: everything else says what happened.
        if whole.len() > limit && self.journal.take().is_some() {
            whole = write(self);
        }
        if whole.len() <= limit {
            return whole;
        }
        let omitted = Some(whole.len());
        let leg = self.leg.clone();
        if !self.elsewhere.is_empty() {
            // A question that has to be shown is kept with what it is about. It was measured before it was asked.
            let (call, questions, elsewhere) = (self.call.clone(), self.questions, self.elsewhere.clone());
            return write(&PartToWrite { call, leg, questions, elsewhere, omitted, ..PartToWrite::default() });
        }
        let call = self.call.clone().map(|call| CallToWrite { arguments: None, ..call });
        PartToWrite { call, leg, omitted, ..PartToWrite::default() }.short(limit)
    }

    /// The same without the call's texts if even they are too large.
    fn short(self, limit: usize) -> Vec<u8> {
        let short = serde_json::to_vec(&self).expect("a part has no type that JSON cannot write");
        match self.call {
            Some(call) if short.len() > limit => {
                let call = Some(CallToWrite { target: "", principal: None, arguments: None, ..call });
                serde_json::to_vec(&PartToWrite { call, ..self }).expect("a part has no type that JSON cannot write")
            }
            _ => short,
        }
    }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct PartToRead {
    call: Option<CallToRead>,
    leg: Option<RecordedLeg<String>>,
    answers: Option<Value>,
    effects: Vec<FlowEffect>,
    questions: Option<Value>,
    elsewhere: BTreeMap<String, PosedElsewhere>,
    result: Option<String>,
    error: Option<String>,
    journal: Option<Pages>,
    omitted: Option<usize>,
}

#[derive(Deserialize)]
struct CallToRead {
    flow: FlowId,
    method: Method,
    target: String,
    #[serde(default)]
    principal: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

/// What the sealed parts of a record say.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FlowDetails {
    /// The name of the flow, which logs and events have. None if the flow began before its server kept a register.
    #[serde(serialize_with = "as_text")]
    pub flow: Option<FlowId>,
    /// The name of the tool or prompt, or the whole URI of the resource.
    pub target: Option<String>,
    /// The name of the principal.
    pub principal: Option<String>,
    /// The arguments of the call.
    pub arguments: Option<Value>,
    /// The questions of each round, with their answers.
    pub rounds: Vec<FlowRound>,
    /// The legs that have replied, in their order.
    pub legs: Vec<FlowLeg>,
    /// The result, if the flow has ended with one.
    pub result: Option<Value>,
    /// The error of the protocol, if the flow has ended with one.
    pub error: Option<Value>,
    #[serde(skip)]
    journal: Result<FlowJournal, Missing>,
}

/// One leg of a flow that has replied: with questions, a result or an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FlowLeg {
    /// The number of the leg, counted from one. Leg *n* + 1 answers round *n*.
    pub number: u32,
    /// The name of the instance that ran it.
    pub instance: String,
    /// What it did with the handler.
    pub handler: HandlerPart,
    /// The length of the token that it sent with its questions.
    pub token_bytes: Option<usize>,
    /// The size of the state that the token could not carry, which is in the ledger.
    pub spilled_bytes: Option<usize>,
    /// The effects that it ran.
    pub effects: Vec<FlowEffect>,
}

/// One round of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FlowRound {
    /// The number of the round, counted from one.
    pub number: u32,
    /// The questions by their keys, as on the wire.
    pub questions: Option<Value>,
    /// Those of them that are answered elsewhere.
    #[serde(skip)]
    pub(crate) elsewhere: BTreeMap<String, PosedElsewhere>,
    /// The answers by the keys of their questions, as on the wire.
    pub answers: Option<Value>,
    /// The effects that the leg with the answers ran.
    pub effects: Vec<FlowEffect>,
    /// The size in bytes of what was left out because it exceeds [the limit](crate::Limits::record_bytes).
    pub omitted: Option<usize>,
}

/// An effect that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FlowEffect {
    /// The name of the effect.
    pub name: String,
    /// The idempotency key that the effect was given.
    pub key: String,
}

impl FlowEffect {
    pub(crate) fn new(name: String, key: String) -> Self {
        Self { name, key }
    }
}

fn as_text<S: serde::Serializer>(flow: &Option<FlowId>, serializer: S) -> Result<S::Ok, S::Error> {
    flow.map(|flow| flow.to_string()).serialize(serializer)
}

impl FlowDetails {
    /// Reads the opened parts of a record. None if they are not those of this record.
    pub(crate) fn read(record: &FlowRecord, parts: impl Iterator<Item = (u32, Vec<u8>)>) -> Option<Self> {
        let mut details = Self {
            flow: None,
            target: None,
            principal: None,
            arguments: None,
            rounds: Vec::new(),
            legs: Vec::new(),
            result: None,
            error: None,
            journal: Err(Missing::default()),
        };
        let mut known = BTreeSet::new();
        for (place, (number, bytes)) in parts.enumerate() {
            let mut part: PartToRead = serde_json::from_slice(&bytes).ok()?;
            // A handler that waits brings the effects of its earlier legs with it.
            part.effects.retain(|effect| known.insert(effect.key.clone()));
            details.journal = FlowJournal::with(details.journal, part.journal, place as u32 == number);
            if let Some(RecordedLeg { instance, handler, token, spilled }) = part.leg {
                details.legs.push(FlowLeg {
                    number: number + 1,
                    instance,
                    handler,
                    token_bytes: token,
                    spilled_bytes: spilled,
                    effects: part.effects.clone(),
                });
            }
            if let Some(call) = part.call {
                // A row whose plain columns were exchanged for those of another is not shown as if it were right.
                let is_it = call.flow.in_ledger() == record.summary.id && call.method == record.summary.method;
                if !is_it {
                    return None;
                }
                (details.flow, details.principal) = (Some(call.flow), call.principal);
                details.target = Some(call.target);
                details.arguments = call.arguments.and_then(|json| serde_json::from_str(&json).ok());
            }
            let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
            (details.result, details.error) = (json(part.result), json(part.error));
            if number > 0 {
                let round = details.round(number);
                (round.answers, round.effects, round.omitted) = (part.answers, part.effects, part.omitted);
            }
            if part.questions.is_some() {
                let round = details.round(number + 1);
                (round.questions, round.elsewhere) = (part.questions, part.elsewhere);
            }
        }
        Some(details)
    }

    /// The journal of a durable handler, as far as its legs have replied.
    ///
    /// # Errors
    ///
    /// [`NoJournal`] if the handler has none, or the record does not have the whole of it.
    pub fn journal(&self) -> Result<&FlowJournal, NoJournal> {
        self.journal.as_ref().map_err(|missing| missing.why())
    }

    fn round(&mut self, number: u32) -> &mut FlowRound {
        let at = match self.rounds.iter().position(|round| round.number == number) {
            Some(at) => at,
            None => {
                self.rounds.push(FlowRound { number, ..FlowRound::default() });
                self.rounds.len() - 1
            }
        };
        &mut self.rounds[at]
    }
}
