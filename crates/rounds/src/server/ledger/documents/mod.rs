//! Documents: small records that several instances change in turn, kept in the same store as claims.
//!
//! A task and the decision on a question that is answered elsewhere are documents. A store knows of a document only its
//! id, its version and its times; the content is sealed. [`Ledger::documents`](super::Ledger::documents) says whether a
//! ledger keeps them.

#[cfg(any(test, feature = "test"))]
pub mod suite;

use super::{LedgerError, Retention, register::Changed};
use crate::{
    server::seal::Digest,
    shared::clock::{BoxFuture, Timestamp},
};

/// A store of documents, beside the claims of a [`Ledger`](super::Ledger).
///
/// A document changes only by [`write`](Self::write), which is one atomic step and succeeds only if the writer has seen
/// the newest version. Of several writers at the same time, one succeeds.
pub trait Documents: Send + Sync {
    /// A document. None if there is none, or if its time is over at `now`.
    fn read(&self, id: DocumentId, now: Timestamp) -> BoxFuture<'_, Result<Option<Document>, LedgerError>>;

    /// Writes a document if its newest version is `before`; with none, if there is no document. Returns the new version.
    /// None if there is another version: then nothing has changed. A document whose time is over counts as none.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if the document is new or has grown, and does not fit: then nothing has changed.
    fn write(
        &self,
        id: DocumentId,
        before: Option<Version>,
        change: DocumentChange,
    ) -> BoxFuture<'_, Result<Option<Version>, LedgerError>>;

    /// The documents of a kind whose [`due`](DocumentChange::due) time has come, in the order of [`DueDocument`]: the
    /// longest overdue first. At most so many, and only those after `after`, the last one of the page before.
    ///
    /// A store may limit a page to 1,000. A page that is shorter than `most` and than 1,000 is the last one.
    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<DueDocument>, LedgerError>>;

    /// Removes a document, whatever its version. False if there was none.
    fn remove(&self, id: DocumentId) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// Removes documents whose time is over, at most so many, and returns how many. A store that does that by itself
    /// may return zero.
    fn sweep(&self, now: Timestamp, most: usize) -> BoxFuture<'_, Result<u64, LedgerError>>;
}

/// A document's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentId {
    /// The kind.
    pub kind: DocumentKind,
    /// A digest that only a party that knows the document's name can compute.
    pub key: Digest,
}

/// A document whose time has come. It is ordered by that time, and then by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DueDocument {
    /// The time at which it was due.
    pub at: Timestamp,
    /// The document.
    pub id: DocumentId,
}

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DocumentKind {
    /// A call behind a handle that is polled.
    Task,
    /// The answer to a question that does not come through the client.
    Decision,
    /// A call that goes on by itself once its questions are decided.
    Call,
    /// A notification of a question, and whether it was sent.
    Notice,
}

impl DocumentKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Task, Self::Decision, Self::Call, Self::Notice];

    /// The name of the kind where it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Decision => "decision",
            Self::Call => "call",
            Self::Notice => "notice",
        }
    }
}

/// A version of a document. Only a store makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The number of writes so far.
    pub number: u64,
    /// The size of the content, by which a store knows how much the next version has grown.
    pub bytes: usize,
}

impl Version {
    /// The version after this one, or the first one.
    pub fn next(before: Option<Self>, change: &DocumentChange) -> Self {
        Self { number: before.map_or(0, |before| before.number) + 1, bytes: change.sealed.len() }
    }
}

/// A document as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its version, for the next write.
    pub version: Version,
    /// The content, sealed under the server's keys and bound to the id. Only a
    /// [`MemoryLedger`](crate::ledger::MemoryLedger) gets it as plain bytes.
    pub sealed: Vec<u8>,
    /// When it is [due](DocumentChange::due).
    pub due: Option<Timestamp>,
}

/// What a write stores.
#[derive(Debug, Clone)]
pub struct DocumentChange {
    /// The content.
    pub sealed: Vec<u8>,
    /// When an instance should look at the document, such as the end of a lease. None if that need not happen.
    pub due: Option<Timestamp>,
    /// How long the document is kept, and whose share it counts against.
    pub keep: Retention,
    /// What the watchers of the [register](super::register::Register::watch) are told when it is written.
    pub tell: Option<Changed>,
}

impl DocumentChange {
    /// What a document takes beside its content: its columns and its places in the indexes.
    pub const OVERHEAD: usize = 256;

    /// How many bytes a write adds to what its caller's share has.
    pub fn growth(&self, before: Option<Version>) -> usize {
        match before {
            None => self.sealed.len() + Self::OVERHEAD,
            Some(before) => self.sealed.len().saturating_sub(before.bytes),
        }
    }
}
