//! A connection that only reads. In WAL mode it neither waits for the writer nor delays it.

use rounds::{
    FlowId,
    ledger::{
        documents::{Document, DocumentId, DocumentKind, DueDocument},
        register::{FlowCounts, FlowFilter, FlowPage, FlowRecord, FlowStatus},
    },
    time::Timestamp,
};
use sqlx::{SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::Mutex;

use super::{documents, flows, open::connect};
use crate::error::{OpenError, StoreError};

#[derive(Debug)]
pub(super) struct Reader {
    options: SqliteConnectOptions,
    /// Opened on first use, and again after a failure.
    connection: Mutex<Option<SqliteConnection>>,
}

impl Reader {
    pub(super) fn new(options: SqliteConnectOptions) -> Self {
        Self { options, connection: Mutex::default() }
    }

    pub(super) async fn get(&self, id: FlowId, now: Timestamp) -> Result<Option<FlowRecord>, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.open(slot.take()).await?;
        let record = flows::get(&mut connection, id, now).await?;
        *slot = Some(connection);
        Ok(record)
    }

    pub(super) async fn list(&self, filter: &FlowFilter) -> Result<FlowPage, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.open(slot.take()).await?;
        let page = flows::list(&mut connection, filter).await?;
        *slot = Some(connection);
        Ok(page)
    }

    pub(super) async fn count(
        &self,
        status: Option<FlowStatus>,
        now: Timestamp,
        most: usize,
    ) -> Result<FlowCounts, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.open(slot.take()).await?;
        let counts = flows::count(&mut connection, status, now, most).await?;
        *slot = Some(connection);
        Ok(counts)
    }

    pub(super) async fn document(&self, id: DocumentId, now: Timestamp) -> Result<Option<Document>, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.open(slot.take()).await?;
        let document = documents::read(&mut connection, id, now).await?;
        *slot = Some(connection);
        Ok(document)
    }

    pub(super) async fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> Result<Vec<DueDocument>, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.open(slot.take()).await?;
        let due = documents::due(&mut connection, kind, now, after, most).await?;
        *slot = Some(connection);
        Ok(due)
    }

    async fn open(&self, kept: Option<SqliteConnection>) -> Result<SqliteConnection, StoreError> {
        match kept {
            Some(connection) => Ok(connection),
            None => connect(&self.options, std::time::Duration::ZERO).await.map_err(|error| match error {
                OpenError::Store(error) => error,
                _ => StoreError::Garbage,
            }),
        }
    }
}
