//! The flow records of a ledger in memory, indexed for lists and for their removal.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
};

use super::{
    super::{
        LedgerError,
        register::{
            Changed, FlowChange, FlowCursor, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStation,
            FlowStatus, FlowSummary, TimelineEntry, Watcher,
        },
    },
    shares::{MemoryShares, ShareId},
};
use crate::{server::seal::FlowId, shared::clock::Timestamp};

const RECORD_BYTES: usize = FlowChange::RECORD_BYTES;

/// How many expired records one step removes: more than it adds.
const FORGOTTEN: usize = 4;

pub(super) struct FlowTable {
    kept: HashMap<FlowId, Box<KeptFlow>>,
    open: BTreeSet<FlowCursor>,
    ended: BTreeSet<FlowCursor>,
    /// When each record may be removed.
    due: BTreeSet<(Timestamp, FlowId)>,
    shares: MemoryShares,
    watchers: Vec<Watcher>,
}

struct KeptFlow {
    record: FlowRecord,
    /// A deleted record only says that its flow is cancelled.
    deleted: bool,
    share: ShareId,
    bytes: usize,
}

impl FlowTable {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: HashMap::new(),
            open: BTreeSet::new(),
            ended: BTreeSet::new(),
            due: BTreeSet::new(),
            shares: MemoryShares::new(limit),
            watchers: Vec::new(),
        }
    }

    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.shares.set_limit(bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.shares.used()
    }

    pub(super) fn watch(&mut self, watcher: Watcher) {
        self.watchers.push(watcher);
    }

    pub(super) fn is_cancelled(&self, id: FlowId) -> bool {
        self.kept.get(&id).is_some_and(|kept| kept.record.summary.status == FlowStatus::Cancelled)
    }

    /// Whether there is space for this change.
    pub(super) fn make_room(&mut self, change: &FlowChange) -> Result<(), LedgerError> {
        self.sweep(change.entry.at, FORGOTTEN);
        match change.bytes(!self.kept.contains_key(&change.summary.id)) {
            0 => Ok(()),
            more => self.shares.fits(change.share, more),
        }
    }

    /// Applies a change. Its space was checked before.
    pub(super) fn apply(&mut self, change: FlowChange) {
        let (id, share) = (change.summary.id, change.share);
        match self.kept.contains_key(&id) {
            true => self.change(id, |record| record.apply(change)),
            false => {
                let share = self.shares.charge(share, RECORD_BYTES);
                let kept = KeptFlow { record: FlowRecord::new(change), deleted: false, share, bytes: RECORD_BYTES };
                self.kept.insert(id, Box::new(kept));
                self.enter(id);
            }
        }
    }

    /// Enters that a leg was refused. A record whose round is lost for good has failed.
    pub(super) fn refuse(&mut self, change: &FlowChange, station: FlowStation) {
        let entry = TimelineEntry { station, ..change.entry };
        let Some(kept) = self.kept.get_mut(&change.summary.id) else { return };
        let summary = &kept.record.summary;
        let lost = station == FlowStation::RefusedDead && summary.status == FlowStatus::Working;
        if lost && summary.round == entry.leg {
            self.change(change.summary.id, |record| {
                record.end(FlowStatus::Failed, TimelineEntry { station: FlowStation::Failed, ..entry });
            });
        } else {
            kept.record.timeline.refuse(entry);
        }
    }

    /// The owner of this round has renewed its lease.
    pub(super) fn renew(&mut self, id: FlowId, round: u32, until: Timestamp) {
        let Some(kept) = self.kept.get_mut(&id) else { return };
        let summary = &mut kept.record.summary;
        if summary.status == FlowStatus::Working && summary.round == round {
            summary.open_until = summary.open_until.max(until);
            if let Some(owner) = &mut summary.owner {
                owner.lease_until = Some(until);
            }
        }
    }

    pub(super) fn get(&self, id: FlowId, now: Timestamp) -> Option<FlowRecord> {
        let mut record = self.kept.get(&id).filter(|kept| !kept.deleted)?.record.clone();
        record.summary.status = record.summary.status_at(now);
        Some(record)
    }

    pub(super) fn list(&self, filter: &FlowFilter) -> FlowPage {
        let after = (filter.after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (open, ended) = (self.open.range(after).copied(), self.ended.range(after).copied());
        let mut flows: Vec<_> = match filter.status {
            // An open record may have expired.
            Some(FlowStatus::Working | FlowStatus::Waiting | FlowStatus::Expired) => self.page(open, filter),
            Some(_) => self.page(ended, filter),
            None => self.page(merged(open, ended), filter),
        };
        let next = (flows.len() > filter.most).then(|| {
            flows.truncate(filter.most);
            flows.last().map(FlowSummary::cursor)
        });
        FlowPage { flows, next: next.flatten() }
    }

    /// One record more than a page has, if there are so many.
    fn page(&self, places: impl Iterator<Item = FlowCursor>, filter: &FlowFilter) -> Vec<FlowSummary> {
        let kept = places.filter_map(|place| self.kept.get(&place.id)).map(|kept| &kept.record.summary);
        let admitted = kept.filter(|summary| filter.admits(summary)).take(filter.most.saturating_add(1));
        admitted
            .cloned()
            .map(|mut summary| {
                summary.status = summary.status_at(filter.now);
                summary
            })
            .collect()
    }

    /// Counts some of the records with this status, or of all, from this place on. Returns the place of the last one,
    /// unless it was the last of all.
    pub(super) fn count(
        &self,
        counted: &mut HashMap<String, u64>,
        (status, now): (Option<FlowStatus>, Timestamp),
        after: Option<FlowCursor>,
        most: usize,
    ) -> Option<FlowCursor> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (open, ended) = (self.open.range(range).copied(), self.ended.range(range).copied());
        let mut count = |places: &mut dyn Iterator<Item = FlowCursor>| {
            let (mut last, mut seen) = (None, 0);
            for place in places.take(most) {
                (last, seen) = (Some(place), seen + 1);
                let Some(kept) = self.kept.get(&place.id) else { continue };
                let summary = &kept.record.summary;
                if status.is_none_or(|status| summary.status_at(now) == status) {
                    match counted.get_mut(&summary.target) {
                        Some(count) => *count += 1,
                        None => drop(counted.insert(summary.target.clone(), 1)),
                    }
                }
            }
            last.filter(|_| seen == most)
        };
        match status {
            // An open record may have expired.
            Some(FlowStatus::Working | FlowStatus::Waiting | FlowStatus::Expired) => count(&mut { open }),
            Some(_) => count(&mut { ended }),
            None => count(&mut merged(open, ended)),
        }
    }

    /// Cancels a flow. Returns the status before and the round that it was in.
    pub(super) fn cancel(&mut self, id: FlowId, end: FlowEnd) -> Option<(FlowStatus, u32)> {
        let kept = self.kept.get(&id).filter(|kept| !kept.deleted)?;
        let (before, round) = (kept.record.summary.status_at(end.now), kept.record.summary.round);
        if before.is_open() {
            self.change(id, |record| {
                record.cancel(end);
            });
        }
        Some((before, round))
    }

    /// The flows of a set that have a record.
    pub(super) fn of(&self, which: &FlowSet) -> Vec<FlowId> {
        match which {
            FlowSet::One(id) => self.kept.get(id).filter(|kept| !kept.deleted).map(|_| *id).into_iter().collect(),
            FlowSet::Principal(wanted) => {
                let theirs = |kept: &KeptFlow| kept.record.summary.principal.is_some_and(|of| wanted.contains(&of));
                self.kept.iter().filter(|(_, kept)| theirs(kept) && !kept.deleted).map(|(id, _)| *id).collect()
            }
        }
    }

    /// Deletes the record of a flow that is not open. One that was cancelled keeps its id while its tokens could be
    /// used.
    pub(super) fn delete(&mut self, id: FlowId, end: FlowEnd) {
        let Some(kept) = self.kept.get(&id) else { return };
        let tokens_until = end.tokens_until(kept.record.summary.open_until);
        if kept.record.summary.status != FlowStatus::Cancelled || tokens_until <= end.now {
            return self.remove(id);
        }
        self.leave(id);
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.deleted = true;
            let FlowRecord { summary, timeline, parts } = &mut kept.record;
            (*timeline, *parts) = Default::default();
            (summary.target, summary.principal, summary.open, summary.keys) = Default::default();
            summary.kept_until = tokens_until;
        }
        self.enter(id);
    }

    /// Removes records whose time is over, at most so many.
    pub(super) fn sweep(&mut self, now: Timestamp, most: usize) -> u64 {
        let due: Vec<_> = self.due.iter().take(most).take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        let mut removed = 0;
        for id in due {
            match self.kept.get(&id).map(|kept| &kept.record.summary) {
                // Its owner has renewed its lease for longer than a record is kept.
                Some(summary) if summary.status_at(now).is_open() => {
                    self.change(id, |record| record.summary.kept_until = record.summary.open_until);
                }
                _ => {
                    self.remove(id);
                    removed += 1;
                }
            }
        }
        removed
    }

    fn remove(&mut self, id: FlowId) {
        self.leave(id);
        if let Some(kept) = self.kept.remove(&id) {
            self.shares.subtract(kept.share, kept.bytes);
        }
    }

    /// Changes a record, and its places with it.
    fn change(&mut self, id: FlowId, change: impl FnOnce(&mut FlowRecord)) {
        self.leave(id);
        if let Some(kept) = self.kept.get_mut(&id) {
            change(&mut kept.record);
        }
        self.enter(id);
    }

    /// Takes a record out of all indexes.
    fn leave(&mut self, id: FlowId) {
        let Some(kept) = self.kept.get(&id) else { return };
        let summary = &kept.record.summary;
        self.open.remove(&summary.cursor());
        self.ended.remove(&summary.cursor());
        self.due.remove(&(summary.kept_until, id));
    }

    /// Puts a record into the indexes, and tells the watchers.
    fn enter(&mut self, id: FlowId) {
        let Some(kept) = self.kept.get_mut(&id) else { return };
        let summary = &kept.record.summary;
        if !kept.deleted {
            let index = if summary.status.is_open() { &mut self.open } else { &mut self.ended };
            index.insert(summary.cursor());
        }
        self.due.insert((summary.kept_until, id));
        let before = std::mem::replace(&mut kept.bytes, bytes(&kept.record));
        self.shares.add(kept.share, kept.bytes);
        self.shares.subtract(kept.share, before);
        let changed = Changed { id, status: summary.status };
        self.tell(changed);
    }

    pub(super) fn tell(&mut self, changed: Changed) {
        self.watchers.retain(|watcher| watcher.tell(changed));
    }
}

fn bytes(record: &FlowRecord) -> usize {
    let texts: usize = record.summary.open.iter().map(String::len).sum();
    let parts: usize = record.parts.values().map(Vec::len).sum();
    RECORD_BYTES + record.summary.target.len() + texts + parts
}

/// Two ordered sequences as one.
fn merged(
    one: impl Iterator<Item = FlowCursor>,
    other: impl Iterator<Item = FlowCursor>,
) -> impl Iterator<Item = FlowCursor> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if b < a => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}
