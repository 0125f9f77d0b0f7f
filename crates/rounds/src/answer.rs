//! Answers: what came back for the questions of a round, read by the kind that was asked for.

use std::collections::BTreeMap;

use rmcp::model::InputResponses;
use serde_json::Value;

use crate::{
    check::Problem,
    seal::envelope::{Asked, Kind, Settled},
};

/// One answer, as far as its kind alone can tell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Received {
    /// A form's content, a model's message, the roots; `null` for a page that the person agreed to visit.
    Accepted(Value),
    Declined,
    Cancelled,
    Malformed(Problem),
}

impl Received {
    /// Reads an answer. It carries no discriminator, so the kind is what the question asked for.
    pub(crate) fn read(kind: Kind, raw: &Value) -> Self {
        match kind {
            Kind::Form | Kind::Url => match raw.get("action").and_then(Value::as_str) {
                Some("accept") if kind == Kind::Url => Self::Accepted(Value::Null),
                Some("accept") => match raw.get("content") {
                    Some(content @ Value::Object(_)) => Self::Accepted(content.clone()),
                    None | Some(Value::Null) => Self::Accepted(Value::Object(Default::default())),
                    Some(_) => Self::Malformed(Problem::whole("the answer's content is not an object")),
                },
                // Content on a decline is not looked at: nobody agreed to it.
                Some("decline") => Self::Declined,
                Some("cancel") => Self::Cancelled,
                _ => Self::Malformed(Problem::whole("the answer's action is none of accept, decline and cancel")),
            },
            Kind::Sample | Kind::Roots if raw.is_object() => Self::Accepted(raw.clone()),
            Kind::Sample | Kind::Roots => Self::Malformed(Problem::whole("the answer is not an object")),
        }
    }
}

/// The answers a handler may look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    held: BTreeMap<String, Held>,
}

#[derive(Debug, Clone)]
enum Held {
    /// To a question that was asked, so its kind is known.
    Asked(Kind, Received),
    /// Settled in an earlier round without content: of any kind.
    Refused(Received),
    /// Came with no state: nobody knows what was asked.
    Unsolicited(Value),
}

impl Answers {
    /// The answers of a leg that goes on with a flow: those of earlier rounds, then those to what was just asked.
    /// Everything else that was sent is ignored.
    pub(crate) fn solicited(settled: &[(String, Settled)], asked: &[Asked], sent: &InputResponses) -> Self {
        let earlier = settled.iter().map(|(key, settled)| {
            let held = match settled {
                Settled::Accepted { kind, json } => {
                    let value = serde_json::from_str(json).unwrap_or_default();
                    Held::Asked(*kind, Received::Accepted(value))
                }
                Settled::Declined => Held::Refused(Received::Declined),
                Settled::Cancelled => Held::Refused(Received::Cancelled),
            };
            (key.clone(), held)
        });
        let now = asked.iter().filter_map(|Asked { key, kind }| {
            let raw = sent.get(key)?;
            Some((key.clone(), Held::Asked(*kind, Received::read(*kind, raw))))
        });
        Self { held: earlier.chain(now).collect() }
    }

    /// The answers of a leg that came with no state: there was no question, so they are taken as they are.
    pub(crate) fn unsolicited(sent: InputResponses) -> Self {
        let held = sent.into_iter().map(|(key, raw)| (key, Held::Unsolicited(raw)));
        Self { held: held.collect() }
    }

    /// The answer to this question, if there is one and it is of this kind.
    pub(crate) fn get(&self, key: &str, wanted: Kind) -> Option<Received> {
        match self.held.get(key)? {
            Held::Asked(kind, answer) => (*kind == wanted).then(|| answer.clone()),
            Held::Refused(answer) => Some(answer.clone()),
            Held::Unsolicited(raw) => Some(Received::read(wanted, raw)),
        }
    }

    /// What the next round's token carries of these: all that a person has settled, but for what is asked again.
    pub(crate) fn settled(&self, asked_again: &[Asked]) -> Vec<(String, Settled)> {
        let settled = self.held.iter().filter_map(|(key, held)| {
            let settled = match held {
                Held::Asked(kind, Received::Accepted(value)) => {
                    Settled::Accepted { kind: *kind, json: value.to_string() }
                }
                Held::Asked(_, Received::Declined) | Held::Refused(Received::Declined) => Settled::Declined,
                Held::Asked(_, Received::Cancelled) | Held::Refused(Received::Cancelled) => Settled::Cancelled,
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

    fn asked(key: &str, kind: Kind) -> Asked {
        Asked { key: key.to_owned(), kind }
    }

    fn sent(answers: Value) -> InputResponses {
        serde_json::from_value(answers).unwrap()
    }

    #[test]
    fn only_what_was_asked_is_looked_at() {
        let sent = sent(json!({"units": {"action": "accept", "content": {}}, "admin": {"action": "accept"}}));
        let answers = Answers::solicited(&[], &[asked("units", Kind::Form)], &sent);
        assert_eq!(answers.get("units", Kind::Form), Some(Received::Accepted(json!({}))));
        assert_eq!(answers.get("admin", Kind::Form), None);
        assert_eq!(answers.get("units", Kind::Sample), None, "it was asked as a form");
    }

    #[test]
    fn content_on_a_decline_or_a_cancel_is_ignored() {
        for (action, answer) in [("decline", Received::Declined), ("cancel", Received::Cancelled)] {
            let raw = json!({"action": action, "content": {"units": "metric"}});
            assert_eq!(Received::read(Kind::Form, &raw), answer);
            assert_eq!(Received::read(Kind::Url, &raw), answer);
        }
    }

    #[test]
    fn an_answer_of_another_kind_or_of_no_kind_is_malformed() {
        let message = json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"});
        for raw in [message, json!(null), json!("accept"), json!([]), json!({"action": 1}), json!({"action": "yes"})] {
            assert!(matches!(Received::read(Kind::Form, &raw), Received::Malformed(_)), "{raw}");
        }
        assert!(matches!(
            Received::read(Kind::Form, &json!({"action": "accept", "content": 1})),
            Received::Malformed(_)
        ));
        assert!(matches!(Received::read(Kind::Roots, &json!("x")), Received::Malformed(_)));
    }

    #[test]
    fn what_is_settled_travels_on_and_what_is_asked_again_does_not() {
        let sent = sent(json!({
            "a": {"action": "accept", "content": {"a": 1}}, "b": {"action": "decline"},
            "c": {"action": "cancel"}, "d": {"action": "nonsense"},
        }));
        let all = ["a", "b", "c", "d", "e"].map(|key| asked(key, Kind::Form));
        let first = Answers::solicited(&[], &all, &sent);
        let settled = first.settled(&[asked("a", Kind::Form)]);
        assert_eq!(settled, [("b".to_owned(), Settled::Declined), ("c".to_owned(), Settled::Cancelled)]);
        let second = Answers::solicited(&first.settled(&[]), &[], &InputResponses::new());
        assert_eq!(second.get("a", Kind::Form), Some(Received::Accepted(json!({"a": 1}))));
        assert_eq!(second.get("b", Kind::Form), Some(Received::Declined));
        assert_eq!(second.get("d", Kind::Form), None);
        assert_eq!(second.settled(&[]), first.settled(&[]), "and again in the round after");
    }
}
