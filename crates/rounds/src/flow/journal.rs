//! The journal: what a durable handler has been through, so that it can go through it again.
//!
//! A handler that is run from the top meets its own past here: each operation finds its entry by position, checks that it is
//! of the same kind, name and question, and takes the recorded value. Past the last entry, operations are live.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rmcp::model::InputResponses;
use serde::{Deserialize, Serialize};

use crate::{
    answer::Received,
    clock::Timestamp,
    error::FlowError,
    limits::Limits,
    seal::{
        Digest,
        envelope::{Asked, Settled},
    },
};

/// One thing that a handler has been through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A question was answered.
    Answer { key: String, question: Digest, answer: Settled },
    /// A question could not be asked of this client, and was answered otherwise or not at all.
    Unasked { key: String, question: Digest },
    /// A question was answered with something that does not fit, and asked again.
    Misfit { key: String, question: Digest, problem: String },
    /// An effect happened, and came to this value, as JSON text.
    Once { name: String, value: String },
    /// The time was looked at.
    Now(Timestamp),
    /// Random bytes were drawn.
    Random([u8; 32]),
    /// The handler found that it has this change.
    Patched(String),
    /// All so far was put into the client's hands.
    Checkpoint,
}

impl fmt::Display for Entry {
    /// As the log tells it: what it is, and nothing of what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { key, .. } | Self::Unasked { key, .. } | Self::Misfit { key, .. } => {
                write!(f, "the question `{key}`")
            }
            Self::Once { name, .. } => write!(f, "the effect `{name}`"),
            Self::Now(_) => f.write_str("a look at the time"),
            Self::Random(_) => f.write_str("random bytes"),
            Self::Patched(id) => write!(f, "the change `{id}`"),
            Self::Checkpoint => f.write_str("a checkpoint"),
        }
    }
}

impl Entry {
    fn key(&self) -> Option<&str> {
        match self {
            Self::Answer { key, .. } | Self::Unasked { key, .. } | Self::Misfit { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// What a token carries of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pages {
    pub(crate) entries: Vec<Entry>,
    /// The questions that are open, by key, as they were asked. One that has changed since is asked again.
    pub(crate) open: Vec<(String, Digest)>,
}

impl Pages {
    /// As it is saved for people and for tests. Unlike in a token, the version comes along.
    pub(crate) fn to_json(&self) -> String {
        let Self { entries, open } = self.clone();
        let saved = Saved { version: Saved::VERSION, entries, open };
        serde_json::to_string(&saved).expect("a journal has no type that JSON cannot write")
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    pub(crate) fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        let Saved { version, entries, open } = serde_json::from_str(json)?;
        if version != Saved::VERSION {
            let known = Saved::VERSION;
            let error = format!("a journal of version {version}, and this is version {known}");
            return Err(serde::de::Error::custom(error));
        }
        Ok(Self { entries, open })
    }
}

/// A journal as JSON.
#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    entries: Vec<Entry>,
    open: Vec<(String, Digest)>,
}

impl Saved {
    const VERSION: u32 = 1;
}

/// A journal in use: the past of one flow, and where the handler is in it.
pub(crate) struct Journal {
    state: Mutex<State>,
    /// How many entries there may be.
    limit: usize,
    /// How large one may be.
    entry_bytes: usize,
    /// How large all of them may be, to fit into a token.
    bytes: usize,
    /// Whether the handler is only shown its past: it stops where it would have an effect.
    dry: bool,
}

struct State {
    entries: Vec<Entry>,
    /// The next entry to be met.
    at: usize,
    open: Vec<(String, Digest)>,
    /// The answers that came with this leg, to what is open.
    arrived: Vec<(String, Received)>,
    /// Whether the round that this leg answers was a checkpoint, still to be met.
    passed: bool,
    /// The questions that are asked together just now, which may be answered in any order.
    group: Option<Group>,
    busy: bool,
    fault: Option<Fault>,
}

struct Group {
    keys: Vec<String>,
    /// Which entries, counted from where the handler is, were met.
    met: BTreeSet<usize>,
}

/// What ends a durable flow whatever its handler makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The handler took another way than the one recorded.
    Diverged { position: usize, recorded: String, wanted: String },
    /// Two operations at once.
    Concurrent,
    /// Waiting for something that is no operation of the flow.
    Strayed,
    /// The handler was only shown its past, and came to an effect that is not in it.
    Live { effect: String },
}

impl From<Fault> for FlowError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Diverged { position, recorded, wanted } => Self::Diverged { position, recorded, wanted },
            Fault::Concurrent => Self::Concurrent,
            Fault::Strayed => Self::Strayed,
            Fault::Live { effect } => Self::Failed(format!("a replay has no effects, and this is `{effect}`")),
        }
    }
}

impl Journal {
    /// A journal that begins with what a token carried and what came with the leg.
    pub(crate) fn resumed(pages: Pages, asked: &[Asked], sent: &InputResponses, limits: &Limits) -> Self {
        let arrived = asked.iter().filter_map(|Asked { key, kind }| {
            let raw = sent.get(key)?;
            Some((key.clone(), Received::read(*kind, raw)))
        });
        let state = State {
            at: 0,
            arrived: arrived.collect(),
            passed: asked.is_empty(),
            open: pages.open,
            entries: pages.entries,
            group: None,
            busy: false,
            fault: None,
        };
        Self {
            state: Mutex::new(state),
            limit: limits.onces,
            entry_bytes: limits.once_bytes,
            // Base64 makes four characters of three bytes.
            bytes: limits.token_bytes / 4 * 3,
            dry: false,
        }
    }

    /// A journal with nothing in it yet.
    pub(crate) fn empty(limits: &Limits) -> Self {
        let journal = Self::resumed(Pages::default(), &[], &InputResponses::new(), limits);
        journal.state().passed = false;
        journal
    }

    /// A journal to show a handler its past by, and no more: questions are not answered, and no effect is had.
    #[cfg(feature = "test")]
    pub(crate) fn dry(pages: Pages, limits: &Limits) -> Self {
        let mut journal = Self::resumed(pages, &[], &InputResponses::new(), limits);
        journal.state().passed = false;
        journal.dry = true;
        journal
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ends the flow, if something does.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    pub(crate) fn set_fault(&self, fault: Fault) -> FlowError {
        self.state().fault.get_or_insert(fault).clone().into()
    }

    /// The handler has come to its end, which has to be the journal's as well.
    pub(crate) fn end(&self) {
        let state = self.state();
        if let Some(entry) = state.entries.get(state.at) {
            let (position, recorded) = (state.at, entry.to_string());
            drop(state);
            self.set_fault(Fault::Diverged { position, recorded, wanted: "its end".to_owned() });
        }
    }

    /// An operation begins. It ends when what this gives is dropped.
    pub(crate) fn begin(&self) -> Result<Operation<'_>, FlowError> {
        let mut state = self.state();
        if let Some(fault) = &state.fault {
            return Err(fault.clone().into());
        }
        if std::mem::replace(&mut state.busy, true) {
            drop(state);
            return Err(self.set_fault(Fault::Concurrent));
        }
        Ok(Operation { journal: self })
    }

    /// What the next token carries.
    pub(crate) fn pages(&self, open: Vec<(String, Digest)>) -> Pages {
        Pages { entries: self.state().entries.clone(), open }
    }
}

/// One operation of a handler on its flow.
pub(crate) struct Operation<'a> {
    journal: &'a Journal,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.journal.state().busy = false;
    }
}

impl Operation<'_> {
    /// The recorded entry, if the handler is still in its past. `wanted` says what this operation is; what was recorded has
    /// to be the same.
    pub(crate) fn recorded(&self, wanted: &Entry) -> Result<Option<Entry>, FlowError> {
        let mut state = self.journal.state();
        let State { entries, at, group, .. } = &mut *state;
        let stranger = match group {
            None => match entries.get(*at) {
                Some(entry) if same(entry, wanted) => {
                    *at += 1;
                    return Ok(Some(entry.clone()));
                }
                stranger => stranger.map(|entry| (*at, entry)),
            },
            Some(Group { keys, met }) => {
                let of_group = |entry: &Entry| entry.key().is_some_and(|key| keys.iter().any(|known| known == key));
                let ours = entries[*at..].iter().take_while(|entry| of_group(entry)).count();
                let unmet = (0..ours).find(|place| !met.contains(place) && same(&entries[*at + place], wanted));
                if let Some(place) = unmet {
                    met.insert(place);
                    return Ok(Some(entries[*at + place].clone()));
                }
                entries.get(*at + ours).map(|entry| (*at + ours, entry))
            }
        };
        let Some((position, entry)) = stranger else { return Ok(None) };
        let (recorded, wanted) = (entry.to_string(), wanted.to_string());
        drop(state);
        Err(self.journal.set_fault(Fault::Diverged { position, recorded, wanted }))
    }

    /// From here on these questions are asked together, until [`apart`](Self::apart).
    pub(crate) fn together(&self, keys: Vec<String>) {
        self.journal.state().group = Some(Group { keys, met: BTreeSet::new() });
    }

    /// The questions that were asked together are all answered.
    pub(crate) fn apart(&self) {
        let mut state = self.journal.state();
        if let Some(group) = state.group.take() {
            state.at += group.met.len();
        }
    }

    /// Whether the next entry is this very one, without insisting.
    pub(crate) fn meets(&self, wanted: &Entry) -> Option<bool> {
        let mut state = self.journal.state();
        let met = state.entries.get(state.at).map(|entry| entry == wanted);
        if met == Some(true) {
            state.at += 1;
        }
        met
    }

    /// Whether this effect may run: not in a dry run, and not without room for the largest value that may come of it.
    pub(crate) fn reserve_effect(&self, name: &str) -> Result<(), FlowError> {
        if self.journal.dry {
            return Err(self.journal.set_fault(Fault::Live { effect: name.to_owned() }));
        }
        self.reserve()?;
        let Journal { bytes: limit, entry_bytes, .. } = *self.journal;
        let kept = postcard::experimental::serialized_size(&self.journal.state().entries).unwrap_or(usize::MAX);
        let bytes = kept.saturating_add(entry_bytes);
        if bytes > limit { Err(FlowError::StateTooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Whether there is room for another entry.
    pub(crate) fn reserve(&self) -> Result<(), FlowError> {
        let state = self.journal.state();
        if state.entries.len() >= self.journal.limit {
            return Err(FlowError::TooManyEntries { limit: self.journal.limit });
        }
        Ok(())
    }

    /// Writes what has just happened.
    pub(crate) fn record(&self, entry: Entry) -> Result<(), FlowError> {
        self.reserve()?;
        let bytes = postcard::experimental::serialized_size(&entry).unwrap_or(usize::MAX);
        if bytes > self.journal.entry_bytes {
            return Err(FlowError::EntryTooLarge { what: entry.to_string(), bytes, limit: self.journal.entry_bytes });
        }
        let mut state = self.journal.state();
        let State { entries, at, group, .. } = &mut *state;
        entries.push(entry);
        match group {
            Some(group) => {
                group.met.insert(entries.len() - 1 - *at);
            }
            None => *at = entries.len(),
        }
        Ok(())
    }

    /// The answer that came with this leg to this question, as long as the question is the one that was asked.
    pub(crate) fn arrived(&self, key: &str, question: Digest) -> Option<Received> {
        let mut state = self.journal.state();
        let place = state.arrived.iter().position(|(arrived, _)| arrived == key)?;
        let (_, received) = state.arrived.remove(place);
        let asked = state.open.iter().any(|(open, digest)| open == key && *digest == question);
        asked.then_some(received)
    }

    /// Whether this leg is the one that comes back from a checkpoint.
    pub(crate) fn passes(&self) -> bool {
        std::mem::take(&mut self.journal.state().passed)
    }
}

/// Whether two entries are of the same operation, whatever came of it.
fn same(recorded: &Entry, wanted: &Entry) -> bool {
    match (recorded, wanted) {
        (
            Entry::Answer { key: a, question: p, .. }
            | Entry::Unasked { key: a, question: p }
            | Entry::Misfit { key: a, question: p, .. },
            Entry::Answer { key: b, question: q, .. },
        ) => a == b && p == q,
        (Entry::Once { name: a, .. }, Entry::Once { name: b, .. }) => a == b,
        (Entry::Now(_), Entry::Now(_))
        | (Entry::Random(_), Entry::Random(_))
        | (Entry::Checkpoint, Entry::Checkpoint) => true,
        (Entry::Patched(a), Entry::Patched(b)) => a == b,
        _ => false,
    }
}
