//! The errors of a leg. Faults of the server are a type of their own.

use std::fmt;

use rmcp::{ErrorData, service::ServiceError};
use serde_json::Value;

use super::Origin;
use crate::shared::{escape::write_char, wire::INVALID_REQUEST_STATE};

/// Why a leg did not end with an outcome. The [`Call`](super::Call) or [`Pending`](super::Pending) that was sent has
/// not changed, so it can be sent again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There are questions without an answer. Nothing was sent.
    #[error("these questions have no answer yet: {}", short(&keys.join(", ")))]
    Open {
        /// The keys of the questions.
        keys: Vec<String>,
    },
    /// The call belongs to another server. Nothing was sent.
    #[error("this call belongs to {asked_by}, and this connection is to {found}: send it to the server that asked")]
    OtherServer {
        /// The server that asked.
        asked_by: Box<Origin>,
        /// The server of this connection.
        found: Box<Origin>,
    },
    /// The connection is of the legacy era, which has no way to send the answers: the call would start from its
    /// beginning. Nothing was sent.
    #[error("this call needs a connection with MCP 2026-07-28 or later, and this connection is older: connect again")]
    LegacyConnection,
    /// The server does not accept its own state: it has expired, was used before, or its flow has ended.
    /// [`Pending::start_over`](super::Pending::start_over) starts again and suggests the earlier answers.
    #[error("the server no longer accepts the state of this call: start over")]
    StateRefused(#[source] ErrorData),
    /// The task that the call had become was cancelled.
    #[error("the task was cancelled: start the call again if it is still wanted")]
    TaskCancelled,
    /// The server answered with an error. Its message is part of ours, so it is not the source as well.
    #[error("the server answered with error {}: {}{}", .0.code.0, short(&.0.message), Data(.0.data.as_ref()))]
    Refused(ErrorData),
    /// The connection failed, or was lost during the leg.
    #[error("the connection failed")]
    Connection(#[source] ServiceError),
    /// The server's response breaks the protocol.
    #[error("the server's response cannot be used: {0}")]
    BadServer(#[from] BadServer),
}

impl SendError {
    /// The error of a leg, which did or did not send a state.
    pub(super) fn of(error: ServiceError, with_state: bool) -> Self {
        match error {
            ServiceError::McpError(error) if with_state && is_refused_state(&error) => Self::StateRefused(error),
            ServiceError::McpError(error) => Self::Refused(error),
            other => Self::Connection(other),
        }
    }
}

/// The data of an error, in brackets.
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
    /// It requires input, and has neither a question nor a state.
    #[error("it requires input, with neither a question nor a state")]
    AsksNothing,
    /// It asks with its result over a connection of the legacy era, which has no such results.
    #[error("it asks in a way that its protocol version does not have")]
    AsksInLegacyEra,
    /// Its `resultType` is not known to this client.
    #[error("its resultType is {0}")]
    ResultType(String),
    /// It is not a result of this method.
    #[error("it is not a result of {method}: {why}")]
    Result {
        /// The method that was called.
        method: &'static str,
        /// The problem with the result.
        why: String,
    },
    /// Its state is longer than the limit of this client.
    #[error("its state has {bytes} bytes, and the limit is {most}")]
    StateTooLarge {
        /// The length of the state.
        bytes: usize,
        /// The limit of the length.
        most: usize,
    },
    /// A part of it has the wrong type.
    #[error("its {what} is of the wrong type")]
    Unreadable {
        /// The name of the part.
        what: &'static str,
    },
    /// Its questions exceed a limit of this client.
    #[error("its questions are too many or too large: {what}")]
    AsksTooMuch {
        /// The limit that was exceeded.
        what: String,
    },
    /// One of its questions is malformed.
    #[error("its question {key:?} cannot be asked: {why}")]
    Question {
        /// The question's key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A text of a server, cut to a length that suits an error message.
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

/// Prints the text in quotes and escapes quotes within it, so that a server's text cannot look like ours.
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
