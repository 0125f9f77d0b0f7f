//! The error that a handler returns when its flow cannot continue.

use rmcp::{
    ErrorData,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock},
};

use super::{failure::RecordedRetry, notes, observe::cut};
use crate::{
    server::{form::FormTypeError, ledger::LedgerError, seal::refusal::Refusal},
    shared::check::InvalidAnswer,
};

/// Why a flow could not continue.
///
/// Return it from a tool as it is. An error that the user or the model should read becomes a tool error with its text.
/// A fault of the request or of the server becomes the matching protocol error.
///
/// A handler that returns `Result<_, ErrorData>`, as many of rmcp do, may use `?` as well: the error that it converts to
/// has the same outcome. In a tool, a declined question is then a tool error too; a prompt or a resource has no place
/// for a text, and ends with the error itself. The server knows the error because it was converted while the handler
/// ran, whatever its contents: an error that a spawned task converted is an ordinary protocol error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The tool failed. The text is for the caller of the tool.
    #[error("{0}")]
    Failed(String),
    /// The user declined to answer.
    #[error("The user declined: {question}")]
    Declined {
        /// The question's message.
        question: String,
    },
    /// The user dismissed the question without a choice.
    #[error("The user cancelled: {question}")]
    Cancelled {
        /// The question's message.
        question: String,
    },
    /// The user's answer did not match the form, and neither did the answers to the re-asks.
    #[error("The answer to \"{question}\" is not valid: {problem}")]
    Invalid {
        /// The question's message.
        question: String,
        /// What was wrong with the last answer.
        problem: InvalidAnswer,
    },
    /// The question's timeout passed before an answer arrived.
    #[error("The user did not answer in time: {question}")]
    NotInTime {
        /// The question's message.
        question: String,
    },
    /// The client cannot be asked. The model should ask the user itself and call again with an argument.
    #[error(
        "This client cannot be asked. Ask the user yourself: \"{question}\" Then call again with the argument `{argument}`."
    )]
    NeedsArgument {
        /// The message of the question that was not sent.
        question: String,
        /// The name of the argument to call again with.
        argument: String,
    },
    /// The client is of the legacy era and has no back channel: its HTTP requests have no session to push a question
    /// over.
    #[error(
        "this tool has a question, and this connection has no way to ask it: the client's HTTP requests have no session"
    )]
    NoBackChannel,
    /// A question was pushed to a client of the legacy era, and the client answered with an error.
    #[error("the client failed to ask its user: {0}")]
    ClientFailed(#[source] Box<rmcp::ServiceError>),
    /// The limit of waiting handlers is reached: in all, for this principal, or for callers without a principal.
    #[error(
        "too many calls are waiting for an answer (limit {limit}); answer or cancel one, or raise `Limits::with_frames`"
    )]
    TooManyFrames {
        /// The limit that was reached.
        limit: usize,
    },
    /// The memory limit of waiting handlers is reached: in all, for this principal, or for callers without a principal.
    #[error(
        "the calls that wait for an answer take too much memory (limit {limit} bytes); answer or cancel one, send less with a \
         call, or raise `Limits::with_frame_bytes`"
    )]
    TooManyFrameBytes {
        /// The limit that was reached, in bytes.
        limit: usize,
    },
    /// The flow has ended, so its client cannot be asked. A task that outlives its handler gets this error.
    #[error("the call has ended, so its client cannot be asked: await every question before the handler returns")]
    FlowEnded,
    /// A question was awaited in a call that blocks the thread which polls its handler, such as `Handle::block_on` in
    /// `tokio::task::block_in_place`. A question can be sent only when the handler yields.
    #[error(
        "a question was awaited in a blocking call, on the thread that runs its handler, and could not be sent: `.await` it in the \
         handler, or do the blocking work in `tokio::task::spawn_blocking`"
    )]
    Blocked,
    /// The flow's deadline has passed.
    #[error("the deadline of this call has passed: start the call again")]
    DeadlinePassed,
    /// The client did not declare the capability that this question needs. On the wire: `-32021`.
    #[error("the client did not declare the capability that this question needs")]
    MissingCapability {
        /// The capabilities that the client would have to declare.
        required: Box<ClientCapabilities>,
    },
    /// The client speaks a protocol version without multi-round calls, and a handler with a [`Round`](crate::Round)
    /// asked anyway.
    #[error(
        "this tool has a question, and this client cannot be asked: it speaks an MCP version from before 2026-07-28"
    )]
    LegacyClient,
    /// The flow has used all of its rounds.
    #[error("this call has asked {limit} times, which is the limit: start it again, or raise `Limits::with_rounds`")]
    TooManyRounds {
        /// The limit of rounds in a flow.
        limit: u32,
    },
    /// The handler asked more questions in one round than the limit allows.
    #[error(
        "{asks} questions in one round exceed the limit of {limit}: ask fewer together, or raise `Limits::with_questions`"
    )]
    TooManyQuestions {
        /// The number of questions in the round.
        asks: usize,
        /// The limit of questions in a round.
        limit: usize,
    },
    /// The state of the flow does not fit into a token.
    #[error(
        "the state of this call takes {bytes} bytes, and the limit is {limit}: keep less in it, or raise `Limits::with_token_bytes` \
         or, for states that spill, `Limits::with_spill_bytes`"
    )]
    StateTooLarge {
        /// The size of the state in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A durable handler took another path than the recorded one. On the wire: the frozen error.
    #[error(
        "entry {position} of the journal is {recorded}, but the handler reached {wanted}: guard the change with `patched`"
    )]
    Diverged {
        /// The index of the journal entry, counted from zero.
        position: usize,
        /// A description of the recorded entry.
        recorded: String,
        /// A description of the operation that the handler reached.
        wanted: String,
    },
    /// The text or the form of a durable question has changed since it was asked, so the answer does not belong to it.
    /// A warning in the log shows the new text, and with [`Format::Current`](crate::format::Format::Current) the old one.
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
        "a durable handler runs one operation at a time: ask together with `all`, and await each `once` before the next operation"
    )]
    Concurrent,
    /// A durable handler awaited a future that is not an operation of its flow.
    #[error(
        "a durable handler awaited a future that its flow cannot record: move it into a `once`, so that it runs once"
    )]
    Strayed,
    /// The journal has reached its limit of entries.
    #[error(
        "this call has run {limit} operations, which is the limit: do more in each, or raise `Limits::with_effects`"
    )]
    TooManyEntries {
        /// The limit of entries.
        limit: usize,
    },
    /// An entry of the journal exceeds its size limit.
    #[error(
        "{what} takes {bytes} bytes in the journal, and the limit of an entry is {limit}: record less, or raise \
         `Limits::with_effects`"
    )]
    EntryTooLarge {
        /// A description of the entry.
        what: String,
        /// The size of the entry in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The handler asked after an operation whose outcome cannot be recorded. The next leg would not know the outcome
    /// and could take another path, so the question is not sent.
    #[error("nothing can be asked after {what}, because it cannot be recorded: {why}")]
    Unrecorded {
        /// A description of the operation.
        what: String,
        /// Why its outcome cannot be recorded.
        why: String,
    },
    /// A durable handler is written for another server type than the one that was wrapped.
    #[error(
        "this tool is written for `{wanted}`, and another server was wrapped: pass `Rounds::new` the `{wanted}` itself, \
         or an `Arc` of it"
    )]
    ServerNotFound {
        /// The server type that the handler is written for.
        wanted: &'static str,
    },
    /// One run of a handler used an effect's name twice.
    #[error("two effects of this call are named `{name}`: give each its own name")]
    DuplicateEffect {
        /// The name of the effect.
        name: String,
    },
    /// The flow has reached its limit of effects.
    #[error("this call has run {limit} effects, which is the limit: do more in each, or raise `Limits::with_effects`")]
    TooManyEffects {
        /// The limit of effects.
        limit: usize,
    },
    /// An effect may have run, and its value is not available: it was too large to be recorded, its record is no longer
    /// kept, or the effect was left to a task that has not finished. The effect does not run again in this flow.
    #[error(
        "the effect `{name}` may have run, and its value was not recorded: check what it did, then start the call again"
    )]
    EffectLost {
        /// The name of the effect.
        name: String,
    },
    /// Two questions that are open together have the same key.
    #[error("two questions of this round have the key `{key}`: give each its own key")]
    DuplicateKey {
        /// The key of the questions.
        key: String,
    },
    /// A round was sent with neither a question nor a state, so the client would have nothing to send back.
    #[error("a round needs a question to ask or a state to keep: add one, or return a result")]
    NothingAsked,
    /// A field of a form that was made at run time has more options than the limit allows.
    #[error(
        "the question `{key}` has {choices} options, and the limit is {limit}: offer fewer, or raise `Limits::with_choices`"
    )]
    TooManyChoices {
        /// The key of the question.
        key: String,
        /// The number of options.
        choices: usize,
        /// The limit of options in a field.
        limit: usize,
    },
    /// The type or the schema cannot be asked for with a form.
    #[error(transparent)]
    FormType(#[from] FormTypeError),
    /// A question should be answered elsewhere, and the server is not set up for that, or the question is not one that can be:
    /// an approval, a page of the server's own, or a form.
    #[error(
        "this question cannot be answered elsewhere: only forms, approvals and pages can, and the server needs `.register()` and \
         `.elsewhere(..)` where it is built"
    )]
    NotElsewhere,
    /// The handler's state could not be serialised.
    #[error("the state of this call could not be written as JSON")]
    State(#[source] serde_json::Error),
    /// The handler's state could not be deserialised. On the wire: the frozen error.
    #[error("the state of this call could not be read as the type that the handler wants")]
    StateUnreadable(#[source] serde_json::Error),
    /// The caller has no principal, and this server requires one before it asks.
    #[error("this server asks only authenticated callers, and this request has no principal: sign in, then call again")]
    NoPrincipal,
    /// The ledger is full, and the first token of this call could not carry its state. Only states that
    /// [spill](crate::RoundsBuilder::spill) need space in the ledger before they are answered.
    #[error("the server has no space left to keep this call: try again in a moment")]
    Busy(#[source] LedgerError),
    /// Something that the server needs is unavailable. The client may send the same request again. On the wire:
    /// `-32603` with `{"reason": "retry"}`.
    #[error("the server cannot continue this call at the moment: send the same request again")]
    Retry(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The handler runs in a server that is not wrapped in [`Rounds`](crate::Rounds).
    #[error(
        "`{extractor}` needs the server to be wrapped: write `Rounds::new(server).serve(transport)` instead of \
         `server.serve(transport)`"
    )]
    NotWrapped {
        /// The extractor that needs the wrapped server.
        extractor: &'static str,
    },
    /// A protocol error of the handler, passed on unchanged.
    #[error("{}", .0.message)]
    Protocol(ErrorData),
}

impl FlowError {
    /// Makes a tool error with this text for the caller.
    pub fn failed(words: impl Into<String>) -> Self {
        Self::Failed(words.into())
    }

    /// Makes an error that invites the client to send the same request again, for a dependency that is unavailable at
    /// the moment.
    ///
    /// The round stays open for a handler with a [`Round`](crate::Round). A handler with an [`Ask`](crate::Ask) cannot
    /// be run again from the question, so the error ends its flow.
    ///
    /// Return it, or the [`ErrorData`] that it converts to, from the handler. The server does not recognise it by its
    /// contents: if a task that the handler spawned does the conversion, the `ErrorData` is an ordinary error and is
    /// recorded as the reply.
    pub fn retry(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Retry(source.into())
    }

    /// Whether the client cannot be asked this question at all, whatever the user would have answered. This is one of
    /// the cases in which [`QuestionBuilder::or`](crate::ask::QuestionBuilder::or) applies, and the only one in which
    /// [`QuestionBuilder::or_argument`](crate::ask::QuestionBuilder::or_argument) does.
    pub fn cannot_ask(&self) -> bool {
        matches!(self, Self::MissingCapability { .. } | Self::NoBackChannel | Self::LegacyClient)
    }

    /// Converts the error to its form on the wire. No other code decides that.
    pub(crate) fn wire(self) -> Wire {
        let words = self.to_string();
        let internal = |words| ErrorData::internal_error(words, None);
        let invalid = |words| ErrorData::invalid_request(words, None);
        let told = |error, meaning| Wire::Protocol(Failure { error, meaning, cause: None });
        let caused = |error, meaning, cause| Wire::Protocol(Failure { error, meaning, cause: Some(cause) });
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
            | Self::NotElsewhere
            | Self::TooManyChoices { .. }
            | Self::FormType(_)
            | Self::State(_)
            | Self::NotWrapped { .. } => told(internal(words), Meaning::Final),
            Self::MissingCapability { required } => {
                told(ErrorData::missing_required_client_capability(*required), Meaning::Reopens)
            }
            Self::Diverged { .. } => caused(Refusal::frozen(), Meaning::Final, words),
            Self::StateUnreadable(source) => {
                caused(Refusal::frozen(), Meaning::Unreadable, format!("{words}: {}", place(&source)))
            }
            Self::Retry(source) if source.is::<RecordedRetry>() => {
                let cause = format!("the recorded failure of an earlier leg: {}", cut(&source.to_string()));
                caused(internal("the call cannot go on: start it again".to_owned()), Meaning::Final, cause)
            }
            Self::Retry(source) => {
                let reason = serde_json::json!({ "reason": "retry" });
                caused(ErrorData::internal_error(words, Some(reason)), Meaning::Retry, with_sources(&*source))
            }
            Self::Protocol(error) => told(error, Meaning::Final),
        }
    }
}

/// The form of a [`FlowError`] on the wire.
pub(crate) enum Wire {
    /// An error whose text goes into a tool's result, where a user or a model reads it. Responses without a place for
    /// text carry the error itself.
    Words(ErrorData),
    /// A protocol error.
    Protocol(Failure),
}

/// A protocol error and its meaning to the engine.
///
/// The meaning stays within the process. It is not part of the error, so a handler's own error with the same contents
/// does not have it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) error: ErrorData,
    pub(crate) meaning: Meaning,
    /// What the log says beside the error, and the client does not learn.
    pub(crate) cause: Option<String>,
}

impl Failure {
    /// An error that is the reply.
    pub(crate) fn is_reply(error: ErrorData) -> Self {
        Self { error, meaning: Meaning::Final, cause: None }
    }
}

/// What an error means for the round that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The error is the reply, and is recorded as the reply.
    Final,
    /// The same, and its text is for the user or the model: a tool puts it into its result.
    InWords,
    /// The round stays open, because the same request may end differently.
    Reopens,
    /// The round stays open, and the client is asked to send the same request again.
    Retry,
    /// The round stays open: the handler cannot read the state that it kept, and another version of the handler may.
    Unreadable,
    /// The leg was refused. What its round becomes is decided where it is refused.
    Refused,
}

impl From<ErrorData> for FlowError {
    fn from(error: ErrorData) -> Self {
        Self::Protocol(error)
    }
}

impl From<FlowError> for ErrorData {
    fn from(error: FlowError) -> Self {
        match error.wire() {
            Wire::Words(error) => Failure { meaning: Meaning::InWords, ..Failure::is_reply(error) }.into(),
            Wire::Protocol(failure) => failure.into(),
        }
    }
}

impl From<Failure> for ErrorData {
    /// Drops the meaning, and notes it for the engine, which looks it up when a handler returns the error.
    fn from(failure: Failure) -> Self {
        notes::note(&failure);
        failure.error
    }
}

/// An error and its sources in one line, without what a source repeats. Each is cut: it may quote what a client sent.
pub(crate) fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = cut(&error.to_string()).into_owned();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        let words = cut(&words);
        if !line.contains(&*words) {
            line.push_str(": ");
            line.push_str(&words);
        }
        source = error.source();
    }
    line
}

/// The place of a deserialisation error, without the text at that place. The text may be what a user typed, which must
/// not be logged.
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
        let misfit = serde_json::from_str::<u32>(r#""what a person typed""#).unwrap_err();
        assert!(misfit.to_string().contains("person"), "serde_json repeats the text");
        assert_eq!(place(&misfit), "Data at line 1, column 21");
    }

    #[test]
    fn the_cause_of_a_retry_names_every_source_once() {
        let denied = std::io::Error::other("NOPERM this user has no permissions");
        let away = FlowError::retry(LedgerError::Unavailable(Box::new(denied)));
        let Wire::Protocol(failure) = away.wire() else { panic!("a retry is a protocol error") };
        let cause = failure.cause.unwrap();
        assert_eq!(
            cause,
            "the ledger cannot be reached: check its store and the connection to it: NOPERM this user has no permissions"
        );
        assert!(!failure.error.message.contains("NOPERM"), "the client does not learn it");
    }

    /// An error of every kind, with its code and data on the wire, and whether a tool puts its text into the result.
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
            (FlowError::NotElsewhere, -32603, Null, false),
            (FlowError::TooManyChoices { key: name(), choices: 2, limit: 1 }, -32603, Null, false),
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
