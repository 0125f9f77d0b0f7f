//! The tasks in the memory of this process, and how much tasks may take.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rmcp::model::{CallToolRequestParams, InputResponses, JsonObject};

use super::record::{Record, Stage};
use crate::{
    server::{
        engine::{core::Core, weight},
        policy::{limits::Limits, measure::Limit},
        seal::Digest,
    },
    shared::clock::Timestamp,
};

/// What the id of a task of ours begins with. 256 random bits follow.
const PREFIX: &str = "rounds.";

/// How often tasks that are over are looked for, and how often if there is no room for another.
const SWEEP: Duration = Duration::from_secs(60);
const SWEEP_FOR_ROOM: Duration = Duration::from_secs(1);

/// Whether a task with this id could be one of ours.
pub(super) fn is_ours(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// A new id. The same leg gets the same one on every instance.
pub(super) fn new_id(core: &Core, leg: Option<Digest>) -> String {
    let secret = leg.map_or_else(|| core.random(), |leg| core.record_keys().sealing().task(leg));
    format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(secret))
}

/// By what a task is kept: a digest of its id.
pub(super) type TaskKey = Digest;

/// Why a task is not kept, or does not get larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    #[error("too many tasks exist (limit {limit}): wait until some have expired, or raise `Limits::with_tasks`")]
    Tasks { limit: usize },
    #[error(
        "the tasks take too many bytes (limit {limit}): send less, wait until some tasks have expired, or raise \
         `Limits::with_task_bytes`"
    )]
    Bytes { limit: usize },
}

/// The tasks of this process.
#[derive(Default)]
pub(super) struct Table {
    kept: Mutex<KeptTask>,
}

#[derive(Default)]
struct KeptTask {
    tasks: HashMap<TaskKey, Arc<Entry>>,
    /// What tasks count that this process has created and that are kept elsewhere, until then.
    elsewhere: BTreeMap<(Timestamp, TaskKey), (Option<Digest>, Share)>,
    all: Share,
    /// Of callers without a principal.
    anonymous: Share,
    per_principal: HashMap<Digest, Share>,
    /// When tasks that are over were removed last.
    swept: Option<Timestamp>,
}

/// One task.
pub(super) struct Entry {
    key: TaskKey,
    owner: Option<Digest>,
    record: Mutex<Record>,
    /// What it counts for. Changed only while the table is locked.
    bytes: AtomicUsize,
}

impl Entry {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at its record.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Record) -> T) -> T {
        look(&self.record())
    }
}

impl Table {
    fn kept(&self) -> MutexGuard<'_, KeptTask> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, key: TaskKey) -> Option<Arc<Entry>> {
        self.kept().tasks.get(&key).cloned()
    }

    /// Keeps a new task, if there is room for it. False if there is one with this key.
    pub(super) fn insert(&self, core: &Core, key: TaskKey, record: Record) -> Result<bool, NoRoom> {
        let (owner, bytes) = (record.owner, weigh(&record));
        let mut kept = self.kept();
        if kept.tasks.contains_key(&key) {
            return Ok(false);
        }
        kept.make_room(core, owner, bytes)?;
        let (record, bytes) = (Mutex::new(record), AtomicUsize::new(bytes));
        kept.tasks.insert(key, Arc::new(Entry { key, owner, record, bytes }));
        Ok(true)
    }

    /// Counts a task that is kept elsewhere, until its deadline, if there is room for it.
    pub(super) fn count(&self, core: &Core, key: TaskKey, record: &Record) -> Result<(), NoRoom> {
        let (owner, bytes) = (record.owner, weigh(record));
        let mut kept = self.kept();
        kept.make_room(core, owner, bytes)?;
        kept.elsewhere.insert((record.until, key), (owner, Share { tasks: 1, bytes }));
        Ok(())
    }

    /// Does not count it after all.
    pub(super) fn uncount(&self, key: TaskKey, until: Timestamp) {
        self.kept().forget((until, key));
    }

    /// Changes the record of a task, or leaves it as it is if nothing comes of that or it would get too large.
    pub(super) fn change<T>(
        &self,
        core: &Core,
        entry: &Entry,
        change: impl FnOnce(&mut Record) -> Option<T>,
    ) -> Result<Option<T>, NoRoom> {
        let mut record = entry.record();
        let mut changed = record.clone();
        let Some(came) = change(&mut changed) else { return Ok(None) };
        self.kept().resize(core, entry, weigh(&changed))?;
        *record = changed;
        Ok(Some(came))
    }

    pub(super) fn remove(&self, key: TaskKey) {
        let mut kept = self.kept();
        let entry = kept.tasks.get(&key).cloned();
        if let Some(entry) = entry {
            kept.remove(&entry);
        }
    }
}

impl KeptTask {
    /// Counts a new task, if there is room for it.
    fn make_room(&mut self, core: &Core, owner: Option<Digest>, bytes: usize) -> Result<(), NoRoom> {
        let more = Share { tasks: 1, bytes };
        self.sweep(core.now(), SWEEP);
        if self.admit(core, owner, more).is_err() {
            self.sweep(core.now(), SWEEP_FOR_ROOM);
            self.admit(core, owner, more)?;
        }
        Ok(())
    }

    fn forget(&mut self, place: (Timestamp, TaskKey)) {
        if let Some((owner, share)) = self.elsewhere.remove(&place) {
            self.leave(owner, share);
        }
    }

    /// Removes the tasks that are over, unless that was done a short time ago.
    fn sweep(&mut self, now: Timestamp, every: Duration) {
        if self.swept.is_some_and(|swept| now.since(swept) < every) {
            return;
        }
        self.swept = Some(now);
        // One that is being changed is not over. To wait for it here would be to wait in a circle.
        let is_over = |entry: &Entry| entry.record.try_lock().is_ok_and(|record| record.is_over(now));
        let over: Vec<_> = self.tasks.values().filter(|entry| is_over(entry)).cloned().collect();
        over.iter().for_each(|entry| self.remove(entry));
        let over: Vec<_> = self.elsewhere.keys().copied().take_while(|(until, _)| *until <= now).collect();
        over.into_iter().for_each(|place| self.forget(place));
    }

    fn remove(&mut self, entry: &Entry) {
        if self.tasks.remove(&entry.key).is_none() {
            return;
        }
        self.leave(entry.owner, Share { tasks: 1, bytes: entry.bytes.load(Ordering::Relaxed) });
    }

    /// Counts a task for this many bytes from here on, if there is room for them.
    fn resize(&mut self, core: &Core, entry: &Entry, bytes: usize) -> Result<(), NoRoom> {
        if !self.tasks.contains_key(&entry.key) {
            return Ok(());
        }
        let before = entry.bytes.load(Ordering::Relaxed);
        if bytes > before {
            self.admit(core, entry.owner, Share { tasks: 0, bytes: bytes - before })?;
        } else {
            self.leave(entry.owner, Share { tasks: 0, bytes: before - bytes });
        }
        entry.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts more, if that is within all limits.
    fn admit(&mut self, core: &Core, owner: Option<Digest>, more: Share) -> Result<(), NoRoom> {
        self.count(core, owner, more).inspect_err(|_| core.limit_reached(Limit::Tasks))
    }

    fn count(&mut self, core: &Core, owner: Option<Digest>, more: Share) -> Result<(), NoRoom> {
        let Limits { tasks, tasks_per_principal, task_bytes, task_bytes_per_principal, .. } = core.limits;
        self.all.admits(more, tasks, task_bytes)?;
        match owner {
            Some(owner) => {
                let theirs = self.per_principal.get(&owner).copied().unwrap_or_default();
                theirs.admits(more, tasks_per_principal, task_bytes_per_principal)?;
            }
            // The other half is for callers with a principal.
            None if core.identifies_principals() => self.anonymous.admits(more, tasks / 2, task_bytes / 2)?,
            None => {}
        }
        self.all.add(more);
        self.share(owner).add(more);
        Ok(())
    }

    fn leave(&mut self, owner: Option<Digest>, less: Share) {
        self.all.subtract(less);
        self.share(owner).subtract(less);
        if let Some(owner) = owner.filter(|owner| self.per_principal.get(owner).is_some_and(|share| share.tasks == 0)) {
            self.per_principal.remove(&owner);
        }
    }

    fn share(&mut self, owner: Option<Digest>) -> &mut Share {
        match owner {
            Some(owner) => self.per_principal.entry(owner).or_default(),
            None => &mut self.anonymous,
        }
    }
}

/// How many tasks, and how many bytes of them.
#[derive(Clone, Copy, Default)]
struct Share {
    tasks: usize,
    bytes: usize,
}

impl Share {
    fn admits(self, more: Self, tasks: usize, bytes: usize) -> Result<(), NoRoom> {
        if self.tasks + more.tasks > tasks {
            return Err(NoRoom::Tasks { limit: tasks });
        }
        if self.bytes.saturating_add(more.bytes) > bytes {
            return Err(NoRoom::Bytes { limit: bytes });
        }
        Ok(())
    }

    fn add(&mut self, more: Self) {
        self.tasks += more.tasks;
        self.bytes += more.bytes;
    }

    fn subtract(&mut self, less: Self) {
        self.tasks = self.tasks.saturating_sub(less.tasks);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// By what the same leg is known again: its state and its answers, or the idempotency key of a first leg. None for a first
/// leg without one.
pub(super) fn leg_of(request: &CallToolRequestParams, key: Option<&str>, owner: Option<Digest>) -> Option<Digest> {
    let mut leg = JsonObject::new();
    match (&request.request_state, key) {
        (Some(state), _) => leg.insert("state".to_owned(), state.clone().into()),
        (None, Some(key)) => leg.insert("key".to_owned(), key.into()),
        (None, None) => return None,
    };
    leg.insert("answers".to_owned(), request.input_responses.clone().unwrap_or_default().into_iter().collect());
    leg.insert("tool".to_owned(), (*request.name).into());
    leg.insert("arguments".to_owned(), request.arguments.clone().unwrap_or_default().into());
    leg.insert("owner".to_owned(), owner.map(|owner| BASE64_URL_SAFE_NO_PAD.encode(owner.as_bytes())).into());
    Some(Digest::of_arguments(Some(&leg)))
}

/// What a record takes of memory, about: its JSON text, and once more what is in it as a tree.
fn weigh(record: &Record) -> usize {
    let mut text = Count(size_of::<Entry>());
    // Nothing fails to be counted: what cannot be written came from JSON.
    let _ = serde_json::to_writer(&mut text, record);
    let answers = |answers: &InputResponses| answers.values().map(weight::of).sum::<usize>();
    let tree = match &record.stage {
        Stage::Working(leg) => answers(&leg.answers),
        Stage::Asking(asking) => answers(asking.answers()),
        Stage::Completed(result) => weight::of_object(result),
        Stage::Failed(_) | Stage::Cancelled => 0,
    };
    text.0 + tree + weight::of(&record.capabilities) + record.call.arguments.as_ref().map_or(0, weight::of_object)
}

/// Counts what is written to it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
