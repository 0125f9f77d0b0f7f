//! Digests of JSON by its meaning, so that equal requests have equal digests however they were written.

use std::fmt;

use ring::digest::{Context, SHA256};
use rmcp::model::{InputRequest, InputResponses, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::envelope::{FlowId, Method};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digest of the arguments of a call. Absent arguments and `{}` are equal.
    pub(crate) fn of_arguments(arguments: Option<&JsonObject>) -> Self {
        match arguments {
            Some(arguments) => Self::of_members("arguments", arguments),
            None => Self::of_members("arguments", &JsonObject::new()),
        }
    }

    /// Digest of the answers of a leg. A ledger sees it, but not the flow's id, without which a guess of the answers
    /// cannot be checked.
    pub(crate) fn of_answers(flow: FlowId, answers: &InputResponses) -> Self {
        let Self(answers) = Self::of_members("answers", answers);
        Self::of_parts("answered", &[&flow.as_bytes()[..], &answers].concat())
    }

    /// Digest of the arguments of a first leg that has an identity. As with answers, a guess cannot be checked without
    /// the flow's id.
    pub(crate) fn of_first_leg(flow: FlowId, arguments: Self) -> Self {
        Self::of_parts("first", &[&flow.as_bytes()[..], &arguments.0].concat())
    }

    /// Digest of what is called.
    pub(crate) fn of_target(method: Method, target: &str) -> Self {
        Self::of_parts("target", &[method.as_str().as_bytes(), b"\0", target.as_bytes()].concat())
    }

    /// Digest of the name of a principal.
    pub(crate) fn of_principal(name: &str) -> Self {
        Self::of_parts("principal", name.as_bytes())
    }

    /// The first half of the digest, where only equality matters: it travels in every token of a durable flow, and is
    /// in every claim of a ledger in memory.
    pub(crate) fn half(self) -> Fingerprint {
        let mut half = Fingerprint::default();
        half.copy_from_slice(&self.0[..size_of::<Fingerprint>()]);
        half
    }

    /// Digest of the name of an effect of one flow, as a ledger sees it.
    pub(crate) fn of_once(flow: FlowId, name: &str) -> Self {
        Self::of_parts("once", &[flow.as_bytes(), name.as_bytes()].concat())
    }

    /// Digest of the id of a task, as a ledger sees it.
    pub(crate) fn of_task(id: &str) -> Self {
        Self::of_parts("task", id.as_bytes())
    }

    /// Digest of a state that is kept in the ledger.
    pub(crate) fn of_spill(state: &[u8]) -> Self {
        Self::of_parts("spill", state)
    }

    /// Digest of an effect of one flow, for its idempotency key: the same for every attempt. Ledgers do not see it.
    pub(crate) fn of_effect(flow: FlowId, name: &str) -> Self {
        Self::of_parts("effect", &[flow.as_bytes(), name.as_bytes()].concat())
    }

    /// Digest of what a person is shown before they decide, and of a question that is answered elsewhere.
    pub(crate) fn of_shown(shown: &Value) -> Self {
        let mut canonical = Vec::with_capacity(1024);
        spell(shown, &mut canonical);
        Self::of_parts("shown", &canonical)
    }

    /// Digest that names a document of a flow, by what it is for.
    pub(crate) fn of_document(purpose: &str, flow: FlowId, name: &str) -> Self {
        Self::of_parts("document", &[purpose.as_bytes(), b"\0", flow.as_bytes(), name.as_bytes()].concat())
    }

    /// Digest of the form of a type.
    pub(crate) fn of_shape(shape: &Value) -> Self {
        let mut canonical = Vec::with_capacity(1024);
        spell(shape, &mut canonical);
        Self::of_parts("shape", &canonical)
    }

    /// The digest with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of_members<'a>(domain: &str, members: impl Members<'a>) -> Self {
        let mut canonical = Vec::with_capacity(256);
        spell_members(members, &mut canonical);
        Self::of_parts(domain, &canonical)
    }

    fn of_parts(domain: &str, content: &[u8]) -> Self {
        let mut digest = Context::new(&SHA256);
        for part in [b"rounds/digest/1/", domain.as_bytes(), b"\0", content] {
            digest.update(part);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.finish().as_ref());
        Self(bytes)
    }
}

impl FlowId {
    /// The id by which a ledger knows the flow. It does not reveal the flow's own id, from which digests and
    /// idempotency keys are computed.
    pub(crate) fn in_ledger(self) -> Self {
        Self::from_bytes(Digest::of_parts("flow", self.as_bytes()).half())
    }
}

/// Identifies a question on a later leg.
pub(crate) type Fingerprint = [u8; 16];

/// The fingerprint of a question that is a form. The digest of the form was computed before, once for its type.
pub(crate) fn of_form(message: &str, key: &str, shape: &Digest) -> Fingerprint {
    let mut canonical = Vec::with_capacity(256);
    spell_text(message, &mut canonical);
    spell_text(key, &mut canonical);
    canonical.extend_from_slice(shape.as_bytes());
    Digest::of_parts("form", &canonical).half()
}

/// The fingerprint of any other question.
pub(crate) fn of_question(request: &InputRequest) -> Fingerprint {
    let question = serde_json::to_value(request).expect("a question has string keys and finite numbers");
    let mut canonical = Vec::with_capacity(1024);
    spell(&question, &mut canonical);
    Digest::of_parts("question", &canonical).half()
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

/// Writes all digits at once, because a formatter for each byte is slow: ids are in spans and in the keys of effects.
pub(super) fn write_hex<const N: usize>(bytes: &[u8; N], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut digits = [[0; 2]; N];
    for (byte, pair) in bytes.iter().zip(&mut digits) {
        *pair = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    }
    f.write_str(std::str::from_utf8(digits.as_flattened()).map_err(|_| fmt::Error)?)
}

/// Writes a value by its meaning: equal values give equal bytes and different values different bytes, because every
/// part has a type and a length.
fn spell(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(false) => out.push(b'f'),
        Value::Bool(true) => out.push(b't'),
        Value::Number(number) => spell_number(number, out),
        Value::String(text) => spell_text(text, out),
        Value::Array(items) => {
            out.push(b'a');
            spell_length(items.len(), out);
            for item in items {
                spell(item, out);
            }
        }
        Value::Object(members) => spell_members(members, out),
    }
}

/// Sorts members by name. They usually are in order already.
fn spell_members<'a>(members: impl Members<'a>, out: &mut Vec<u8>) {
    let mut spell_each = |members: &mut dyn ExactSizeIterator<Item = Member<'a>>| {
        out.push(b'o');
        spell_length(members.len(), out);
        for (name, value) in members {
            spell_text(name, out);
            spell(value, out);
        }
    };
    let mut members = members.into_iter();
    if members.clone().is_sorted_by_key(|(name, _)| name) {
        spell_each(&mut members);
    } else {
        let mut sorted: Vec<_> = members.collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        spell_each(&mut sorted.into_iter());
    }
}

type Member<'a> = (&'a String, &'a Value);

/// A map of any kind.
trait Members<'a>: IntoIterator<Item = Member<'a>, IntoIter: ExactSizeIterator + Clone> {}

impl<'a, M: IntoIterator<Item = Member<'a>, IntoIter: ExactSizeIterator + Clone>> Members<'a> for M {}

fn spell_text(text: &str, out: &mut Vec<u8>) {
    out.push(b's');
    spell_length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// A number without a fraction is an integer, also if it was written `1.0` or `1e0`. Integers are exact: order
/// 9007199254740993 differs from its neighbour, unlike among doubles.
fn spell_number(number: &Number, out: &mut Vec<u8>) {
    match number.as_i128() {
        Some(integer) if integer.unsigned_abs() < BEYOND_INTEGERS => spell_integer(integer, out),
        _ if is_exact() => super::decimal::spell(&number.to_string(), out),
        _ => {
            let double = number.as_f64().unwrap_or(f64::NAN);
            // Exact: the doubles in this range without a fraction are integers of 65 bits.
            match double.fract() == 0.0 && double.abs() < BEYOND_INTEGERS as f64 {
                true => spell_integer(double as i128, out),
                false => spell_double(double, out),
            }
        }
    }
}

/// The smallest number that is too large for an integer of 64 bits.
pub(super) const BEYOND_INTEGERS: u128 = 1 << 64;

/// Whether numbers keep the digits that were written, and are not integers of 64 bits and doubles: a crate of this
/// program enables `serde_json/arbitrary_precision`.
fn is_exact() -> bool {
    Number::from_i128(i128::MAX).is_some()
}

pub(super) fn spell_integer(integer: i128, out: &mut Vec<u8>) {
    out.push(b'i');
    out.extend_from_slice(&integer.to_be_bytes());
}

pub(super) fn spell_double(double: f64, out: &mut Vec<u8>) {
    out.push(b'd');
    out.extend_from_slice(&double.to_be_bytes());
}

/// Writes seven bits to a byte, the lowest first; all but the last byte have the eighth bit set.
pub(super) fn spell_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
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

    /// As in a program in which `serde_json` keeps the order of members.
    #[test]
    fn members_that_are_not_in_order_are_put_in_order() {
        let (a, b, one, two) = ("a".to_owned(), "b".to_owned(), json!(1), json!(2));
        let spelled = |members: [Member<'_>; 2]| Digest::of_members("test", members);
        assert_eq!(spelled([(&b, &two), (&a, &one)]), spelled([(&a, &one), (&b, &two)]));
        assert_ne!(spelled([(&b, &one), (&a, &two)]), spelled([(&a, &one), (&b, &two)]));
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
        assert_ne!(digest(big), digest(json!({"order": "9007199254740993"})));
    }

    /// With any features of `serde_json`: programs that were built with other features open the same tokens.
    #[test]
    fn a_digest_is_the_same_in_every_build() {
        let arguments: Value = serde_json::from_str(
            r#"{"n": [0, -0.0, 1, 1.0, 1e0, -7, 1.5, -0.1, 1e300, 2.2250738585072014e-308, 18446744073709551615, -9223372036854775808]}"#,
        )
        .unwrap();
        let golden = "0b0943d9633f71dbc0b4e444eb5b6fbd92445c1b9254c2da2a586776ca3b865e";
        assert_eq!(format!("{:?}", digest(arguments)), golden);
    }

    #[test]
    fn an_integer_is_one_however_large_it_is_and_whether_it_was_written_with_a_point() {
        for integer in [0_i64, 1, -1, 1 << 53] {
            assert_eq!(digest(json!({ "n": integer })), digest(json!({ "n": integer as f64 })), "{integer}");
        }
        // If numbers keep their digits, a double is written with as many digits as distinguish it from others, and is
        // that number.
        if !is_exact() {
            for integer in [-(1 << 60), i64::MIN] {
                assert_eq!(digest(json!({ "n": integer })), digest(json!({ "n": integer as f64 })), "{integer}");
            }
            assert_eq!(digest(json!({"n": 1_u64 << 63})), digest(json!({"n": (1_u64 << 63) as f64})));
        }
        assert_ne!(digest(json!({"n": u64::MAX})), digest(json!({"n": u64::MAX as f64})), "which is 2^64");
        assert_ne!(digest(json!({"n": 1e300})), digest(json!({"n": 1e301})));
    }

    /// Without lengths, the end of one value could be the beginning of the next.
    #[test]
    fn no_part_runs_into_the_next() {
        let all = [
            json!({"a": ["bc", "d"]}),
            json!({"a": ["b", "cd"]}),
            json!({"a": ["b", "c", "d"]}),
            json!({"a": [["b"], "c", "d"]}),
            json!({"a": [["b", "c"], "d"]}),
            json!({"a": {"b": {}, "c": {}}}),
            json!({"a": {"b": {"c": {}}}}),
            json!({"a": {}, "b": {"c": {}}}),
        ];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(i == j, digest(one.clone()) == digest(other.clone()), "{one} and {other}");
            }
        }
    }

    #[test]
    fn the_order_in_which_members_came_does_not_matter() {
        let (one, two) = (("one".to_owned(), json!(1)), ("two".to_owned(), json!(2)));
        let spelled = |members: [&(String, Value); 2]| {
            let mut out = Vec::new();
            spell_members(members.map(|(name, value)| (name, value)), &mut out);
            out
        };
        assert_eq!(spelled([&one, &two]), spelled([&two, &one]));
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
        assert_ne!(Digest::of_once(one, "charge"), Digest::of_effect(one, "charge"), "a ledger does not see the key");
        assert!(one.in_ledger() != one && one.in_ledger() != other.in_ledger());
        assert_eq!(one.in_ledger(), FlowId::from_bytes([1; 16]).in_ledger());
    }

    /// An answer is written as JSON on its way to another instance, and must not change.
    #[test]
    fn a_number_survives_being_written_and_read() {
        let number: Value = serde_json::from_str("5.026328072615539e-296").unwrap();
        let again: Value = serde_json::from_str(&number.to_string()).unwrap();
        assert_eq!(number, again);
    }
}
