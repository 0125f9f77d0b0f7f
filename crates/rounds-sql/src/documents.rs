//! Documents as rows. The columns are the same in both databases.

use rounds::{
    keys::Digest,
    ledger::documents::{Document, DocumentChange, DocumentId, DocumentKind, DueDocument, Version},
    time::Timestamp,
};
use sqlx::{Database, Encode, QueryBuilder, Type};

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

/// A document that is due, from its time and its id.
pub(crate) fn due(kind: DocumentKind, (at, key): &(i64, Vec<u8>)) -> Result<DueDocument, StoreError> {
    Ok(DueDocument { at: Timestamp::from_millis(at.unsigned_abs()), id: id(kind, key)? })
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

/// Selects one document that is still kept.
pub(crate) fn select<'q, DB>(id: DocumentId, now: Timestamp) -> QueryBuilder<DB>
where
    DB: Database,
    i64: Encode<'q, DB> + Type<DB>,
    String: Encode<'q, DB> + Type<DB>,
    Vec<u8>: Encode<'q, DB> + Type<DB>,
{
    let mut query = QueryBuilder::new("SELECT version, sealed, due FROM rounds_documents WHERE kind = ");
    query.push_bind(id.kind.as_str().to_owned()).push(" AND id = ").push_bind(id.key.as_bytes().to_vec());
    query.push(" AND kept_until > ").push_bind(millis(now));
    query
}

/// Selects a page of the documents that are due, by time and id.
pub(crate) fn select_due<'q, DB>(
    kind: DocumentKind,
    now: Timestamp,
    after: Option<DueDocument>,
    most: usize,
) -> QueryBuilder<DB>
where
    DB: Database,
    i64: Encode<'q, DB> + Type<DB>,
    String: Encode<'q, DB> + Type<DB>,
    Vec<u8>: Encode<'q, DB> + Type<DB>,
{
    let (at, id) = after.map_or((-1, vec![]), |after| (millis(after.at), after.id.key.as_bytes().to_vec()));
    let mut query = QueryBuilder::new("SELECT due, id FROM rounds_documents WHERE kind = ");
    query.push_bind(kind.as_str().to_owned()).push(" AND due <= ").push_bind(millis(now));
    query.push(" AND kept_until > ").push_bind(millis(now));
    // The first condition follows from the second one, and lets SQLite begin in the middle of the index.
    query.push(" AND due >= ").push_bind(at).push(" AND (due, id) > (").push_bind(at).push(", ").push_bind(id);
    query.push(") ORDER BY due, id LIMIT ").push_bind(limit(most));
    query
}

pub(crate) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
