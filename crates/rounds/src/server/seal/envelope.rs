//! The envelope: the contents of a token, and everything it is bound to.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    attempt::Attempt,
    cipher::Plaintext,
    digest::{Digest, Fingerprint, write_hex},
    format::Format,
    journal::{Pages, PagesWithoutTexts},
    refusal::Refusal,
};
use crate::shared::clock::Timestamp;
pub(crate) use crate::shared::kind::{Method, QuestionKind};

/// The version of the layout of [`Envelope`]. It changes with every change of the fields or their meaning.
const VERSION: u8 = 2;

/// How far ahead of ours the clock of the instance that issued a token may be.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The id of a flow: 128 random bits, the same for all of its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowId([u8; 16]);

impl FlowId {
    /// The flow id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl FromStr for FlowId {
    type Err = NotAFlowId;

    fn from_str(text: &str) -> Result<Self, NotAFlowId> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotAFlowId);
        }
        u128::from_str_radix(text, 16).map(|id| Self(id.to_be_bytes())).map_err(|_| NotAFlowId)
    }
}

/// A text that is not the id of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a flow: it has 32 hexadecimal digits")]
pub struct NotAFlowId;

impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a request has to match before its token is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    pub(crate) principal: Option<Digest>,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) arguments: Digest,
}

/// When a token was issued, and when it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) issued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) deadline: Timestamp,
}

impl Span {
    /// Until when some instance of a fleet may still accept the token, and so until when its use is recorded.
    pub(crate) fn remembered_until(&self) -> Timestamp {
        self.expires_at + CLOCK_SKEW
    }

    /// The same for the flow, and so for its effects.
    pub(crate) fn deadline_remembered_until(&self) -> Timestamp {
        self.deadline + CLOCK_SKEW
    }
}

/// The state of a flow between two legs. [`from_bytes`](Self::from_bytes) reads one from the contents of a token. An
/// envelope that is only written borrows its binding and the keys of its questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope<B = Binding, K = String> {
    pub(crate) flow: FlowId,
    pub(crate) round: u32,
    pub(crate) span: Span,
    pub(crate) binding: B,
    /// The questions of this round. Answers to other questions are ignored.
    pub(crate) asked: Vec<AskedKey<K>>,
    pub(crate) resume: Resume,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedKey<K = String> {
    pub(crate) key: K,
    pub(crate) kind: QuestionKind,
}

/// How the flow continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Resume {
    /// Call the handler again, with what the flow has recorded so far.
    Handler(HandlerRecord),
    /// Wake the handler that waits under the flow's id.
    Frame,
    /// As `Journal`, without the texts of its questions: the previous [`Format`].
    JournalWithoutTexts(PagesWithoutTexts),
    /// Call the handler again. Its state is too large for a token, and is in the ledger: this is its digest.
    Spilled(Digest),
    /// As `Handler`, for a flow in which the library asked on the handler's behalf.
    Posed(HandlerRecord, Posing),
    /// As `Frame`, on the instance of this name.
    FrameAt(String),
    /// Call the handler again, to replay this journal.
    Journal(Pages),
}

impl Resume {
    /// Calls the handler again.
    pub(crate) fn of(kept: HandlerRecord, posing: Posing) -> Self {
        if posing == Posing::default() { Self::Handler(kept) } else { Self::Posed(kept, posing) }
    }

    /// Call the handler again with this journal. It is written in this format, if the format can express it.
    pub(crate) fn of_journal(pages: Pages, format: Format) -> Self {
        match format {
            Format::Current => Self::Journal(pages),
            Format::Previous => pages.try_into().map_or_else(Self::Journal, Self::JournalWithoutTexts),
        }
    }

    /// Replaces the state by its digest, and returns the state for the ledger. None if there is nothing to spill.
    pub(crate) fn spill(&mut self) -> Option<Vec<u8>> {
        if matches!(self, Self::Frame | Self::FrameAt(_) | Self::Spilled(_)) {
            return None;
        }
        let state = postcard::to_stdvec(self).expect("an envelope has no type that postcard cannot write");
        *self = Self::Spilled(Digest::of_spill(&state));
        Some(state)
    }

    /// The state that the handler kept itself, which is the only part that may be large.
    fn state(&self) -> Option<&str> {
        match self {
            Self::Handler(kept) | Self::Posed(kept, _) => kept.state.as_deref(),
            _ => None,
        }
    }

    /// Whether a leg that continues from here knows the value of this effect, and so does not ask the ledger for it.
    pub(crate) fn carries(&self, name: &str) -> bool {
        match self {
            Self::Handler(kept) | Self::Posed(kept, _) => {
                kept.onces.iter().any(|(known, text)| known == name && !Attempt::is(text))
            }
            Self::Journal(Pages { entries, .. }) | Self::JournalWithoutTexts(PagesWithoutTexts { entries, .. }) => {
                entries.iter().any(|entry| entry.is_once(name))
            }
            // No other variant is written with values of effects: this is called before a state spills.
            Self::Frame | Self::FrameAt(_) | Self::Spilled(_) => false,
        }
    }

    /// The journal as it is saved for people and for tests. None for other variants.
    pub(crate) fn journal_json(&self) -> Option<String> {
        match self {
            Self::Journal(pages) => Some(pages.to_json()),
            Self::JournalWithoutTexts(pages) => Some(pages.to_json()),
            _ => None,
        }
    }

    /// Whether the handler waits on some instance and is not called again.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Frame | Self::FrameAt(_))
    }

    /// How the handler is called again. A spilled state comes from the ledger, and is refused if its digest differs.
    pub(crate) fn again(self, spilled: Option<&[u8]>) -> Result<Again, Refusal> {
        let resume = match self {
            Self::Spilled(digest) => {
                let kept = spilled.filter(|kept| Digest::of_spill(kept) == digest).ok_or(Refusal::SpillGone)?;
                match postcard::take_from_bytes(kept) {
                    Ok((resume, [])) => resume,
                    _ => return Err(Refusal::SpillGone),
                }
            }
            other => other,
        };
        match resume {
            Self::Handler(kept) => Ok(Again::Handler(kept, Posing::default())),
            Self::Posed(kept, posing) => Ok(Again::Handler(kept, posing)),
            Self::Journal(pages) => Ok(Again::Journal(pages)),
            Self::JournalWithoutTexts(pages) => Ok(Again::Journal(pages.into())),
            Self::Spilled(_) => Err(Refusal::SpillGone),
            Self::Frame | Self::FrameAt(_) => Err(Refusal::FrameGone),
        }
    }
}

/// How a handler is called again: with its records and the questions asked on its behalf, or with its journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Again {
    Handler(HandlerRecord, Posing),
    Journal(Pages),
}

/// The records of a handler that is called again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandlerRecord {
    /// The answers so far.
    pub(crate) settled: Vec<(String, Settled)>,
    /// The values of its effects, as JSON text, by name.
    pub(crate) onces: Vec<(String, String)>,
    /// The state that the handler kept itself.
    pub(crate) state: Option<String>,
}

/// What the library did on a handler's behalf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Posing {
    /// The questions it asked.
    pub(crate) posed: Vec<PosedQuestion>,
    /// The values of steps that did not ask, as JSON text, by name.
    pub(crate) known: Vec<(String, String)>,
}

/// A question that the library asked, so that its answer does not count for another question with the same key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PosedQuestion {
    pub(crate) key: String,
    pub(crate) question: Fingerprint,
    /// How often it was asked again because the answer was not valid, and [whether](Self::needs_question) only the
    /// question can read the answer.
    asked_again: u32,
}

impl PosedQuestion {
    const NEEDS_QUESTION: u32 = 1 << 31;

    pub(crate) fn new(key: &str, question: Fingerprint, asked_again: u32, needs_question: bool) -> Self {
        let needs_question = if needs_question { Self::NEEDS_QUESTION } else { 0 };
        Self { key: key.to_owned(), question, asked_again: asked_again | needs_question }
    }

    /// How often it was asked again, because the answer was not valid.
    pub(crate) fn times_asked_again(&self) -> u32 {
        self.asked_again & !Self::NEEDS_QUESTION
    }

    /// Whether only the question itself can read its answer: its type alone does not know its options or its rule.
    pub(crate) fn needs_question(&self) -> bool {
        self.asked_again & Self::NEEDS_QUESTION != 0
    }
}

/// An answer of an earlier round. The wire carries only the answers of the latest round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Settled {
    /// The answer as it came, as JSON text.
    Accepted {
        kind: QuestionKind,
        json: String,
    },
    Declined,
    Cancelled,
    /// It was asked elsewhere, and there was no decision in time.
    Late,
}

impl Settled {
    pub(crate) fn accepted(kind: QuestionKind, content: &Value) -> Self {
        // Faster than `Display`.
        let json = serde_json::to_string(content).expect("a value is JSON");
        Self::Accepted { kind, json }
    }
}

impl<B: Serialize, K: Serialize> Envelope<B, K> {
    /// The plaintext of a token.
    pub(crate) fn to_plaintext(&self) -> Plaintext {
        // Most tokens are shorter, and need no second allocation.
        let mut start = Plaintext::with_capacity(512 + self.resume.state().map_or(0, str::len));
        start.extend([VERSION]);
        postcard::to_extend(self, start).expect("an envelope has no type that postcard cannot write")
    }
}

impl Envelope {
    /// Reads the plaintext of a token. It is bound to a request only after [`check`](Self::check).
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Refusal> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((envelope, [])) => Ok(envelope),
                _ => Err(Refusal::UnknownVersion),
            },
            _ => Err(Refusal::UnknownVersion),
        }
    }

    /// Whether this request may continue the flow now.
    pub(crate) fn check(&self, request: &Binding, now: Timestamp) -> Result<(), Refusal> {
        let held = [
            (self.binding.principal == request.principal, Refusal::Principal),
            (self.binding.method == request.method, Refusal::Method),
            (self.binding.target == request.target, Refusal::Target),
            (self.binding.arguments == request.arguments, Refusal::Arguments),
            (self.span.issued_at <= now + CLOCK_SKEW, Refusal::FromTheFuture),
            // Checked first, because a round never outlives its flow and a passed deadline would always look like an
            // expired round.
            (now < self.span.deadline, Refusal::DeadlinePassed),
            (now < self.span.expires_at, Refusal::Expired),
        ];
        match held.into_iter().find(|(holds, _)| !holds) {
            Some((_, refusal)) => Err(refusal),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::seal::{
        KeyRing, golden,
        journal::{Entry, RecordedFailure},
        ring::Purpose,
        token::{open, seal},
    };

    fn envelope() -> Envelope {
        Envelope {
            flow: FlowId::from_bytes([7; 16]),
            round: 1,
            span: Span {
                issued_at: Timestamp::from_millis(1_800_000_000_000),
                expires_at: Timestamp::from_millis(1_800_000_600_000),
                deadline: Timestamp::from_millis(1_800_003_600_000),
            },
            binding: Binding {
                principal: None,
                method: Method::Tool,
                target: "weather_e".to_owned(),
                arguments: Digest::of_arguments(json!({"location": "Tokyo"}).as_object()),
            },
            asked: vec![AskedKey { key: "units".to_owned(), kind: QuestionKind::Form }],
            resume: Resume::Handler(HandlerRecord::default()),
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn a_flow_is_named_in_hexadecimal() {
        let flow = FlowId::from_bytes([0, 1, 9, 10, 15, 16, 17, 99, 127, 128, 160, 171, 200, 239, 254, 255]);
        assert_eq!(flow.to_string(), "0001090a0f1011637f80a0abc8effeff");
    }

    #[test]
    fn every_binding_is_checked() {
        let alice = Some(Digest::of_principal("alice"));
        let bob = Some(Digest::of_principal("bob"));
        let of = |principal| {
            let mut envelope = envelope();
            envelope.binding.principal = principal;
            envelope
        };
        let with = |principal| of(principal).binding;
        assert_eq!(of(None).check(&with(None), NOW), Ok(()));
        assert_eq!(of(alice).check(&with(alice), NOW), Ok(()));
        assert_eq!(of(alice).check(&with(bob), NOW), Err(Refusal::Principal));
        assert_eq!(of(alice).check(&with(None), NOW), Err(Refusal::Principal));
        assert_eq!(of(None).check(&with(alice), NOW), Err(Refusal::Principal));

        let changed = |change: fn(&mut Binding)| {
            let mut binding = envelope().binding;
            change(&mut binding);
            envelope().check(&binding, NOW)
        };
        assert_eq!(changed(|b| b.method = Method::Prompt), Err(Refusal::Method));
        assert_eq!(changed(|b| b.target = "wipe".to_owned()), Err(Refusal::Target));
        assert_eq!(changed(|b| b.arguments = Digest::of_arguments(None)), Err(Refusal::Arguments));
    }

    #[test]
    fn time_is_checked_to_the_millisecond() {
        let at = |millis| envelope().check(&envelope().binding, Timestamp::from_millis(millis));
        assert_eq!(at(1_800_000_599_999), Ok(()));
        assert_eq!(at(1_800_000_600_000), Err(Refusal::Expired));
        assert_eq!(at(1_800_000_601_000), Err(Refusal::Expired));
        assert_eq!(at(1_800_000_000_000 - 60_000), Ok(()));
        assert_eq!(at(1_800_000_000_000 - 60_001), Err(Refusal::FromTheFuture));
        assert_eq!(at(1_800_003_600_000), Err(Refusal::DeadlinePassed));
    }

    #[test]
    fn an_envelope_of_another_layout_is_refused() {
        let mut bytes = envelope().to_plaintext().to_vec();
        assert_eq!(Envelope::from_bytes(&bytes), Ok(envelope()));
        bytes.push(0);
        assert_eq!(Envelope::from_bytes(&bytes), Err(Refusal::UnknownVersion));
        assert_eq!(Envelope::from_bytes(&[]), Err(Refusal::UnknownVersion));
        let mut next = envelope().to_plaintext().to_vec();
        next[0] = VERSION + 1;
        assert_eq!(Envelope::from_bytes(&next), Err(Refusal::UnknownVersion));
    }

    #[test]
    fn a_state_that_spilled_comes_back_as_it_was_and_nothing_else_does() {
        let resume = envelope().resume;
        let mut spilled = resume.clone();
        let left = spilled.spill().unwrap();
        assert_eq!(spilled, Resume::Spilled(Digest::of_spill(&left)));
        assert_eq!(postcard::to_stdvec(&spilled).unwrap()[0], 3, "its number in the format");
        assert_eq!(spilled.clone().again(Some(&left)), resume.again(None));
        assert_eq!(spilled.clone().again(None), Err(Refusal::SpillGone));
        assert_eq!(spilled.clone().again(Some(&[&left[..], &[0]].concat())), Err(Refusal::SpillGone));
        assert_eq!(spilled.spill(), None, "it spills once");
        assert_eq!(Resume::Frame.spill(), None, "a handler that waits leaves nothing");
        // Sealed under the same key for the same claim, but not a way to call a handler.
        for odd in [Resume::Frame, Resume::FrameAt("a".to_owned()), Resume::Spilled(Digest::of_spill(b""))] {
            let odd = postcard::to_stdvec(&odd).unwrap();
            let spilled = Resume::Spilled(Digest::of_spill(&odd));
            assert!(spilled.again(Some(&odd)).is_err());
        }
    }

    const FORMATS: [(Format, &str, &str); 2] = [
        (Format::Previous, include_str!("golden-1.token"), include_str!("golden-1.journal")),
        (Format::Current, include_str!("golden-2.token"), include_str!("golden-2.journal")),
    ];

    /// A journal that both formats can express, with texts.
    fn pages() -> Pages {
        let before: PagesWithoutTexts = postcard::from_bytes(&golden::bytes(FORMATS[0].2)).unwrap();
        let mut pages = Pages::from(before);
        pages.texts.push((0, "Which seat?".to_owned().into()));
        pages.open[0].text = "Sure?".to_owned().into();
        pages
    }

    /// One envelope for each way to continue.
    fn envelopes(format: Format) -> Vec<Envelope> {
        let question = [5; 16];
        let kept = HandlerRecord {
            settled: vec![
                ("units".to_owned(), Settled::accepted(QuestionKind::Form, &json!({"units": "metric"}))),
                ("sure".to_owned(), Settled::Declined),
                ("more".to_owned(), Settled::Cancelled),
            ],
            onces: vec![("charge".to_owned(), "7".to_owned())],
            state: Some("a state".to_owned()),
        };
        let posing = Posing {
            posed: vec![PosedQuestion { key: "units".to_owned(), question, asked_again: 1 }],
            known: vec![("seat".to_owned(), "\"12A\"".to_owned())],
        };
        let resumes = [
            Resume::of(HandlerRecord::default(), Posing::default()),
            Resume::of(kept.clone(), Posing::default()),
            Resume::of(kept, posing),
            Resume::Frame,
            Resume::FrameAt("a-1".to_owned()),
            Resume::of_journal(pages(), format),
            Resume::Spilled(Digest::of_spill(b"a state")),
        ];
        resumes.map(|resume| Envelope { resume, ..envelope() }).into()
    }

    /// Fixed key, nonce and clock. A change here changes the format: `guide/token.md` says what to do.
    #[test]
    fn both_formats_are_pinned_by_golden_tokens() {
        let ring = KeyRing::from_bytes([[42; 32]]).unwrap().derive(Purpose::State, "golden");
        for (format, golden, _) in FORMATS {
            let written = envelopes(format);
            let sealed: Vec<_> =
                written.iter().map(|envelope| seal(&ring, [24; 24], envelope.to_plaintext())).collect();
            assert_eq!(sealed, golden.lines().collect::<Vec<_>>(), "{format:?}");
            for (token, envelope) in golden.lines().zip(written) {
                let opened = open(&ring, 64 * 1024, token).unwrap();
                assert_eq!(Envelope::from_bytes(&opened), Ok(envelope), "{format:?}");
            }
        }
    }

    #[test]
    fn a_journal_of_either_format_is_read_in_a_token_and_where_it_spilled() {
        for (number, (_, _, journal)) in [2, 6].into_iter().zip(FORMATS) {
            let bytes = [&[number], &golden::bytes(journal)[..]].concat();
            let mut resume: Resume = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(postcard::to_stdvec(&resume).unwrap(), bytes);
            let token = Envelope { resume: resume.clone(), ..envelope() }.to_plaintext();
            let read = Envelope::from_bytes(&token.to_vec()).unwrap().resume.again(None).unwrap();
            assert!(matches!(&read, Again::Journal(pages) if pages.entries.iter().count() >= 10), "{read:?}");
            assert!(resume.carries("charge") && !resume.carries("refund"));
            let left = resume.spill().unwrap();
            assert_eq!(resume.again(Some(&left)), Ok(read));
        }
    }

    #[test]
    fn what_the_previous_format_cannot_express_is_written_in_the_current_one() {
        let written =
            |pages: &Pages, format| postcard::to_stdvec(&Resume::of_journal(pages.clone(), format)).unwrap()[0];
        assert_eq!([Format::Previous, Format::Current].map(|format| written(&pages(), format)), [2, 6]);
        let failure = RecordedFailure::Failed("the bank is closed".to_owned());
        let (name, key, question) = ("charge".to_owned(), "extra".to_owned(), [5; 16]);
        for entry in [Entry::Failed { name, failure }, Entry::Late { key, question }] {
            let mut pages = pages();
            pages.entries.since.push(entry);
            assert_eq!(written(&pages, Format::Previous), 6, "{:?}", pages.entries);
        }
        let mut timed = pages();
        timed.open[0].until = Some(NOW);
        assert_eq!(written(&timed, Format::Previous), 6, "or an answer that comes too late would count");
    }

    /// Its arguments were digested in another way, so its binding could not be checked.
    #[test]
    fn a_token_of_the_first_version_is_refused() {
        let ring = KeyRing::from_bytes([[42; 32]]).unwrap().derive(Purpose::State, "golden");
        let opened = open(&ring, 64 * 1024, include_str!("refused.token").trim()).unwrap();
        assert_eq!(Envelope::from_bytes(&opened), Err(Refusal::UnknownVersion));
    }
}
