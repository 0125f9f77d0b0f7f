//! A failed attempt at an effect, as it travels in a state in the place of the effect's value.

use serde::{Deserialize, Serialize};

use super::journal::RecordedFailure;

/// An attempt at an effect that failed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) step: Option<String>,
    pub(crate) failure: RecordedFailure,
    /// As it travels in a state, in the place of a value. It is no JSON: an instance that does not know of attempts takes it for a value
    /// that it cannot read, and does not run the effect.
    pub(crate) text: String,
}

#[derive(Serialize, Deserialize)]
struct Written<F> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    failure: F,
}

impl Attempt {
    const MARK: char = '!';

    pub(crate) fn new(step: Option<String>, failure: RecordedFailure) -> Self {
        let written = Written { step, failure: &failure };
        let json = serde_json::to_string(&written).expect("a failure has no type that JSON cannot write");
        Self { step: written.step, text: format!("{}{json}", Self::MARK), failure }
    }

    /// Whether this is an attempt, and not a value.
    pub(crate) fn is(text: &str) -> bool {
        text.starts_with(Self::MARK)
    }

    /// None for what is no attempt, or one of a kind that is not known here.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let Written { step, failure } = serde_json::from_str(text.strip_prefix(Self::MARK)?).ok()?;
        Some(Self { step, failure, text: text.to_owned() })
    }
}
