//! The engine's side of documents: what is written is sealed on the way in and opened on the way out.

use super::core::Core;
use crate::{
    server::{
        ledger::{
            LedgerError,
            documents::{DocumentChange, DocumentId, Documents, Version},
            record::Place,
            register::Changed,
        },
        seal::Digest,
    },
    shared::clock::Timestamp,
};

/// A document that was read and opened.
pub(crate) struct OpenedDocument {
    pub(crate) version: Version,
    pub(crate) content: Vec<u8>,
}

/// What is written, in plain.
pub(crate) struct Content {
    pub(crate) content: Vec<u8>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) kept_until: Timestamp,
    /// Whose share it counts against.
    pub(crate) principal: Option<Digest>,
    pub(crate) tell: Option<Changed>,
}

impl Core {
    /// The documents of this server's ledger, if it keeps any.
    pub(crate) fn documents(&self) -> Option<&dyn Documents> {
        self.ledger.documents()
    }

    /// Reads a document. One that does not open is as good as none.
    pub(crate) async fn read_document(
        &self,
        documents: &dyn Documents,
        id: DocumentId,
    ) -> Result<Option<OpenedDocument>, LedgerError> {
        let Some(document) = documents.read(id, self.now()).await? else { return Ok(None) };
        let content = self.opened(Place::Document(id), document.sealed);
        Ok(content.map(|content| OpenedDocument { version: document.version, content }))
    }

    /// Writes a document if this is its newest version, as [`Documents::write`] does.
    pub(crate) async fn write_document(
        &self,
        documents: &dyn Documents,
        id: DocumentId,
        before: Option<Version>,
        Content { content, due, kept_until, principal, tell }: Content,
    ) -> Result<Option<Version>, LedgerError> {
        let sealed = self.sealed(Place::Document(id), content);
        let keep = self.keep(kept_until, principal);
        documents.write(id, before, DocumentChange { sealed, due, keep, tell }).await
    }
}
