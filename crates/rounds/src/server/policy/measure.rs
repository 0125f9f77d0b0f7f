//! What observers that measure receive beside events: gauges, calls to the store, and limits that were reached.

use std::{fmt, sync::Arc, time::Duration};

use super::error::FlowError;
use crate::server::ledger::{Claimed, LedgerError};

/// Reads the gauges of a server. It does not keep the server alive. An observer that
/// [measures](super::observe::Observe::measures) gets one when the server is built.
#[derive(Clone)]
pub struct Gauges(Arc<dyn Fn() -> Option<Reading> + Send + Sync>);

/// The gauges of a server at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Handlers that wait for an answer: [`Rounds::waiting_calls`](crate::Rounds::waiting_calls).
    pub waiting_handlers: usize,
    /// Their memory in bytes: [`Rounds::waiting_bytes`](crate::Rounds::waiting_bytes).
    pub waiting_bytes: usize,
    /// How long the oldest of them has been waiting: [`Rounds::oldest_wait`](crate::Rounds::oldest_wait).
    pub oldest_wait: Option<Duration>,
    /// Sessions of legacy clients over HTTP. Zero without the feature `http`.
    pub sessions: usize,
    /// Whether the server [drains](crate::health::Health::drain).
    pub is_draining: bool,
    /// The limit of waiting handlers: [`Limits::frames`](crate::Limits::frames).
    pub waiting_handlers_limit: usize,
    /// The limit of their memory: [`Limits::frame_bytes`](crate::Limits::frame_bytes).
    pub waiting_bytes_limit: usize,
    /// The limit of sessions. Zero without the feature `http`.
    pub sessions_limit: usize,
}

impl Gauges {
    pub(crate) fn new(read: impl Fn() -> Option<Reading> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The gauges now, or none if the server is gone. It visits every waiting handler: call it for a scrape, not for
    /// every request.
    pub fn read(&self) -> Option<Reading> {
        (self.0)()
    }
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauges").field(&self.read()).finish()
    }
}

/// A call to the store that has ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoreCall<'a> {
    /// The name of the step, such as `claim` or `settle`. There are about 20, and a client cannot add one.
    pub step: &'static str,
    /// How long the call took, by the server's clock.
    pub took: Duration,
    /// Why it failed, if it did.
    pub failed: Option<&'a LedgerError>,
    /// What became of a claim, if the step was one and did not fail.
    pub claim: Option<ClaimCall>,
}

/// A claim that a store decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimCall {
    /// Whether an effect was claimed, and not a round.
    pub is_effect: bool,
    /// The outcome.
    pub outcome: ClaimOutcome,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// The leg has the claim.
    Fresh,
    /// The leg has the claim, and took it over from a leg that did not finish.
    TakenOver,
    /// An equal leg runs, and this one waits.
    Running,
    /// It was settled before with the same answers.
    Done,
    /// It was settled before with other answers, or runs with other answers.
    AnsweredOtherwise,
    /// It has ended for good.
    Dead,
    /// The flow was cancelled.
    Cancelled,
}

impl ClaimOutcome {
    pub(crate) fn of(claimed: &Claimed) -> Self {
        match claimed {
            Claimed::Fresh { fence: 0 | 1, .. } => Self::Fresh,
            Claimed::Fresh { .. } => Self::TakenOver,
            Claimed::Running(_) => Self::Running,
            Claimed::Done(_) => Self::Done,
            Claimed::AnsweredOtherwise => Self::AnsweredOtherwise,
            Claimed::Dead => Self::Dead,
            Claimed::Cancelled => Self::Cancelled,
        }
    }

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::TakenOver => "taken_over",
            Self::Running => "running",
            Self::Done => "done",
            Self::AnsweredOtherwise => "answered_otherwise",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A limit that a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::rounds`](crate::Limits::rounds): a call has asked as often as it may.
    Rounds,
    /// [`Limits::questions`](crate::Limits::questions): a handler asked too many questions at once.
    Questions,
    /// [`Limits::effects`](crate::Limits::effects): a flow has run as many effects as it may.
    Effects,
    /// [`Limits::token_bytes`](crate::Limits::token_bytes) or [`spill_bytes`](crate::Limits::spill_bytes): the state of
    /// a call is too large.
    StateBytes,
    /// [`Limits::frames`](crate::Limits::frames): too many handlers wait, in all or for one principal.
    WaitingHandlers,
    /// [`Limits::frame_bytes`](crate::Limits::frame_bytes): the handlers that wait take too much memory.
    WaitingBytes,
    /// [`Limits::tasks`](crate::Limits::tasks) or [`task_bytes`](crate::Limits::task_bytes): a call did not become a
    /// task, or a task did not take an answer.
    Tasks,
    /// [`Limits::sessions`](crate::Limits::sessions): a session was refused, or ended for another.
    Sessions,
    /// [`Limits::reply_bytes`](crate::Limits::reply_bytes): a reply was too large to be kept for retries.
    ReplyBytes,
    /// [`Limits::wait`](crate::Limits::wait): an equal leg still ran after the longest wait.
    Wait,
    /// The store is full, in all or in the caller's share.
    Store,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 11] = [
        Self::Rounds,
        Self::Questions,
        Self::Effects,
        Self::StateBytes,
        Self::WaitingHandlers,
        Self::WaitingBytes,
        Self::Tasks,
        Self::Sessions,
        Self::ReplyBytes,
        Self::Wait,
        Self::Store,
    ];

    /// The limit that this error is about, if it is about one.
    pub(crate) fn of(error: &FlowError) -> Option<Self> {
        Some(match error {
            FlowError::TooManyRounds { .. } => Self::Rounds,
            FlowError::TooManyQuestions { .. } => Self::Questions,
            FlowError::TooManyEffects { .. } | FlowError::TooManyEntries { .. } => Self::Effects,
            FlowError::StateTooLarge { .. } => Self::StateBytes,
            FlowError::TooManyFrames { .. } => Self::WaitingHandlers,
            FlowError::TooManyFrameBytes { .. } => Self::WaitingBytes,
            _ => return None,
        })
    }

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rounds => "rounds",
            Self::Questions => "questions",
            Self::Effects => "effects",
            Self::StateBytes => "state_bytes",
            Self::WaitingHandlers => "waiting_handlers",
            Self::WaitingBytes => "waiting_bytes",
            Self::Tasks => "tasks",
            Self::Sessions => "sessions",
            Self::ReplyBytes => "reply_bytes",
            Self::Wait => "wait",
            Self::Store => "store",
        }
    }
}
