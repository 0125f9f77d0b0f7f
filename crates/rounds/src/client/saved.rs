//! A pending call in its saved form: JSON, with a version.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Value;

use super::{
    AnswerError, AskedQuestion, Call, Origin, Pending, UserAnswer,
    question::{Came, Context, RawQuestion},
    task::Task,
};
use crate::shared::{clock::Timestamp, order::arrange};

/// The version of the layout of [`SavedCall`]. It changes with every change that a reader of this version would misread. A
/// call that is not a task is written in version 1, which older readers know.
const VERSION: u64 = 2;

/// Why a saved call cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It has a version that this one does not know.
    #[error(
        "this call was saved in version {found} of the format, and this build reads version {VERSION}: load it with a newer one"
    )]
    Version {
        /// The version of the saved call.
        found: u64,
    },
    /// The text is not a saved call.
    #[error("this is not a saved call")]
    Malformed(#[source] serde_json::Error),
    /// One of its questions cannot be asked.
    #[error("its question {key:?} cannot be asked: {why}")]
    Question {
        /// The question's key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// One of its answers is not valid for its question.
    #[error("one of its answers is not valid")]
    Answer(#[source] AnswerError),
}

impl Pending {
    /// The call as text, to be saved. [`from_json`](Self::from_json) loads it; so does serde, because [`Pending`]
    /// serialises to the same.
    pub fn to_json(&self) -> String {
        // Its parts are objects with string keys, which JSON can express.
        serde_json::to_string(&SavedCall::of(self)).unwrap_or_default()
    }

    /// Loads a call. Its questions and answers are checked as if they had just come, except for their sizes.
    ///
    /// # Errors
    ///
    /// If it was saved in an unknown version of the format, if it is not a saved call, if it has a question that cannot
    /// be asked, or if it has an answer that is not valid.
    pub fn from_json(text: &str) -> Result<Self, LoadError> {
        serde_json::from_str(text).map_err(LoadError::Malformed).and_then(Self::from_value)
    }

    fn from_value(value: Value) -> Result<Self, LoadError> {
        if let Some(found) = value.get("version").and_then(Value::as_u64)
            && !(1..=VERSION).contains(&found)
        {
            return Err(LoadError::Version { found });
        }
        SavedCall::deserialize(value).map_err(LoadError::Malformed)?.load()
    }
}

impl Serialize for Pending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::to_value(SavedCall::of(self)).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedCall {
    version: u64,
    call: Call,
    round: u32,
    questions: BTreeMap<String, RawQuestion>,
    /// The keys of the questions in the order of asking, if it differs from the order of the keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    order: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// As they go over the wire.
    #[serde(default)]
    answers: BTreeMap<String, Value>,
    origin: Origin,
    received_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<Box<Task>>,
}

impl SavedCall {
    fn of(pending: &Pending) -> Self {
        let question = |question: &AskedQuestion| {
            let (key, raw) = question.to_raw();
            (key.to_owned(), raw.clone())
        };
        let keys: Vec<_> = pending.questions.iter().map(|question| question.key().to_owned()).collect();
        Self {
            version: if pending.task.is_some() { VERSION } else { 1 },
            call: pending.call.clone(),
            round: pending.round,
            questions: pending.questions.iter().map(question).collect(),
            order: if keys.is_sorted() { Vec::new() } else { keys },
            state: pending.state.clone(),
            answers: pending.answers.iter().map(|(key, answer)| (key.clone(), answer.to_wire())).collect(),
            origin: pending.context.origin.clone(),
            received_at: pending.received_at,
            expires_at: pending.context.expires_at,
            task: pending.task.clone(),
        }
    }

    fn load(self) -> Result<Pending, LoadError> {
        let (origin, expires_at, received_at) = (self.origin, self.expires_at, self.received_at);
        let of_task = self.task.is_some();
        let context = Arc::new(Context { origin, expires_at, received_at, pushed: false, of_task });
        let mut questions = Vec::with_capacity(self.questions.len());
        for (key, raw) in self.questions {
            let suggested = self.call.suggestions.get(&key);
            let question = AskedQuestion::read(key.clone(), Came::Json(raw), context.clone(), suggested);
            questions.push(question.map_err(|why| LoadError::Question { key, why })?);
        }
        arrange(&mut questions, self.order.iter().map(String::as_str), AskedQuestion::key);
        let mut pending = Pending::new(self.call, self.round, questions, self.state, context, self.received_at);
        pending.task = self.task;
        for (key, wire) in self.answers {
            let kind = pending.question(&key).map(AskedQuestion::kind);
            let wanted = kind.ok_or_else(|| LoadError::Answer(AnswerError::NotAsked { key: key.clone() }))?;
            let answer = UserAnswer::from_wire(wanted, &wire);
            let answer =
                answer.ok_or_else(|| LoadError::Answer(AnswerError::OtherKind { key: key.clone(), wanted }))?;
            pending.answer(&key, answer).map_err(LoadError::Answer)?;
        }
        Ok(pending)
    }
}

/// Reads a server's result, and a saved call, which is saved and read again as the same. For the fuzz targets.
#[cfg(feature = "test")]
pub(crate) fn fuzz(bytes: &[u8]) {
    use super::reply::LegResponse;
    use crate::shared::kind::Method;
    let origin = Origin { name: None, version: None, address: None };
    let received_at = Timestamp::from_millis(0);
    let context = Arc::new(Context { origin, expires_at: None, received_at, pushed: false, of_task: false });
    for method in [Method::Tool, Method::Prompt, Method::Resource] {
        let Ok(result) = serde_json::from_slice(bytes) else { break };
        let Ok(LegResponse::Asks(asks)) = LegResponse::of(method, result) else { continue };
        for (key, came) in asks.questions {
            let Ok(question) = AskedQuestion::read(key, came, context.clone(), None) else { continue };
            let _ = (question.message(), question.fields(), question.to_raw());
        }
    }
    let Some(pending) = str::from_utf8(bytes).ok().and_then(|text| Pending::from_json(text).ok()) else { return };
    let saved = pending.to_json();
    let again = Pending::from_json(&saved).map(|pending| pending.to_json());
    assert_eq!(again.ok(), Some(saved));
}
