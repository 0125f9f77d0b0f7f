//! The form model: everything a host needs to show a field, without JSON Schema.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::{Value, json};

use crate::shared::{
    check::{InvalidAnswer, check_field, required},
    order::arrange,
};

/// Length limit of the name of a field and of the key of a question, in bytes, because errors contain them.
pub(super) const MAX_NAME: usize = 256;

/// Limit of items in a default that is checked.
const MAX_DEFAULT_ITEMS: usize = 1000;

/// One field of a form.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// The name of its value in an answer.
    pub name: String,
    /// The text to show: its title, or its name if it has no title.
    pub label: String,
    /// A longer explanation for the user.
    pub description: Option<String>,
    /// The type of its value.
    pub kind: FieldKind,
    /// Whether an answer must contain it.
    pub required: bool,
    /// The default value. Show it, and send it like any other value.
    pub default: Option<Value>,
    /// The value from before the call was [started over](super::Pending::start_over), if it is still valid.
    pub suggested: Option<Value>,
    schema: Value,
}

/// The type of a field's value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldKind {
    /// A text. Lengths count characters.
    Text {
        /// The minimum length.
        min_length: Option<u64>,
        /// The maximum length.
        max_length: Option<u64>,
        /// The format of the text.
        format: Option<TextFormat>,
    },
    /// A number.
    Number {
        /// The minimum.
        minimum: Option<f64>,
        /// The maximum.
        maximum: Option<f64>,
    },
    /// An integer.
    Integer {
        /// The minimum.
        minimum: Option<f64>,
        /// The maximum.
        maximum: Option<f64>,
    },
    /// Yes or no.
    Boolean,
    /// One of several choices.
    Choice {
        /// The choices.
        choices: Vec<Choice>,
    },
    /// Any number of several choices.
    Choices {
        /// The choices.
        choices: Vec<Choice>,
        /// The minimum number.
        min: Option<u64>,
        /// The maximum number.
        max: Option<u64>,
    },
    /// A type that this version cannot show. Any JSON may be sent; the server rejects it if it is not valid.
    Unknown {
        /// The field's schema, as the server sent it.
        schema: Value,
    },
}

/// The format of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextFormat {
    /// An e-mail address.
    Email,
    /// A URI with its scheme.
    Uri,
    /// A date such as `2026-07-28`.
    Date,
    /// A date and a time such as `2026-07-28T09:30:00Z`.
    DateTime,
    /// Another format, which is not checked.
    Other(String),
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The value that is sent.
    pub value: String,
    /// The text that is shown.
    pub title: String,
}

impl Field {
    /// Checks a value for this field. An integer that was written as a float is returned as an integer.
    ///
    /// # Errors
    ///
    /// What is wrong, as a text for the user.
    pub fn check(&self, value: &Value) -> Result<Value, InvalidAnswer> {
        check_field(&self.schema, value).map_err(|why| InvalidAnswer::of(&self.name, why))
    }

    /// Reads a value that a user typed: a number is read as one, `yes` and `no` are booleans, a choice may be given by
    /// its value or its title, several choices are separated by commas, and a value of an unknown type is JSON.
    ///
    /// # Errors
    ///
    /// What is wrong, as a text for the user.
    pub fn parse(&self, text: &str) -> Result<Value, InvalidAnswer> {
        let wrong = |why: &str| InvalidAnswer::of(&self.name, why);
        let value = match &self.kind {
            FieldKind::Text { .. } => json!(text),
            FieldKind::Number { .. } => number(text).ok_or_else(|| wrong("must be a number"))?,
            FieldKind::Integer { .. } => number(text).ok_or_else(|| wrong("must be a whole number"))?,
            FieldKind::Boolean => json!(boolean(text).ok_or_else(|| wrong("must be yes or no"))?),
            FieldKind::Choice { .. } => json!(self.chosen(text)),
            // The name of a choice may contain commas.
            FieldKind::Choices { .. } => match self.choice(text).filter(|_| !text.trim().is_empty()) {
                Some(choice) => json!([choice.value]),
                None => {
                    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                    json!(names.map(|name| self.chosen(name)).collect::<Vec<_>>())
                }
            },
            FieldKind::Unknown { .. } => serde_json::from_str(text).map_err(|_| wrong("must be JSON"))?,
        };
        self.check(&value)
    }

    /// The choice that a user meant by this text: the one with exactly this value, or else the one with this value or
    /// title in any case.
    pub fn choice(&self, text: &str) -> Option<&Choice> {
        let (FieldKind::Choice { choices } | FieldKind::Choices { choices, .. }) = &self.kind else { return None };
        let text = text.trim();
        let by_value = choices.iter().find(|choice| choice.value == text);
        let loosely = |choice: &&Choice| {
            let text = text.to_lowercase();
            choice.value.to_lowercase() == text || choice.title.to_lowercase() == text
        };
        by_value.or_else(|| choices.iter().find(loosely))
    }

    /// The value of the choice that was meant. A text that is not a choice is left to the check.
    fn chosen<'a>(&'a self, text: &'a str) -> &'a str {
        self.choice(text).map_or(text.trim(), |choice| &choice.value)
    }

    /// The field's part of the schema, unchanged.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// The fields of an object's schema, such as the arguments of a tool, so that a host can show them as it shows a
    /// question. Required fields come first, in the order in which they are required. Fields whose type is not that of
    /// a form's field are [unknown](FieldKind::Unknown).
    ///
    /// # Errors
    ///
    /// A text that says what is wrong with the schema.
    pub fn of_object(schema: &JsonObject) -> Result<Vec<Self>, String> {
        Self::check_schema(schema)?;
        let order: Vec<String> = required(schema).map(str::to_owned).collect();
        Ok(Self::of_schema(schema, &order, None))
    }

    /// Whether a form's schema has fields that can be shown, or what is wrong with it.
    pub(super) fn check_schema(schema: &JsonObject) -> Result<(), String> {
        let none = JsonObject::new();
        let properties = match schema.get("properties") {
            Some(Value::Object(properties)) => properties,
            Some(_) => return Err("its properties are not an object".to_owned()),
            None => &none,
        };
        let required = match schema.get("required") {
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => names.as_slice(),
            Some(_) => return Err("what it requires is not a list of names".to_owned()),
            None => &[],
        };
        Self::check_names(properties.keys().map(String::as_str).chain(required.iter().filter_map(Value::as_str)))?;
        match properties.iter().find(|(_, schema)| !schema.is_object()) {
            Some((name, _)) => Err(format!("its field {name:?} has no schema")),
            None => Ok(()),
        }
    }

    /// Whether the names of a form's fields can be shown.
    pub(super) fn check_names<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<(), String> {
        match names.any(|name| name.len() > MAX_NAME) {
            true => Err(format!("it has a field with a name of more than {MAX_NAME} bytes")),
            false => Ok(()),
        }
    }

    /// The fields of a form's schema, in the order in which to show them.
    pub(super) fn of_schema(schema: &JsonObject, order: &[String], suggested: Option<&JsonObject>) -> Vec<Self> {
        let none = JsonObject::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: BTreeSet<&str> = required(schema).collect();
        let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
        arrange(&mut names, order.iter().map(String::as_str), |name| name);
        // A field that is required but not described can still be filled in.
        names.extend(required.iter().filter(|name| !properties.contains_key(**name)));
        let field = |name: &str| {
            let schema = properties.get(name).cloned().unwrap_or_else(|| json!({}));
            let suggested = suggested.and_then(|suggested| suggested.get(name));
            Self::of(name, schema, required.contains(name), suggested)
        };
        names.into_iter().map(field).collect()
    }

    fn of(name: &str, schema: Value, required: bool, suggested: Option<&Value>) -> Self {
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str).map(str::to_owned);
        // Checking takes time proportional to the number of items times the number of choices.
        let fits = |value: &&Value| items(value) <= MAX_DEFAULT_ITEMS && check_field(&schema, value).is_ok();
        Self {
            name: name.to_owned(),
            label: text("title").filter(|title| !title.is_empty()).unwrap_or_else(|| name.to_owned()),
            description: text("description"),
            kind: FieldKind::of(&schema),
            required,
            default: schema.get("default").filter(fits).cloned(),
            suggested: suggested.filter(fits).cloned(),
            schema,
        }
    }
}

impl FieldKind {
    fn of(schema: &Value) -> Self {
        let count = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
        let unknown = || Self::Unknown { schema: schema.clone() };
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => match Choice::of(schema) {
                Some(Some(choices)) => Self::Choice { choices },
                Some(None) => unknown(),
                None => Self::Text {
                    min_length: count("minLength"),
                    max_length: count("maxLength"),
                    format: schema.get("format").and_then(Value::as_str).map(TextFormat::of),
                },
            },
            Some("number") => Self::Number { minimum: bound("minimum"), maximum: bound("maximum") },
            Some("integer") => Self::Integer { minimum: bound("minimum"), maximum: bound("maximum") },
            Some("boolean") => Self::Boolean,
            Some("array") => match schema.get("items").and_then(Choice::of).flatten() {
                Some(choices) => Self::Choices { choices, min: count("minItems"), max: count("maxItems") },
                None => unknown(),
            },
            _ => unknown(),
        }
    }
}

impl TextFormat {
    fn of(name: &str) -> Self {
        match name {
            "email" => Self::Email,
            "uri" => Self::Uri,
            "date" => Self::Date,
            "date-time" => Self::DateTime,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl Choice {
    /// The choices of a schema. None if it has none, and none inside if they are not texts.
    fn of(schema: &Value) -> Option<Option<Vec<Self>>> {
        if let Some(values) = schema.get("enum") {
            let titles = schema.get("enumNames").and_then(Value::as_array);
            let title = |at: usize| titles.and_then(|titles| titles.get(at)).and_then(Value::as_str);
            let choice = |(at, value): (usize, &Value)| Self::new(value.as_str()?, title(at));
            return Some(values.as_array().and_then(|values| values.iter().enumerate().map(choice).collect()));
        }
        let options = schema.get("oneOf").or_else(|| schema.get("anyOf"))?;
        let choice = |option: &Value| {
            let title = option.get("title").and_then(Value::as_str);
            Self::new(option.get("const")?.as_str()?, title)
        };
        Some(options.as_array().and_then(|options| options.iter().map(choice).collect()))
    }

    fn new(value: &str, title: Option<&str>) -> Option<Self> {
        Some(Self { value: value.to_owned(), title: title.unwrap_or(value).to_owned() })
    }
}

fn number(text: &str) -> Option<Value> {
    let text = text.trim();
    let whole = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
    whole.ok().or_else(|| text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from))
}

fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "true" | "yes" | "y" => Some(true),
        "false" | "no" | "n" => Some(false),
        _ => None,
    }
}

/// The number of items in a list, including those of nested lists.
fn items(value: &Value) -> usize {
    value.as_array().map_or(0, |list| list.iter().map(|item| 1 + items(item)).sum())
}
