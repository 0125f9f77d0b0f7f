//! Documents as rows. The columns are the same in both databases.

use rounds::{
    keys::Digest,
    ledger::documents::{Document, DocumentChange, DocumentId, DocumentKind, Version},
    time::Timestamp,
};

use crate::{claims::millis, error::StoreError, flows};

/// A row: version, sealed content, due time.
pub(crate) type DocumentRow = (i64, Vec<u8>, Option<i64>);

pub(crate) fn read((version, sealed, due): DocumentRow) -> Result<Document, StoreError> {
    let number = version.try_into().map_err(|_| StoreError::Garbage)?;
    let due = due.map(|due| Timestamp::from_millis(due.unsigned_abs()));
    Ok(Document { version: Version { number, bytes: sealed.len() }, sealed, due })
}

pub(crate) fn id(kind: DocumentKind, key: &[u8]) -> Result<DocumentId, StoreError> {
    Ok(DocumentId { kind, key: Digest::from_bytes(key.try_into().map_err(|_| StoreError::Garbage)?) })
}

/// A write, as the columns need it.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) kind: &'static str,
    pub(crate) id: Vec<u8>,
    pub(crate) before: Option<i64>,
    pub(crate) now: i64,
    pub(crate) sealed: Vec<u8>,
    pub(crate) due: Option<i64>,
    pub(crate) kept_until: i64,
    pub(crate) tell: Option<(Vec<u8>, i64)>,
}

impl Write {
    pub(crate) fn of(id: DocumentId, before: Option<Version>, change: &DocumentChange) -> Self {
        Self {
            kind: id.kind.as_str(),
            id: id.key.as_bytes().to_vec(),
            before: before.map(|before| i64::try_from(before.number).unwrap_or(i64::MAX)),
            now: millis(change.keep.now),
            sealed: change.sealed.clone(),
            due: change.due.map(millis),
            kept_until: millis(change.keep.until),
            tell: change.tell.map(|told| (told.id.as_bytes().to_vec(), flows::code(told.status))),
        }
    }
}

pub(crate) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
