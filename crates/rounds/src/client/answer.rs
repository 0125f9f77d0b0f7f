//! Answers: what a person, or whoever stands in for one, says to a question.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use rmcp::model::{CreateMessageResult, JsonObject, ListRootsResult};
use serde_json::{Value, json};

use crate::shared::{check::InvalidAnswer, kind::QuestionKind};

/// What is said to a question.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum UserAnswer {
    /// A form, filled in. With nothing in it, it is a form accepted as it stands.
    Form(JsonObject),
    /// Consent to visit the page. Whether what it is for has happened there is between the page and the server.
    Visit,
    /// No. Only a person who was shown the question can say this.
    Decline,
    /// Neither yes nor no: the question was put away, or nobody answered in time.
    Cancel,
    /// What the model said.
    Sample(Box<CreateMessageResult>),
    /// The client's roots.
    Roots(ListRootsResult),
}

impl UserAnswer {
    /// The answer as it goes over the wire.
    pub(super) fn to_wire(&self) -> Value {
        let sent = match self {
            Self::Form(content) => return json!({"action": "accept", "content": content}),
            Self::Visit => return json!({"action": "accept"}),
            Self::Decline => return json!({"action": "decline"}),
            Self::Cancel => return json!({"action": "cancel"}),
            Self::Sample(result) => serde_json::to_value(result),
            Self::Roots(result) => serde_json::to_value(result),
        };
        // rmcp's types are objects with text for keys, which is all that JSON asks for.
        sent.unwrap_or_default()
    }

    /// The answer that went over the wire, to a question of this kind.
    pub(super) fn from_wire(kind: QuestionKind, wire: &Value) -> Option<Self> {
        match kind {
            QuestionKind::Form | QuestionKind::Url => match wire.get("action")?.as_str()? {
                "accept" if kind == QuestionKind::Url => Some(Self::Visit),
                "accept" => Some(Self::Form(wire.get("content")?.as_object()?.clone())),
                "decline" => Some(Self::Decline),
                "cancel" => Some(Self::Cancel),
                _ => None,
            },
            QuestionKind::Sample => {
                serde_json::from_value(wire.clone()).ok().map(|result| Self::Sample(Box::new(result)))
            }
            QuestionKind::Roots => serde_json::from_value(wire.clone()).ok().map(Self::Roots),
        }
    }

    pub(super) fn fits(&self, kind: QuestionKind) -> bool {
        match self {
            Self::Form(_) => kind == QuestionKind::Form,
            Self::Visit => kind == QuestionKind::Url,
            Self::Decline | Self::Cancel => matches!(kind, QuestionKind::Form | QuestionKind::Url),
            Self::Sample(_) => kind == QuestionKind::Sample,
            Self::Roots(_) => kind == QuestionKind::Roots,
        }
    }
}

/// Why an answer was not taken. Nothing has been sent, and what was answered before stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Nothing was asked under this key.
    #[error("nothing was asked under {key:?}")]
    NotAsked {
        /// The key.
        key: String,
    },
    /// The question wants something else: a form is not a page, and only these two can be declined or cancelled.
    #[error("{key:?} wants {}", wants(*.wanted))]
    OtherKind {
        /// The question's key.
        key: String,
        /// What it wants.
        wanted: QuestionKind,
    },
    /// A field is wrong, and this says which and why.
    #[error("{key:?}: {problem}")]
    Invalid {
        /// The question's key.
        key: String,
        /// What is wrong.
        problem: InvalidAnswer,
    },
}

fn wants(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::Form => "a form",
        QuestionKind::Url => "consent to visit a page",
        QuestionKind::Sample => "a sample of a model, which can be neither declined nor cancelled",
        QuestionKind::Roots => "roots, which can be neither declined nor cancelled",
    }
}
