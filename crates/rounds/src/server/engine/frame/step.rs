//! What goes into a frame and what comes out of it.

use std::time::Duration;

use rmcp::model::{InputRequests, InputResponses, ServerResult};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::question::PendingQuestion;
use crate::{
    server::{
        engine::link::Link,
        policy::{error::Failure, gate::Peer},
        seal::journal::WaitingQuestion,
    },
    shared::clock::Timestamp,
};

/// A leg that goes on with a frame.
pub(crate) struct Resumption {
    pub(crate) answers: InputResponses,
    /// None when its client is connected to another instance.
    pub(crate) link: Option<Box<Link>>,
    pub(crate) peer: Peer,
    /// The token of the leg.
    pub(crate) leg: CancellationToken,
}

/// Who waits for the reply of the leg in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Client,
    /// The client is gone, and a leg with equal answers waits.
    EqualLeg,
    None,
}

/// What a handler has come to.
pub(crate) enum FrameStep {
    /// It asks, and waits.
    Asked(FrameRound),
    Ended(Ending),
}

/// The questions that a handler waits for.
pub(crate) struct FrameRound {
    pub(crate) number: u32,
    pub(crate) requests: InputRequests,
    /// In which order they were asked, where it is another than that of their keys.
    pub(crate) order: Option<Value>,
    /// The questions of a durable handler, in the form that its journal records.
    pub(crate) waiting: Vec<WaitingQuestion>,
    pub(crate) times: Times,
}

/// How much time there is for the questions of a round.
pub(crate) struct Times {
    /// How long the round lives: as long as any, or as its most patient question.
    pub(crate) lifetime: Duration,
    /// How long the client may take for all of it: as long as the most patient question.
    pub(crate) patience: Duration,
    /// The questions that have less time than that, by key.
    pub(crate) less: Vec<(String, Duration)>,
}

impl Times {
    /// Of a round whose questions have as much time as it has.
    pub(crate) const fn of_round(lifetime: Duration) -> Self {
        Self { lifetime, patience: lifetime, less: Vec::new() }
    }

    /// Of a round with these questions.
    pub(super) fn of<'a>(
        open: impl Iterator<Item = &'a PendingQuestion> + Clone,
        default: Duration,
        now: Timestamp,
    ) -> Self {
        let time = |open: &PendingQuestion| open.question.until.map_or(default, |until| until.since(now));
        let patience = open.clone().map(time).max().unwrap_or(default);
        let less = open.filter(|open| time(open) < patience);
        let less = less.map(|open| (open.question.key.to_string(), time(open)));
        Self { lifetime: default.max(patience), patience, less: less.collect() }
    }
}

pub(crate) enum Ending {
    Returned(Result<Box<ServerResult>, Failure>),
    Panicked,
    /// Its time is over.
    Expired,
    /// A leg gave it up.
    Aborted,
}
