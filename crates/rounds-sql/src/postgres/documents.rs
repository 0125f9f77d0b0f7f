//! Documents on Postgres.

use rounds::{
    ledger::{
        LedgerError,
        documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
    },
    time::{BoxFuture, Timestamp},
};
use sqlx::query_as;

use super::{connections::Call, ledger::PostgresLedger};
use crate::{
    claims::millis,
    documents::{self, DocumentRow, Write},
};

/// Documents are in the same database.
impl Documents for PostgresLedger {
    fn read(&self, id: DocumentId, now: Timestamp) -> BoxFuture<'_, Result<Option<Document>, LedgerError>> {
        Box::pin(async move {
            let rows: Vec<DocumentRow> = self.0.connections.all(|| documents::select(id, now)).await?;
            Ok(rows.into_iter().next().map(documents::read).transpose()?)
        })
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
            let write = Write::of(id, before, &change);
            let (is_written,) = self
                .0
                .connections
                .call(|again| -> Call<(bool,)> {
                    let Write { kind, id, before, now, sealed, due, kept_until, tell } = write.clone();
                    let call = query_as("SELECT rounds_write_document($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
                    let call = call.bind(kind).bind(id).bind(before).bind(again).bind(now).bind(sealed).bind(due);
                    let (flow, status) = tell.unzip();
                    call.bind(kept_until).bind(flow).bind(status)
                })
                .await?;
            if !is_written {
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
        Box::pin(async move {
            let select = || documents::select_due(kind, now, after, most);
            let rows: Vec<(i64, Vec<u8>)> = self.0.connections.all(select).await?;
            let due: Result<_, _> = rows.iter().map(|row| documents::due(kind, row)).collect();
            Ok(due?)
        })
    }

    fn remove(&self, id: DocumentId) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let remove = |_| -> Call<(i64,)> {
                let call = query_as(
                    "WITH gone AS (DELETE FROM rounds_documents WHERE kind = $1 AND id = $2 RETURNING 1) \
                     SELECT count(*) FROM gone",
                );
                call.bind(id.kind.as_str()).bind(id.key.as_bytes().to_vec())
            };
            Ok(self.count(remove).await? == 1)
        })
    }

    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        let (now, most) = (millis(now), documents::limit(most));
        Box::pin(async move {
            let sweep = |_| -> Call<(i64,)> {
                let call = query_as(
                    "WITH gone AS (DELETE FROM rounds_documents WHERE (kind, id) IN \
                     (SELECT kind, id FROM rounds_documents WHERE kept_until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) \
                     RETURNING 1) SELECT count(*) FROM gone",
                );
                call.bind(now).bind(most)
            };
            self.count(sweep).await
        })
    }
}
