//! Why an echoed state was refused. On the wire all of them look the same; the reason is in the events and logs only.

use rmcp::ErrorData;

use crate::shared::wire::INVALID_REQUEST_STATE;

/// The reason a leg was refused. It goes to the log, never to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `requestState` is no string, or `inputResponses` no map.
    #[error("requestState is not a string, or inputResponses is not a map")]
    WrongType,
    /// The state is longer than the token limit.
    #[error("the state is longer than the token limit")]
    TooLong,
    /// The state has another prefix, is not canonical base64url, or is too short to be a token.
    #[error("the state is not a token of this format")]
    NotAToken,
    /// No key of the ring has the token's key id: a retired key, another audience, another server.
    #[error("no key of this ring sealed the state: it is of another server or audience, or its key was retired")]
    UnknownKey,
    /// The token was sealed by an ephemeral ring of another `Rounds` in this very process.
    #[error(
        "the state was sealed by another `Rounds` of this process: build Rounds once, clone it in the factory; for a \
         handler of its own in each session, use `RoundsBuilder::per_session`"
    )]
    OtherRoundsOfThisProcess,
    /// The ciphertext does not verify.
    #[error("the state was changed on its way")]
    Tampered,
    /// What is inside has a layout this version does not know.
    #[error("the state was sealed by a version with another layout")]
    UnknownVersion,
    /// The state belongs to another principal, or to none while one is present, or the other way round.
    #[error("the state belongs to another principal")]
    Principal,
    /// The state belongs to another method.
    #[error("the state belongs to another method")]
    Method,
    /// The state belongs to another tool, prompt or resource.
    #[error("the state belongs to another tool, prompt or resource")]
    Target,
    /// The arguments are not the ones the flow began with.
    #[error("the arguments are not those the flow began with")]
    Arguments,
    /// The state came from a client of the legacy era, which is never given one.
    #[error("the state came from a client of the legacy era")]
    LegacyClient,
    /// The round's time is over.
    #[error("the round has expired")]
    Expired,
    /// The flow's time is over.
    #[error("the flow's deadline has passed")]
    DeadlinePassed,
    /// The state was minted more than a minute in the future.
    #[error("the state was issued in the future: compare the clocks of the fleet")]
    FromTheFuture,
    /// The round was answered already, with other answers.
    #[error("the round was answered already, with other answers")]
    AnsweredOtherwise,
    /// The round was answered already with these answers, but its reply is no longer kept.
    #[error("the round was answered already, and its reply is no longer kept")]
    ReplyGone,
    /// The flow has ended in a way that cannot be resumed.
    #[error("the flow has ended and cannot be resumed")]
    Dead,
    /// The handler that was waiting is gone: its process was restarted, its time was over, or it waits elsewhere.
    #[error("the handler that was waiting for this answer is gone")]
    FrameGone,
    /// What the state left in the ledger is not there any more, or is not what was left.
    #[error("what the state left in the ledger is gone, or was changed")]
    SpillGone,
    /// A durable handler took another way than the one recorded, as after a deploy that changed it.
    #[error("the handler took another way than the one recorded")]
    Diverged,
    /// The handler cannot read the state it kept, as after a deploy that changed its type.
    #[error("the handler cannot read the state it kept: its type has changed")]
    HandlerState,
}

impl Refusal {
    /// The one error that every refusal is on the wire: `-32602`, "Invalid or expired requestState".
    pub(crate) fn frozen() -> ErrorData {
        ErrorData::invalid_params(
            "Invalid or expired requestState",
            Some(serde_json::json!({ "reason": INVALID_REQUEST_STATE })),
        )
    }
}
