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
    /// The layout of [`to_json`](Self::to_json).
    const VERSION: u8 = 1;

    /// As a file that outlives the token: `{"version": 1, "entries": [...], "open": [...]}`.
    pub(crate) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            version: u8,
            #[serde(flatten)]
            pages: &'a Pages,
        }
        let file = File { version: Self::VERSION, pages: self };
        serde_json::to_string(&file).expect("names and numbers, which are JSON always")
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    #[cfg(test)]
    pub(crate) fn from_json(json: &str) -> Result<Self, UnreadableJournal> {
        #[derive(Deserialize)]
        struct Version {
            version: u8,
        }
        match serde_json::from_str(json)? {
            Version { version: Self::VERSION } => Ok(serde_json::from_str(json)?),
            Version { version } => Err(UnreadableJournal::Version { version }),
        }
    }
}

/// Why a file is no journal.
#[cfg(test)]
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableJournal {
    #[error("the journal has version {version}, and this is written for version {}", Pages::VERSION)]
    Version { version: u8 },
    #[error("the journal cannot be read")]
    Json(#[from] serde_json::Error),
}

/// A journal in use: the past of one flow, and where the handler is in it.
pub(crate) struct Journal {
    state: Mutex<State>,
    /// How many entries there may be.
    limit: usize,
    /// How large one may be.
    entry_bytes: usize,
    /// How large all of them may be, to fit into a token.
    room: usize,
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
}

impl From<Fault> for FlowError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Diverged { position, recorded, wanted } => Self::Diverged { position, recorded, wanted },
            Fault::Concurrent => Self::Concurrent,
            Fault::Strayed => Self::Strayed,
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
        // Base64 makes four characters of three bytes.
        let room = limits.token_bytes / 4 * 3;
        Self { state: Mutex::new(state), limit: limits.onces, entry_bytes: limits.once_bytes, room }
    }

    /// A journal with nothing in it yet.
    pub(crate) fn empty(limits: &Limits) -> Self {
        let journal = Self::resumed(Pages::default(), &[], &InputResponses::new(), limits);
        journal.state().passed = false;
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

    /// Whether the next entry is this very one, without insisting. None past the last entry of what has happened; a round
    /// that this leg answers and the handler has not come to yet has happened too.
    pub(crate) fn meets(&self, wanted: &Entry) -> Option<bool> {
        let mut state = self.journal.state();
        let under_way = !state.open.is_empty() || state.passed;
        let met = state.entries.get(state.at).map(|entry| entry == wanted).or(under_way.then_some(false));
        if met == Some(true) {
            state.at += 1;
        }
        met
    }

    /// Whether there is room for another entry: asked before an effect runs.
    pub(crate) fn reserve(&self) -> Result<(), FlowError> {
        let state = self.journal.state();
        if state.entries.len() >= self.journal.limit {
            return Err(FlowError::TooManyEntries { limit: self.journal.limit });
        }
        let (bytes, limit) = (size(&state.entries) + self.journal.entry_bytes, self.journal.room);
        if bytes > limit {
            return Err(FlowError::StateTooLarge { bytes, limit });
        }
        Ok(())
    }

    /// Writes what has just happened.
    pub(crate) fn record(&self, entry: Entry) -> Result<(), FlowError> {
        self.reserve()?;
        let bytes = size(&entry);
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
        let open = state.open.iter().position(|(open, _)| open == key).map(|place| state.open.remove(place));
        let place = state.arrived.iter().position(|(arrived, _)| arrived == key)?;
        let (_, received) = state.arrived.remove(place);
        open.filter(|(_, asked)| *asked == question).map(|_| received)
    }

    /// Whether this leg is the one that comes back from a checkpoint.
    pub(crate) fn passes(&self) -> bool {
        std::mem::take(&mut self.journal.state().passed)
    }
}

fn size(entries: &impl Serialize) -> usize {
    postcard::experimental::serialized_size(entries).unwrap_or(usize::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::envelope::Kind;

    fn pages() -> Pages {
        let question = Digest::of_once("any digest");
        let key = || "units".to_owned();
        let accepted = Settled::Accepted { kind: Kind::Form, json: r#"{"units":"metric"}"#.to_owned() };
        Pages {
            entries: vec![
                Entry::Once { name: "audit".to_owned(), value: "null".to_owned() },
                Entry::Misfit { key: key(), question, problem: "it is 7".to_owned() },
                Entry::Answer { key: key(), question, answer: accepted },
                Entry::Answer { key: key(), question, answer: Settled::Declined },
                Entry::Unasked { key: key(), question },
                Entry::Now(Timestamp::from_millis(u64::MAX)),
                Entry::Random([255; 32]),
                Entry::Patched("insurance".to_owned()),
                Entry::Checkpoint,
            ],
            open: vec![("seat".to_owned(), question)],
        }
    }

    #[test]
    fn a_journal_that_was_saved_is_read_as_it_was() {
        for pages in [pages(), Pages::default()] {
            assert_eq!(Pages::from_json(&pages.to_json()).unwrap(), pages);
        }
    }

    #[test]
    fn a_saved_journal_says_its_version_and_another_is_not_read() {
        let json = pages().to_json();
        let file: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(file.as_object().unwrap().keys().collect::<Vec<_>>(), ["entries", "open", "version"]);
        assert_eq!(file["version"], 1);
        assert_eq!(file["entries"][0], serde_json::json!({"Once": {"name": "audit", "value": "null"}}));
        let other = json.replace(r#""version":1"#, r#""version":2"#);
        assert!(matches!(Pages::from_json(&other), Err(UnreadableJournal::Version { version: 2 })));
        for no_journal in ["", "{}", r#"{"version": 1}"#, "[]"] {
            assert!(matches!(Pages::from_json(no_journal), Err(UnreadableJournal::Json(_))), "{no_journal}");
        }
    }
}
