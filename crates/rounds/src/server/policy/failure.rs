//! A failed effect as it is recorded: a later leg returns the same failure and does not run the effect again.

use std::fmt;

use rmcp::{ErrorData, model::ErrorCode};

use super::error::FlowError;
use crate::server::seal::journal::RecordedFailure;

impl RecordedFailure {
    /// The failure to record for an error, or none if the error cannot be rebuilt from a record.
    pub(crate) fn of(error: &FlowError) -> Option<Self> {
        match error {
            FlowError::Failed(words) => Some(Self::Failed(words.clone())),
            FlowError::Retry(source) => Some(Self::Retry(source.to_string())),
            FlowError::Protocol(ErrorData { code, message, data }) => Some(Self::Protocol {
                code: code.0,
                message: message.clone().into_owned(),
                data: data.as_ref().map(ToString::to_string),
            }),
            _ => None,
        }
    }

    /// Why an error without a [`RecordedFailure`] cannot be recorded, and what the author of the handler can do.
    pub(crate) fn unfit(error: &FlowError) -> String {
        format!(
            "it failed with \"{error}\"; let it fail with `FlowError::failed`, `FlowError::retry` or rmcp's `ErrorData`, \
             which can be recorded"
        )
    }
}

impl From<RecordedFailure> for FlowError {
    fn from(failure: RecordedFailure) -> Self {
        match failure {
            RecordedFailure::Failed(words) => Self::Failed(words),
            RecordedFailure::Retry(words) => Self::Retry(Box::new(RecordedRetry(words))),
            RecordedFailure::Protocol { code, message, data } => {
                let data = data.and_then(|json| serde_json::from_str(&json).ok());
                Self::Protocol(ErrorData::new(ErrorCode(code), message, data))
            }
        }
    }
}

/// The source of a [`FlowError::Retry`] that was read from a record. The same request would meet the same record, so
/// the client is not asked to send it again.
#[derive(Debug)]
pub(crate) struct RecordedRetry(String);

impl fmt::Display for RecordedRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordedRetry {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The error that a later leg gets for this one.
    fn again(error: &FlowError) -> FlowError {
        let bytes = postcard::to_stdvec(&RecordedFailure::of(error).unwrap()).unwrap();
        postcard::from_bytes::<RecordedFailure>(&bytes).unwrap().into()
    }

    #[test]
    fn a_recorded_failure_is_the_same_error_again() {
        match again(&FlowError::failed("the bank is closed")) {
            FlowError::Failed(words) => assert_eq!(words, "the bank is closed"),
            other => panic!("{other:?}"),
        }
        match again(&FlowError::retry("the bank is away")) {
            FlowError::Retry(source) => assert_eq!(source.to_string(), "the bank is away"),
            other => panic!("{other:?}"),
        }
        for data in [None, Some(json!({"declined": [1, 2.5, "x"]})), Some(json!(null))] {
            let error = ErrorData::new(ErrorCode(-32042), "no funds", data);
            match again(&FlowError::Protocol(error.clone())) {
                FlowError::Protocol(same) => assert_eq!(same, error),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_error_that_cannot_be_made_again_is_not_recorded() {
        let unreadable = serde_json::from_str::<u8>("x").unwrap_err();
        assert_eq!(RecordedFailure::of(&FlowError::State(unreadable)), None);
        assert_eq!(RecordedFailure::of(&FlowError::NotWrapped { extractor: "Ask" }), None);
    }
}
