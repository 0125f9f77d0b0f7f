//! The documents of a ledger in memory.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
};

use super::{
    super::{
        LedgerError,
        documents::{Document, DocumentChange, DocumentId, DocumentKind, DueDocument, Version},
    },
    shares::{MemoryShares, ShareId},
};
use crate::{server::seal::Digest, shared::clock::Timestamp};

/// How many documents whose time is over one write removes: more than it adds.
const FORGOTTEN: usize = 4;

pub(super) struct DocumentTable {
    kept: HashMap<DocumentId, KeptDocument>,
    due: BTreeSet<(DocumentKind, Timestamp, Digest)>,
    /// When each document may be removed.
    over: BTreeSet<(Timestamp, DocumentId)>,
    shares: MemoryShares,
}

struct KeptDocument {
    document: Document,
    until: Timestamp,
    share: ShareId,
}

impl DocumentTable {
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: HashMap::new(), due: BTreeSet::new(), over: BTreeSet::new(), shares: MemoryShares::new(limit) }
    }

    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.shares.set_limit(bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.shares.used()
    }

    pub(super) fn read(&self, id: DocumentId, now: Timestamp) -> Option<Document> {
        self.kept.get(&id).filter(|kept| now < kept.until).map(|kept| kept.document.clone())
    }

    pub(super) fn write(
        &mut self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> Result<Option<Version>, LedgerError> {
        let DocumentChange { keep, .. } = change;
        self.sweep(keep.now, FORGOTTEN);
        if self.kept.get(&id).is_some_and(|kept| kept.until <= keep.now) {
            self.remove(id);
        }
        if self.kept.get(&id).map(|kept| kept.document.version) != before {
            return Ok(None);
        }
        self.shares.fits(keep.share, change.growth(before))?;
        self.remove(id);
        let version = Version::next(before, &change);
        let share = self.shares.charge(keep.share, DocumentChange::OVERHEAD + version.bytes);
        self.due.extend(change.due.map(|due| (id.kind, due, id.key)));
        self.over.insert((keep.until, id));
        let document = Document { version, sealed: change.sealed, due: change.due };
        self.kept.insert(id, KeptDocument { document, until: keep.until, share });
        Ok(Some(version))
    }

    pub(super) fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> Vec<DueDocument> {
        let from = match after {
            Some(after) => Bound::Excluded((kind, after.at, after.id.key)),
            None => Bound::Included((kind, Timestamp::from_millis(0), Digest::from_bytes([0; 32]))),
        };
        let due = self.due.range((from, Bound::Unbounded)).take_while(|(of, at, _)| *of == kind && *at <= now);
        let due = due.map(|(kind, at, key)| DueDocument { at: *at, id: DocumentId { kind: *kind, key: *key } });
        due.filter(|due| self.kept.get(&due.id).is_some_and(|kept| now < kept.until)).take(most).collect()
    }

    pub(super) fn remove(&mut self, id: DocumentId) -> bool {
        let Some(KeptDocument { document, until, share }) = self.kept.remove(&id) else { return false };
        if let Some(due) = document.due {
            self.due.remove(&(id.kind, due, id.key));
        }
        self.over.remove(&(until, id));
        self.shares.subtract(share, DocumentChange::OVERHEAD + document.version.bytes);
        true
    }

    pub(super) fn sweep(&mut self, now: Timestamp, most: usize) -> u64 {
        let over: Vec<_> = self.over.iter().take(most).take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        over.iter().filter(|id| self.remove(**id)).count() as u64
    }
}
