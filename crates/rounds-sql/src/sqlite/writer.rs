//! The one connection that writes. Steps that arrive while a commit waits for the disk share the next commit.

use std::time::Duration;

use rounds::ledger::register::{Changed, Watcher};
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    open::connect,
    steps::{Outcome, Step},
};
use crate::error::{OpenError, StoreError};

/// Limit on the steps of one commit.
const BATCH: usize = 256;

/// How often the task looks whether another process has changed the file, while there are watchers.
const LOOK: Duration = Duration::from_secs(1);

/// A handle to the task that owns the connection. The task ends with the last handle.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    steps: mpsc::Sender<Job>,
}

#[derive(Debug)]
struct Job {
    step: Step,
    done: oneshot::Sender<Result<Outcome, StoreError>>,
}

impl Writer {
    pub(crate) fn start(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        let (steps, jobs) = mpsc::channel(4 * BATCH);
        tokio::spawn(Writing { options, connection: Some(connection), watchers: Vec::new(), version: None }.run(jobs));
        Self { steps }
    }

    /// Takes a step, and returns when it is committed.
    pub(crate) async fn take(&self, step: Step, timeout: Duration) -> Result<Outcome, StoreError> {
        let (done, outcome) = oneshot::channel();
        let taken = async {
            self.steps.send(Job { step, done }).await.ok()?;
            outcome.await.ok()
        };
        match tokio::time::timeout(timeout, taken).await {
            Ok(Some(outcome)) => outcome,
            // The task has ended, because its runtime has.
            Ok(None) => Err(StoreError::Garbage),
            Err(_) => Err(StoreError::Silent { after: timeout }),
        }
    }
}

struct Writing {
    options: SqliteConnectOptions,
    /// None after a failure that may have broken it.
    connection: Option<SqliteConnection>,
    watchers: Vec<Watcher>,
    /// What SQLite said of the file last: it changes with each commit of another connection.
    version: Option<i64>,
}

impl Writing {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut batch = Vec::new();
        self.look().await;
        let mut look = interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = look.tick(), if !self.watchers.is_empty() => {
                    self.look().await;
                    continue;
                }
                arrived = jobs.recv_many(&mut batch, BATCH) => if arrived == 0 { break },
            }
            // A caller that no longer waits for a claim must not get one.
            batch.retain(|job| !(job.done.is_closed() && job.step.is_claim()));
            if batch.is_empty() {
                continue;
            }
            let unclaimed = self.commit(batch.drain(..)).await;
            if !unclaimed.is_empty() {
                // Nothing runs under these claims, so they are free again.
                let _ = self.apply(&unclaimed).await;
            }
        }
        if let Some(connection) = self.connection {
            let _ = connection.close().await;
        }
    }

    /// Ends every watch if another connection has changed the file, or if that is not known: the watchers read what they
    /// need, and watch again.
    async fn look(&mut self) {
        let version = match &mut self.connection {
            Some(connection) => sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await.ok(),
            None => None,
        };
        if version.is_none() || version != self.version {
            self.watchers.clear();
        }
        self.version = version;
    }

    /// Commits a batch, and returns the steps that free claims whose callers have gone meanwhile.
    async fn commit(&mut self, batch: impl Iterator<Item = Job>) -> Vec<Step> {
        let (steps, callers): (Vec<_>, Vec<_>) = batch.map(|job| (job.step, job.done)).unzip();
        let mut unclaimed = Vec::new();
        match self.apply(&steps).await {
            Ok(outcomes) => {
                for ((step, done), outcome) in steps.iter().zip(callers).zip(outcomes) {
                    if let Err(Ok(outcome)) = done.send(Ok(outcome)) {
                        unclaimed.extend(step.undone(&outcome));
                    }
                }
            }
            Err(error) => callers.into_iter().for_each(|done| drop(done.send(Err(error.clone())))),
        }
        unclaimed
    }

    /// Takes all steps in one transaction, or none of them.
    async fn apply(&mut self, steps: &[Step]) -> Result<Vec<Outcome>, StoreError> {
        // Not put back after an error: a new connection has no open transaction.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.options, Duration::ZERO).await.map_err(|error| match error {
                OpenError::Store(error) => error,
                _ => StoreError::Garbage,
            })?,
        };
        let (outcomes, changes) = transaction(&mut connection, steps).await.map_err(StoreError::of)?;
        self.connection = Some(connection);
        self.tell(steps, &changes);
        Ok(outcomes)
    }

    /// Tells the watchers what was committed, and keeps new ones.
    fn tell(&mut self, steps: &[Step], changes: &[Changed]) {
        self.watchers.retain(|watcher| changes.iter().all(|changed| watcher.tell(*changed)));
        self.watchers.extend(steps.iter().filter_map(|step| match step {
            Step::Watch(watcher) => Some(watcher.clone()),
            _ => None,
        }));
    }
}

type Taken = (Vec<Outcome>, Vec<Changed>);

async fn transaction(connection: &mut SqliteConnection, steps: &[Step]) -> Result<Taken, sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let (mut outcomes, mut changes) = (Vec::with_capacity(steps.len()), Vec::new());
    for step in steps {
        outcomes.push(step.apply(&mut transaction, &mut changes).await?);
    }
    transaction.commit().await?;
    Ok((outcomes, changes))
}
