//! Answers: what came back for the questions of a round, read by the kind that was asked for.

use std::{borrow::Cow, sync::Arc};

use rmcp::model::InputResponses;
use serde_json::{Value, json};

use super::weight;
use crate::{
    server::{
        policy::error::FlowError,
        seal::{
            digest::Fingerprint,
            envelope::{AskedKey, PosedQuestion, Posing, QuestionKind, Settled},
        },
    },
    shared::check::InvalidAnswer,
};

/// One answer, as far as its kind alone can tell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Received {
    /// A form's content, a model's message, the roots; `null` for a page that the person agreed to visit.
    Accepted(Arc<Value>),
    Declined,
    Cancelled,
    /// It was asked elsewhere, and there was no decision in time.
    Late,
    Malformed(InvalidAnswer),
}

impl Received {
    /// Reads an answer. It carries no discriminator, so the kind is what the question asked for.
    pub(crate) fn read(kind: QuestionKind, raw: Cow<'_, Value>) -> Self {
        let accepted = |content| Self::Accepted(Arc::new(content));
        match kind {
            QuestionKind::Form | QuestionKind::Url | QuestionKind::Elsewhere => match raw
                .get("action")
                .and_then(Value::as_str)
            {
                Some("accept") if kind == QuestionKind::Elsewhere => accepted(content(raw).unwrap_or_default()),
                Some("expire") if kind == QuestionKind::Elsewhere => Self::Late,
                Some("accept") if kind == QuestionKind::Url => accepted(Value::Null),
                Some("accept") => match content(raw) {
                    Some(content @ Value::Object(_)) => accepted(content),
                    None | Some(Value::Null) => accepted(Value::Object(Default::default())),
                    Some(_) => Self::Malformed(InvalidAnswer::whole("the answer's content is not an object")),
                },
                // Content on a decline is ignored: the person did not agree to it.
                Some("decline") => Self::Declined,
                Some("cancel") => Self::Cancelled,
                _ => Self::Malformed(InvalidAnswer::whole("the answer's action is none of accept, decline and cancel")),
            },
            QuestionKind::Sample | QuestionKind::Roots if raw.is_object() => accepted(raw.into_owned()),
            QuestionKind::Sample | QuestionKind::Roots => {
                Self::Malformed(InvalidAnswer::whole("the answer is not an object"))
            }
        }
    }

    /// The answer as it is on the wire, for a handler that reads it there. None for one that makes no sense.
    pub(crate) fn to_raw(&self, kind: QuestionKind) -> Option<Value> {
        Some(match (self, kind) {
            (Self::Accepted(content), QuestionKind::Form | QuestionKind::Elsewhere) => {
                json!({ "action": "accept", "content": **content })
            }
            (Self::Accepted(_), QuestionKind::Url) => json!({ "action": "accept" }),
            (Self::Accepted(result), QuestionKind::Sample | QuestionKind::Roots) => (**result).clone(),
            (Self::Declined, _) => json!({ "action": "decline" }),
            (Self::Cancelled, _) => json!({ "action": "cancel" }),
            (Self::Late, _) => json!({ "action": "expire" }),
            (Self::Malformed(_), _) => return None,
        })
    }
}

fn content(raw: Cow<'_, Value>) -> Option<Value> {
    match raw {
        Cow::Borrowed(raw) => raw.get("content").cloned(),
        Cow::Owned(mut raw) => raw.as_object_mut()?.remove("content"),
    }
}

/// The answers a handler may look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    /// By key, each once.
    held: Vec<(String, Held)>,
    posing: Posing,
    /// What the library asks from here on. No answer that is held is one to these.
    posed_now: Vec<PosedQuestion>,
    /// The questions of the library's whose answers were taken.
    taken: Vec<(String, Fingerprint)>,
    /// The keys of answers that were not taken, because another question was asked than the one they are to.
    unlike: Vec<String>,
}

#[derive(Debug, Clone)]
enum Held {
    /// To a question that was asked, so its kind is known.
    Asked(QuestionKind, Received),
    /// Settled in an earlier round without content: of any kind.
    Refused(Received),
    /// The answers came without a state, so what was asked is unknown.
    Unsolicited(Value),
}

impl Held {
    /// What its content takes of memory, about.
    fn bytes(&self) -> usize {
        match self {
            Self::Asked(_, Received::Accepted(content)) => weight::of(content),
            Self::Unsolicited(raw) => weight::of(raw),
            _ => 0,
        }
    }
}

impl Answers {
    /// The answers of a leg that goes on with a flow: those of earlier rounds, then those to what was just asked.
    /// Everything else that was sent is ignored.
    pub(crate) fn solicited(
        settled: &[(String, Settled)],
        posing: Posing,
        asked: &[AskedKey],
        sent: &InputResponses,
    ) -> Self {
        let earlier = settled.iter().map(|(key, settled)| {
            let held = match settled {
                Settled::Accepted { kind, json } => {
                    let value = serde_json::from_str(json).unwrap_or_default();
                    Held::Asked(*kind, Received::Accepted(Arc::new(value)))
                }
                Settled::Declined => Held::Refused(Received::Declined),
                Settled::Cancelled => Held::Refused(Received::Cancelled),
                Settled::Late => Held::Refused(Received::Late),
            };
            (key.clone(), held)
        });
        let now = asked.iter().filter_map(|AskedKey { key, kind }| {
            let raw = sent.get(key)?;
            Some((key.clone(), Held::Asked(*kind, Received::read(*kind, Cow::Borrowed(raw)))))
        });
        let mut answers = Self { posing, ..Self::default() };
        earlier.chain(now).for_each(|(key, held)| answers.hold(key, held));
        answers
    }

    /// The answers of a leg that came with no state: there was no question, so they are taken as they are.
    pub(crate) fn unsolicited(sent: InputResponses) -> Self {
        let held = sent.into_iter().map(|(key, raw)| (key, Held::Unsolicited(raw)));
        Self { held: held.collect(), ..Self::default() }
    }

    /// Takes the answers that came to questions over the live connection. What came uninvited before them is forgotten.
    pub(crate) fn receive(&mut self, received: impl IntoIterator<Item = (String, QuestionKind, Received)>) {
        self.posing = self.posing();
        self.posed_now.clear();
        self.taken.clear();
        self.forget_unsolicited();
        for (key, kind, received) in received {
            self.hold(key, Held::Asked(kind, received));
        }
    }

    /// Forgets what came uninvited. Whether nothing is left then.
    pub(crate) fn forget_unsolicited(&mut self) -> bool {
        self.held.retain(|(_, held)| !matches!(held, Held::Unsolicited(_)));
        let Posing { posed, known } = &self.posing;
        self.held.is_empty()
            && posed.is_empty()
            && known.is_empty()
            && self.posed_now.is_empty()
            && self.taken.is_empty()
    }

    /// What these take of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let held = self.held.iter().map(|(key, held)| key.len() + size_of_val(held) + held.bytes());
        let known = self.posing.known.iter().map(|(step, json)| step.len() + json.len());
        let posed = self.posing.posed.iter().map(|posed| posed.key.len() + size_of_val(posed));
        held.chain(known).chain(posed).sum()
    }

    /// The latest answer to a question is the one that counts.
    fn hold(&mut self, key: String, held: Held) {
        self.held.retain(|(earlier, _)| *earlier != key);
        self.held.push((key, held));
    }

    fn held(&self, key: &str) -> Option<&Held> {
        self.held.iter().find(|(held, _)| held == key).map(|(_, held)| held)
    }

    /// The answer to this question, if there is one and it is of this kind.
    pub(crate) fn get(&self, key: &str, wanted: QuestionKind) -> Option<Received> {
        match self.held(key)? {
            Held::Asked(kind, answer) => (*kind == wanted).then(|| answer.clone()),
            Held::Refused(answer) => Some(answer.clone()),
            // Only this server decides what was decided elsewhere.
            Held::Unsolicited(_) if wanted == QuestionKind::Elsewhere => None,
            Held::Unsolicited(raw) => Some(Received::read(wanted, Cow::Borrowed(raw))),
        }
    }

    /// The answer to a question that the library asked, whatever its kind. Answers to other questions are ignored, asked or not.
    pub(crate) fn to_posed(&self, key: &str) -> Option<(QuestionKind, Received)> {
        self.posed(key)?;
        match self.held(key)? {
            Held::Asked(kind, answer) => Some((*kind, answer.clone())),
            // Its kind no longer matters.
            Held::Refused(answer) => Some((QuestionKind::Form, answer.clone())),
            Held::Unsolicited(_) => None,
        }
    }

    /// The question that the library asked under this key in an earlier round, if it asked one.
    pub(crate) fn posed(&self, key: &str) -> Option<&PosedQuestion> {
        self.posing.posed.iter().find(|posed| posed.key == key)
    }

    /// Notes that the answer with this key is one to another question than the one that is asked now.
    pub(crate) fn note_unlike(&mut self, key: &str) {
        if !self.is_unlike(key) {
            self.unlike.push(key.to_owned());
        }
    }

    pub(crate) fn is_unlike(&self, key: &str) -> bool {
        self.unlike.iter().any(|unlike| unlike == key)
    }

    /// Notes that the answer to this question of the library's was taken for what it is.
    pub(crate) fn take(&mut self, key: &str, question: Fingerprint) {
        self.taken.push((key.to_owned(), question));
    }

    /// Notes that the library asks this question. Where several depend on it, that is more than once in a leg. One whose key another
    /// has that is answered by now would put that one's answer away, and be put away by it in turn.
    pub(crate) fn pose(&mut self, question: PosedQuestion) -> Result<(), FlowError> {
        if self.taken.iter().any(|(taken, other)| *taken == question.key && *other != question.question) {
            return Err(FlowError::DuplicateKey { key: question.key });
        }
        self.posed_now.retain(|posed| posed.key != question.key);
        self.posed_now.push(question);
        Ok(())
    }

    /// Whether a handler asks this by itself under a key that the library has asked under: the answer would be taken for one to
    /// the library's question.
    pub(crate) fn clashes(&self, key: &str) -> bool {
        self.posed(key).is_some() && self.posed_now.iter().all(|posed| posed.key != key)
    }

    /// What a step came by without asking, as JSON text.
    pub(crate) fn known(&self, step: &str) -> Option<&str> {
        self.posing.known.iter().find(|(name, _)| name == step).map(|(_, json)| json.as_str())
    }

    /// Keeps what a step came by without asking.
    pub(crate) fn keep(&mut self, step: &str, json: String) {
        self.posing.known.push((step.to_owned(), json));
    }

    /// What the library did on the handler's behalf, for the next round's token.
    pub(crate) fn posing(&self) -> Posing {
        let Posing { mut posed, known } = self.posing.clone();
        posed.retain(|before| self.posed_now.iter().all(|now| now.key != before.key));
        posed.extend(self.posed_now.iter().cloned());
        Posing { posed, known }
    }

    /// What the next round's token carries of these: all that a person has settled, but for what is asked again.
    pub(crate) fn settled(&self, asked_again: &[AskedKey<&str>]) -> Vec<(String, Settled)> {
        let settled = self.held.iter().filter_map(|(key, held)| {
            let settled = match held {
                Held::Asked(kind, Received::Accepted(value)) => Settled::accepted(*kind, value),
                Held::Asked(_, Received::Declined) | Held::Refused(Received::Declined) => Settled::Declined,
                Held::Asked(_, Received::Cancelled) | Held::Refused(Received::Cancelled) => Settled::Cancelled,
                Held::Asked(_, Received::Late) | Held::Refused(Received::Late) => Settled::Late,
                _ => return None,
            };
            Some((key.clone(), settled))
        });
        settled.filter(|(key, _)| asked_again.iter().all(|asked| asked.key != *key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(key: &str, kind: QuestionKind) -> AskedKey {
        AskedKey { key: key.to_owned(), kind }
    }

    fn sent(answers: Value) -> InputResponses {
        serde_json::from_value(answers).unwrap()
    }

    fn accepted(content: Value) -> Received {
        Received::Accepted(Arc::new(content))
    }

    fn posed(question: u8, asked_again: u32) -> PosedQuestion {
        PosedQuestion::new("class", [question; 16], asked_again, false)
    }

    /// As it reads one that it may keep, and one that it may not.
    fn read(kind: QuestionKind, raw: &Value) -> Received {
        let read = Received::read(kind, Cow::Borrowed(raw));
        assert_eq!(Received::read(kind, Cow::Owned(raw.clone())), read);
        read
    }

    #[test]
    fn only_what_was_asked_is_looked_at() {
        let sent = sent(json!({"units": {"action": "accept", "content": {}}, "admin": {"action": "accept"}}));
        let answers = Answers::solicited(&[], Posing::default(), &[asked("units", QuestionKind::Form)], &sent);
        assert_eq!(answers.get("units", QuestionKind::Form), Some(accepted(json!({}))));
        assert_eq!(answers.get("admin", QuestionKind::Form), None);
        assert_eq!(answers.get("units", QuestionKind::Sample), None, "it was asked as a form");
    }

    #[test]
    fn content_on_a_decline_or_a_cancel_is_ignored() {
        for (action, answer) in [("decline", Received::Declined), ("cancel", Received::Cancelled)] {
            let raw = json!({"action": action, "content": {"units": "metric"}});
            assert_eq!(read(QuestionKind::Form, &raw), answer);
            assert_eq!(read(QuestionKind::Url, &raw), answer);
        }
    }

    #[test]
    fn an_answer_of_another_kind_or_of_no_kind_is_malformed() {
        let message = json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"});
        for raw in [message, json!(null), json!("accept"), json!([]), json!({"action": 1}), json!({"action": "yes"})] {
            assert!(matches!(read(QuestionKind::Form, &raw), Received::Malformed(_)), "{raw}");
        }
        assert!(matches!(read(QuestionKind::Form, &json!({"action": "accept", "content": 1})), Received::Malformed(_)));
        assert!(matches!(read(QuestionKind::Roots, &json!("x")), Received::Malformed(_)));
    }

    #[test]
    fn what_is_settled_travels_on_and_what_is_asked_again_does_not() {
        let sent = sent(json!({
            "a": {"action": "accept", "content": {"a": 1}}, "b": {"action": "decline"},
            "c": {"action": "cancel"}, "d": {"action": "nonsense"},
        }));
        let all = ["a", "b", "c", "d", "e"].map(|key| asked(key, QuestionKind::Form));
        let first = Answers::solicited(&[], Posing::default(), &all, &sent);
        let settled = first.settled(&[AskedKey { key: "a", kind: QuestionKind::Form }]);
        assert_eq!(settled, [("b".to_owned(), Settled::Declined), ("c".to_owned(), Settled::Cancelled)]);
        let second = Answers::solicited(&first.settled(&[]), Posing::default(), &[], &InputResponses::new());
        assert_eq!(second.get("a", QuestionKind::Form), Some(accepted(json!({"a": 1}))));
        assert_eq!(second.get("b", QuestionKind::Form), Some(Received::Declined));
        assert_eq!(second.get("d", QuestionKind::Form), None);
        assert_eq!(second.settled(&[]), first.settled(&[]), "and again in the round after");
    }

    #[test]
    fn only_what_the_library_asked_is_an_answer_to_it() {
        let sent = sent(json!({"class": {"action": "accept", "content": {}}}));
        let mut answers = Answers::solicited(&[], Posing::default(), &[asked("class", QuestionKind::Form)], &sent);
        assert_eq!(answers.to_posed("class"), None, "a guard asked it, before a deploy made a step of it");
        assert!(!answers.clashes("class"));
        answers.pose(posed(1, 0)).unwrap();
        assert_eq!(answers.to_posed("class"), None, "it is asked just now, so this is not an answer to it");
        let mut answered = Answers::solicited(&[], answers.posing(), &[asked("class", QuestionKind::Form)], &sent);
        assert_eq!(answered.to_posed("class"), Some((QuestionKind::Form, accepted(json!({})))));
        assert!(answered.clashes("class"), "a handler that asks under this key gets in the way");
        answered.pose(posed(2, 1)).unwrap();
        assert!(!answered.clashes("class"), "the library may ask again");
        assert_eq!(answered.posing().posed.len(), 1);
        let mut uninvited = Answers::unsolicited(sent);
        answered.take("class", [2; 16]);
        answered.pose(posed(2, 1)).unwrap();
        let clash = answered.pose(posed(1, 0));
        assert!(matches!(clash, Err(FlowError::DuplicateKey { .. })), "both would ask for ever");
        uninvited.pose(posed(1, 0)).unwrap();
        assert_eq!(uninvited.to_posed("class"), None);
    }

    #[test]
    fn what_came_uninvited_is_forgotten_when_answers_come_that_were_asked_for() {
        let mut answers = Answers::unsolicited(sent(json!({"a": {"action": "decline"}, "b": {"action": "decline"}})));
        answers.receive([("a".to_owned(), QuestionKind::Form, accepted(json!({})))]);
        assert_eq!(answers.get("a", QuestionKind::Form), Some(accepted(json!({}))));
        assert_eq!(answers.get("b", QuestionKind::Form), None);
    }
}
