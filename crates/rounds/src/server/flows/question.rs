//! A question that is answered elsewhere: what the person who decides it is shown.

use serde::Serialize;
use serde_json::{Value, json};

use super::decision::RecordedDecision;
use crate::{
    server::{
        engine::register::details::FlowDetails,
        ledger::register::{FlowRecord, FlowStatus},
        policy::elsewhere::{Approvers, PosedElsewhere},
        seal::{Digest, FlowId},
    },
    shared::clock::Timestamp,
};

/// What a question that is answered elsewhere asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ElsewhereKind {
    /// A yes or a no, with a reason.
    Approval,
    /// A form to fill in.
    Form,
    /// A value from a page of the author's own.
    Page,
}

impl ElsewhereKind {
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Approval => "an approval",
            Self::Form => "a form",
            Self::Page => "a page of the server's own",
        }
    }
}

/// A question that is answered elsewhere. Made by [`Flows::questions`](crate::register::Flows::questions).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QuestionElsewhere {
    /// The id of the flow in the register.
    #[serde(serialize_with = "as_text")]
    pub flow: FlowId,
    /// The round that asks it.
    pub round: u32,
    /// The key of the question.
    pub key: String,
    /// What it asks for.
    pub kind: ElsewhereKind,
    /// The text of the question.
    pub message: String,
    /// The schema of the form, as a client would get it. None unless it is a form.
    pub schema: Option<rmcp::model::JsonObject>,
    /// The name of the tool or prompt, or the URI of the resource.
    pub target: String,
    /// The arguments of the call. None if it has none, or if they exceed [the limit](crate::Limits::record_bytes).
    pub arguments: Option<Value>,
    /// The name of the principal that made the call.
    pub requester: Option<String>,
    /// Who may answer.
    pub approvers: Approvers,
    /// Until when it can be decided.
    pub until: Timestamp,
    /// The status of the flow.
    pub status: FlowStatus,
    /// Whether the flow waits for the answer.
    pub is_open: bool,
    /// The digest of what is shown: the question, and the arguments of the call.
    pub shown: Digest,
    /// The decision, if there is one.
    pub decision: Option<RecordedDecision>,
}

impl QuestionElsewhere {
    /// The questions of a flow, without their decisions.
    pub(crate) fn of(record: &FlowRecord, details: &FlowDetails) -> Vec<Self> {
        let summary = &record.summary;
        let rounds = details.rounds.iter();
        let posed = rounds.flat_map(|round| round.elsewhere.iter().map(move |(key, posed)| (round.number, key, posed)));
        let question = |(round, key, posed): (u32, &String, &PosedElsewhere)| {
            let target = details.target.clone().unwrap_or_else(|| summary.target.clone());
            let kind = match (&posed.page, &posed.schema) {
                (Some(_), _) => ElsewhereKind::Page,
                (None, Some(_)) => ElsewhereKind::Form,
                (None, None) => ElsewhereKind::Approval,
            };
            let waits = summary.status == FlowStatus::Waiting && summary.round == round;
            Self {
                flow: summary.id,
                round,
                key: key.clone(),
                kind,
                message: posed.message.clone(),
                schema: posed.schema.clone(),
                shown: shown(summary.id, round, key, posed, &target, details.arguments.as_ref()),
                target,
                arguments: details.arguments.clone(),
                requester: details.principal.clone(),
                approvers: posed.approvers.clone(),
                until: posed.until.unwrap_or(summary.open_until),
                status: summary.status,
                is_open: waits,
                decision: None,
            }
        };
        posed.map(question).collect()
    }
}

/// The digest of what a person is shown.
fn shown(
    flow: FlowId,
    round: u32,
    key: &str,
    posed: &PosedElsewhere,
    target: &str,
    arguments: Option<&Value>,
) -> Digest {
    Digest::of_shown(&json!({
        "flow": flow.to_string(),
        "round": round,
        "key": key,
        "message": posed.message,
        "schema": posed.schema,
        "target": target,
        "arguments": arguments,
    }))
}

fn as_text<S: serde::Serializer>(flow: &FlowId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(flow)
}
