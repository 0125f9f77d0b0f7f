//! A journal as a token carries it: the operations of a durable handler, entry by entry.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{digest::Fingerprint, envelope::Settled};
use crate::shared::clock::Timestamp;

/// One operation of a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A question was answered.
    Answer { key: String, question: Fingerprint, answer: Settled },
    /// A question could not be asked of this client. Its replacement value or its error was used.
    Unasked { key: String, question: Fingerprint },
    /// A question was answered with something invalid, and was asked again.
    Misfit { key: String, question: Fingerprint, problem: String },
    /// An effect ran, with this value as JSON text.
    Once { name: String, value: String },
    /// The handler read the time.
    Now(Timestamp),
    /// The handler drew random bytes.
    Random([u8; 32]),
    /// The handler checked for this change, and has it.
    Patched(String),
    /// The client got everything recorded so far.
    Checkpoint,
    /// An attempt at an effect failed, and the handler continued.
    Failed { name: String, failure: RecordedFailure },
    /// A question was not answered in time.
    Late { key: String, question: Fingerprint },
}

impl fmt::Display for Entry {
    /// A description for the log: the kind and name of the entry, without its value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { key, .. }
            | Self::Unasked { key, .. }
            | Self::Misfit { key, .. }
            | Self::Late { key, .. } => f.write_str(&question(key)),
            Self::Once { name, .. } | Self::Failed { name, .. } => write!(f, "the effect `{name}`"),
            Self::Now(_) => f.write_str("a reading of the time"),
            Self::Random(_) => f.write_str("random bytes"),
            Self::Patched(id) => write!(f, "the change `{id}`"),
            Self::Checkpoint => f.write_str("a checkpoint"),
        }
    }
}

pub(crate) fn question(key: &str) -> String {
    format!("the question `{key}`")
}

impl Entry {
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Answer { key, .. }
            | Self::Unasked { key, .. }
            | Self::Misfit { key, .. }
            | Self::Late { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The question, if it is what came of one.
    pub(crate) fn question(&self) -> Option<Fingerprint> {
        match self {
            Self::Answer { question, .. }
            | Self::Unasked { question, .. }
            | Self::Misfit { question, .. }
            | Self::Late { question, .. } => Some(*question),
            _ => None,
        }
    }

    /// The name of an effect, or empty for any other entry.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Once { name, .. } | Self::Failed { name, .. } => name,
            _ => "",
        }
    }

    /// Whether the previous format has no place for it.
    fn is_new(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Late { .. })
    }

    /// Whether it is the value of this effect.
    pub(crate) fn is_once(&self, effect: &str) -> bool {
        matches!(self, Self::Once { name, .. } if name == effect)
    }
}

/// The entries of a journal: those that came with the leg, which no longer change and are shared, then those written
/// since. On the wire they are one list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    pub(crate) past: Arc<Vec<Entry>>,
    pub(crate) since: Vec<Entry>,
}

impl Entries {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.past.iter().chain(&self.since)
    }

    /// All entries, for a leg that replays them.
    pub(crate) fn into_past(self) -> Arc<Vec<Entry>> {
        let Self { mut past, since } = self;
        if !since.is_empty() {
            Arc::make_mut(&mut past).extend(since);
        }
        past
    }
}

impl From<Vec<Entry>> for Entries {
    fn from(past: Vec<Entry>) -> Self {
        Self { past: past.into(), since: vec![] }
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Entries {}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

/// A journal in a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pages {
    pub(crate) entries: Entries,
    /// The text of the latest answered questions, by their index among the entries, for a log message if the question
    /// has changed.
    pub(crate) texts: Vec<(usize, Text)>,
    /// The open questions in the form in which they were asked.
    pub(crate) open: Vec<WaitingQuestion>,
}

/// A question that waits for its answer, in the form in which it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingQuestion {
    pub(crate) key: String,
    pub(crate) question: Fingerprint,
    pub(crate) text: Text,
    /// When its own timeout passes, if it has one.
    pub(crate) until: Option<Timestamp>,
}

/// The text of a question, as far as a log shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    /// How many characters are kept.
    pub(crate) const CHARS: usize = 256;

    /// For how many answered questions the text is kept.
    pub(crate) const KEPT: usize = 8;

    #[cfg(any(test, feature = "test"))]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(mut text: String) -> Self {
        if text.len() > Self::CHARS
            && let Some((end, _)) = text.char_indices().nth(Self::CHARS - 1)
            && text[end..].chars().nth(1).is_some()
        {
            text.truncate(end);
            text.push('…');
        }
        Self(text)
    }
}

/// A journal in the previous [`Format`](super::Format): without the texts of its questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PagesWithoutTexts {
    pub(crate) entries: Entries,
    pub(crate) open: Vec<(String, Fingerprint)>,
}

impl From<PagesWithoutTexts> for Pages {
    fn from(PagesWithoutTexts { entries, open }: PagesWithoutTexts) -> Self {
        let waiting = |(key, question)| WaitingQuestion { key, question, text: Text::default(), until: None };
        Self { entries, texts: vec![], open: open.into_iter().map(waiting).collect() }
    }
}

/// Fails with the journal as it is when something in it has no place in the previous format.
impl TryFrom<Pages> for PagesWithoutTexts {
    type Error = Pages;

    fn try_from(pages: Pages) -> Result<Self, Pages> {
        let has_time = |waiting: &WaitingQuestion| waiting.until.is_some();
        if pages.entries.iter().any(Entry::is_new) || pages.open.iter().any(has_time) {
            return Err(pages);
        }
        let open = pages.open.into_iter().map(|WaitingQuestion { key, question, .. }| (key, question));
        Ok(Self { entries: pages.entries, open: open.collect() })
    }
}

impl Pages {
    /// The journal as JSON, for people and for tests. Unlike in a token, it has a version.
    pub(crate) fn to_json(&self) -> String {
        SavedJournal { version: CURRENT, pages: self }.to_json()
    }

    /// Reads a saved journal of either format.
    #[cfg(any(test, feature = "test"))]
    pub(crate) fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        let SavedJournal { version, .. } = serde_json::from_str::<SavedJournal<serde::de::IgnoredAny>>(json)?;
        match version {
            CURRENT => serde_json::from_str::<SavedJournal<Self>>(json).map(|saved| saved.pages),
            PREVIOUS => serde_json::from_str::<SavedJournal<PagesWithoutTexts>>(json).map(|saved| saved.pages.into()),
            _ => {
                let error = format!(
                    "the journal has version {version}, and this build reads up to version {CURRENT}: use a newer one"
                );
                Err(serde::de::Error::custom(error))
            }
        }
    }
}

impl PagesWithoutTexts {
    /// As it is saved.
    pub(crate) fn to_json(&self) -> String {
        SavedJournal { version: PREVIOUS, pages: self }.to_json()
    }
}

/// Versions of a saved journal: those of the two [formats](super::Format).
const PREVIOUS: u32 = 1;
const CURRENT: u32 = 2;

/// A journal as JSON.
#[derive(Serialize, Deserialize)]
struct SavedJournal<P> {
    version: u32,
    #[serde(flatten)]
    pages: P,
}

impl<P: Serialize> SavedJournal<P> {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a journal has no type that JSON cannot write")
    }
}

/// The failure of an attempt in the form in which it travels in a state. Add new kinds at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordedFailure {
    /// `FlowError::Failed`, with its text.
    Failed(String),
    /// `FlowError::Retry`, with the text of its source.
    Retry(String),
    /// `FlowError::Protocol`. Its data is JSON text.
    Protocol { code: i32, message: String, data: Option<String> },
}
