//! The kinds of question that a client declared it can answer, as a byte of flags. A waiting call keeps the flags and
//! not the declaration, whose size the client chooses.

use rmcp::model::{ClientCapabilities, TASKS_EXTENSION_ID};
use serde_json::{Map, Value, json};

use crate::shared::kind::QuestionKind;

/// The kinds of question that a client declared it can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Capabilities(u8);

impl Capabilities {
    const FORM: u8 = 1;
    const URL: u8 = 1 << 1;
    const SAMPLE: u8 = 1 << 2;
    const SAMPLE_TOOLS: u8 = 1 << 3;
    const ROOTS: u8 = 1 << 4;
    const TASKS: u8 = 1 << 5;

    /// Reads what a request declares without copying it. None for what rmcp does not accept as capabilities, and for
    /// lists in place of objects, which rmcp does accept.
    pub(crate) fn read(declared: &Value) -> Option<Self> {
        let mut read = Self::default();
        for (name, value) in declared.as_object()? {
            match name.as_str() {
                "elicitation" => read.0 |= read_elicitation(value)?,
                "sampling" => read.0 |= read_sampling(value)?,
                "roots" => read.0 |= with_flag(value, "listChanged")?.map_or(0, |_| Self::ROOTS),
                "extensions" => {
                    let tasks = objects(value)?.is_some_and(|extensions| extensions.contains_key(TASKS_EXTENSION_ID));
                    read.0 |= if tasks { Self::TASKS } else { 0 };
                }
                "experimental" => drop(objects(value)?),
                _ => {}
            }
        }
        Some(read)
    }

    /// Whether this kind of question may be sent.
    pub(crate) const fn can(self, kind: QuestionKind) -> bool {
        self.has(match kind {
            QuestionKind::Form => Self::FORM,
            QuestionKind::Url | QuestionKind::Elsewhere => Self::URL,
            QuestionKind::Sample => Self::SAMPLE,
            QuestionKind::Roots => Self::ROOTS,
        })
    }

    /// Whether a sampling request may give tools to the client's model.
    pub(crate) const fn can_use_tools(self) -> bool {
        self.has(Self::SAMPLE_TOOLS)
    }

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// The shortest declaration that reads as these flags.
    pub(crate) fn to_json(self) -> String {
        let mut declared = Map::new();
        let mut declare = |flag, name: &str, value| {
            if self.has(flag) {
                declared.insert(name.to_owned(), value);
            }
        };
        declare(Self::TASKS, "extensions", json!({ (TASKS_EXTENSION_ID): {} }));
        declare(Self::ROOTS, "roots", json!({}));
        declare(Self::SAMPLE, "sampling", if self.can_use_tools() { json!({"tools": {}}) } else { json!({}) });
        declare(Self::FORM, "elicitation", json!({"form": {}}));
        let with_url = if self.has(Self::FORM) { json!({"form": {}, "url": {}}) } else { json!({"url": {}}) };
        declare(Self::URL, "elicitation", with_url);
        Value::Object(declared).to_string()
    }
}

impl From<&ClientCapabilities> for Capabilities {
    fn from(declared: &ClientCapabilities) -> Self {
        let elicitation = declared.elicitation.as_ref();
        let sampling = declared.sampling.as_ref();
        Self(
            elicitation.map_or(0, |modes| modes_of(modes.form.is_some(), modes.url.is_some()))
                | sampling.map_or(0, |sampling| sampling_of(sampling.tools.is_some()))
                | if declared.roots.is_some() { Self::ROOTS } else { 0 }
                | if declared.supports_tasks() { Self::TASKS } else { 0 },
        )
    }
}

/// `elicitation: {}` means form; `elicitation: {url: {}}` alone does not.
const fn modes_of(form: bool, url: bool) -> u8 {
    match (form, url) {
        (true, true) => Capabilities::FORM | Capabilities::URL,
        (false, true) => Capabilities::URL,
        (_, false) => Capabilities::FORM,
    }
}

const fn sampling_of(tools: bool) -> u8 {
    if tools { Capabilities::SAMPLE | Capabilities::SAMPLE_TOOLS } else { Capabilities::SAMPLE }
}

fn read_elicitation(value: &Value) -> Option<u8> {
    let Some(modes) = object(value)? else { return Some(0) };
    let (mut form, mut url) = (false, false);
    for (name, value) in modes {
        match name.as_str() {
            "form" => form = with_flag(value, "schemaValidation")?.is_some(),
            "url" => url = object(value)?.is_some(),
            _ => {}
        }
    }
    Some(modes_of(form, url))
}

fn read_sampling(value: &Value) -> Option<u8> {
    let Some(sampling) = object(value)? else { return Some(0) };
    let mut tools = false;
    for (name, value) in sampling {
        match name.as_str() {
            "tools" => tools = object(value)?.is_some(),
            "context" => drop(object(value)?),
            _ => {}
        }
    }
    Some(sampling_of(tools))
}

/// The members of an object, or of nothing for null. None for any other value.
fn object(value: &Value) -> Option<Option<&Map<String, Value>>> {
    match value {
        Value::Null => Some(None),
        Value::Object(members) => Some(Some(members)),
        _ => None,
    }
}

/// The members of an object of objects, or of nothing for null.
fn objects(value: &Value) -> Option<Option<&Map<String, Value>>> {
    let members = object(value)?;
    members.is_none_or(|members| members.values().all(Value::is_object)).then_some(members)
}

/// The members of an object whose member of this name is a boolean, null or absent, or of nothing for null.
fn with_flag<'a>(value: &'a Value, name: &str) -> Option<Option<&'a Map<String, Value>>> {
    let members = object(value)?;
    let flag = members.and_then(|members| members.get(name));
    flag.is_none_or(|flag| flag.is_boolean() || flag.is_null()).then_some(members)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// Capabilities and near misses: known names at every depth, with values of any kind.
    fn declared() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![4 => Just(json!({})), 1 => Just(json!(null)), 1 => Just(json!(true)), 1 => Just(json!(1))];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let name = prop::sample::select(vec![
                "elicitation",
                "form",
                "schemaValidation",
                "url",
                "sampling",
                "tools",
                "context",
                "roots",
                "listChanged",
                "extensions",
                "experimental",
                "unknown",
                TASKS_EXTENSION_ID,
            ]);
            prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

        #[test]
        fn what_a_request_declares_is_read_as_rmcp_reads_it(declared in declared()) {
            let typed = ClientCapabilities::deserialize(&declared).ok();
            prop_assert_eq!(Capabilities::read(&declared), typed.as_ref().map(Capabilities::from), "{}", declared);
        }

        #[test]
        fn flags_are_written_as_capabilities_that_read_the_same(declared in declared()) {
            let flags = Capabilities::read(&declared).unwrap_or_default();
            let written: Value = serde_json::from_str(&flags.to_json()).unwrap();
            prop_assert_eq!(Capabilities::read(&written), Some(flags));
            let typed = ClientCapabilities::deserialize(&written).unwrap();
            prop_assert_eq!(Capabilities::from(&typed), flags, "an earlier version reads them with rmcp's type");
        }
    }
}
