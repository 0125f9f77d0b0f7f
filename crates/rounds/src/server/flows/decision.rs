//! Decisions: what was answered elsewhere, by whom and through which way in.

use std::fmt;

use rmcp::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    FlowsError,
    question::{ElsewhereKind, QuestionElsewhere},
};
use crate::{
    server::{
        ledger::{LedgerError, register::FlowStatus},
        seal::Digest,
    },
    shared::{check::InvalidAnswer, clock::Timestamp},
};

/// The decision on an approval, as a handler gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
#[serde(tag = "decision", rename_all = "lowercase")]
#[expect(clippy::exhaustive_enums, reason = "handlers match on all three")]
pub enum Decision {
    /// It was approved.
    Approved {
        /// The name of the principal that approved.
        by: String,
        /// When the approval was recorded.
        #[schemars(with = "u64")]
        at: Timestamp,
    },
    /// It was denied.
    Denied {
        /// The name of the principal that denied.
        by: String,
        /// When the denial was recorded.
        #[schemars(with = "u64")]
        at: Timestamp,
        /// The reason; empty if none was given.
        reason: String,
    },
    /// There was no decision in time. Only for a question that [says so](crate::ask::QuestionBuilder::or_expired);
    /// otherwise the question fails with [`FlowError::NotInTime`](crate::FlowError::NotInTime).
    Expired,
}

impl Decision {
    /// Whether it was approved. An expired question was not.
    pub const fn is_approved(&self) -> bool {
        matches!(self, Self::Approved { .. })
    }
}

/// What a person decides.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Approves an approval.
    Approve,
    /// Denies an approval, or declines to fill in a form.
    Deny {
        /// The reason; empty for none.
        reason: String,
    },
    /// Fills in a form. The content is checked against its schema.
    Answer(Value),
}

impl Verdict {
    /// Denies without a reason.
    pub fn deny() -> Self {
        Self::Deny { reason: String::new() }
    }

    /// Denies for this reason.
    pub fn deny_because(reason: impl Into<String>) -> Self {
        Self::Deny { reason: reason.into() }
    }
}

/// The way through which a decision came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Way {
    /// A call of [`Flows::decide`](crate::register::Flows::decide) by the application.
    Library,
    /// The desk.
    Desk,
    /// A page of the author's own.
    Page,
    /// The command line, which an operator with the keys has used.
    CommandLine,
    /// No one has decided, and the time is over.
    Expiry,
}

impl Way {
    /// The name of the way, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Desk => "desk",
            Self::Page => "page",
            Self::CommandLine => "command-line",
            Self::Expiry => "expiry",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A decision as it is recorded: once, before it takes effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordedDecision {
    /// What was decided.
    pub outcome: DecisionOutcome,
    /// The name of the principal that decided. Empty if no one did in time.
    pub by: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// Through which way it came.
    pub way: Way,
    /// The digest of what was shown: the question, and the arguments of the call.
    pub shown: Digest,
    /// Why the decision does not count, if it does not: the question was another one when the flow continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

/// What a recorded decision came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
#[non_exhaustive]
pub enum DecisionOutcome {
    /// It was approved.
    Approved,
    /// It was denied, for this reason.
    Denied {
        /// The reason; empty if none was given.
        reason: String,
    },
    /// The form was filled in, or the author's page was completed, with this value.
    Answered {
        /// The value.
        value: Value,
    },
    /// No one decided in time.
    Expired,
}

impl RecordedDecision {
    /// The answer that the leg brings to the handler, in place of what the client sent.
    pub(crate) fn answer(&self, question: &QuestionElsewhere) -> Value {
        let decision = |decision: Decision| {
            let mut content = json!(decision);
            content["question"] = fingerprint(&question.message).into();
            json!({ "action": "accept", "content": content })
        };
        let (by, at) = (self.by.clone(), self.at);
        let mut answer = match (&self.outcome, question.kind) {
            (DecisionOutcome::Approved, _) => decision(Decision::Approved { by, at }),
            (DecisionOutcome::Denied { reason }, ElsewhereKind::Approval) => {
                decision(Decision::Denied { by, at, reason: reason.clone() })
            }
            (DecisionOutcome::Denied { .. }, _) => json!({ "action": "decline" }),
            (DecisionOutcome::Answered { value }, _) => json!({ "action": "accept", "content": value }),
            (DecisionOutcome::Expired, _) => json!({ "action": "expire" }),
        };
        answer["by"] = self.by.as_str().into();
        answer["at"] = self.at.as_millis().into();
        answer["way"] = self.way.as_str().into();
        answer
    }
}

/// By what a handler that is called again knows the text that was shown.
pub(crate) fn fingerprint(message: &str) -> String {
    format!("{:?}", Digest::of_shown(&message.into()))
}

/// Why a decision was not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// There is no such question, or its name is not one of this server's.
    #[error("there is no such question: it was removed, or the link belongs to another server")]
    NotFound,
    /// The person may not answer this question.
    #[error("{who} may not answer this question: it is for {approvers}")]
    NotAllowed {
        /// The name of the person.
        who: String,
        /// Who may answer, in words.
        approvers: String,
    },
    /// The rule for this question is in the code of the server, and cannot be applied here.
    #[error("the rule `{rule}` is in the code of the server: decide through the server, such as on its desk")]
    RuleElsewhere {
        /// The name of the rule.
        rule: String,
    },
    /// The question is for people with a role, and which roles a person has is known to the server only.
    #[error(
        "the question is for the role {roles}, and only the server knows who has it: decide through the server, such as on its desk"
    )]
    RolesElsewhere {
        /// The roles that may decide.
        roles: String,
    },
    /// It was decided before.
    #[error("this question was decided before, by {}", if decision.by.is_empty() { "no one in time" } else { &*decision.by })]
    AlreadyDecided {
        /// The decision that was first.
        decision: Box<RecordedDecision>,
    },
    /// The question has changed since it was shown.
    #[error("the question has changed since it was shown: look at it again")]
    Changed,
    /// The flow has ended, was cancelled, or no longer asks this question.
    #[error("the question was withdrawn: its call is {status}")]
    Withdrawn {
        /// The status of the flow.
        status: FlowStatus,
    },
    /// The time of the question is over.
    #[error("the question was not decided in time")]
    Expired,
    /// The verdict does not suit the question, such as an approval of a form.
    #[error("this question is {question}, which cannot be decided this way")]
    WrongVerdict {
        /// What the question is, in words.
        question: &'static str,
    },
    /// The content of the form is not valid.
    #[error("the answer is not valid: {0}")]
    Invalid(InvalidAnswer),
    /// The decision is larger than [a record may be](crate::Limits::record_bytes).
    #[error("the decision takes {bytes} bytes, and the limit is {limit}: write less")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The register could not be used.
    #[error(transparent)]
    Flows(#[from] FlowsError),
}

impl From<LedgerError> for DecideError {
    fn from(error: LedgerError) -> Self {
        Self::Flows(error.into())
    }
}

impl QuestionElsewhere {
    /// What comes of this verdict, if the question can be decided with it.
    pub(crate) fn outcome(&self, verdict: Verdict) -> Result<DecisionOutcome, DecideError> {
        match (verdict, self.kind, &self.schema) {
            (Verdict::Approve, ElsewhereKind::Approval, _) => Ok(DecisionOutcome::Approved),
            (Verdict::Deny { reason }, ElsewhereKind::Approval | ElsewhereKind::Form, _) => {
                Ok(DecisionOutcome::Denied { reason })
            }
            (Verdict::Answer(Value::Object(mut content)), ElsewhereKind::Form, Some(schema)) => {
                let checked = crate::shared::check::check(schema, &mut content).map_err(DecideError::Invalid)?;
                Ok(DecisionOutcome::Answered { value: Value::Object(checked) })
            }
            (Verdict::Answer(_), ElsewhereKind::Form, Some(_)) => {
                Err(DecideError::Invalid(InvalidAnswer::whole("the answer's content is not an object")))
            }
            _ => Err(DecideError::WrongVerdict { question: self.kind.in_words() }),
        }
    }
}
