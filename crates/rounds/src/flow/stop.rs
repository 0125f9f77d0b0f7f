//! A leg that ends with an error, and whether its round stays open.

use rmcp::{ErrorData, model::ErrorCode};

use crate::{
    error::FlowError,
    ledger::{LedgerError, Orphan},
    observe::Outcome,
};

/// A leg that ends with an error.
pub(super) struct Stop {
    pub(super) error: ErrorData,
    pub(super) outcome: Outcome,
    /// Whether the round stays open, as the same request need not meet the same end: the fault was ours, or the client can
    /// declare more, or whoever failed asks for a retry. Whatever else a handler fails with is its reply.
    pub(super) reopens: bool,
}

impl Stop {
    /// rmcp drops the response to a cancelled request; this is what it drops.
    pub(super) fn cancelled() -> Self {
        let error = ErrorData::internal_error("the request was cancelled", None);
        Self { error, outcome: Outcome::Cancelled, reopens: true }
    }

    pub(super) fn panicked() -> Self {
        let error = ErrorData::internal_error("the handler panicked", None);
        Self { error, outcome: Outcome::Panicked, reopens: true }
    }

    /// Nobody is told to try again what cannot go on.
    pub(super) fn for_good(self, orphan: Orphan) -> Self {
        match orphan {
            Orphan::Dead if FlowError::is_retry(&self.error) => {
                ErrorData::internal_error("the call cannot go on: start it again", None).into()
            }
            _ => self,
        }
    }
}

impl From<ErrorData> for Stop {
    fn from(error: ErrorData) -> Self {
        let reopens = error.code == ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY || FlowError::is_retry(&error);
        Self { outcome: Outcome::Error { code: error.code.0 }, reopens, error }
    }
}

impl From<Stop> for ErrorData {
    fn from(stop: Stop) -> Self {
        stop.error
    }
}

impl From<FlowError> for Stop {
    fn from(error: FlowError) -> Self {
        ErrorData::from(error).into()
    }
}

pub(super) fn overtaken() -> Stop {
    FlowError::retry("another instance took the round over").into()
}

pub(super) fn unavailable(error: LedgerError) -> FlowError {
    match error {
        full @ LedgerError::Full { .. } => FlowError::Busy(full),
        away => FlowError::retry(away),
    }
}
