//! The record of a flow, and how it changes.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    super::{PrincipalShare, Retention},
    timeline::{FlowStation, Timeline, TimelineEntry},
};
use crate::{
    server::seal::FlowId,
    shared::{clock::Timestamp, kind::Method},
};

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FlowStatus {
    /// A leg runs it.
    Working,
    /// It waits for answers.
    Waiting,
    /// It has ended with a result, which may be a tool error.
    Completed,
    /// It has ended with an error of the protocol, or its handler is lost.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was not answered in time.
    Expired,
}

impl FlowStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Working, Self::Waiting, Self::Completed, Self::Failed, Self::Cancelled, Self::Expired];

    /// Whether the flow can still continue.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Working | Self::Waiting)
    }

    /// The name of the status in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for FlowStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for FlowStatus {
    type Err = UnknownStatus;

    fn from_str(name: &str) -> Result<Self, UnknownStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == name).ok_or(UnknownStatus)
    }
}

/// A text that is not the name of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a status: use working, waiting, completed, failed, cancelled or expired")]
pub struct UnknownStatus;

/// The plain columns of a record: everything that a list shows. Nothing in it comes from arguments, questions, answers
/// or results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowSummary {
    /// The id by which the ledger knows the flow: a digest of the flow's name, which the register does not learn.
    pub id: FlowId,
    /// The method.
    pub method: Method,
    /// The name of the tool or prompt. Of a resource only the scheme of its URI, with the colon.
    pub target: String,
    /// The principal, by a digest that only this server can compute. None for callers without a principal.
    pub principal: Option<[u8; 16]>,
    /// When the flow asked for the first time.
    pub created: Timestamp,
    /// When the record changed last.
    pub changed: Timestamp,
    /// The flow's deadline.
    pub deadline: Timestamp,
    /// The status. What [`Register::get`](super::Register::get) and [`Register::list`](super::Register::list) return
    /// is the status [at that time](Self::status_at).
    pub status: FlowStatus,
    /// The round that is asked or answered, counted from one.
    pub round: u32,
    /// The keys of the questions that wait for an answer.
    pub open: Vec<String>,
    /// Until when the flow can continue unless something happens: the end of its round, or of its owner's lease if that
    /// is later. An open record is expired from then on.
    pub open_until: Timestamp,
    /// From when on the record may be removed. It must not be removed earlier.
    pub kept_until: Timestamp,
    /// The instance that runs the current leg, or where the handler waits.
    pub owner: Option<FlowOwner>,
    /// The ids of the keys that sealed its parts and its latest token, without duplicates.
    pub keys: Vec<[u8; 8]>,
}

/// The instance that works on a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowOwner {
    /// The name of the instance.
    pub instance: String,
    /// When its lease lapses unless it is renewed. None if it holds no claim and only keeps the waiting handler.
    pub lease_until: Option<Timestamp>,
}

impl FlowSummary {
    /// The status at this time: an open record whose time is over is expired.
    pub fn status_at(&self, now: Timestamp) -> FlowStatus {
        if self.status.is_open() && self.open_until <= now { FlowStatus::Expired } else { self.status }
    }

    /// The position of this record in a list.
    pub fn cursor(&self) -> FlowCursor {
        FlowCursor { created: self.created, id: self.id }
    }
}

/// One record in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRecord {
    /// The plain columns.
    pub summary: FlowSummary,
    /// What happened, and when.
    pub timeline: Timeline,
    /// The sealed parts by their number: see [`FlowPart`].
    pub parts: BTreeMap<u32, Vec<u8>>,
}

impl FlowRecord {
    /// The record of a flow whose first change is this one.
    pub fn new(change: FlowChange) -> Self {
        let FlowChange { summary, entry, part, .. } = change;
        let parts = part.into_iter().map(|part| (part.number, part.sealed)).collect();
        Self { summary, timeline: Timeline::from(entry), parts }
    }

    /// Applies a change. What never changes stays: the method, the target, the principal and the time of creation. The
    /// key ids are added, and a part replaces the one with the same number. Everything else is that of the change.
    pub fn apply(&mut self, change: FlowChange) {
        let FlowChange { summary, entry, part, .. } = change;
        let old = &mut self.summary;
        old.keys.extend(summary.keys.into_iter().filter(|key| !old.keys.contains(key)).collect::<Vec<_>>());
        (old.changed, old.deadline, old.status, old.round) =
            (summary.changed, summary.deadline, summary.status, summary.round);
        (old.open, old.open_until, old.kept_until, old.owner) =
            (summary.open, summary.open_until, summary.kept_until, summary.owner);
        self.timeline.push(entry);
        self.parts.extend(part.map(|part| (part.number, part.sealed)));
    }

    /// Ends the record with a status. What only an open record needs goes.
    pub fn end(&mut self, status: FlowStatus, entry: TimelineEntry) {
        let summary = &mut self.summary;
        (summary.status, summary.changed, summary.owner) = (status, entry.at, None);
        summary.open.clear();
        self.timeline.push(entry);
    }

    /// Cancels the record, if it is open at this time. Returns the status before.
    pub fn cancel(&mut self, end: FlowEnd) -> FlowStatus {
        let before = self.summary.status_at(end.now);
        if before.is_open() {
            let entry = TimelineEntry { leg: self.summary.round, station: FlowStation::Cancelled, at: end.now };
            self.end(FlowStatus::Cancelled, entry);
            self.summary.kept_until = end.kept_until(self.summary.open_until);
        }
        before
    }
}

/// The change that a step makes to a record.
#[derive(Debug, Clone)]
pub struct FlowChange {
    /// The plain columns after the step.
    pub summary: FlowSummary,
    /// What happened.
    pub entry: TimelineEntry,
    /// What is added to the sealed parts.
    pub part: Option<FlowPart>,
    /// The share of the store that the record counts against.
    pub share: PrincipalShare,
}

impl FlowChange {
    /// Bytes that a record counts beside its texts and parts: its columns, its timeline and its places in the indexes.
    pub(crate) const RECORD_BYTES: usize = 1536;

    /// The share that the change counts against, and its bytes: see [`Shares::count`](super::super::kit::Shares::count).
    pub fn counted(&self, is_new: bool) -> (Retention, usize) {
        let keep = Retention { now: self.entry.at, until: self.summary.kept_until, share: self.share };
        (keep, self.bytes(is_new))
    }

    /// Bytes that the change adds to the share: those of its part and, if the record is new, of the record.
    pub fn bytes(&self, is_new: bool) -> usize {
        let part = self.part.as_ref().map_or(0, |part| part.sealed.len());
        if is_new { Self::RECORD_BYTES + self.summary.target.len() + part } else { part }
    }
}

/// A sealed part of a record: what one leg adds to it.
///
/// Part 0 has the call and its first questions. Part n has the answers to round n, with the next questions or the
/// result. A leg that runs again replaces its part. Parts are sealed under the server's keys and bound to the flow and
/// the number; only a [`MemoryLedger`](crate::ledger::MemoryLedger) gets them as plain values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowPart {
    /// The number of the part.
    pub number: u32,
    /// The sealed bytes.
    pub sealed: Vec<u8>,
}

/// The end of a flow that is cancelled or deleted.
#[derive(Debug, Clone, Copy)]
pub struct FlowEnd {
    /// The current time.
    pub now: Timestamp,
    /// How long a record is kept after its flow has ended.
    pub retention: Duration,
    /// How long after the end of a round its token may still be accepted by an instance whose clock is behind.
    pub slack: Duration,
}

impl FlowEnd {
    /// Until when the record of a flow that was open until then is kept: its tokens are refused as long as they could
    /// be used.
    pub fn kept_until(&self, open_until: Timestamp) -> Timestamp {
        (self.now + self.retention).max(self.tokens_until(open_until))
    }

    /// Until when a token of a flow that was open until then could be used.
    pub fn tokens_until(&self, open_until: Timestamp) -> Timestamp {
        open_until + self.slack
    }
}

/// Which records to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowSet {
    /// The record of this flow.
    One(FlowId),
    /// All records of a principal, by its digests: one for each key of the ring.
    Principal(Vec<[u8; 16]>),
}

/// Which records to list.
#[derive(Debug, Clone)]
pub struct FlowFilter {
    /// The current time, which decides [what is expired](FlowSummary::status_at).
    pub now: Timestamp,
    /// Only those with this status.
    pub status: Option<FlowStatus>,
    /// Only those of this tool, prompt or resource.
    pub target: Option<String>,
    /// Only those of a principal, by its digests: one for each key of the ring.
    pub principal: Option<Vec<[u8; 16]>>,
    /// Only those created before this time.
    pub created_before: Option<Timestamp>,
    /// Only those after this position.
    pub after: Option<FlowCursor>,
    /// How many at most.
    pub most: usize,
}

impl FlowFilter {
    /// The number of records on a page if nothing else is said.
    pub const PAGE: usize = 100;

    /// All records, [`PAGE`](Self::PAGE) of them on a page.
    pub fn new(now: Timestamp) -> Self {
        Self { now, status: None, target: None, principal: None, created_before: None, after: None, most: Self::PAGE }
    }

    /// Whether a record belongs on the page, apart from the number of records.
    pub fn admits(&self, flow: &FlowSummary) -> bool {
        self.status.is_none_or(|status| flow.status_at(self.now) == status)
            && self.target.as_ref().is_none_or(|target| flow.target == *target)
            && self.principal.as_ref().is_none_or(|wanted| flow.principal.is_some_and(|of| wanted.contains(&of)))
            && self.created_before.is_none_or(|before| flow.created < before)
            && self.after.is_none_or(|after| after < flow.cursor())
    }
}

/// Counts of records by their target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowCounts {
    /// How many records each target has. Targets without one are not in it.
    pub by_target: BTreeMap<String, u64>,
    /// Whether all records were counted. If not, as many were counted as the caller allowed.
    pub is_whole: bool,
}

impl FlowCounts {
    /// How many records were counted.
    pub fn total(&self) -> u64 {
        self.by_target.values().sum()
    }
}

/// A position in a list: records are ordered by their creation, and then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowCursor {
    /// The time of creation.
    pub created: Timestamp,
    /// The id.
    pub id: FlowId,
}

/// A page of records.
#[derive(Debug, Clone, Default)]
pub struct FlowPage {
    /// The records, oldest first.
    pub flows: Vec<FlowSummary>,
    /// Where the next page begins. None if this is the last one.
    pub next: Option<FlowCursor>,
}
