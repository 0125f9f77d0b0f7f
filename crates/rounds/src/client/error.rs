//! What can go wrong with a leg, with a server's fault kept apart from everybody else's.

use std::fmt;

use rmcp::{ErrorData, service::ServiceError};
use serde_json::Value;

use super::Origin;
use crate::shared::{escape::write_char, wire::INVALID_REQUEST_STATE};

/// Why a leg did not end with an outcome. The [`Call`](super::Call) or [`Pending`](super::Pending) that was sent is as it
/// was, so it can be sent again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There are questions without an answer. Nothing was sent.
    #[error("not everything is answered: {}", short(&keys.join(", ")))]
    Open {
        /// Their keys.
        keys: Vec<String>,
    },
    /// The call is another server's. Nothing was sent.
    #[error("this call belongs to {asked_by}, and this is {found}")]
    OtherServer {
        /// Who asked.
        asked_by: Box<Origin>,
        /// To whom it was to be sent.
        found: Box<Origin>,
    },
    /// The connection is one of the legacy era, in which there is nobody to give the answers to: the call would begin anew.
    /// Nothing was sent.
    #[error("this call goes on over a connection of 2026-07-28 or later, and this one is older")]
    LegacyConnection,
    /// The server does not accept the state that it gave: it has expired, was used before, or is a thing of the past.
    /// [`Pending::start_over`](super::Pending::start_over) begins anew with what was answered.
    #[error("the server no longer accepts this call's state; start over")]
    StateRefused(#[source] ErrorData),
    /// The server answered with an error. Its words are in ours, so that it is not named as the source again.
    #[error("the server answered with error {}: {}{}", .0.code.0, short(&.0.message), Data(.0.data.as_ref()))]
    Refused(ErrorData),
    /// The connection failed, or was lost while the leg was under way.
    #[error("the connection failed")]
    Connection(#[source] ServiceError),
    /// The server's response is one that no server may give.
    #[error("the server's response cannot be used: {0}")]
    BadServer(#[from] BadServer),
}

impl SendError {
    /// What became of a leg that did, or did not, come with a state.
    pub(super) fn of(error: ServiceError, with_state: bool) -> Self {
        match error {
            ServiceError::McpError(error) if with_state && is_refused_state(&error) => Self::StateRefused(error),
            ServiceError::McpError(error) => Self::Refused(error),
            other => Self::Connection(other),
        }
    }
}

/// What came with an error, in brackets.
struct Data<'a>(Option<&'a Value>);

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some(Value::Null) => Ok(()),
            Some(data) => write!(f, " ({})", short(&data.to_string())),
        }
    }
}

fn is_refused_state(error: &ErrorData) -> bool {
    let reason = error.data.as_ref().and_then(|data| data.get("reason"));
    reason.is_some_and(|reason| reason == INVALID_REQUEST_STATE)
}

/// What is wrong with a server's response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadServer {
    /// It wants input, and has neither a question nor a state.
    #[error("it asks for input, with neither a question nor a state")]
    AsksNothing,
    /// It asks by its result over a connection of the legacy era, which has no such results.
    #[error("it asks for input in a way that its protocol version does not have")]
    AsksInLegacyEra,
    /// Its `resultType` is none that this client knows.
    #[error("its resultType is {0}")]
    ResultType(String),
    /// It is not what this method results in.
    #[error("it is no result of {method}: {why}")]
    Result {
        /// The method that was called.
        method: &'static str,
        /// What is missing, or what there is too much of.
        why: String,
    },
    /// Its state is longer than this client carries.
    #[error("its state has {bytes} bytes, and {most} are carried")]
    StateTooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// A part of it is not what it has to be.
    #[error("its {what} is of the wrong type")]
    Unreadable {
        /// Which part.
        what: &'static str,
    },
    /// It asks more at once than anybody can answer.
    #[error("its questions are too many or too large: {what}")]
    AsksTooMuch {
        /// How much of what.
        what: String,
    },
    /// One of its questions is none.
    #[error("its question {key:?} cannot be asked: {why}")]
    Question {
        /// The question's key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A text of somebody else's, cut to what an error message can hold.
pub(super) fn short(text: &str) -> Short<'_> {
    Short(text)
}

pub(super) struct Short<'a>(&'a str);

const SHORT: usize = 200;

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

/// In quotes, out of which nothing in it gets: what stands behind them is somebody else's word.
impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        self.write(f, "\"\\")?;
        f.write_str("\"")
    }
}

impl Short<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>, escaped: &str) -> fmt::Result {
        for c in self.0.chars().take(SHORT) {
            if escaped.contains(c) {
                write!(f, "\\{c}")?;
            } else {
                write_char(f, c)?;
            }
        }
        if self.0.chars().nth(SHORT).is_some() { f.write_str("…") } else { Ok(()) }
    }
}
