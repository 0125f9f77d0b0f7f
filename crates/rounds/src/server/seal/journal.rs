//! A journal as a token carries it: what a durable handler has been through, entry by entry.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{digest::Fingerprint, envelope::Settled};
use crate::shared::clock::Timestamp;

/// One thing that a handler has been through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A question was answered.
    Answer { key: String, question: Fingerprint, answer: Settled },
    /// A question could not be asked of this client, and was answered otherwise or not at all.
    Unasked { key: String, question: Fingerprint },
    /// A question was answered with something that does not fit, and asked again.
    Misfit { key: String, question: Fingerprint, problem: String },
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
    /// An attempt at an effect failed, and the handler went on from there.
    Failed { name: String, failure: RecordedFailure },
    /// A question was not answered in its time.
    Late { key: String, question: Fingerprint },
}

impl fmt::Display for Entry {
    /// As the log tells it: what it is, and nothing of what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { key, .. }
            | Self::Unasked { key, .. }
            | Self::Misfit { key, .. }
            | Self::Late { key, .. } => f.write_str(&question(key)),
            Self::Once { name, .. } | Self::Failed { name, .. } => write!(f, "the effect `{name}`"),
            Self::Now(_) => f.write_str("a look at the time"),
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

    /// The name of an effect; of anything else, none.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Once { name, .. } | Self::Failed { name, .. } => name,
            _ => "",
        }
    }

    /// Whether it is the value of this effect.
    pub(crate) fn is_once(&self, effect: &str) -> bool {
        matches!(self, Self::Once { name, .. } if name == effect)
    }
}

/// The entries of a journal: those that came with the leg, which no longer change and are shared, then those written since.
/// On the wire they are one list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    pub(crate) past: Arc<Vec<Entry>>,
    pub(crate) since: Vec<Entry>,
}

impl Entries {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.past.iter().chain(&self.since)
    }

    /// All of them, for a leg that goes through them again.
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

/// What a token carries of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pages {
    pub(crate) entries: Entries,
    /// What was asked in the latest of the entries that are questions, by their place: for a log, should it be another question now.
    pub(crate) texts: Vec<(usize, Text)>,
    /// The questions that are open, as they were asked.
    pub(crate) open: Vec<Waiting>,
}

/// A question that waits for its answer, as it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) key: String,
    pub(crate) question: Fingerprint,
    pub(crate) text: Text,
    /// When its own time is over, if it has less or more than its round.
    pub(crate) until: Option<Timestamp>,
}

/// What was asked, as far as a log shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    /// How many characters are kept.
    pub(crate) const CHARS: usize = 256;

    /// Of how many questions that were answered the text is kept.
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

/// A journal as tokens carried it before they had the texts of questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PagesWithoutTexts {
    entries: Entries,
    open: Vec<(String, Fingerprint)>,
}

impl From<PagesWithoutTexts> for Pages {
    fn from(PagesWithoutTexts { entries, open }: PagesWithoutTexts) -> Self {
        let waiting = |(key, question)| Waiting { key, question, text: Text::default(), until: None };
        Self { entries, texts: vec![], open: open.into_iter().map(waiting).collect() }
    }
}

impl Pages {
    /// As it is saved for people and for tests. Unlike in a token, the version comes along.
    pub(crate) fn to_json(&self) -> String {
        let saved = Saved { version: Saved::<()>::VERSION, pages: self };
        serde_json::to_string(&saved).expect("a journal has no type that JSON cannot write")
    }

    /// Reads what [`to_json`](Self::to_json) wrote, and what it wrote before there were texts.
    #[cfg(any(test, feature = "test"))]
    pub(crate) fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        let Saved { version, .. } = serde_json::from_str::<Saved<serde::de::IgnoredAny>>(json)?;
        match version {
            Saved::<()>::VERSION => serde_json::from_str::<Saved<Self>>(json).map(|saved| saved.pages),
            1 => serde_json::from_str::<Saved<PagesWithoutTexts>>(json).map(|saved| saved.pages.into()),
            _ => {
                let known = Saved::<()>::VERSION;
                let error = format!("a journal of version {version}, and this reads up to version {known}");
                Err(serde::de::Error::custom(error))
            }
        }
    }
}

/// A journal as JSON.
#[derive(Serialize, Deserialize)]
struct Saved<P> {
    version: u32,
    #[serde(flatten)]
    pages: P,
}

impl<P> Saved<P> {
    const VERSION: u32 = 2;
}

/// The failure of an attempt, as it travels in a state. New kinds go to the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordedFailure {
    /// `FlowError::Failed`, with its words.
    Failed(String),
    /// `FlowError::Retry`, with the words of its source.
    Retry(String),
    /// `FlowError::Protocol`. Its data is JSON text.
    Protocol { code: i32, message: String, data: Option<String> },
}
