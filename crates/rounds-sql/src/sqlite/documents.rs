//! Documents on SQLite.

use rounds::{
    ledger::{
        LedgerError,
        documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
        register::Changed,
    },
    time::{BoxFuture, Timestamp},
};
use sqlx::SqliteConnection;

use super::{ledger::SqliteLedger, steps::Step};
use crate::{
    claims::millis,
    documents::{self, DocumentRow, Write},
    error::StoreError,
    flows,
};

/// Documents are in the same file.
impl Documents for SqliteLedger {
    fn read(&self, id: DocumentId, now: Timestamp) -> BoxFuture<'_, Result<Option<Document>, LedgerError>> {
        Box::pin(async move { Ok(self.0.reader.document(id, now).await?) })
    }

    fn write(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> BoxFuture<'_, Result<Option<Version>, LedgerError>> {
        Box::pin(async move {
            let growth = change.growth(before);
            self.0.shares.has_room(change.keep, growth)?;
            if !self.0.is(Step::WriteDocument(Write::of(id, before, &change))).await? {
                return Ok(None);
            }
            self.0.shares.add(change.keep, growth);
            Ok(Some(Version::next(before, &change)))
        })
    }

    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<DueDocument>, LedgerError>> {
        Box::pin(async move { Ok(self.0.reader.due(kind, now, after, most).await?) })
    }

    fn remove(&self, id: DocumentId) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move { Ok(self.0.is(Step::RemoveDocument(id)).await?) })
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        Box::pin(async move { Ok(self.0.count(Step::SweepDocuments { now, most }).await?) })
    }
}

/// Takes the write within the transaction of a step.
pub(super) async fn write(
    on: &mut SqliteConnection,
    write: &Write,
    changes: &mut Vec<Changed>,
) -> Result<bool, sqlx::Error> {
    let Write { kind, id, before, now, sealed, due, kept_until, tell } = write;
    let statement = match before {
        None => {
            "INSERT INTO rounds_documents AS known (kind, id, version, sealed, due, kept_until)
             VALUES (?1, ?2, 1, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET version = 1, sealed = excluded.sealed, due = excluded.due,
                                       kept_until = excluded.kept_until
             WHERE known.kept_until <= ?3"
        }
        Some(_) => {
            "UPDATE rounds_documents SET version = version + 1, sealed = ?4, due = ?5, kept_until = ?6
             WHERE kind = ?1 AND id = ?2 AND version = ?7 AND kept_until > ?3"
        }
    };
    let statement = sqlx::query(statement).bind(kind).bind(id).bind(now).bind(sealed).bind(due).bind(kept_until);
    let statement = if before.is_some() { statement.bind(before) } else { statement };
    let is_written = statement.execute(on).await?.rows_affected() == 1;
    if let (true, Some((flow, status))) = (is_written, tell)
        && let (Ok(id), Ok(status)) = (flows::flow_id(flow), flows::status(*status))
    {
        changes.push(Changed { id, status });
    }
    Ok(is_written)
}

pub(super) async fn remove(on: &mut SqliteConnection, id: DocumentId) -> Result<bool, sqlx::Error> {
    let remove = sqlx::query("DELETE FROM rounds_documents WHERE kind = ? AND id = ?");
    let removed = remove.bind(id.kind.as_str()).bind(&id.key.as_bytes()[..]).execute(on).await?;
    Ok(removed.rows_affected() == 1)
}

pub(super) async fn sweep(on: &mut SqliteConnection, now: Timestamp, most: usize) -> Result<u64, sqlx::Error> {
    let sweep = sqlx::query(
        "DELETE FROM rounds_documents
         WHERE rowid IN (SELECT rowid FROM rounds_documents WHERE kept_until <= ? LIMIT ?)",
    );
    Ok(sweep.bind(millis(now)).bind(documents::limit(most)).execute(on).await?.rows_affected())
}

pub(super) async fn read(
    on: &mut SqliteConnection,
    id: DocumentId,
    now: Timestamp,
) -> Result<Option<Document>, StoreError> {
    let row = documents::select(id, now).build_query_as::<DocumentRow>().fetch_optional(on).await;
    row.map_err(StoreError::of)?.map(documents::read).transpose()
}

pub(super) async fn due(
    on: &mut SqliteConnection,
    kind: DocumentKind,
    now: Timestamp,
    after: Option<DueDocument>,
    most: usize,
) -> Result<Vec<DueDocument>, StoreError> {
    let rows = documents::select_due(kind, now, after, most).build_query_as::<(i64, Vec<u8>)>().fetch_all(on).await;
    rows.map_err(StoreError::of)?.iter().map(|row| documents::due(kind, row)).collect()
}
