//! The ledger: the store of claims and replies, which makes a token single-use.
//!
//! A single process needs no setup: [`MemoryLedger`] is the default. The instances of a fleet share one ledger. Every
//! implementation of [`Ledger`] has to pass the suite, which is the module `suite` with the feature `test`.

mod claim;
pub mod documents;
pub mod kit;
mod memory;
pub(crate) mod record;
pub mod register;
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

/// A store of claims and replies.
///
/// Every method is one atomic step of [the life of a claim](Claim). A method must not succeed unless its step happened:
/// if the store is unavailable, it fails with [`LedgerError::Unavailable`], and the leg is answered with an error that
/// asks for a retry.
///
/// Each call brings the time, so a ledger needs no clock of its own.
///
/// Everything that a ledger is given to keep is sealed under the server's keys and bound to its record: the ledger
/// cannot read it, and a party that can write to the store cannot forge it. The ids are opaque too: those of flows and
/// effects are digests. Only a [`MemoryLedger`], which is in the same process as the keys, is given plain values.
pub trait Ledger: Send + Sync + 'static {
    /// Whether this is the ledger in memory, which keeps plain values. Only this crate can name the argument's type, so no
    /// other ledger can override the method, and a ledger that wraps another cannot call it.
    #[doc(hidden)]
    fn is_beside_the_keys(&self, _: sealed::Sealed) -> bool {
        false
    }

    /// Records the state that the first token of a flow could not carry, before the token is sent. Every run of its
    /// round gets it. This is the only step that a first leg takes: if the token carries everything, the round has no
    /// record until its answer arrives.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if it does not fit. The token is not sent then.
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>>;

    /// Claims a round to answer, or an effect to run. A round or effect without a record is free.
    ///
    /// A claim reserves all the space that its record will ever need: after it, [`settle`](Self::settle) can fail with
    /// [`LedgerError::Full`] only if it brings a spill.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if a new record does not fit. Nothing has run then, and the client is asked to send the
    /// same request again. A claim that has a record is never refused for lack of space, whatever its state.
    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>>;

    /// Extends the lease of the owner. False if another leg has taken the claim over.
    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// Records the reply of the owner, for equal retries. Without a reply (it was too large to keep) such retries are
    /// refused. False if another leg has taken the claim over: then nothing was recorded, and the owner must not send
    /// the reply.
    ///
    /// `spill` is the state that the token in the reply could not carry. It is recorded in the same step or not at all.
    /// The spilled state of the settled round is no longer needed.
    ///
    /// `spent` are effects of the same flow that no later leg can ask for: the flow has ended, or the token in the
    /// reply carries their values. A ledger keeps each of them at most as long as the record of the round, and does not
    /// change effects that still run. Nothing else shortens the promised lifetime of a record.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if the spill does not fit: then nothing was recorded, and the owner releases the claim.
    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// Gives up the claim. With `unless_awaited`, nothing is released if another leg waits for the reply, and the
    /// result is true: the owner has to continue for that leg. If the fence is not the newest one, nothing is released
    /// either, and the result is the same: with the fence 0, which no run has, the owner learns whether another leg
    /// waits.
    ///
    /// The caller does not repeat a release that failed. A ledger should retry it if it can: otherwise legs that wait
    /// for the round wait until its lease lapses, and a handler that waits on another instance may be lost to them.
    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// Checks that the store can be reached, for [probes](crate::health::Health::ready). By default it can, as memory can.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Unavailable`] if it cannot.
    fn check(&self) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The [register](register::Register) that this ledger keeps beside its claims, if it keeps one. By default it keeps
    /// none, and a server that needs one [fails to build](crate::BuildError::NoRegister).
    fn register(&self) -> Option<&dyn register::Register> {
        None
    }

    /// The [documents](documents::Documents) that this ledger keeps beside its claims, if it keeps any. By default it
    /// keeps none.
    fn documents(&self) -> Option<&dyn documents::Documents> {
        None
    }
}

/// A claim's identity: the flow, and the round or effect in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId {
    /// The flow.
    pub flow: FlowId,
    /// The round or effect.
    pub what: ClaimKind,
}

/// The parts of a flow that only one leg may hold at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ClaimKind {
    /// The right to answer one of its rounds, counted from one. Its record keeps the reply.
    Round(u32),
    /// The right to run one of its effects, by a digest of the effect's name. Its record keeps the effect's value.
    Once(Digest),
}

/// How long a record is kept, and whose share of the store it counts against.
///
/// A record must not be removed before `until`, because its token could then be used again.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The current time.
    pub now: Timestamp,
    /// The time at which the token that the record guards has expired by every clock of the fleet and no leg waits for
    /// the outcome: its expiry, plus a minute, plus [the wait limit](crate::Limits::wait).
    pub until: Timestamp,
    /// The share that the record counts against.
    pub share: PrincipalShare,
}

/// The share of a store that a record counts against, so that one caller cannot use up the space of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PrincipalShare {
    /// The server does not distinguish principals so far: all callers share the whole store.
    #[default]
    Common,
    /// The server distinguishes principals, and this caller has none. All such callers have one share.
    Anonymous,
    /// A principal, by a digest that only this server can compute: the store does not learn the name, and cannot check
    /// a guess.
    Principal([u8; 16]),
}

/// A leg's request for a claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest {
    /// The digest of the leg's answers.
    pub answers: Digest,
    /// How long the record is kept.
    pub keep: Retention,
    /// Lease duration: how long the owner may go without renewing the claim.
    pub lease: Duration,
    /// What a lapsed lease means for this flow.
    pub orphan: OwnerLost,
}

/// A state that a token could not carry, and the round that continues with it.
#[derive(Debug, Clone)]
pub struct Spill {
    /// The round, of the same flow as the settled one.
    pub id: ClaimId,
    /// How long the state is kept.
    pub keep: Retention,
    /// The state.
    pub state: Vec<u8>,
}

impl Spill {
    /// The share that the state counts against, and its bytes: see [`Shares::count`](kit::Shares::count).
    pub fn counted(&self) -> (Retention, usize) {
        (self.keep, self.state.len())
    }
}

/// The outcome of a request for a claim.
#[non_exhaustive]
pub enum Claimed {
    /// The leg has the claim, and runs.
    Fresh {
        /// The fence of the claim.
        fence: Fence,
        /// The state that was spilled for the round, if its token could not carry it.
        spilled: Option<Vec<u8>>,
    },
    /// An equal leg runs. The future resolves when that may have changed; then claim again. Until the future is
    /// dropped, this leg counts as waiting.
    Running(BoxFuture<'static, ()>),
    /// The claim was settled with the same answers, with this reply if it is still kept.
    Done(Option<Vec<u8>>),
    /// The claim was settled with other answers, or is run with other answers.
    AnsweredOtherwise,
    /// The claim has ended for good.
    Dead,
    /// The flow was cancelled: see [`Register::cancel`](register::Register::cancel).
    Cancelled,
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh { fence, .. } => write!(f, "Fresh({fence})"),
            Self::Running(_) => f.write_str("Running"),
            Self::Done(reply) => write!(f, "Done({})", if reply.is_some() { "kept" } else { "gone" }),
            Self::AnsweredOtherwise => f.write_str("AnsweredOtherwise"),
            Self::Dead => f.write_str("Dead"),
            Self::Cancelled => f.write_str("Cancelled"),
        }
    }
}

/// Why a step of a ledger failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The ledger has no space for another record, in all or in the caller's [share](PrincipalShare).
    #[error(
        "the ledger is full: {whose} may take {limit} bytes, and another record does not fit; try again after some have expired"
    )]
    Full {
        /// A description of the records that fill it: a plural, such as "all records".
        whose: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// The store is unavailable, or did not carry out the step.
    #[error("the ledger cannot be reached: check its store and the connection to it")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
