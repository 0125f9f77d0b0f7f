//! Where tasks are kept: in the documents of a ledger that outlives the process, or else in its memory.

use rmcp::ErrorData;

use super::{
    TaskService,
    methods::unknown,
    record::Record,
    table::{NoRoom, TaskKey},
};
use crate::{
    server::{
        engine::{
            core::Core,
            documents::{Content, OpenedDocument},
        },
        ledger::{
            LedgerError,
            documents::{DocumentId, DocumentKind, Documents, Version},
        },
        policy::{error::FlowError, measure::Limit},
    },
    shared::clock::Timestamp,
};

/// How often a change is tried again if another instance has changed the task meanwhile.
const ATTEMPTS: usize = 32;

/// Why a task cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unkept {
    #[error("unknown or expired task")]
    Unknown,
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("other requests change the task all the time")]
    Busy,
}

impl From<Unkept> for ErrorData {
    fn from(unkept: Unkept) -> Self {
        match unkept {
            Unkept::Unknown => unknown(),
            Unkept::NoRoom(full) => Self::internal_error(full.to_string(), None),
            Unkept::Ledger(error) => FlowError::retry(error).into(),
            Unkept::Busy => FlowError::retry(unkept).into(),
        }
    }
}

/// The documents in which tasks are kept. None if they are kept in memory: no document outlives a ledger in memory.
pub(super) fn documents(core: &Core) -> Option<&dyn Documents> {
    core.documents().filter(|_| !core.keeps_to_itself())
}

impl TaskService {
    pub(super) async fn read(&self, core: &Core, key: TaskKey) -> Result<Record, Unkept> {
        self.look(core, key, Record::clone).await
    }

    /// Looks at a task, without a copy of what is kept in memory.
    pub(super) async fn look<T>(
        &self,
        core: &Core,
        key: TaskKey,
        look: impl FnOnce(&Record) -> T,
    ) -> Result<T, Unkept> {
        match documents(core) {
            None => Ok(self.table.find(key).ok_or(Unkept::Unknown)?.look(look)),
            Some(documents) => Ok(look(&fetch(core, documents, key).await?.0)),
        }
    }

    /// Keeps a new task, if there is room for it. False if there is one with this key.
    pub(super) async fn insert(&self, core: &Core, key: TaskKey, record: Record) -> Result<bool, Unkept> {
        let Some(documents) = documents(core) else {
            return Ok(self.table.insert(core, key, record)?);
        };
        self.table.count(core, key, &record)?;
        let written = put(core, documents, key, None, &record).await;
        if !matches!(written, Ok(Some(_))) {
            self.table.uncount(key, record.until);
        }
        Ok(written?.is_some())
    }

    /// Changes a task on its newest version. A change that gives nothing is not written.
    pub(super) async fn change<T>(
        &self,
        core: &Core,
        key: TaskKey,
        mut change: impl FnMut(&mut Record) -> Option<T>,
    ) -> Result<Option<T>, Unkept> {
        let Some(documents) = documents(core) else {
            let entry = self.table.find(key).ok_or(Unkept::Unknown)?;
            return Ok(self.table.change(core, &entry, change)?);
        };
        for _ in 0..ATTEMPTS {
            let (mut record, version) = fetch(core, documents, key).await?;
            let Some(came) = change(&mut record) else { return Ok(None) };
            if put(core, documents, key, Some(version), &record).await?.is_some() {
                return Ok(Some(came));
            }
        }
        Err(Unkept::Busy)
    }
}

fn document(key: TaskKey) -> DocumentId {
    DocumentId { kind: DocumentKind::Task, key }
}

async fn fetch(core: &Core, documents: &dyn Documents, key: TaskKey) -> Result<(Record, Version), Unkept> {
    let OpenedDocument { version, content, .. } =
        core.read_document(documents, document(key)).await?.ok_or(Unkept::Unknown)?;
    let record = serde_json::from_slice(&content);
    let record = record.inspect_err(
        |error| tracing::warn!(target: "rounds", %error, "a task of another version of this library cannot be read"),
    );
    Ok((record.map_err(|_| Unkept::Unknown)?, version))
}

async fn put(
    core: &Core,
    documents: &dyn Documents,
    key: TaskKey,
    before: Option<Version>,
    record: &Record,
) -> Result<Option<Version>, Unkept> {
    let content = serde_json::to_vec(record).expect("a record has no type that JSON cannot write");
    if content.len() > core.limits.task_bytes_per_principal {
        core.limit_reached(Limit::Tasks);
        return Err(NoRoom::Bytes { limit: core.limits.task_bytes_per_principal }.into());
    }
    let kept_until = kept_until(core, record);
    let written = Content { content, due: record.due(), kept_until, principal: record.owner, tell: None };
    Ok(core.write_document(documents, document(key), before, written).await?)
}

/// A task that works is kept longer than it may work, so that it can be said that it took too long.
fn kept_until(core: &Core, record: &Record) -> Timestamp {
    record.until.max(core.now()) + core.lifetimes.round
}
