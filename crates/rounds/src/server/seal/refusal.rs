//! Why a state was refused. On the wire all refusals are the same error; the reason is in the events and logs only.

use rmcp::ErrorData;

use crate::shared::wire::INVALID_REQUEST_STATE;

/// The reason why a leg was refused. It is logged, and never sent to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `requestState` is not a string, or `inputResponses` is not a map.
    #[error("requestState is not a string, or inputResponses is not a map")]
    WrongType,
    /// The state is longer than the token limit.
    #[error("the state is longer than the token limit")]
    TooLong,
    /// The state has another prefix, is not canonical base64url, or is too short for a token.
    #[error("the state is not a token of this format")]
    NotAToken,
    /// No key of the ring has the token's key id: its key was retired, or it belongs to another audience or server.
    #[error("no key of this ring sealed the state: it is of another server or audience, or its key was retired")]
    UnknownKey,
    /// The token was sealed by an ephemeral ring of another `Rounds` in this process.
    #[error(
        "the state was sealed by another `Rounds` of this process: build `Rounds` once, and clone it in the factory; for a \
         handler of its own in each session, use `RoundsBuilder::per_session`"
    )]
    OtherRoundsOfThisProcess,
    /// The ciphertext does not verify.
    #[error("the state was changed after it was sealed")]
    Tampered,
    /// The contents have a layout that this version does not know.
    #[error("the state was sealed by a version with another layout")]
    UnknownVersion,
    /// The state belongs to another principal, or exactly one of the state and the request has a principal.
    #[error("the state belongs to another principal")]
    Principal,
    /// The state belongs to another method.
    #[error("the state belongs to another method")]
    Method,
    /// The state belongs to another tool, prompt or resource.
    #[error("the state belongs to another tool, prompt or resource")]
    Target,
    /// The arguments are not those the flow began with.
    #[error("the arguments are not those the flow began with")]
    Arguments,
    /// The state came from a client of the legacy era, which never gets one.
    #[error("the state came from a client of the legacy era")]
    LegacyClient,
    /// The round has expired.
    #[error("the round has expired")]
    Expired,
    /// The flow's deadline has passed.
    #[error("the flow's deadline has passed")]
    DeadlinePassed,
    /// The state was issued more than a minute in the future.
    #[error("the state was issued in the future: compare the clocks of the fleet")]
    FromTheFuture,
    /// The round was answered already, with other answers.
    #[error("the round was answered already, with other answers")]
    AnsweredOtherwise,
    /// The round was answered already with these answers, but its reply is no longer kept.
    #[error("the round was answered already, and its reply is no longer kept")]
    ReplyGone,
    /// The flow has ended and cannot be resumed.
    #[error("the flow has ended and cannot be resumed")]
    Dead,
    /// The flow was cancelled.
    #[error("the flow was cancelled")]
    Cancelled,
    /// The handler that was waiting is gone: its process was restarted, its round or flow expired, or it waits on
    /// another instance.
    #[error("the handler that was waiting for this answer is gone")]
    FrameGone,
    /// The spilled state is no longer in the ledger, or was changed there.
    #[error("the spilled state is gone from the ledger, or was changed there")]
    SpillGone,
    /// A durable handler took another path than the recorded one, for example after a deploy that changed it.
    #[error("the handler took another path than the recorded one")]
    Diverged,
    /// The handler cannot read the state it kept, for example after a deploy that changed its type.
    #[error("the handler cannot read the state it kept: its type has changed")]
    HandlerState,
}

impl Refusal {
    /// The frozen error: every refusal is `-32602`, "Invalid or expired requestState", on the wire.
    pub(crate) fn frozen() -> ErrorData {
        ErrorData::invalid_params(
            "Invalid or expired requestState",
            Some(serde_json::json!({ "reason": INVALID_REQUEST_STATE })),
        )
    }
}
