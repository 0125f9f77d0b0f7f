//! Why a call came to a halt, and what there is of it.

use std::{path::Path, time::Duration};

use rounds::client::{AskedQuestion, DriveError, Pending, SendError, Stopped};

use crate::{Failure, Sentence, answering::NoAnswer, reason, terminal::clean};

#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) failure: Failure,
    /// The call, with all that was answered.
    pub(crate) pending: Option<Pending>,
    /// A question without a key, to which there is no answer.
    pub(crate) pushed: Option<AskedQuestion>,
    /// Whether there was no answer to a question, and nothing else is wrong.
    pub(crate) unanswered: bool,
    /// Whether the server does not accept its own state any more.
    pub(crate) refused: bool,
    /// Whether it ended on this side, so that nothing that was answered has been lost on the way.
    pub(crate) is_ours: bool,
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self { failure, pending: None, pushed: None, unanswered: false, refused: false, is_ours: true }
    }
}

impl Halt {
    /// What stopped a call that was driven, with so much time for its server. It may have come from a file.
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
            // Some of its time was used up before it was driven.
            Stopped::Total { .. } => Some(Failure::Slow(timeout)),
            Stopped::Leg(SendError::Connection(error)) => Some(Failure::Lost(reason::lost(error))),
            _ => None,
        };
        let pending = error.pending().cloned();
        let failure = failure.unwrap_or_else(|| Failure::Call(Box::new(error)));
        Self { failure, pending, pushed: None, unanswered, refused, is_ours }
    }

    /// What stopped a call while a legacy server had asked something.
    pub(crate) fn of_push(no_answer: NoAnswer) -> Self {
        let halt = Self::from(Failure::NotAnswered(Sentence(&no_answer).to_string()));
        match no_answer {
            NoAnswer::Nothing(unanswered) => Self { pushed: Some(unanswered.question), unanswered: true, ..halt },
            _ => halt,
        }
    }
}

/// What to do about a state that is no longer accepted.
pub(crate) fn what_to_do(resumed: Option<&Path>) -> String {
    match resumed {
        Some(file) => {
            let file = clean::line(&file.display().to_string());
            format!("`rounds resume {file} --start-over` begins anew")
        }
        None => "call again to begin anew".to_owned(),
    }
}
