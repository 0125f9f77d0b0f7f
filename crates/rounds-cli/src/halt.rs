//! Why a call stopped, and what was answered so far.

use std::{path::Path, time::Duration};

use rounds::client::{AskedQuestion, DriveError, Pending, SendError, Stopped};

use crate::{Failure, Sentence, answering::NoAnswer, reason, terminal::clean};

#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) failure: Failure,
    /// The call with its answers so far.
    pub(crate) pending: Option<Pending>,
    /// A pushed question without an answer.
    pub(crate) pushed: Option<AskedQuestion>,
    /// Whether the only reason is a question without an answer.
    pub(crate) unanswered: bool,
    /// Whether the server rejected its own state.
    pub(crate) refused: bool,
    /// Whether the call stopped on this side, so that no answer was lost in transit.
    pub(crate) is_ours: bool,
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self { failure, pending: None, pushed: None, unanswered: false, refused: false, is_ours: true }
    }
}

impl Halt {
    /// Why a driven call stopped. `resumed` is the file that it came from, and `timeout` the time that its server had.
    pub(crate) fn of(error: DriveError, resumed: Option<&Path>, timeout: Duration) -> Self {
        let (mut unanswered, mut refused, mut is_ours) = (false, false, false);
        let failure = match error.stopped() {
            Stopped::Responder { source, .. } => {
                is_ours = true;
                unanswered = matches!(source.downcast_ref(), Some(NoAnswer::Nothing(_)));
                Some(Failure::NotAnswered(Sentence(&**source).to_string()))
            }
            Stopped::CannotAnswer { .. } | Stopped::Answer(_) => {
                is_ours = true;
                None
            }
            Stopped::Leg(SendError::StateRefused(_)) => {
                refused = true;
                Some(Failure::Refused(what_to_do(resumed)))
            }
            // Part of the time was used before the call was driven.
            Stopped::Total { .. } => Some(Failure::Slow(timeout)),
            Stopped::Leg(SendError::Connection(error)) => Some(Failure::Lost(reason::lost(error))),
            _ => None,
        };
        let pending = error.pending().cloned();
        let failure = failure.unwrap_or_else(|| Failure::Call(Box::new(error)));
        Self { failure, pending, pushed: None, unanswered, refused, is_ours }
    }

    /// Why a call stopped at a question that a legacy server had pushed.
    pub(crate) fn of_push(no_answer: NoAnswer) -> Self {
        let halt = Self::from(Failure::NotAnswered(Sentence(&no_answer).to_string()));
        match no_answer {
            NoAnswer::Nothing(unanswered) => Self { pushed: Some(unanswered.question), unanswered: true, ..halt },
            _ => halt,
        }
    }
}

/// What to do about a state that the server no longer accepts.
pub(crate) fn what_to_do(resumed: Option<&Path>) -> String {
    match resumed {
        Some(file) => {
            let file = clean::line(&file.display().to_string());
            format!("`rounds resume {file} --start-over` starts over")
        }
        None => "call again to start over".to_owned(),
    }
}
