//! Digests of canonical JSON, so that equal requests have equal digests however they were spelled.

use std::fmt;

use rmcp::model::{InputRequest, InputResponses, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::envelope::FlowId;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of the arguments of a call. Absent arguments and `{}` are equal.
    pub(crate) fn of_arguments(arguments: Option<&JsonObject>) -> Self {
        match arguments {
            Some(arguments) if !arguments.is_empty() => Self::of_json("arguments", arguments),
            _ => Self::of_parts("arguments", b"{}"),
        }
    }

    /// Of the answers that came with a leg. A ledger sees it: without the flow's name, which no ledger sees, nobody can check
    /// a guess by it.
    pub(crate) fn of_answers(flow: FlowId, answers: &InputResponses) -> Self {
        let Self(answers) = Self::of_json("answers", answers);
        Self::of_parts("answered", &[&flow.as_bytes()[..], &answers].concat())
    }

    /// Of the name of whoever is calling.
    pub(crate) fn of_principal(name: &str) -> Self {
        Self::of_parts("principal", name.as_bytes())
    }

    /// The first half, for what only has to be known again: it travels in every token of a durable flow.
    fn half(self) -> Fingerprint {
        let mut half = Fingerprint::default();
        half.copy_from_slice(&self.0[..size_of::<Fingerprint>()]);
        half
    }

    /// Of the name of an effect of one flow, as a ledger sees it.
    pub(crate) fn of_once(flow: FlowId, name: &str) -> Self {
        Self::of_parts("once", &[flow.as_bytes(), name.as_bytes()].concat())
    }

    /// Of a state that is kept in the ledger.
    pub(crate) fn of_spill(state: &[u8]) -> Self {
        Self::of_parts("spill", state)
    }

    /// Of an effect of one flow: the same whenever it is tried, and known to nobody else.
    pub(crate) fn of_effect(flow: FlowId, name: &str) -> Self {
        Self::of_parts("effect", &[flow.as_bytes(), name.as_bytes()].concat())
    }

    /// The bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of_json<T: Serialize>(domain: &str, json: &T) -> Self {
        Self::of_parts(domain, canonical(json).as_bytes())
    }

    fn of_parts(domain: &str, content: &[u8]) -> Self {
        let digest = Sha256::new()
            .chain_update(b"rounds/digest/1/")
            .chain_update(domain)
            .chain_update(b"\0")
            .chain_update(content);
        Self(digest.finalize().into())
    }
}

impl FlowId {
    /// The name by which a ledger knows the flow. It says nothing of the flow's own name, which digests and idempotency keys
    /// are made of.
    pub(crate) fn in_ledger(self) -> Self {
        Self::from_bytes(Digest::of_parts("flow", self.as_bytes()).half())
    }
}

/// By what a question is known again.
pub(crate) type Fingerprint = [u8; 16];

/// The fingerprint of a question.
pub(crate) fn of_question(request: &InputRequest) -> Fingerprint {
    Digest::of_json("question", request).half()
}

/// The fingerprint of a question with a form, which is made of its message and the [canonical](canonical) text of its schema, in
/// pieces. The test of forms says that it is the one of [`of_question`].
pub(crate) fn of_form(message: &str, schema: &[&str]) -> Fingerprint {
    let message = canonical_text(message);
    let before = r#"{"method":"elicitation/create","params":{"message":"#;
    let question = [&[before, &message, r#","mode":"form","requestedSchema":"#], schema, &["}}"]].concat().concat();
    Digest::of_parts("question", question.as_bytes()).half()
}

/// The one way to write this as JSON.
pub(crate) fn canonical<T: Serialize>(json: &T) -> String {
    // Serialising to a `Value` first costs a copy, and makes the one place where integers are looked at.
    serde_json::to_value(json)
        .map(exact)
        .and_then(|value| serde_json_canonicalizer::to_string(&value))
        .expect("JSON that was just parsed has string keys and finite numbers")
}

/// The same for a string.
pub(crate) fn canonical_text(text: &str) -> String {
    if text.starts_with('\0') { canonical(&text) } else { canonical_name(text) }
}

/// The same for the name of a member. There is one way to write a string, and everybody knows it.
pub(crate) fn canonical_name(name: &str) -> String {
    serde_json::to_string(name).expect("a string can be written as JSON")
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Canonical JSON (RFC 8785) knows numbers as doubles only, and would make one number of two neighbouring integers
/// beyond 2^53. Those become strings that no other string can be confused with; everything else stays.
fn exact(value: Value) -> Value {
    const LARGEST_EXACT: u64 = 1 << 53;
    match value {
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            let magnitude = number.as_i64().map_or(u64::MAX, i64::unsigned_abs);
            if magnitude > LARGEST_EXACT { Value::String(format!("\0integer {number}")) } else { Value::Number(number) }
        }
        Value::String(text) if text.starts_with('\0') => Value::String(format!("\0string {text}")),
        Value::Array(items) => items.into_iter().map(exact).collect(),
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, exact(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(arguments: Value) -> Digest {
        Digest::of_arguments(arguments.as_object())
    }

    #[test]
    fn spelling_does_not_matter() {
        let parsed = |text: &str| digest(serde_json::from_str(text).unwrap());
        assert_eq!(parsed(r#"{"a":1,"b":{"c":2,"d":3}}"#), parsed(r#"{"b":{"d":3,"c":2},"a":1}"#));
        assert_eq!(parsed(r#"{"a":1}"#), parsed(r#"{"a":1.0}"#));
        assert_eq!(parsed(r#"{"a":1}"#), parsed(r#"{"a":1e0}"#));
        assert_eq!(parsed(r#"{"a":0}"#), parsed(r#"{"a":-0.0}"#));
        assert_eq!(parsed(r#"{"a":"A"}"#), parsed(r#"{"a":"\u0041"}"#));
        assert_eq!(Digest::of_arguments(None), parsed("{}"));
    }

    #[test]
    fn meaning_does() {
        let all = [
            json!({}),
            json!({"a": 1}),
            json!({"a": "1"}),
            json!({"a": null}),
            json!({"a": false}),
            json!({"a": []}),
            json!({"a": {}}),
            json!({"a": [1, 2]}),
            json!({"a": [2, 1]}),
            json!({"a": 1, "b": 1}),
            json!({"a": 1.5}),
        ];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(i == j, digest(one.clone()) == digest(other.clone()), "{one} and {other}");
            }
        }
    }

    #[test]
    fn neighbouring_large_integers_differ() {
        let big = json!({"order": 9_007_199_254_740_993_u64});
        assert_ne!(digest(big.clone()), digest(json!({"order": 9_007_199_254_740_992_u64})));
        assert_ne!(digest(json!({"n": u64::MAX})), digest(json!({"n": u64::MAX - 1})));
        assert_ne!(digest(json!({"n": i64::MIN})), digest(json!({"n": i64::MIN + 1})));
        assert_ne!(digest(big), digest(json!({"order": "\0integer 9007199254740993"})));
    }

    #[test]
    fn arguments_and_answers_are_apart() {
        let answers = InputResponses::from([("a".to_owned(), json!(1))]);
        assert_ne!(digest(json!({"a": 1})), Digest::of_answers(FlowId::from_bytes([1; 16]), &answers));
    }

    #[test]
    fn what_a_ledger_sees_cannot_be_guessed_without_the_name_of_the_flow() {
        let (one, other) = (FlowId::from_bytes([1; 16]), FlowId::from_bytes([2; 16]));
        let answers = InputResponses::from([("a".to_owned(), json!(1))]);
        assert_ne!(Digest::of_answers(one, &answers), Digest::of_answers(other, &answers));
        assert_ne!(Digest::of_once(one, "charge"), Digest::of_once(other, "charge"));
        assert_ne!(Digest::of_once(one, "charge"), Digest::of_effect(one, "charge"), "the key is nobody else's");
        assert!(one.in_ledger() != one && one.in_ledger() != other.in_ledger());
        assert_eq!(one.in_ledger(), FlowId::from_bytes([1; 16]).in_ledger());
    }

    /// An answer goes through JSON on its way to another instance, and has to come out as it went in.
    #[test]
    fn a_number_survives_being_written_and_read() {
        let number: Value = serde_json::from_str("5.026328072615539e-296").unwrap();
        let again: Value = serde_json::from_str(&number.to_string()).unwrap();
        assert_eq!(number, again);
    }
}
