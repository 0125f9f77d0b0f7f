//! Answers of a user, or of a responder that stands in for one.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use rmcp::model::{CreateMessageResult, JsonObject, ListRootsResult};
use serde_json::{Value, json};

use crate::shared::{check::InvalidAnswer, kind::QuestionKind};

/// An answer to a question.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum UserAnswer {
    /// A form, filled in. Without content, it is a form that was accepted as it is.
    Form(JsonObject),
    /// Consent to visit the page. It does not mean that the user has completed it.
    Visit,
    /// The user declined. Use it only if a user saw the question.
    Decline,
    /// Neither accepted nor declined: the user dismissed the question, or did not answer in time.
    Cancel,
    /// The response of the model.
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
        // rmcp's types are objects with string keys, which JSON can express.
        sent.unwrap_or_default()
    }

    /// The answer that went over the wire, to a question of this kind.
    pub(super) fn from_wire(kind: QuestionKind, wire: &Value) -> Option<Self> {
        match kind {
            QuestionKind::Form | QuestionKind::Url | QuestionKind::Elsewhere => match wire.get("action")?.as_str()? {
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

/// Why an answer was rejected. Nothing has been sent, and an earlier answer is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Nothing was asked under this key.
    #[error("nothing was asked under {key:?}")]
    NotAsked {
        /// The key of the answer.
        key: String,
    },
    /// The question wants another kind of answer: a form is not a page, and only these two can be declined or
    /// cancelled.
    #[error("{key:?} wants {}", wants(*.wanted))]
    OtherKind {
        /// The question's key.
        key: String,
        /// The kind that it wants.
        wanted: QuestionKind,
    },
    /// The answer is not valid. The error says which field is wrong and why.
    #[error("{key:?}: {problem}")]
    Invalid {
        /// The question's key.
        key: String,
        /// The problem with the answer.
        problem: InvalidAnswer,
    },
}

fn wants(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::Form => "a form",
        QuestionKind::Url | QuestionKind::Elsewhere => "consent to visit a page",
        QuestionKind::Sample => "a sample of a model, which can be neither declined nor cancelled",
        QuestionKind::Roots => "roots, which can be neither declined nor cancelled",
    }
}
