//! Documents on Redis: a hash for each, and a sorted set of due times for each kind.

use redis::ScriptInvocation;
use rounds::{
    keys::Digest,
    ledger::{
        LedgerError,
        documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
    },
    time::{BoxFuture, Timestamp},
};

use crate::{
    connection::Away,
    ledger::{RedisLedger, kept_until, millis, yes_or_no},
    register::letter,
    scripts::documents as scripts,
};

/// The fields of a document, as `lua/documents/read.lua` returns them.
type Fields = (Option<u64>, Option<Vec<u8>>, Option<String>, Option<u64>);

impl RedisLedger {
    /// The key of a document is this, its member in the set of due times, and [`AFTER`].
    fn before_member(&self, kind: DocumentKind) -> String {
        format!("{}:{{{}:", self.prefix, kind.as_str())
    }

    fn document_key(&self, id: DocumentId) -> String {
        format!("{}{}{AFTER}", self.before_member(id.kind), member(id))
    }

    fn due_key(&self, kind: DocumentKind) -> String {
        format!("{}:documents:{}:due", self.prefix, kind.as_str())
    }

    fn write_call(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: &DocumentChange,
        again: bool,
    ) -> ScriptInvocation<'static> {
        let mut call = scripts::WRITE.prepare_invoke();
        call.key(self.document_key(id)).key(self.due_key(id.kind));
        call.arg(member(id)).arg(before.map(|before| before.number.to_string()).unwrap_or_default());
        call.arg(u8::from(again)).arg(millis(change.keep.now)).arg(&change.sealed[..]);
        call.arg(change.due.map(|due| millis(due).to_string()).unwrap_or_default()).arg(kept_until(change.keep));
        match change.tell {
            Some(told) => call.arg(self.watch_channel()).arg(format!("{}{}", letter(told.status), told.id)),
            None => call.arg("").arg(""),
        };
        call
    }

    async fn read_document(&self, id: DocumentId, now: Timestamp) -> Result<Option<Document>, LedgerError> {
        let mut call = scripts::READ.prepare_invoke();
        call.key(self.document_key(id));
        let (Some(number), Some(sealed), Some(due), Some(until)) = self.call::<Fields>(&call).await? else {
            return Ok(None);
        };
        if until <= millis(now) {
            return Ok(None);
        }
        let due = match &*due {
            "" => None,
            due => Some(Timestamp::from_millis(due.parse().map_err(|_| Away::Garbage)?)),
        };
        Ok(Some(Document { version: Version { number, bytes: sealed.len() }, sealed, due }))
    }

    async fn write_document(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> Result<Option<Version>, LedgerError> {
        let growth = change.growth(before);
        self.shares.has_room(change.keep, growth)?;
        let call = |again| self.write_call(id, before, &change, again);
        if !yes_or_no(self.connection.call(&call(false), &call(true)).await?)? {
            return Ok(None);
        }
        self.shares.add(change.keep, growth);
        Ok(Some(Version::next(before, &change)))
    }

    async fn due_documents(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> Result<Vec<DueDocument>, LedgerError> {
        let mut call = scripts::DUE.prepare_invoke();
        call.key(self.due_key(kind)).arg(self.before_member(kind)).arg(AFTER).arg(millis(now)).arg(most.min(MOST));
        let (at, last) = after.map_or_else(Default::default, |after| (millis(after.at), member(after.id)));
        let rows: Vec<(String, u64)> = self.call(call.arg(at).arg(last)).await?;
        let due = rows.into_iter().map(|(text, at)| {
            let id = of_member(kind, &text).ok_or(Away::Garbage)?;
            Ok(DueDocument { at: Timestamp::from_millis(at), id })
        });
        due.collect()
    }
}

const AFTER: &str = "}:d";

/// The most documents that one call returns.
const MOST: usize = 1000;

fn member(id: DocumentId) -> String {
    format!("{:?}", id.key)
}

fn of_member(kind: DocumentKind, text: &str) -> Option<DocumentId> {
    let mut key = [0; 32];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(DocumentId { kind, key: Digest::from_bytes(key) })
}

/// Redis removes documents whose time is over by itself. The due times are on another node than the documents, so they
/// need a Redis that is not a cluster.
impl Documents for RedisLedger {
    fn read(&self, id: DocumentId, now: Timestamp) -> BoxFuture<'_, Result<Option<Document>, LedgerError>> {
        Box::pin(self.read_document(id, now))
    }

    fn write(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> BoxFuture<'_, Result<Option<Version>, LedgerError>> {
        Box::pin(self.write_document(id, before, change))
    }

    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<DueDocument>, LedgerError>> {
        Box::pin(self.due_documents(kind, now, after, most))
    }

    fn remove(&self, id: DocumentId) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let mut call = scripts::REMOVE.prepare_invoke();
            call.key(self.document_key(id)).key(self.due_key(id.kind)).arg(member(id));
            Ok(yes_or_no(self.call(&call).await?)?)
        })
    }

    fn sweep(&self, _now: Timestamp, _most: usize) -> BoxFuture<'_, Result<u64, LedgerError>> {
        Box::pin(async { Ok(0) })
    }
}
