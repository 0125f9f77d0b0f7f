//! The ledger: the store of what was claimed and replied, which makes a token single-use.
//!
//! One process needs nothing: [`MemoryLedger`] is the default. A fleet shares one ledger. Whatever implements
//! [`Ledger`] has to pass the suite, which is the module `suite` with the feature `test`.

mod claim;
mod memory;
pub(crate) mod record;
#[cfg(any(test, feature = "test"))]
pub mod suite;

use std::{fmt, time::Duration};

pub use claim::{Claim, ClaimStep, Fence, OwnerLost};
pub use memory::MemoryLedger;

use crate::{
    server::seal::{Digest, FlowId},
    shared::clock::{BoxFuture, Timestamp},
};

pub(crate) mod sealed {
    /// An argument that only this crate can pass.
    #[derive(Debug)]
    pub struct Sealed;
}

/// Where claims and replies are kept.
///
/// Every method is one atomic step of [the life of a claim](Claim). None of them may succeed when it did not happen:
/// a store that is away is [`LedgerError::Unavailable`], and the leg is answered with an error that asks for a retry.
///
/// Time comes with each call, so that a ledger needs no clock of its own.
///
/// Whatever it is given to keep is sealed under the server's keys, and bound to its place: a ledger reads nothing of what it
/// keeps, and who can write to its store can forge nothing. Nor are the names its own: the flow's name and the effects' are
/// digests. Only a [`MemoryLedger`], which lives where the keys do, is given things to keep as they are.
pub trait Ledger: Send + Sync + 'static {
    /// Whether it is the ledger in memory, which keeps what it is given as it is. Only this crate can name the argument's type, so no other
    /// ledger can say so, and none that wraps one can pass it on.
    #[doc(hidden)]
    fn is_beside_the_keys(&self, _: sealed::Sealed) -> bool {
        false
    }

    /// Records what the first token of a flow could not carry, before the token leaves. It is given to every run of its round. This is
    /// the only step that a first leg takes: a question whose token carries everything has no record until its answer arrives.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] when it does not fit. The token does not leave then.
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>>;

    /// A leg wants to answer a round, or to run an effect. One that the ledger does not know is free.
    ///
    /// A claim that is given out reserves all that its record will ever take: [`settle`](Self::settle) fails for lack of room only where it
    /// brings a spill.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] when a new record does not fit. Nothing has run then, and the leg is told to send the same request again. A
    /// claim that has a record is never refused for lack of room, whatever its state.
    fn claim(&self, id: ClaimId, bid: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>>;

    /// The owner is still at work. False when the round was taken over.
    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// The owner has a reply, which is kept for equal retries; with none (too large to keep) they are refused. False
    /// when the round was taken over: then nothing was recorded, and the reply is not to leave.
    ///
    /// `spill` is what the token in the reply could not carry. It is recorded in the same step, and in no other case. The
    /// round's own is no longer needed.
    ///
    /// `spent` are effects of the same flow that no later leg can ask for: the flow is over, or the token in the reply carries their values.
    /// A ledger keeps each of them for as long as the round's own record at most; one that still runs it leaves as it is. This is the only
    /// thing that makes a record go earlier than it was promised.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] when the spill does not fit: then nothing was recorded, and the owner gives the claim back.
    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// The owner gives up. With `unless_awaited`, and somebody waiting for the reply, nothing happens and the answer
    /// is true: the owner has to go on for them. With a fence that is not the newest nothing is released either, and the answer is the
    /// same: with the fence 0, which no run has, the owner asks whether somebody waits.
    ///
    /// One that fails is not repeated by who called it. A ledger that can do it later should, as those who wait for the round
    /// otherwise wait for the end of its lease, and a handler that waits on another instance may be lost to them.
    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>>;
}

/// What is claimed, of which flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId {
    /// The flow.
    pub flow: FlowId,
    /// What of it.
    pub what: ClaimKind,
}

/// What a flow has that only one may have at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ClaimKind {
    /// The right to answer one of its rounds, counted from one. What is kept of it is the reply.
    Round(u32),
    /// The right to run one of its effects, by a digest of its name. What is kept of it is the effect's value.
    Once(Digest),
}

/// How long a record is kept, and whose share of the store it counts against.
///
/// It is kept not for a moment less than until `until`, because forgetting a claim earlier would let its token be used again.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The time now.
    pub now: Timestamp,
    /// When the token that the record guards has expired by every clock of the fleet, and no leg waits for its outcome any
    /// more: its expiry, a minute, and [the wait limit](crate::Limits::wait).
    pub until: Timestamp,
    /// The caller's share.
    pub share: PrincipalShare,
}

/// Whose share of a store a record counts against, so that one caller cannot use up what all of them need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PrincipalShare {
    /// The server has not told any principals apart: the whole store belongs to its callers together.
    #[default]
    Common,
    /// The server tells principals apart, and this caller has none. All such callers have one share.
    Anonymous,
    /// A principal, by a digest that only this server can make: a store does not learn the name, and cannot check a guess.
    Principal([u8; 16]),
}

/// What a leg brings along when it claims a round.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest {
    /// The digest of its answers.
    pub answers: Digest,
    /// How long the record is kept.
    pub keep: Retention,
    /// For how long the owner is believed to be there without saying so.
    pub lease: Duration,
    /// What a lapsed lease means for this flow.
    pub orphan: OwnerLost,
}

/// A state that its token could not carry, and the round that goes on with it.
#[derive(Debug, Clone)]
pub struct Spill {
    /// The round, of the same flow as the one that is settled.
    pub id: ClaimId,
    /// How long it is kept.
    pub keep: Retention,
    /// The state.
    pub state: Vec<u8>,
}

/// What became of a claim.
#[non_exhaustive]
pub enum Claimed {
    /// The round is this leg's to run.
    Fresh {
        /// Under this fence.
        fence: Fence,
        /// What was kept for it because its token could not carry it.
        spilled: Option<Vec<u8>>,
    },
    /// An equal leg is at work. The future is ready when that may have changed; until it is dropped, its owner counts
    /// as waiting. Claim again then.
    Running(BoxFuture<'static, ()>),
    /// It was answered with the same answers, with this reply if it is still kept.
    Done(Option<Vec<u8>>),
    /// It was answered, or is being answered, with other answers.
    AnsweredOtherwise,
    /// It is over for good.
    Dead,
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh { fence, .. } => write!(f, "Fresh({fence})"),
            Self::Running(_) => f.write_str("Running"),
            Self::Done(reply) => write!(f, "Done({})", if reply.is_some() { "kept" } else { "gone" }),
            Self::AnsweredOtherwise => f.write_str("AnsweredOtherwise"),
            Self::Dead => f.write_str("Dead"),
        }
    }
}

/// Why a ledger could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// There is no room for another record, in all or in the caller's [`Share`].
    #[error("the ledger is full: {whose} may take {limit} bytes, and there is no room for another")]
    Full {
        /// Whose records there are too many of: a plural, such as "all records".
        whose: &'static str,
        /// How many bytes they may take.
        limit: usize,
    },
    /// The store cannot be reached, or did not do what it was told.
    #[error("the ledger cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
