//! [`Flows`]: the flows that a server knows, and the decisions on their questions that are answered elsewhere.

mod approve;
mod decide;
mod decision;
mod notice;
mod question;

pub(crate) use self::{approve::Deciders, decision::fingerprint, notice::NoticeDocument};
pub use self::{
    approve::{Approve, Roles},
    decision::{DecideError, Decision, DecisionOutcome, RecordedDecision, Verdict, Way},
    notice::Notified,
    question::{ElsewhereKind, QuestionElsewhere},
};

use std::{fmt, sync::Arc, time::Duration};

use super::{
    engine::{
        core::{Core, Keys},
        register::{AT_ONCE, details::FlowDetails, slack, sweep_all},
    },
    ledger::{
        Ledger, LedgerError,
        documents::{DocumentChange, DocumentId, DocumentKind, Documents, Version},
        record::Place,
        register::{
            FlowCounts, FlowCursor, FlowEnd, FlowFilter, FlowPage, FlowRecord, FlowSet, FlowStatus, Register, Watch,
        },
        sealed::Sealed,
    },
    policy::{limits::Limits, principal::Principal},
    seal::{FlowId, KeyRing, cipher::Nonce, ring::DerivedRing},
};
use crate::shared::clock::{Clock, SystemClock, Timestamp};

/// A handle on the flows of a server, made by [`Rounds::flows`](crate::Rounds::flows), or by [`Flows::open`] where no
/// server runs.
///
/// It does not decide who may see or cancel a flow: the caller does, before it calls.
///
/// ```
/// # use rmcp::ServerHandler;
/// # use rounds::{Rounds, register::{FlowQuery, FlowStatus}};
/// # struct Shop;
/// # impl ServerHandler for Shop {}
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let server = Rounds::builder(Shop).register().build()?;
/// let waiting = server.flows().list(FlowQuery::new().status(FlowStatus::Waiting)).await?;
/// for flow in &waiting.flows {
///     println!("{} {} since {:?}", flow.id, flow.target, flow.created);
/// }
/// # assert!(waiting.flows.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Flows {
    ledger: Arc<dyn Ledger>,
    keys: KeySource,
    clock: Arc<dyn Clock>,
    retention: Duration,
    slack: Duration,
    /// The server whose flows these are, if it runs in this process.
    core: Option<Arc<Core>>,
    is_on: bool,
    /// The largest decision.
    record_bytes: usize,
    /// Who may decide what.
    deciders: Option<Arc<Deciders>>,
}

/// Where the keys come from: a running server's may change.
#[derive(Clone)]
enum KeySource {
    Server(Arc<Core>),
    Ring(Arc<DerivedRing>),
}

impl Flows {
    pub(crate) fn of(core: &Arc<Core>, deciders: Option<Arc<Deciders>>) -> Self {
        Self {
            ledger: core.ledger.clone(),
            keys: KeySource::Server(core.clone()),
            clock: core.clock.clone(),
            retention: core.flow_end(core.now()).retention,
            slack: slack(&core.limits),
            core: Some(core.clone()),
            is_on: core.registering.is_some(),
            record_bytes: core.limits.record_bytes,
            deciders,
        }
    }

    /// The flows in a ledger whose servers run elsewhere: for commands and dashboards. The keys and the audience are those
    /// of the servers. Without an audience only an ephemeral ring can be used, as for a server.
    ///
    /// # Errors
    ///
    /// [`FlowsError::NoAudience`] if the ring needs an audience, [`FlowsError::NoRegister`] if the ledger keeps no
    /// register.
    pub fn open(ledger: impl Ledger, keys: &KeyRing, audience: Option<&str>) -> Result<Self, FlowsError> {
        let keys = Keys::derive(keys, audience).ok_or(FlowsError::NoAudience)?;
        if ledger.register().is_none() {
            return Err(FlowsError::NoRegister);
        }
        Ok(Self {
            ledger: Arc::new(ledger),
            keys: KeySource::Ring(keys.records()),
            clock: Arc::new(SystemClock),
            retention: Duration::from_secs(24 * 3600),
            slack: slack(&Limits::default()),
            core: None,
            is_on: true,
            record_bytes: Limits::default().record_bytes,
            deciders: None,
        })
    }

    /// Lists flows, oldest first, without opening anything that is sealed.
    ///
    /// # Errors
    ///
    /// [`FlowsError`] if the server keeps no register or the store is unavailable. That holds for every method here.
    pub async fn list(&self, query: FlowQuery) -> Result<FlowPage, FlowsError> {
        let filter = query.filter(self);
        Ok(self.register()?.list(filter).await?)
    }

    /// Counts the flows with this status, or all flows, by their tools, without opening anything that is sealed. Where
    /// counting costs more with more flows, at most `most` are counted.
    pub async fn count(&self, status: Option<FlowStatus>, most: usize) -> Result<FlowCounts, FlowsError> {
        Ok(self.register()?.count(status, self.now(), most).await?)
    }

    /// One flow with its timeline. The id is that of the register; the name of the flow, as logs and events have it, is
    /// found as well.
    pub async fn get(&self, id: FlowId) -> Result<Option<FlowRecord>, FlowsError> {
        let register = self.register()?;
        for id in [id, id.in_ledger()] {
            if let Some(record) = register.get(id, self.now()).await? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Opens what is sealed in a record: arguments, questions, answers, result.
    ///
    /// # Errors
    ///
    /// [`FlowsError::Unreadable`] if a part does not open: it was changed in the store or belongs to another flow, or
    /// its key is not in the ring.
    pub fn details(&self, record: &FlowRecord) -> Result<FlowDetails, FlowsError> {
        let id = record.summary.id;
        let mut parts = Vec::new();
        for (number, sealed) in &record.parts {
            parts.push((*number, self.opened(id, *number, sealed.clone())?));
        }
        FlowDetails::read(record, parts.into_iter()).ok_or(FlowsError::Unreadable { id })
    }

    /// Cancels a flow, for a cause that is logged. Its tokens are refused from then on with the frozen error, and its
    /// handler is dropped, on this instance at once and on others when they learn of it. An effect in a `once` that has
    /// begun runs to its end.
    ///
    /// Returns the status before. If that was not [open](FlowStatus::is_open), the flow had ended already and nothing
    /// has changed. None if there is no such flow.
    pub async fn cancel(&self, id: FlowId, cause: &str) -> Result<Option<FlowStatus>, FlowsError> {
        let Some(id) = self.find(id).await? else { return Ok(None) };
        let before = self.register()?.cancel(id, self.end()).await?;
        if before.is_some_and(FlowStatus::is_open) {
            tracing::info!(target: "rounds", flow = %id, cause, "a flow was cancelled");
            self.abort(id);
        }
        Ok(before)
    }

    /// Deletes the record of a flow. If the flow is open, it is cancelled. Returns whether there was one.
    ///
    /// Sealed replies of its rounds stay in the ledger until the rounds expire, for retries that are refused.
    pub async fn delete(&self, id: FlowId) -> Result<bool, FlowsError> {
        let Some(id) = self.find(id).await? else { return Ok(false) };
        let deleted = self.register()?.delete(FlowSet::One(id), self.end()).await? > 0;
        if deleted {
            tracing::info!(target: "rounds", flow = %id, "the record of a flow was deleted");
            self.abort(id);
        }
        Ok(deleted)
    }

    /// Deletes all records of a principal, and cancels its open flows. Returns how many there were.
    ///
    /// A principal is known in records by a digest under the key that sealed then. The records under keys that were
    /// retired are found only by their flows.
    pub async fn delete_principal(&self, principal: &Principal) -> Result<u64, FlowsError> {
        let open = self.list(FlowQuery::new().principal(principal).most(usize::MAX >> 1)).await?;
        let set = FlowSet::Principal(self.digests(principal));
        let deleted = self.register()?.delete(set, self.end()).await?;
        tracing::info!(target: "rounds", deleted, "the records of a principal were deleted");
        open.flows.iter().for_each(|flow| self.abort(flow.id));
        Ok(deleted)
    }

    /// Watches the changes that all instances make.
    pub async fn watch(&self) -> Result<Watch, FlowsError> {
        Ok(self.register()?.watch().await?)
    }

    /// Removes the records whose time is over, and returns how many. Every instance does that from time to time.
    pub async fn sweep(&self) -> Result<u64, FlowsError> {
        Ok(sweep_all(self.register()?, self.now()).await?)
    }

    /// How many open flows use a key that this ring does not have.
    pub(crate) async fn without_key_in(&self, ring: &DerivedRing) -> Result<u64, FlowsError> {
        let mut count = 0;
        for status in [FlowStatus::Waiting, FlowStatus::Working] {
            let mut after = None;
            loop {
                let query = FlowQuery { status: Some(status), after, most: AT_ONCE, ..FlowQuery::new() };
                let page = self.list(query).await?;
                let uses = |keys: &[[u8; 8]]| keys.iter().any(|key| ring.find(*key).is_none());
                count += page.flows.iter().filter(|flow| uses(&flow.keys)).count() as u64;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(count)
    }

    fn register(&self) -> Result<&dyn Register, FlowsError> {
        self.ledger.register().filter(|_| self.is_on).ok_or(FlowsError::Off)
    }

    /// The id of the register for an id or a name.
    async fn find(&self, id: FlowId) -> Result<Option<FlowId>, FlowsError> {
        Ok(self.get(id).await?.map(|record| record.summary.id))
    }

    fn abort(&self, id: FlowId) {
        if let Some(core) = &self.core {
            core.abort_flow(id);
        }
    }

    fn opened(&self, id: FlowId, number: u32, sealed: Vec<u8>) -> Result<Vec<u8>, FlowsError> {
        if self.ledger.is_beside_the_keys(Sealed) {
            return Ok(sealed);
        }
        Place::Part(id, number).open(&self.ring(), sealed).map_err(|_| FlowsError::Unreadable { id })
    }

    /// Reads a document and opens it.
    pub(crate) async fn read_document(&self, id: DocumentId) -> Result<Option<(Version, Vec<u8>)>, FlowsError> {
        let Some(document) = self.documents()?.read(id, self.now()).await? else { return Ok(None) };
        if self.ledger.is_beside_the_keys(Sealed) {
            return Ok(Some((document.version, document.sealed)));
        }
        let opened = Place::Document(id).open(&self.ring(), document.sealed);
        opened.map(|content| Some((document.version, content))).map_err(|_| FlowsError::UnreadableDocument)
    }

    /// Writes a document if this is its newest version. None if it is not.
    pub(crate) async fn write_document(
        &self,
        id: DocumentId,
        before: Option<Version>,
        mut change: DocumentChange,
    ) -> Result<Option<Version>, FlowsError> {
        if !self.ledger.is_beside_the_keys(Sealed) {
            change.sealed = Place::Document(id).seal(&self.ring(), self.nonce(), &change.sealed);
        }
        Ok(self.documents()?.write(id, before, change).await?)
    }

    /// Removes a document.
    pub(crate) async fn remove_document(&self, id: DocumentId) -> Result<(), FlowsError> {
        Ok(self.documents()?.remove(id).await.map(drop)?)
    }

    /// The documents of a kind that are due, read in pages of so many.
    pub(crate) async fn due_documents(&self, kind: DocumentKind, page: usize) -> Result<Vec<DocumentId>, FlowsError> {
        /// Documents that this server cannot open stay due, and must not hide those behind them.
        const MOST: usize = 10_000;
        let (documents, now) = (self.documents()?, self.now());
        let (mut ids, mut last) = (Vec::new(), None);
        while ids.len() < MOST {
            let due = documents.due(kind, now, last, page).await?;
            ids.extend(due.iter().map(|due| due.id));
            last = due.last().copied();
            if due.len() < page {
                break;
            }
        }
        Ok(ids)
    }

    /// Removes documents whose time is over, at most so many at a time.
    pub(crate) async fn sweep_documents(&self, most: usize) -> Result<(), FlowsError> {
        while self.documents()?.sweep(self.now(), most).await? == most as u64 {}
        Ok(())
    }

    /// Lets the server of this process look at once whether there is something to be done.
    pub(crate) fn wake(&self) {
        if let Some(elsewhere) = self.core.as_ref().and_then(|core| core.elsewhere.as_ref()) {
            elsewhere.wake.notify_one();
        }
    }

    fn documents(&self) -> Result<&dyn Documents, FlowsError> {
        self.ledger.documents().ok_or(FlowsError::NoDocuments)
    }

    fn nonce(&self) -> Nonce {
        let mut nonce = Nonce::default();
        match &self.core {
            Some(core) => return core.new_nonce(),
            None => getrandom::fill(&mut nonce).expect("the operating system provides randomness"),
        }
        nonce
    }

    fn ring(&self) -> Arc<DerivedRing> {
        match &self.keys {
            KeySource::Server(core) => core.record_keys(),
            KeySource::Ring(ring) => ring.clone(),
        }
    }

    /// The digests by which records know a principal: one for each key.
    fn digests(&self, principal: &Principal) -> Vec<[u8; 16]> {
        let digest = principal.digest();
        match self.ledger.is_beside_the_keys(Sealed) {
            true => vec![digest.half()],
            false => self.ring().all().iter().map(|key| key.share(digest)).collect(),
        }
    }

    fn end(&self) -> FlowEnd {
        FlowEnd { now: self.now(), retention: self.retention, slack: self.slack }
    }

    /// The current time by the clock of the server, which the times in records are measured by.
    pub fn now(&self) -> Timestamp {
        self.clock.now().into()
    }

    /// Whether the server keeps a register. If it does not, every request here fails with [`FlowsError::Off`].
    pub fn is_on(&self) -> bool {
        self.is_on && self.ledger.register().is_some()
    }
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("is_on", &self.is_on).finish_non_exhaustive()
    }
}

/// Which flows to list.
#[derive(Debug, Clone)]
#[must_use]
pub struct FlowQuery {
    status: Option<FlowStatus>,
    target: Option<String>,
    principal: Option<Principal>,
    older_than: Option<Duration>,
    after: Option<FlowCursor>,
    most: usize,
}

impl FlowQuery {
    /// All flows, a hundred on a page.
    pub fn new() -> Self {
        Self { status: None, target: None, principal: None, older_than: None, after: None, most: FlowFilter::PAGE }
    }

    /// Only those with this status.
    pub fn status(mut self, status: FlowStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Only those of this tool or prompt.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Only those of this principal.
    pub fn principal(mut self, principal: &Principal) -> Self {
        self.principal = Some(principal.clone());
        self
    }

    /// Only those that asked for the first time longer ago than this.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Only those after this position, which is [`FlowPage::next`] of the page before.
    pub fn after(mut self, cursor: FlowCursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// How many at most on a page.
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    fn filter(self, flows: &Flows) -> FlowFilter {
        let now = flows.now();
        let before = |age| Timestamp::from_millis(now.as_millis().saturating_sub(Duration::as_millis(&age) as u64));
        FlowFilter {
            status: self.status,
            target: self.target,
            principal: self.principal.map(|principal| flows.digests(&principal)),
            created_before: self.older_than.map(before),
            after: self.after,
            most: self.most,
            ..FlowFilter::new(now)
        }
    }
}

impl Default for FlowQuery {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a request to [`Flows`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowsError {
    /// The server keeps no register.
    #[error("this server keeps no register: add `.register()` where it is built")]
    Off,
    /// The ledger keeps no register.
    #[error("this ledger keeps no register: use one that does, such as that of `rounds-redis`")]
    NoRegister,
    /// The ring needs an audience.
    #[error("the keys need the audience that the servers were built with")]
    NoAudience,
    /// A sealed part of a record does not open.
    #[error(
        "the record of the flow {id} does not open: it was changed in the store or copied from another flow, or the key that \
         sealed it is not in the ring"
    )]
    Unreadable {
        /// The id of the flow in the register.
        id: FlowId,
    },
    /// The ledger keeps no documents, and so no decisions.
    #[error("this ledger keeps no decisions: use one that keeps documents, such as `MemoryLedger`")]
    NoDocuments,
    /// A document does not open.
    #[error("a document does not open: it was changed in the store, or the key that sealed it is not in the ring")]
    UnreadableDocument,
    /// The store is unavailable.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}
