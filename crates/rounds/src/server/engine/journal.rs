//! The journal: what a durable handler has been through, so that it can go through it again.
//!
//! A handler that is run from the top meets its own past here: each operation finds its entry by position, checks that it is
//! of the same kind, name and question, and takes the recorded value. Past the last entry, operations are live.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rmcp::model::{InputResponses, ServerResult};

use super::{
    answer::Received,
    frame::{Ending, FrameStep},
    texts::RecentTexts,
};
use crate::{
    server::{
        policy::{error::FlowError, limits::Limits},
        seal::{
            digest::Fingerprint,
            envelope::{AskedKey, QuestionKind, Settled},
            journal::{Entries, Entry, Pages, Text, WaitingQuestion, question},
        },
    },
    shared::clock::Timestamp,
};

/// A journal in use: the past of one flow, and where the handler is in it.
pub(crate) struct Journal {
    /// What the handler had been through before this leg. It lies beside the lock, so that it can be looked at without a copy.
    past: Arc<Vec<Entry>>,
    state: Mutex<JournalState>,
    /// When this leg came.
    now: Timestamp,
    /// How many entries there may be.
    limit: usize,
    /// How large one may be.
    entry_bytes: usize,
    /// How large all of them may be, to fit into a token.
    bytes: usize,
    /// Whether the handler is only shown its past: it stops where it would have an effect.
    dry: bool,
    /// How many have the flow in hand: the handler, until it is done with it. What its server does before and after does not count.
    within: AtomicUsize,
    /// Whether the handler was reached at all on this leg.
    reached: AtomicBool,
    /// The texts of questions that this process asked and the token does not carry.
    texts: Option<Arc<RecentTexts>>,
}

struct JournalState {
    /// What it has been through on this leg.
    since: Vec<Entry>,
    /// The next entry to be met.
    at: usize,
    /// The questions of the round that this leg answers, as long as the handler has not come to them.
    open: Vec<WaitingQuestion>,
    /// What was asked in the latest entries that are questions, by their place.
    texts: Vec<(usize, Text)>,
    /// The keys of those that it has come to.
    reached: Vec<String>,
    /// The answers that came with this leg, to what is open.
    arrived: Vec<(String, Received)>,
    /// Whether the round that this leg answers was a checkpoint, still to be met.
    passed: bool,
    /// Whether its answers are decisions, whose own time counts and not that of the leg.
    decided: bool,
    /// The questions that are asked together just now, which may be answered in any order.
    group: Option<Group>,
    busy: bool,
    fault: Option<Fault>,
    /// What happened and could not be recorded, and why: a later leg would not know of it, so that there must not be one.
    unrecorded: Option<(String, String)>,
}

impl JournalState {
    /// What the handler has to come to before anything else happens: what it asked in the round that this leg answers.
    fn awaited(&self) -> Option<String> {
        match self.open.first() {
            Some(WaitingQuestion { key, .. }) => Some(question(key)),
            None => self.passed.then(|| Entry::Checkpoint.to_string()),
        }
    }
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
    /// The handler reached a question that differs from the one it asked.
    Changed { position: usize, key: String, asked: Option<Text>, now: Text },
    /// Two operations at once.
    Concurrent,
    /// The handler waited for something that is not an operation of the flow.
    Strayed,
    /// A replay reached an effect that is not recorded.
    Live { effect: String },
}

impl Fault {
    /// A question is another one than it was. This is the place to say so: an error has its key, and only the log both texts.
    fn changed(position: usize, key: &str, asked: Option<Text>, now: Text) -> Self {
        let shown = asked.as_ref().map_or("(not kept)", |text| &text.0);
        tracing::warn!(
            target: "rounds",
            key,
            asked = ?shown,
            now = ?now.0,
            "a durable question is not the one that was asked: its text and its form have to be the same whenever the handler runs"
        );
        Self::Changed { position, key: key.to_owned(), asked, now }
    }
}

impl From<Fault> for FlowError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Diverged { position, recorded, wanted } => Self::Diverged { position, recorded, wanted },
            Fault::Changed { key, .. } => Self::QuestionChanged { key },
            Fault::Concurrent => Self::Concurrent,
            Fault::Strayed => Self::Strayed,
            Fault::Live { effect } => Self::Failed(format!("a replay has no effects, and this is `{effect}`")),
        }
    }
}

impl Journal {
    /// A journal that begins with what a token carried and what came with the leg.
    pub(crate) fn resumed(
        pages: Pages,
        asked: &[AskedKey],
        mut sent: InputResponses,
        limits: &Limits,
        now: Timestamp,
    ) -> Self {
        let arrived = asked.iter().filter_map(|AskedKey { key, kind }| {
            let raw = sent.remove(key)?;
            Some((key.clone(), Received::read(*kind, Cow::Owned(raw))))
        });
        let state = JournalState {
            at: 0,
            arrived: arrived.collect(),
            passed: asked.is_empty(),
            decided: asked.iter().any(|asked| asked.kind == QuestionKind::Elsewhere),
            open: pages.open,
            texts: pages.texts,
            reached: vec![],
            since: vec![],
            group: None,
            busy: false,
            fault: None,
            unrecorded: None,
        };
        Self {
            past: pages.entries.into_past(),
            state: Mutex::new(state),
            now,
            limit: limits.effects,
            entry_bytes: limits.effect_bytes,
            bytes: limits.room(),
            dry: false,
            within: AtomicUsize::new(0),
            reached: AtomicBool::new(false),
            texts: None,
        }
    }

    /// The same, with the texts of questions that the token does not carry.
    pub(crate) fn with_texts(self, texts: Arc<RecentTexts>) -> Self {
        Self { texts: Some(texts), ..self }
    }

    /// The text of this question: the one that the token carried, or else the one that this process asked.
    fn text_of(&self, carried: Option<&Text>, question: Option<Fingerprint>) -> Option<Text> {
        let carried = carried.filter(|text| !text.0.is_empty()).cloned();
        carried.or_else(|| self.texts.as_ref()?.get(&question?))
    }

    /// A journal with nothing in it yet.
    pub(crate) fn empty(limits: &Limits) -> Self {
        // Nothing was asked that could be too late.
        let now = Timestamp::from_millis(0);
        let journal = Self::resumed(Pages::default(), &[], InputResponses::new(), limits, now);
        journal.state().passed = false;
        journal
    }

    /// A journal for a replay: questions are not answered, and no effect runs.
    #[cfg(feature = "test")]
    pub(crate) fn dry(pages: Pages, limits: &Limits) -> Self {
        // No question is too late: it would be asked.
        let now = Timestamp::from_millis(0);
        let mut journal = Self::resumed(pages, &[], InputResponses::new(), limits, now);
        journal.state().passed = false;
        journal.dry = true;
        journal
    }

    fn entry<'a>(&'a self, state: &'a JournalState, place: usize) -> Option<&'a Entry> {
        self.past.get(place).or_else(|| state.since.get(place.checked_sub(self.past.len())?))
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ends the flow, if something does.
    fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    pub(crate) fn set_fault(&self, fault: Fault) -> FlowError {
        self.state().fault.get_or_insert(fault).clone().into()
    }

    /// Whether the handler has not come to this question of the round that this leg answers, or not as it was asked.
    pub(crate) fn has_not_reached(&self, key: &str) -> bool {
        let state = self.state();
        state.fault.is_some() && !state.reached.iter().any(|reached| reached == key)
    }

    /// What ends the flow, if something does, now that the handler has come this far.
    pub(crate) fn fault_at(&self, step: &FrameStep) -> Option<Fault> {
        match step {
            FrameStep::Ended(Ending::Returned(Ok(result))) => {
                // A server that refuses in its handler's place, as one that is busy does, has not taken another way.
                let refused =
                    matches!(&**result, ServerResult::CallToolResult(result) if result.is_error == Some(true));
                if self.dry || self.reached.load(Ordering::Relaxed) || !refused {
                    self.end();
                }
            }
            FrameStep::Asked(round) => self.ask(&round.waiting),
            FrameStep::Ended(_) => {}
        }
        self.fault()
    }

    /// The handler takes the flow in hand.
    pub(crate) fn enter(&self) {
        self.within.fetch_add(1, Ordering::Relaxed);
        self.reached.store(true, Ordering::Relaxed);
    }

    /// It is done with it.
    pub(crate) fn leave(&self) {
        self.within.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the handler is at work, so that nothing else is to be waited for than what is recorded.
    pub(crate) fn is_entered(&self) -> bool {
        self.within.load(Ordering::Relaxed) > 0
    }

    /// The handler has returned a result, so it must have reached the end of the journal.
    fn end(&self) {
        let state = self.state();
        let recorded = self.entry(&state, state.at).map(ToString::to_string).or_else(|| state.awaited());
        if let Some(recorded) = recorded {
            let position = state.at;
            drop(state);
            self.set_fault(Fault::Diverged { position, recorded, wanted: "its end".to_owned() });
        }
    }

    /// The handler waits for answers. It has to have come to all that it asked in the round that this leg answers: otherwise it
    /// has taken another way, and those answers are not for it.
    fn ask(&self, asks: &[WaitingQuestion]) {
        let state = self.state();
        let Some(recorded) = state.awaited() else { return };
        let position = state.at;
        let changed = state.open.iter().find_map(|then| Some((then, asks.iter().find(|now| now.key == then.key)?)));
        let fault = match changed {
            Some((then, now)) => {
                let asked = self.text_of(Some(&then.text), Some(then.question));
                Fault::changed(position, &then.key, asked, now.text.clone())
            }
            None => {
                let wanted = asks.first().map_or_else(|| Entry::Checkpoint.to_string(), |asked| question(&asked.key));
                Fault::Diverged { position, recorded, wanted }
            }
        };
        drop(state);
        self.set_fault(fault);
    }

    /// Why nothing can be asked any more, if that is so: something happened that a later leg would not know of.
    pub(crate) fn cannot_ask(&self) -> Option<FlowError> {
        let (what, why) = self.state().unrecorded.clone()?;
        Some(FlowError::Unrecorded { what, why })
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

    /// The answer to this question, where that is what the handler has been through next: then it is behind it, and there is
    /// nothing for an [operation](Self::begin) to do. None for all else, which is for one to look into.
    pub(crate) fn recall(&self, key: &str, question: Fingerprint) -> Option<&Settled> {
        let mut state = self.state();
        if state.busy || state.group.is_some() || state.fault.is_some() {
            return None;
        }
        match self.past.get(state.at)? {
            Entry::Answer { key: asked, question: known, answer } if asked == key && *known == question => {
                state.at += 1;
                Some(answer)
            }
            _ => None,
        }
    }

    /// How many bytes its entries take in a token.
    pub(super) fn kept_bytes(&self) -> usize {
        postcard::experimental::serialized_size(&self.pages(vec![])).unwrap_or(usize::MAX)
    }

    /// What the next token carries.
    pub(crate) fn pages(&self, open: Vec<WaitingQuestion>) -> Pages {
        Pages { entries: self.entries(), texts: self.state().texts.clone(), open }
    }

    /// What this leg has added, with the questions that are open after it.
    pub(crate) fn added(&self, open: Vec<WaitingQuestion>) -> Pages {
        let state = self.state();
        let entries = Entries { past: Arc::default(), since: state.since.clone() };
        Pages { entries, texts: state.texts.clone(), open }
    }

    fn entries(&self) -> Entries {
        Entries { past: self.past.clone(), since: self.state().since.clone() }
    }
}

/// One operation of a handler on its flow.
pub(crate) struct Operation<'a> {
    journal: &'a Journal,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.state();
        state.busy = false;
        // Those of them that were answered are, also where it was given up before all were.
        if let Some(group) = state.group.take() {
            state.at += group.met.len();
        }
    }
}

impl<'a> Operation<'a> {
    /// The recorded entry, if the handler is still in its past. `wanted` says what this operation is; what was recorded has
    /// to be the same.
    pub(crate) fn recorded(&self, wanted: &Entry) -> Result<Option<Cow<'a, Entry>>, FlowError> {
        self.recorded_question(wanted, "")
    }

    /// The same of a question, with what it asks.
    pub(crate) fn recorded_question(&self, wanted: &Entry, text: &str) -> Result<Option<Cow<'a, Entry>>, FlowError> {
        let mut state = self.journal.state();
        let at = state.at;
        let entry = |place: usize| self.journal.entry(&state, place);
        let (place, stranger) = match &state.group {
            None => (entry(at).filter(|entry| same(entry, wanted)).map(|_| at), at),
            Some(Group { keys, met }) => {
                let of_group = |entry: &Entry| entry.key().is_some_and(|key| keys.iter().any(|known| known == key));
                let behind = (at..).find(|place| !entry(*place).is_some_and(of_group)).unwrap_or(at);
                let unmet = |place: &usize| !met.contains(&(place - at));
                let is_wanted = |place: &usize| entry(*place).is_some_and(|entry| same(entry, wanted));
                // One of the same key that is not the same was another question when it was answered.
                let is_named_so = |place: &usize| entry(*place).is_some_and(|entry| entry.key() == wanted.key());
                let stranger = (at..behind).filter(unmet).find(is_named_so).unwrap_or(behind);
                ((at..behind).filter(unmet).find(is_wanted), stranger)
            }
        };
        if let Some(place) = place {
            // What lies in the past is given as it is, without a copy.
            let met = self.journal.past.get(place).map(Cow::Borrowed);
            let met = met.or_else(|| entry(place).cloned().map(Cow::Owned));
            match &mut state.group {
                None => state.at += 1,
                Some(group) => drop(group.met.insert(place - at)),
            }
            return Ok(met);
        }
        let Some(entry) = entry(stranger) else { return Ok(None) };
        let position = stranger;
        let fault = match entry.key().filter(|key| wanted.key() == Some(key)) {
            Some(key) => {
                let asked = state.texts.iter().find(|(place, _)| *place == position).map(|(_, text)| text);
                let asked = self.journal.text_of(asked, entry.question());
                Fault::changed(position, key, asked, text.to_owned().into())
            }
            None => Fault::Diverged { position, recorded: entry.to_string(), wanted: wanted.to_string() },
        };
        drop(state);
        Err(self.journal.set_fault(fault))
    }

    /// From here on, and until it ends, these questions are asked together.
    pub(crate) fn together(&self, keys: Vec<String>) {
        self.journal.state().group = Some(Group { keys, met: BTreeSet::new() });
    }

    /// Whether the next entry is this very one, without insisting. None past the last entry of what has happened; a round
    /// that this leg answers and the handler has not come to yet has happened too.
    pub(crate) fn meets(&self, wanted: &Entry) -> Option<bool> {
        let mut state = self.journal.state();
        let under_way = !state.open.is_empty() || state.passed;
        let next = self.journal.entry(&state, state.at);
        let met = next.map(|entry| entry == wanted).or(under_way.then_some(false));
        if met == Some(true) {
            state.at += 1;
        }
        met
    }

    /// Whether this effect may run: not in a handler that has taken another way, not in a dry run, and not without room for the
    /// largest value that may come of it.
    pub(crate) fn reserve_effect(&self, wanted: &Entry) -> Result<(), FlowError> {
        self.on_its_way(wanted)?;
        if self.journal.dry {
            return Err(self.journal.set_fault(Fault::Live { effect: wanted.name().to_owned() }));
        }
        self.reserve(wanted)?;
        let Journal { bytes: limit, entry_bytes, .. } = *self.journal;
        let bytes = self.journal.kept_bytes().saturating_add(entry_bytes);
        if bytes > limit { Err(self.unrecorded(wanted, FlowError::StateTooLarge { bytes, limit })) } else { Ok(()) }
    }

    /// Whether there is room for another entry.
    pub(crate) fn reserve(&self, wanted: &Entry) -> Result<(), FlowError> {
        let kept = self.journal.past.len() + self.journal.state().since.len();
        if kept >= self.journal.limit {
            return Err(self.unrecorded(wanted, FlowError::TooManyEntries { limit: self.journal.limit }));
        }
        Ok(())
    }

    /// Past its last entry a handler comes to what it asked in the round that this leg answers, and to nothing else: otherwise it
    /// has taken another way than the run that asked. Of questions that were asked together, each may be answered as it is reached.
    fn on_its_way(&self, wanted: &Entry) -> Result<(), FlowError> {
        let state = self.journal.state();
        if wanted.key().is_some_and(|key| state.reached.iter().any(|reached| reached == key)) {
            return Ok(());
        }
        let Some(recorded) = state.awaited() else { return Ok(()) };
        let position = state.at;
        drop(state);
        Err(self.journal.set_fault(Fault::Diverged { position, recorded, wanted: wanted.to_string() }))
    }

    /// Notes that what happened cannot be recorded: from here on nothing is asked, so that no leg goes on from a journal without it.
    pub(crate) fn unrecorded(&self, what: &Entry, error: FlowError) -> FlowError {
        let unrecorded = &mut self.journal.state().unrecorded;
        unrecorded.get_or_insert_with(|| (what.to_string(), error.to_string()));
        error
    }

    /// The same, of the failure of an effect, which its handler gets as it is.
    pub(crate) fn unrecorded_failure(&self, what: &Entry, why: String) {
        self.journal.state().unrecorded.get_or_insert_with(|| (what.to_string(), why));
    }

    /// Writes what has just happened.
    pub(crate) fn record(&self, entry: Entry) -> Result<(), FlowError> {
        self.on_its_way(&entry)?;
        self.reserve(&entry)?;
        let bytes = postcard::experimental::serialized_size(&entry).unwrap_or(usize::MAX);
        // The value of an effect was measured before; it has happened, and is not to fail for the length of its name.
        let limit = self.journal.entry_bytes;
        if bytes > limit && !matches!(entry, Entry::Once { .. }) {
            return Err(self.unrecorded(&entry, FlowError::EntryTooLarge { what: entry.to_string(), bytes, limit }));
        }
        let mut state = self.journal.state();
        let JournalState { since, at, group, .. } = &mut *state;
        since.push(entry);
        let written = self.journal.past.len() + since.len();
        match group {
            Some(group) => {
                group.met.insert(written - 1 - *at);
            }
            None => *at = written,
        }
        Ok(())
    }

    /// Writes what has just come of a question.
    pub(crate) fn record_question(&self, entry: Entry, text: &str) -> Result<(), FlowError> {
        self.record(entry)?;
        let mut state = self.journal.state();
        let place = self.journal.past.len() + state.since.len() - 1;
        if state.texts.len() == Text::KEPT {
            state.texts.remove(0);
        }
        state.texts.push((place, text.to_owned().into()));
        Ok(())
    }

    /// Reaches a question that waits for its answer, if it is the one that was asked: then its answer is the one that came with this
    /// leg.
    pub(crate) fn reach(&self, key: &str, question: Fingerprint) -> Option<Reached> {
        let mut state = self.journal.state();
        let place = state.open.iter().position(|open| open.key == key && open.question == question)?;
        let WaitingQuestion { key, until, .. } = state.open.remove(place);
        let place = state.arrived.iter().position(|(arrived, _)| *arrived == key);
        state.reached.push(key);
        let answer = place.map(|place| state.arrived.remove(place).1);
        let is_late = !state.decided && until.is_some_and(|until| until <= self.journal.now);
        Some(Reached { answer, until, is_late })
    }

    /// Whether this leg is the one that comes back from a checkpoint.
    pub(crate) fn passes(&self) -> bool {
        std::mem::take(&mut self.journal.state().passed)
    }
}

/// A question of the round that a leg answers.
pub(crate) struct Reached {
    /// None where the leg brought no answer to it.
    pub(crate) answer: Option<Received>,
    /// When its own time is over.
    pub(crate) until: Option<Timestamp>,
    /// Whether it was over when the leg came.
    pub(crate) is_late: bool,
}

/// Whether two entries are of the same operation, whatever came of it.
fn same(recorded: &Entry, wanted: &Entry) -> bool {
    match (recorded, wanted) {
        (
            Entry::Answer { key: a, question: p, .. }
            | Entry::Unasked { key: a, question: p }
            | Entry::Misfit { key: a, question: p, .. }
            | Entry::Late { key: a, question: p },
            Entry::Answer { key: b, question: q, .. },
        ) => a == b && p == q,
        (Entry::Once { name: a, .. } | Entry::Failed { name: a, .. }, Entry::Once { name: b, .. }) => a == b,
        (Entry::Now(_), Entry::Now(_))
        | (Entry::Random(_), Entry::Random(_))
        | (Entry::Checkpoint, Entry::Checkpoint) => true,
        (Entry::Patched(a), Entry::Patched(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::seal::{
        envelope::QuestionKind,
        golden,
        journal::{PagesWithoutTexts, RecordedFailure},
    };

    fn digest(words: &str) -> Fingerprint {
        let mut digest = Fingerprint::default();
        digest[..words.len().min(16)].copy_from_slice(&words.as_bytes()[..words.len().min(16)]);
        digest
    }

    fn answer(key: &str, words: &str) -> Entry {
        let answer = Settled::Accepted { kind: QuestionKind::Form, json: format!("{{\"{key}\":1}}") };
        Entry::Answer { key: key.to_owned(), question: digest(words), answer }
    }

    fn wanted(key: &str, words: &str) -> Entry {
        Entry::Answer { key: key.to_owned(), question: digest(words), answer: Settled::Declined }
    }

    fn once(name: &str) -> Entry {
        Entry::Once { name: name.to_owned(), value: "7".to_owned() }
    }

    fn failed(name: &str) -> Entry {
        Entry::Failed { name: name.to_owned(), failure: RecordedFailure::Failed("the bank is closed".to_owned()) }
    }

    fn late(key: &str, words: &str) -> Entry {
        Entry::Late { key: key.to_owned(), question: digest(words) }
    }

    fn patched(change: &str) -> Entry {
        Entry::Patched(change.to_owned())
    }

    fn misfit(key: &str, words: &str) -> Entry {
        Entry::Misfit { key: key.to_owned(), question: digest(words), problem: "`seat` is missing".to_owned() }
    }

    fn unasked(key: &str, words: &str) -> Entry {
        Entry::Unasked { key: key.to_owned(), question: digest(words) }
    }

    const NOON: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const NOW: Entry = Entry::Now(NOON);

    /// One of every kind.
    fn pages() -> Pages {
        Pages {
            entries: vec![
                answer("seat", "Which seat?"),
                Entry::Answer { key: "meal".to_owned(), question: digest("Meal?"), answer: Settled::Declined },
                Entry::Answer { key: "bag".to_owned(), question: digest("Bag?"), answer: Settled::Cancelled },
                unasked("url", "Sign in"),
                misfit("seats", "How many?"),
                once("charge"),
                NOW,
                Entry::Random([9; 32]),
                patched("insurance"),
                Entry::Checkpoint,
                failed("charge"),
                late("extra", "Extras?"),
            ]
            .into(),
            texts: vec![(0, text("Which seat?")), (4, text("How many?"))],
            open: vec![WaitingQuestion { until: Some(NOON), ..waiting("sure", "Sure?") }, waiting("more", "More?")],
        }
    }

    fn text(words: &str) -> Text {
        words.to_owned().into()
    }

    fn waiting(key: &str, words: &str) -> WaitingQuestion {
        WaitingQuestion { key: key.to_owned(), question: digest(words), text: text(words), until: None }
    }

    /// A leg that comes back from a checkpoint after these entries.
    fn back(entries: Vec<Entry>) -> Journal {
        let pages = Pages { entries: entries.into(), ..Pages::default() };
        Journal::resumed(pages, &[], InputResponses::new(), &Limits::default(), NOON)
    }

    /// A leg with these entries, in which nothing else was asked.
    fn journal(entries: Vec<Entry>) -> Journal {
        let journal = back(entries);
        journal.state().passed = false;
        journal
    }

    /// A leg that brings a no to each of these questions.
    fn answering(entries: Vec<Entry>, open: &[(&str, &str)]) -> Journal {
        let asked: Vec<_> =
            open.iter().map(|(key, _)| AskedKey { key: (*key).to_owned(), kind: QuestionKind::Form }).collect();
        let sent = open.iter().map(|(key, _)| ((*key).to_owned(), json!({"action": "decline"}))).collect();
        let open = open.iter().map(|(key, words)| waiting(key, words)).collect();
        Journal::resumed(Pages { entries: entries.into(), texts: vec![], open }, &asked, sent, &Limits::default(), NOON)
    }

    #[test]
    fn before_the_open_question_is_reached_nothing_else_happens() {
        let told = |wanted: &str| (1, "the question `again`".to_owned(), wanted.to_owned());
        for wanted in [once("charge"), NOW, Entry::Random([9; 32]), Entry::Checkpoint] {
            let journal = answering(vec![failed("quote")], &[("again", "Again?")]);
            meets(&journal, &once("quote"), &failed("quote"));
            let operation = journal.begin().unwrap();
            assert_eq!(operation.recorded(&wanted).unwrap(), None, "it is live");
            let diverged = match &wanted {
                Entry::Once { .. } => operation.reserve_effect(&wanted),
                other => operation.record(other.clone()),
            };
            match diverged {
                Err(FlowError::Diverged { position, recorded, wanted: came_to }) => {
                    assert_eq!((position, recorded, came_to), told(&wanted.to_string()));
                }
                other => panic!("{wanted}: {other:?}"),
            }
        }
        let ended = answering(vec![failed("quote")], &[("again", "Again?")]);
        meets(&ended, &once("quote"), &failed("quote"));
        ended.end();
        let (position, recorded, wanted) = told("its end");
        assert_eq!(ended.fault(), Some(Fault::Diverged { position, recorded, wanted }));
        let asks = answering(vec![failed("quote")], &[("again", "Again?")]);
        meets(&asks, &once("quote"), &failed("quote"));
        asks.ask(&[waiting("meal", "Meal?")]);
        let (position, recorded, wanted) = told("the question `meal`");
        assert_eq!(asks.fault(), Some(Fault::Diverged { position, recorded, wanted }));
    }

    #[test]
    fn after_the_open_question_is_reached_the_handler_is_free() {
        let journal = answering(vec![failed("charge")], &[("again", "Again?")]);
        meets(&journal, &once("charge"), &failed("charge"));
        let operation = journal.begin().unwrap();
        assert_eq!(operation.reach("again", digest("Again?")).unwrap().answer, Some(Received::Declined));
        operation.record(answer("again", "Again?")).unwrap();
        drop(operation);
        journal.begin().unwrap().reserve_effect(&once("charge")).unwrap();
        journal.ask(&[]);
        journal.end();
        assert_eq!(journal.fault(), None);
    }

    #[test]
    fn of_questions_together_each_is_answered_as_it_is_reached_and_what_follows_waits_for_all() {
        let journal = answering(vec![], &[("seat", "Seat?"), ("meal", "Meal?")]);
        let operation = journal.begin().unwrap();
        operation.together(vec!["seat".to_owned(), "meal".to_owned()]);
        assert!(operation.reach("meal", digest("Meal?")).is_some());
        operation.record(misfit("meal", "Meal?")).unwrap();
        drop(operation);
        let next = journal.begin().unwrap().reserve_effect(&once("charge"));
        assert!(matches!(next, Err(FlowError::Diverged { .. })), "the seat was not looked at: {next:?}");
    }

    #[test]
    fn after_what_cannot_be_recorded_nothing_can_be_asked() {
        let large = Entry::Failed { name: "charge".to_owned(), failure: RecordedFailure::Failed("x".repeat(20_000)) };
        let journal = journal(vec![]);
        assert!(journal.cannot_ask().is_none());
        let refused = journal.begin().unwrap().record(large);
        assert!(matches!(refused, Err(FlowError::EntryTooLarge { .. })), "{refused:?}");
        let why = journal.cannot_ask().unwrap().to_string();
        assert!(why.starts_with("nothing can be asked after the effect `charge`"), "{why}");
        assert!(why.contains("the limit of an entry is 16384"), "{why}");
    }

    /// One operation, from its beginning to its end.
    fn step(journal: &Journal, wanted: &Entry) -> Result<Option<Entry>, FlowError> {
        Ok(journal.begin()?.recorded(wanted)?.map(Cow::into_owned))
    }

    #[track_caller]
    fn meets(journal: &Journal, wanted: &Entry, recorded: &Entry) {
        assert_eq!(step(journal, wanted).unwrap().as_ref(), Some(recorded));
    }

    #[track_caller]
    fn diverges(journal: &Journal, wanted: &Entry) -> (usize, String, String) {
        match step(journal, wanted) {
            Err(FlowError::Diverged { position, recorded, wanted }) => (position, recorded, wanted),
            other => panic!("expected a divergence, got {other:?}"),
        }
    }

    #[test]
    fn questions_that_were_asked_together_and_given_up_leave_what_was_answered_behind() {
        let journal = Journal::empty(&Limits::default());
        let operation = journal.begin().unwrap();
        operation.together(vec!["seat".to_owned(), "meal".to_owned()]);
        operation.record(answer("seat", "Seat?")).unwrap();
        drop(operation);
        journal.begin().unwrap().record(NOW).unwrap();
        journal.end();
        assert_eq!(journal.fault(), None);
    }

    #[test]
    fn a_handler_that_goes_the_same_way_meets_every_entry_in_order_and_is_live_after_the_last() {
        let recorded: Vec<Entry> = pages().entries.iter().cloned().collect();
        let journal = journal(recorded.clone());
        let same_way = [
            wanted("seat", "Which seat?"),
            wanted("meal", "Meal?"),
            wanted("bag", "Bag?"),
            wanted("url", "Sign in"),
            wanted("seats", "How many?"),
            Entry::Once { name: "charge".to_owned(), value: String::new() },
            Entry::Now(Timestamp::from_millis(0)),
            Entry::Random([0; 32]),
            patched("insurance"),
            Entry::Checkpoint,
            once("charge"),
            wanted("extra", "Extras?"),
        ];
        for (wanted, recorded) in same_way.iter().zip(&recorded) {
            meets(&journal, wanted, recorded);
        }
        assert_eq!(step(&journal, &wanted("sure", "Sure?")).unwrap(), None);
        assert_eq!(journal.fault(), None);
    }

    #[test]
    fn an_entry_is_met_by_its_own_kind_name_and_question_only() {
        let all = [
            wanted("seat", "Which seat?"),
            wanted("seat", "Which seat would you like?"),
            wanted("place", "Which seat?"),
            once("charge"),
            once("refund"),
            NOW,
            Entry::Random([9; 32]),
            patched("a"),
            patched("b"),
            Entry::Checkpoint,
        ];
        for (i, recorded) in all.iter().enumerate() {
            for (j, wanted) in all.iter().enumerate() {
                let met = step(&journal(vec![recorded.clone()]), wanted).is_ok();
                assert_eq!(met, i == j, "{recorded:?} and {wanted:?}");
            }
        }
    }

    #[test]
    fn an_answer_is_recalled_when_it_comes_next_and_nothing_else_is() {
        let past = journal(vec![answer("seat", "Seat?"), misfit("meal", "Meal?"), answer("meal", "Meal?")]);
        let recalls = |key: &str, words: &str| past.recall(key, digest(words)).is_some();
        assert!(!recalls("meal", "Meal?") && !recalls("seat", "Which seat?") && !recalls("place", "Seat?"));
        assert!(recalls("seat", "Seat?"));
        assert!(!recalls("seat", "Seat?"), "it is behind");
        assert!(!recalls("meal", "Meal?"), "a misfit comes first");
        meets(&past, &wanted("meal", "Meal?"), &misfit("meal", "Meal?"));
        let operation = past.begin().unwrap();
        assert!(!recalls("meal", "Meal?"), "another operation is under way");
        drop(operation);
        assert!(recalls("meal", "Meal?"));
        assert!(!recalls("sure", "Sure?"), "this is live");
        assert_eq!(past.fault(), None, "what cannot be recalled is for an operation to judge");

        let diverged = journal(vec![answer("seat", "Seat?")]);
        diverges(&diverged, &once("charge"));
        assert!(diverged.recall("seat", digest("Seat?")).is_none(), "nothing goes on");
    }

    #[test]
    fn what_is_recorded_on_a_leg_comes_after_its_past() {
        let recorded = vec![answer("seat", "Seat?"), once("charge")];
        let journal = journal(recorded.clone());
        meets(&journal, &wanted("seat", "Seat?"), &recorded[0]);
        meets(&journal, &once("charge"), &recorded[1]);
        journal.begin().unwrap().record(NOW).unwrap();
        let pages = journal.pages(vec![]);
        let whole = Pages { entries: [recorded, vec![NOW]].concat().into(), ..Pages::default() };
        assert_eq!(pages, whole);
        assert_eq!(postcard::to_stdvec(&pages).unwrap(), postcard::to_stdvec(&whole).unwrap());
        assert_eq!(*pages.entries.into_past(), *whole.entries.into_past());
    }

    #[test]
    fn a_divergence_names_its_entry_and_what_was_recorded_and_wanted_and_nothing_goes_on_after_it() {
        let journal = journal(vec![once("quote"), answer("seat", "Which seat?"), once("charge")]);
        meets(&journal, &once("quote"), &once("quote"));
        let told = (1, "the question `seat`".to_owned(), "the effect `charge`".to_owned());
        assert_eq!(diverges(&journal, &once("charge")), told);
        assert_eq!(diverges(&journal, &wanted("seat", "Which seat?")), told, "what was right now comes too late");
        let (position, recorded, wanted) = told;
        assert_eq!(journal.fault(), Some(Fault::Diverged { position, recorded, wanted }));
    }

    #[test]
    fn a_handler_that_ends_before_its_journal_has_diverged() {
        let journal = journal(vec![once("quote"), once("charge")]);
        meets(&journal, &once("quote"), &once("quote"));
        journal.end();
        let told = journal.fault().map(|fault| FlowError::from(fault).to_string()).unwrap();
        assert!(told.starts_with("entry 1 of the journal is the effect `charge`, but the handler reached its end"));
    }

    #[test]
    fn two_operations_at_once_are_a_fault_and_one_after_another_is_not() {
        let journal = journal(vec![]);
        drop(journal.begin().unwrap());
        let first = journal.begin().unwrap();
        assert!(matches!(journal.begin().err(), Some(FlowError::Concurrent)));
        drop(first);
        assert!(matches!(journal.begin().err(), Some(FlowError::Concurrent)), "and it stays one");
    }

    #[test]
    fn questions_together_are_met_in_any_order_with_their_misfits_and_what_follows_is_met_after_them() {
        let recorded = vec![misfit("meal", "Meal?"), answer("seat", "Seat?"), answer("meal", "Meal?"), once("charge")];
        for order in [["seat", "meal"], ["meal", "seat"]] {
            let journal = journal(recorded.clone());
            let operation = journal.begin().unwrap();
            operation.together(vec!["seat".to_owned(), "meal".to_owned()]);
            for key in order {
                let question = wanted(key, if key == "seat" { "Seat?" } else { "Meal?" });
                if key == "meal" {
                    assert_eq!(operation.recorded(&question).unwrap().as_deref(), Some(&misfit("meal", "Meal?")));
                }
                assert!(matches!(operation.recorded(&question).unwrap().as_deref(), Some(Entry::Answer { .. })));
            }
            drop(operation);
            meets(&journal, &once("charge"), &once("charge"));
        }
    }

    #[test]
    fn a_question_joins_a_group_that_is_answered_in_part_and_not_one_that_was_left_behind() {
        let group = || vec!["seat".to_owned(), "meal".to_owned()];
        let partly = journal(vec![answer("seat", "Seat?")]);
        let operation = partly.begin().unwrap();
        operation.together(group());
        assert_eq!(operation.recorded(&wanted("meal", "Meal?")).unwrap(), None, "still open");
        operation.record(answer("meal", "Meal?")).unwrap();
        assert!(operation.recorded(&wanted("seat", "Seat?")).unwrap().is_some());
        drop(operation);
        assert_eq!(step(&partly, &once("charge")).unwrap(), None, "both are behind");

        let behind = journal(vec![answer("seat", "Seat?"), once("charge")]);
        let operation = behind.begin().unwrap();
        operation.together(group());
        match operation.recorded(&wanted("meal", "Meal?")) {
            Err(FlowError::Diverged { position: 1, recorded, wanted }) => {
                assert_eq!((recorded.as_str(), wanted.as_str()), ("the effect `charge`", "the question `meal`"));
            }
            other => panic!("the flow went on without it: {other:?}"),
        }
    }

    #[test]
    fn a_change_is_there_for_flows_that_recorded_it_and_for_those_that_come_to_it_live() {
        let meets = |entries| journal(entries).begin().unwrap().meets(&patched("a"));
        assert_eq!(Journal::empty(&Limits::default()).begin().unwrap().meets(&patched("a")), None);
        assert_eq!(
            back(vec![]).begin().unwrap().meets(&patched("a")),
            Some(false),
            "a checkpoint that this leg comes back from was passed before the change"
        );
        assert_eq!(meets(vec![patched("a")]), Some(true));
        assert_eq!(meets(vec![patched("b")]), Some(false));
        let old = journal(vec![once("charge")]);
        assert_eq!(old.begin().unwrap().meets(&patched("a")), Some(false));
        assert!(step(&old, &once("charge")).unwrap().is_some(), "and leaves the old entry where it was");
    }

    #[test]
    fn a_leg_that_comes_back_from_a_checkpoint_passes_one() {
        let back = back(vec![]);
        let operation = back.begin().unwrap();
        assert!(operation.passes());
        assert!(!operation.passes(), "the next is to be waited at again");
        let asked = [AskedKey { key: "seat".to_owned(), kind: QuestionKind::Form }];
        let answering = Journal::resumed(Pages::default(), &asked, InputResponses::new(), &Limits::default(), NOON);
        assert!(!answering.begin().unwrap().passes(), "that round had a question");
        assert!(!Journal::empty(&Limits::default()).begin().unwrap().passes(), "the first leg comes from nowhere");
    }

    #[test]
    fn an_answer_is_for_the_question_as_it_was_asked_and_is_taken_once() {
        let asked = [AskedKey { key: "seat".to_owned(), kind: QuestionKind::Form }];
        let sent = InputResponses::from([
            ("seat".to_owned(), json!({"action": "decline"})),
            ("meal".to_owned(), json!({"action": "decline"})),
        ]);
        let open = vec![waiting("seat", "Seat?")];
        let resumed = || {
            let pages = Pages { open: open.clone(), ..Pages::default() };
            Journal::resumed(pages, &asked, sent.clone(), &Limits::default(), NOON)
        };
        let journal = resumed();
        let operation = journal.begin().unwrap();
        assert!(operation.reach("meal", digest("Meal?")).is_none(), "it was not asked");
        assert_eq!(operation.reach("seat", digest("Seat?")).unwrap().answer, Some(Received::Declined));
        assert!(operation.reach("seat", digest("Seat?")).is_none());
        assert!(resumed().begin().unwrap().reach("seat", digest("Which seat?")).is_none(), "reworded since");
    }

    #[test]
    fn there_is_room_for_an_effect_before_it_runs() {
        let full = journal(vec![NOW; 64]);
        let operation = full.begin().unwrap();
        assert!(matches!(operation.reserve(&NOW), Err(FlowError::TooManyEntries { limit: 64 })));
        assert!(matches!(operation.reserve_effect(&once("charge")), Err(FlowError::TooManyEntries { limit: 64 })));
        assert!(matches!(operation.record(NOW), Err(FlowError::TooManyEntries { limit: 64 })));

        let value = |bytes: usize| Entry::Once { name: "x".to_owned(), value: "7".repeat(bytes) };
        let journal = journal(vec![]);
        let operation = journal.begin().unwrap();
        let json = "7".repeat(16 * 1024);
        let answer = Settled::Accepted { kind: QuestionKind::Form, json };
        let answer = Entry::Answer { key: "x".to_owned(), question: digest("X?"), answer };
        assert!(matches!(operation.record(answer), Err(FlowError::EntryTooLarge { limit: 16_384, .. })));
        operation.record(value(15 * 1024)).unwrap();
        operation.record(value(15 * 1024)).unwrap();
        operation.reserve_effect(&once("charge")).unwrap();
        operation.record(value(15 * 1024)).unwrap();
        let refused = operation.reserve_effect(&once("charge"));
        assert!(matches!(refused, Err(FlowError::StateTooLarge { limit: 49_152, .. })), "{refused:?}");
    }

    /// What the previous format can express of it.
    fn pages_before() -> Pages {
        let new = |entry: &&Entry| !matches!(entry, Entry::Failed { .. } | Entry::Late { .. });
        let entries = pages().entries.iter().filter(new).cloned().collect::<Vec<_>>().into();
        let open = vec![WaitingQuestion { text: Text::default(), ..waiting("sure", "Sure?") }];
        Pages { entries, texts: vec![], open }
    }

    /// A change here is a change of what lies in the tokens of flows under way: give it a variant of `Resume` of its own, behind the
    /// last one, and go on reading and writing the one before, as `docs/token.md` says. An entry of a new kind goes to the
    /// end of `Entry`, which leaves the bytes of the others as they are; add one to `pages` then.
    #[test]
    fn both_formats_are_pinned_by_golden_journals() {
        let bytes = golden::bytes(include_str!("../seal/golden-2.journal"));
        assert_eq!(golden::hex(&postcard::to_stdvec(&pages()).unwrap()), golden::hex(&bytes));
        assert_eq!(postcard::from_bytes::<Pages>(&bytes).unwrap(), pages());

        let bytes = golden::bytes(include_str!("../seal/golden-1.journal"));
        let before = PagesWithoutTexts::try_from(pages_before()).unwrap();
        assert_eq!(golden::hex(&postcard::to_stdvec(&before).unwrap()), golden::hex(&bytes));
        assert_eq!(Pages::from(postcard::from_bytes::<PagesWithoutTexts>(&bytes).unwrap()), pages_before());
        assert_eq!(PagesWithoutTexts::try_from(pages()), Err(pages()), "and what it cannot express stays as it is");
    }

    #[test]
    fn both_formats_are_pinned_by_golden_saved_journals() {
        let (previous, current) = (
            include_str!("../seal/golden-1.journal.json").trim(),
            include_str!("../seal/golden-2.journal.json").trim(),
        );
        let before = PagesWithoutTexts::try_from(pages_before()).unwrap();
        assert_eq!([before.to_json(), pages().to_json()], [previous, current]);
        assert_eq!([previous, current].map(|json| Pages::from_json(json).unwrap()), [pages_before(), pages()]);
        let other = Pages::from_json(&current.replacen(":2", ":3", 1)).unwrap_err();
        assert_eq!(
            other.to_string(),
            "the journal has version 3, and this build reads up to version 2: use a newer one"
        );
        assert!(Pages::from_json("{}").is_err());
    }

    #[test]
    fn a_question_that_was_another_one_is_told_with_both_texts() {
        let changed = |position, asked: Option<&str>| {
            let (key, asked, now) = ("seat".to_owned(), asked.map(text), text("Which seat?"));
            Some(Fault::Changed { position, key, asked, now })
        };
        // It waits for its answer.
        let open = answering(vec![once("quote")], &[("seat", "Seat?"), ("meal", "Meal?")]);
        meets(&open, &once("quote"), &once("quote"));
        let operation = open.begin().unwrap();
        assert!(operation.reach("seat", digest("Which seat?")).is_none(), "no answer to this one");
        assert!(operation.reach("meal", digest("Meal?")).is_some());
        operation.record_question(answer("meal", "Meal?"), "Meal?").unwrap();
        drop(operation);
        open.ask(&[waiting("bag", "Bag?"), waiting("seat", "Which seat?")]);
        assert_eq!(open.fault(), changed(2, Some("Seat?")));

        // It was answered: in this leg, in an earlier one, and so long ago that its text is not kept.
        for answers in [1, Text::KEPT, Text::KEPT + 1] {
            let first = journal(vec![]);
            for n in 0..answers {
                let (key, words) = if n == 0 { ("seat", "Seat?") } else { ("meal", "Meal?") };
                first.begin().unwrap().record_question(answer(key, words), words).unwrap();
            }
            let pages = first.pages(vec![]);
            assert_eq!(pages.texts.len(), answers.min(Text::KEPT));
            let later = Journal::resumed(pages, &[], InputResponses::new(), &Limits::default(), NOON);
            let refused = later.begin().unwrap().recorded_question(&wanted("seat", "Which seat?"), "Which seat?");
            assert!(matches!(refused, Err(FlowError::QuestionChanged { key }) if key == "seat"));
            assert_eq!(later.fault(), changed(0, Some("Seat?").filter(|_| answers <= Text::KEPT)));
        }
    }

    #[test]
    fn a_question_is_late_from_the_moment_that_its_time_is_over() {
        let late = |until: Option<u64>| {
            let until = until.map(Timestamp::from_millis);
            let pages = Pages { open: vec![WaitingQuestion { until, ..waiting("seat", "Seat?") }], ..Pages::default() };
            let asked = [AskedKey { key: "seat".to_owned(), kind: QuestionKind::Form }];
            let journal = Journal::resumed(pages, &asked, InputResponses::new(), &Limits::default(), NOON);
            let reached = journal.begin().unwrap().reach("seat", digest("Seat?")).unwrap();
            assert_eq!((reached.answer, reached.until), (None, until));
            reached.is_late
        };
        let noon = NOON.as_millis();
        assert_eq!([None, Some(noon + 1), Some(noon), Some(0)].map(late), [false, false, true, true]);
    }

    #[test]
    fn a_text_is_cut_at_256_characters() {
        for kept in [String::new(), "x".repeat(256), "ä".repeat(256)] {
            assert_eq!(text(&kept).0, kept);
        }
        assert_eq!(text(&"ä".repeat(257)).0, format!("{}…", "ä".repeat(255)));
        assert_eq!(text(&"x".repeat(5000)).0.chars().count(), 256);
    }
}
