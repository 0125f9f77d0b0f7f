//! What a handler ends with when it does not end well.

use rmcp::{
    ErrorData,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock},
};

use super::{failure::Recorded, notes, observe::cut};
use crate::{
    server::{form::FormTypeError, ledger::LedgerError, seal::refusal::Refusal},
    shared::check::InvalidAnswer,
};

/// Why a flow could not go on.
///
/// Return it from a tool as it is: what the person or the model should read becomes a tool error in words, and what is
/// a fault of the request or of the server becomes the right protocol error. In a prompt or a resource, `?` turns it
/// into rmcp's [`ErrorData`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The tool failed, and this is what its caller should read.
    #[error("{0}")]
    Failed(String),
    /// The person said no.
    #[error("The user declined: {question}")]
    Declined {
        /// What they were asked.
        question: String,
    },
    /// The person dismissed the question without a choice.
    #[error("The user cancelled: {question}")]
    Cancelled {
        /// What they were asked.
        question: String,
    },
    /// The person's answer did not fit, and neither did those after it.
    #[error("The answer to \"{question}\" does not fit: {problem}")]
    Invalid {
        /// What they were asked.
        question: String,
        /// What was wrong with the last answer.
        problem: InvalidAnswer,
    },
    /// Nobody answered in the time that the question had.
    #[error("Nobody answered in time: {question}")]
    NotInTime {
        /// What was asked.
        question: String,
    },
    /// The client cannot be asked, and the model can: it is to call again with an argument.
    #[error(
        "This client cannot be asked. Ask the user yourself: \"{question}\" Then call again with the argument `{argument}`."
    )]
    NeedsArgument {
        /// What would have been asked.
        question: String,
        /// The argument to call again with.
        argument: String,
    },
    /// The client is of the legacy era, and there is no connection to ask it over: its HTTP requests have no session.
    #[error(
        "this tool has a question, and this connection has no way to ask it: the client's HTTP requests have no session"
    )]
    NoBackChannel,
    /// A client of the legacy era was asked over the live connection, and answered with an error.
    #[error("the client could not ask: {0}")]
    ClientFailed(#[source] Box<rmcp::ServiceError>),
    /// As many handlers are waiting for an answer as may: in all, for this principal, or for callers without one.
    #[error(
        "too many calls are waiting for an answer (limit {limit}); answer or cancel one, or raise `Limits::with_frames`"
    )]
    TooManyFrames {
        /// How many may be waiting.
        limit: usize,
    },
    /// The handlers that wait for an answer take as much memory as they may: in all, for this principal, or for callers without one.
    #[error(
        "the calls that wait for an answer take too much memory (limit {limit} bytes); answer or cancel one, send less with a \
         call, or raise `Limits::with_frame_bytes`"
    )]
    TooManyFrameBytes {
        /// How many bytes they may take.
        limit: usize,
    },
    /// The flow is over, so nobody is there to be asked. A task that outlives its handler meets this.
    #[error("the call has ended: there is nobody left to ask")]
    FlowEnded,
    /// A question was awaited in a call that blocks the thread which runs its handler, such as `Handle::block_on` in
    /// `tokio::task::block_in_place`. It can be sent only when the handler yields.
    #[error(
        "a question was awaited in a blocking call, on the thread that runs its handler, and could not be sent: `.await` it in the \
         handler, or do the blocking work in `tokio::task::spawn_blocking`"
    )]
    Blocked,
    /// The flow has taken longer than it may.
    #[error("this call has taken longer than it may: start it again")]
    DeadlinePassed,
    /// The client did not declare that it can be asked this way. On the wire: `-32021`.
    #[error("the client did not declare that it can be asked this way")]
    MissingCapability {
        /// What the client would have to declare.
        required: Box<ClientCapabilities>,
    },
    /// The client speaks a protocol without multi-round calls, and a handler with a [`Round`](crate::Round) asked all the same.
    #[error(
        "this tool has a question, and this client cannot be asked: it speaks an MCP version from before 2026-07-28"
    )]
    LegacyClient,
    /// The flow has had as many rounds as it may.
    #[error("this call has asked {limit} times, which is as often as it may: start it again")]
    TooManyRounds {
        /// How many rounds a flow may have.
        limit: u32,
    },
    /// A round has more questions than it may.
    #[error("{asks} questions at once are more than the {limit} that one round may have")]
    TooManyQuestions {
        /// How many there were.
        asks: usize,
        /// How many there may be.
        limit: usize,
    },
    /// What the flow knows does not fit into a token.
    #[error("what this call has to remember takes {bytes} bytes, more than the {limit} that a state may have")]
    StateTooLarge {
        /// How many bytes it takes.
        bytes: usize,
        /// How many it may take.
        limit: usize,
    },
    /// A durable handler took another way than the one recorded. On the wire: the frozen error.
    #[error(
        "entry {position} of the journal is {recorded}, and the handler came to {wanted}: guard the change with `patched`"
    )]
    Diverged {
        /// Which entry, counted from zero.
        position: usize,
        /// What was recorded there.
        recorded: String,
        /// What the handler came to.
        wanted: String,
    },
    /// A durable question has another text or another form than when it was asked, so that its answer is not one to it. A warning in the
    /// log shows both texts.
    #[error(
        "the question `{key}` has changed since it was asked, so that its answer cannot be used: start the call again. In the \
         handler, a question has to be the same on every leg: take what changes, such as the time, from the flow"
    )]
    QuestionChanged {
        /// The question's key.
        key: String,
    },
    /// A durable handler had two operations in flight at once.
    #[error(
        "a durable handler does one thing after another: ask together with `all`, and await each `once` before the next"
    )]
    Concurrent,
    /// A durable handler waited for something that is no operation of its flow.
    #[error("a durable handler waited for something of its own: move it into a `once`, so that it happens once")]
    Strayed,
    /// A journal has as many entries as it may.
    #[error("this call has been through {limit} operations, which is as many as it may")]
    TooManyEntries {
        /// How many there may be.
        limit: usize,
    },
    /// An entry of a journal is larger than it may be.
    #[error("{what} takes {bytes} bytes in the journal, more than the {limit} that an entry may have")]
    EntryTooLarge {
        /// What it is.
        what: String,
        /// How many bytes it takes.
        bytes: usize,
        /// How many it may take.
        limit: usize,
    },
    /// Something happened that cannot be recorded, and then the handler asked. The next leg would not know of it and take another
    /// way, so the question is not sent.
    #[error("nothing can be asked after {what}, because it cannot be recorded: {why}")]
    Unrecorded {
        /// What happened.
        what: String,
        /// Why it cannot be recorded.
        why: String,
    },
    /// A durable handler is for another server than the one that was wrapped.
    #[error(
        "this tool is written for `{wanted}`, and another server was wrapped: hand `Rounds::new` the `{wanted}` itself, \
         or an `Arc` of it"
    )]
    ServerNotFound {
        /// The type it is written for.
        wanted: &'static str,
    },
    /// An effect's name was used twice in one run of a handler.
    #[error("two effects of this call are named `{name}`: give each its own name")]
    DuplicateEffect {
        /// The name.
        name: String,
    },
    /// A flow has had as many effects as it may.
    #[error("this call has had {limit} effects, which is as many as it may")]
    TooManyEffects {
        /// How many it may have.
        limit: usize,
    },
    /// An effect has happened, and its value is too large to be kept, or is no longer kept; or it was left to a task that was not through
    /// with it. It will not begin again.
    #[error("`{name}` may have happened, and what came of it is not kept: start the call again")]
    EffectLost {
        /// The effect's name.
        name: String,
    },
    /// Two questions that are open together have the same key.
    #[error("two questions of this round have the key `{key}`: give each its own")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A round with no question and no state was sent: the client would have nothing to come back with.
    #[error("a round needs a question or a state to keep")]
    NothingAsked,
    /// A type cannot be asked for with a form.
    #[error(transparent)]
    FormType(#[from] FormTypeError),
    /// The handler's state could not be written.
    #[error("the state of this call could not be written")]
    State(#[source] serde_json::Error),
    /// The handler's state could not be read back. On the wire: the frozen error.
    #[error("the state of this call could not be read back as the type that was asked for")]
    StateUnreadable(#[source] serde_json::Error),
    /// Nobody is signed in, and this server asks only those who are.
    #[error("this server asks only those who are signed in, and nobody is")]
    NoPrincipal,
    /// The ledger has no room for what the first token of this call could not carry. Only states that
    /// [spill](crate::RoundsBuilder::spill) need room before they are answered.
    #[error("the server is busy: try again in a moment")]
    Busy(#[source] LedgerError),
    /// Something that the server needs is away. The same request may be sent again. On the wire: `-32603` with
    /// `{"reason": "retry"}`.
    #[error("the server cannot go on just now: send the same request again")]
    Retry(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The handler runs in a server that nobody wrapped.
    #[error(
        "`{extractor}` needs the server to be wrapped: write `Rounds::new(server).serve(transport)` instead of \
         `server.serve(transport)`"
    )]
    NotWrapped {
        /// What asked for it.
        extractor: &'static str,
    },
    /// An error of the protocol, passed on as it is.
    #[error("{}", .0.message)]
    Protocol(ErrorData),
}

impl FlowError {
    /// The tool failed, and this is what its caller should read.
    pub fn failed(words: impl Into<String>) -> Self {
        Self::Failed(words.into())
    }

    /// Something is away that will be back: the same request may be sent again. The round stays open for a handler with a
    /// [`Round`](crate::Round); one with an [`Ask`](crate::Ask) has run on and cannot be taken back, so that it ends the flow.
    ///
    /// Return it, or the [`ErrorData`] that it becomes, from the handler. The server does not recognise it by its contents: an
    /// `ErrorData` that was made of it in a task which the handler spawned is an ordinary error, and is recorded as the reply.
    pub fn retry(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Retry(source.into())
    }

    /// Whether the client is such that it cannot be asked this, whatever the person would have said: one of the cases in which
    /// [`QuestionBuilder::or`](crate::Asking::or) applies, and the only one in which
    /// [`QuestionBuilder::or_argument`](crate::Asking::or_argument) does.
    pub fn cannot_ask(&self) -> bool {
        matches!(self, Self::MissingCapability { .. } | Self::NoBackChannel | Self::LegacyClient)
    }

    /// What it is on the wire: the one place that says so.
    pub(crate) fn wire(self) -> Wire {
        let words = self.to_string();
        let internal = |words| ErrorData::internal_error(words, None);
        let invalid = |words| ErrorData::invalid_request(words, None);
        let told = |error, meaning| Wire::Protocol(Failure { error, meaning });
        match self {
            Self::Declined { .. }
            | Self::Cancelled { .. }
            | Self::Invalid { .. }
            | Self::NotInTime { .. }
            | Self::NeedsArgument { .. }
            | Self::NoBackChannel
            | Self::LegacyClient => Wire::Words(invalid(words)),
            Self::Failed(_)
            | Self::ClientFailed(_)
            | Self::TooManyFrames { .. }
            | Self::TooManyFrameBytes { .. }
            | Self::DeadlinePassed
            | Self::TooManyRounds { .. }
            | Self::TooManyQuestions { .. }
            | Self::StateTooLarge { .. }
            | Self::Busy(_) => Wire::Words(internal(words)),
            Self::NoPrincipal => told(invalid(words), Meaning::Final),
            Self::FlowEnded
            | Self::Blocked
            | Self::Concurrent
            | Self::Strayed
            | Self::QuestionChanged { .. }
            | Self::TooManyEntries { .. }
            | Self::EntryTooLarge { .. }
            | Self::Unrecorded { .. }
            | Self::ServerNotFound { .. }
            | Self::DuplicateEffect { .. }
            | Self::TooManyEffects { .. }
            | Self::EffectLost { .. }
            | Self::DuplicateKey { .. }
            | Self::NothingAsked
            | Self::FormType(_)
            | Self::State(_)
            | Self::NotWrapped { .. } => told(internal(words), Meaning::Final),
            Self::MissingCapability { required } => {
                told(ErrorData::missing_required_client_capability(*required), Meaning::Reopens)
            }
            Self::Diverged { .. } => {
                tracing::warn!(target: "rounds", "{words}");
                told(Refusal::frozen(), Meaning::Final)
            }
            Self::StateUnreadable(source) => {
                tracing::warn!(target: "rounds", error = place(&source), "{words}");
                told(Refusal::frozen(), Meaning::Unreadable)
            }
            Self::Retry(source) if source.is::<Recorded>() => {
                tracing::warn!(target: "rounds", error = &*cut(&source.to_string()), "a call ended with a failure of an earlier leg");
                told(internal("the call cannot go on: start it again".to_owned()), Meaning::Final)
            }
            Self::Retry(source) => {
                tracing::warn!(target: "rounds", error = &*cut(&source.to_string()), "{words}");
                let reason = serde_json::json!({ "reason": "retry" });
                told(ErrorData::internal_error(words, Some(reason)), Meaning::Retry)
            }
            Self::Protocol(error) => told(error, Meaning::Final),
        }
    }
}

/// What a [`FlowError`] is on the wire.
pub(crate) enum Wire {
    /// The words of this error, in a tool's result, where a person or a model reads them. Where a result has no place for words, the
    /// error itself.
    Words(ErrorData),
    /// An error of the protocol.
    Protocol(Failure),
}

/// An error of the protocol, and what it means to the engine. The meaning stays within the process: the error does not tell it, so that
/// a handler's own error which looks the same does not have it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) error: ErrorData,
    pub(crate) meaning: Meaning,
}

/// What an error means for the round that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is the reply, and is recorded as such.
    Final,
    /// The round stays open: the same request need not end the same way.
    Reopens,
    /// The same, and the client is told to send the same request again.
    Retry,
    /// The same: the handler cannot read the state that it kept, and another version of it may.
    Unreadable,
}

impl From<ErrorData> for FlowError {
    fn from(error: ErrorData) -> Self {
        Self::Protocol(error)
    }
}

impl From<FlowError> for ErrorData {
    fn from(error: FlowError) -> Self {
        match error.wire() {
            Wire::Words(error) => error,
            Wire::Protocol(failure) => failure.into(),
        }
    }
}

impl From<Failure> for ErrorData {
    /// Leaves the meaning behind, where the engine finds it when a handler returns the error.
    fn from(failure: Failure) -> Self {
        notes::note(&failure);
        failure.error
    }
}

/// Where something kept does not fit, without what stands there: that may be what somebody typed, and does not belong in a log.
pub(crate) fn place(error: &serde_json::Error) -> String {
    format!("{:?} at line {}, column {}", error.classify(), error.line(), error.column())
}

impl IntoCallToolResult for FlowError {
    fn into_call_tool_result(self) -> Result<CallToolResponse, ErrorData> {
        match self.wire() {
            Wire::Words(error) => Ok(CallToolResult::error(vec![ContentBlock::text(error.message)]).into()),
            Wire::Protocol(failure) => Err(failure.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;

    use super::*;

    #[test]
    fn what_does_not_fit_is_not_repeated_in_a_log() {
        let misfit = serde_json::from_str::<u32>(r#""what somebody typed""#).unwrap_err();
        assert!(misfit.to_string().contains("somebody"), "which is why");
        assert_eq!(place(&misfit), "Data at line 1, column 21");
    }

    /// One of every kind, with what it is on the wire: its code and data, and whether a tool says it in words.
    fn every_kind() -> Vec<(FlowError, i32, serde_json::Value, bool)> {
        use serde_json::{Value::Null, json};
        let question = || "Which units?".to_owned();
        let unreadable = || serde_json::from_str::<u32>("[]").unwrap_err();
        let unaskable = crate::server::form::Form::of::<Vec<Vec<u32>>>("k").map(drop).unwrap_err();
        let required =
            Box::new(crate::server::policy::gate::required(crate::server::seal::envelope::QuestionKind::Url, false));
        let lacking = json!({"requiredCapabilities": {"elicitation": {"url": {}}}});
        let frozen = || json!({"reason": "invalid_request_state"});
        let (name, what) = (|| "charge".to_owned(), || "the question `k`".to_owned());
        vec![
            (FlowError::failed("no seats left"), -32603, Null, true),
            (FlowError::Declined { question: question() }, -32600, Null, true),
            (FlowError::Cancelled { question: question() }, -32600, Null, true),
            (
                FlowError::Invalid { question: question(), problem: InvalidAnswer::whole("no".to_owned()) },
                -32600,
                Null,
                true,
            ),
            (FlowError::NotInTime { question: question() }, -32600, Null, true),
            (FlowError::NeedsArgument { question: question(), argument: name() }, -32600, Null, true),
            (FlowError::NoBackChannel, -32600, Null, true),
            (FlowError::ClientFailed(Box::new(rmcp::ServiceError::TransportClosed)), -32603, Null, true),
            (FlowError::TooManyFrames { limit: 1 }, -32603, Null, true),
            (FlowError::TooManyFrameBytes { limit: 1 }, -32603, Null, true),
            (FlowError::FlowEnded, -32603, Null, false),
            (FlowError::Blocked, -32603, Null, false),
            (FlowError::DeadlinePassed, -32603, Null, true),
            (FlowError::MissingCapability { required }, -32021, lacking, false),
            (FlowError::LegacyClient, -32600, Null, true),
            (FlowError::TooManyRounds { limit: 1 }, -32603, Null, true),
            (FlowError::TooManyQuestions { asks: 2, limit: 1 }, -32603, Null, true),
            (FlowError::StateTooLarge { bytes: 2, limit: 1 }, -32603, Null, true),
            (FlowError::Diverged { position: 0, recorded: name(), wanted: what() }, -32602, frozen(), false),
            (FlowError::QuestionChanged { key: name() }, -32603, Null, false),
            (FlowError::Concurrent, -32603, Null, false),
            (FlowError::Strayed, -32603, Null, false),
            (FlowError::TooManyEntries { limit: 1 }, -32603, Null, false),
            (FlowError::EntryTooLarge { what: what(), bytes: 2, limit: 1 }, -32603, Null, false),
            (FlowError::Unrecorded { what: what(), why: what() }, -32603, Null, false),
            (FlowError::ServerNotFound { wanted: "Shop" }, -32603, Null, false),
            (FlowError::DuplicateEffect { name: name() }, -32603, Null, false),
            (FlowError::TooManyEffects { limit: 1 }, -32603, Null, false),
            (FlowError::EffectLost { name: name() }, -32603, Null, false),
            (FlowError::DuplicateKey { key: name() }, -32603, Null, false),
            (FlowError::NothingAsked, -32603, Null, false),
            (FlowError::FormType(unaskable), -32603, Null, false),
            (FlowError::State(unreadable()), -32603, Null, false),
            (FlowError::StateUnreadable(unreadable()), -32602, frozen(), false),
            (FlowError::NoPrincipal, -32600, Null, false),
            (FlowError::Busy(LedgerError::Full { whose: "all records", limit: 1 }), -32603, Null, true),
            (FlowError::retry("away"), -32603, json!({"reason": "retry"}), false),
            (FlowError::NotWrapped { extractor: "Ask" }, -32603, Null, false),
            (FlowError::Protocol(ErrorData::parse_error("what?", Some(json!(7)))), -32700, json!(7), false),
        ]
    }

    #[test]
    fn the_table_has_a_row_for_every_kind() {
        let source = include_str!("error.rs");
        let kinds = source.split_once("pub enum FlowError {").and_then(|(_, kinds)| kinds.split_once("\n}"));
        let is_kind = |line: &&str| line.strip_prefix("    ").is_some_and(|line| line.starts_with(char::is_uppercase));
        let kinds = kinds.map(|(kinds, _)| kinds.lines().filter(is_kind).count());
        assert_eq!(kinds, Some(every_kind().len()), "give a new error a row in `every_kind`");
    }

    #[test]
    fn every_error_is_on_the_wire_what_it_always_was() -> Result<(), Box<dyn std::error::Error>> {
        for ((error, code, data, _), (same, _, _, in_words)) in every_kind().into_iter().zip(every_kind()) {
            let words = match (code, &error) {
                (-32602, _) => "Invalid or expired requestState".to_owned(),
                (-32021, _) => "Missing required client capability".to_owned(),
                _ => error.to_string(),
            };
            let shown = format!("{error:?}");
            let expected = ErrorData::new(ErrorCode(code), words.clone(), Some(data).filter(|data| !data.is_null()));
            assert_eq!(ErrorData::from(error), expected, "{shown}");
            match same.into_call_tool_result() {
                Err(error) => assert_eq!((error, in_words), (expected, false), "{shown}"),
                Ok(said) => {
                    let said = serde_json::to_value(rmcp::model::ServerResult::from(said))?;
                    assert!(in_words && said["isError"] == true, "{shown}: {said}");
                    assert_eq!(said["content"], serde_json::json!([{"type": "text", "text": words}]), "{shown}");
                }
            }
        }
        Ok(())
    }
}
