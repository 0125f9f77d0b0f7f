//! A failed attempt at an effect, which travels in a state in place of the effect's value.

use serde::{Deserialize, Serialize};

use super::journal::RecordedFailure;

/// An attempt at an effect that failed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) step: Option<String>,
    pub(crate) failure: RecordedFailure,
    /// The text that travels in a state in place of a value. It is not JSON: an instance that does not know attempts
    /// fails to read it as a value, and does not run the effect.
    pub(crate) text: String,
}

#[derive(Serialize, Deserialize)]
struct WrittenAttempt<F> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    failure: F,
}

impl Attempt {
    const MARK: char = '!';

    pub(crate) fn new(step: Option<String>, failure: RecordedFailure) -> Self {
        let written = WrittenAttempt { step, failure: &failure };
        let json = serde_json::to_string(&written).expect("a failure has no type that JSON cannot write");
        Self { step: written.step, text: format!("{}{json}", Self::MARK), failure }
    }

    /// Whether this is an attempt and not a value.
    pub(crate) fn is(text: &str) -> bool {
        text.starts_with(Self::MARK)
    }

    /// Reads an attempt. None for a value, and for an attempt of an unknown kind.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let WrittenAttempt { step, failure } = serde_json::from_str(text.strip_prefix(Self::MARK)?).ok()?;
        Some(Self { step, failure, text: text.to_owned() })
    }
}
