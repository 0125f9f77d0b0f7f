//! A leg that ends with an error, and whether its round stays open.

use rmcp::ErrorData;

use crate::server::{
    ledger::{LedgerError, OwnerLost},
    policy::{
        error::{Failure, FlowError, Meaning, Wire},
        observe::Outcome,
    },
    seal::refusal::Refusal,
};

/// A leg that ends with an error.
pub(super) struct Stop {
    pub(super) error: ErrorData,
    pub(super) outcome: Outcome,
    /// What it means for the round. Whatever a handler fails with on its own account is its reply.
    pub(super) meaning: Meaning,
    /// What the log says beside the error.
    pub(super) cause: Option<String>,
}

impl Stop {
    /// rmcp drops the response to a cancelled request; this is what it drops.
    pub(super) fn cancelled() -> Self {
        let error = ErrorData::internal_error("the request was cancelled", None);
        Self { error, outcome: Outcome::Cancelled, meaning: Meaning::Reopens, cause: None }
    }

    pub(super) fn panicked() -> Self {
        let error = ErrorData::internal_error("the handler panicked", None);
        Self { error, outcome: Outcome::Panicked, meaning: Meaning::Reopens, cause: None }
    }

    /// A leg that is refused, for a reason that its event names.
    pub(super) fn refused() -> Self {
        Self { meaning: Meaning::Refused, ..Refusal::frozen().into() }
    }

    /// The error that another instance replied with. A reply does not carry what it means, so its contents decide. Nothing
    /// runs again by mistake: the round of such a leg belongs to the other instance.
    pub(super) fn relayed(error: ErrorData) -> Self {
        let meaning = match error.data.as_ref().map(|data| &data["reason"]) {
            Some(reason) if reason == "retry" => Meaning::Retry,
            _ if error == Refusal::frozen() => Meaning::Refused,
            _ => Meaning::Final,
        };
        Self { meaning, ..error.into() }
    }

    /// Whether the round stays open.
    pub(super) fn reopens(&self) -> bool {
        !matches!(self.meaning, Meaning::Final | Meaning::Refused)
    }

    /// Whether the handler has failed with this on its own account, now or when it was recorded.
    pub(super) fn is_of_handler(&self) -> bool {
        matches!(self.meaning, Meaning::Final | Meaning::InWords) && self.cause.is_none()
    }

    /// Replaces an error that asks for a retry with a final one where the flow cannot resume.
    pub(super) fn for_good(self, orphan: OwnerLost) -> Self {
        match orphan {
            OwnerLost::Dead if self.meaning == Meaning::Retry => {
                let error = ErrorData::internal_error("the call cannot go on: start it again", None);
                Self { cause: self.cause, ..error.into() }
            }
            OwnerLost::Dead if self.meaning == Meaning::Refused => self,
            // The round stays open, and nothing is left to go on with it.
            OwnerLost::Dead => Self { meaning: Meaning::Final, ..self },
            OwnerLost::Free => self,
        }
    }
}

impl From<ErrorData> for Stop {
    fn from(error: ErrorData) -> Self {
        Failure::is_reply(error).into()
    }
}

impl From<Failure> for Stop {
    fn from(Failure { error, meaning, cause }: Failure) -> Self {
        Self { outcome: Outcome::Error { code: error.code.0 }, error, meaning, cause }
    }
}

impl From<Stop> for ErrorData {
    fn from(stop: Stop) -> Self {
        stop.error
    }
}

impl From<FlowError> for Stop {
    fn from(error: FlowError) -> Self {
        match error.wire() {
            Wire::Words(error) => error.into(),
            Wire::Protocol(failure) => failure.into(),
        }
    }
}

pub(super) fn overtaken() -> Stop {
    FlowError::retry("another instance took the round over").into()
}

/// A step of the ledger that was not taken: it is away, or full. The same request may be sent again.
pub(super) fn unavailable(error: LedgerError) -> FlowError {
    FlowError::retry(error)
}

/// The same for a first leg, which has no token that could be sent again: where there is no room, the caller reads so.
pub(super) fn not_spilled(error: LedgerError) -> FlowError {
    match error {
        full @ LedgerError::Full { .. } => FlowError::Busy(full),
        away => FlowError::retry(away),
    }
}
