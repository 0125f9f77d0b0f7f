//! The form model: all that a host needs to know to show a field, and nothing of JSON Schema.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::{Value, json};

use crate::shared::{
    check::{InvalidAnswer, check_field, required},
    order::arrange,
};

/// How long the name of a field, or the key of a question, may be, in bytes: errors have them in them.
pub(super) const MAX_NAME: usize = 256;

/// How many items a default may have to be looked at.
const MAX_DEFAULT_ITEMS: usize = 1000;

/// One field of a form.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// What its value is called in an answer.
    pub name: String,
    /// What to show: its title, or its name where it has none.
    pub label: String,
    /// More words for whoever fills it in.
    pub description: Option<String>,
    /// What it takes.
    pub kind: FieldKind,
    /// Whether an answer has to have it.
    pub required: bool,
    /// What it is if nobody says otherwise: to be shown, and to be sent as any other value.
    pub default: Option<Value>,
    /// What was given here before the call was [started over](super::Pending::start_over), if it still fits.
    pub suggested: Option<Value>,
    schema: Value,
}

/// What a field takes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldKind {
    /// A text. Lengths count characters.
    Text {
        /// How short it may be.
        min_length: Option<u64>,
        /// How long it may be.
        max_length: Option<u64>,
        /// What it has to look like.
        format: Option<TextFormat>,
    },
    /// A number.
    Number {
        /// The least.
        minimum: Option<f64>,
        /// The most.
        maximum: Option<f64>,
    },
    /// A whole number.
    Integer {
        /// The least.
        minimum: Option<f64>,
        /// The most.
        maximum: Option<f64>,
    },
    /// Yes or no.
    Boolean,
    /// One of several.
    Choice {
        /// Which.
        choices: Vec<Choice>,
    },
    /// Some of several.
    Choices {
        /// Which.
        choices: Vec<Choice>,
        /// How many at least.
        min: Option<u64>,
        /// How many at most.
        max: Option<u64>,
    },
    /// Something that this version does not know how to show. Any JSON may be sent; the server will say if it does not fit.
    Unknown {
        /// What the server says of it.
        schema: Value,
    },
}

/// What a text has to look like.
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
    /// Something else, which is not checked.
    Other(String),
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// What is sent.
    pub value: String,
    /// What is shown.
    pub title: String,
}

impl Field {
    /// Checks a value for this field. A whole number that was spelled as a float comes back as one.
    ///
    /// # Errors
    ///
    /// Says what is wrong, in words for whoever gave it.
    pub fn check(&self, value: &Value) -> Result<Value, InvalidAnswer> {
        check_field(&self.schema, value).map_err(|why| InvalidAnswer::of(&self.name, why))
    }

    /// The value that somebody typed: a number is read as one, `yes` and `no` are booleans, a choice may be given by its
    /// value or its title, several are separated by commas, and what is not known is JSON.
    ///
    /// # Errors
    ///
    /// Says what is wrong, in words for whoever typed it.
    pub fn parse(&self, text: &str) -> Result<Value, InvalidAnswer> {
        let wrong = |why: &str| InvalidAnswer::of(&self.name, why);
        let value = match &self.kind {
            FieldKind::Text { .. } => json!(text),
            FieldKind::Number { .. } => number(text).ok_or_else(|| wrong("must be a number"))?,
            FieldKind::Integer { .. } => number(text).ok_or_else(|| wrong("must be a whole number"))?,
            FieldKind::Boolean => json!(boolean(text).ok_or_else(|| wrong("must be yes or no"))?),
            FieldKind::Choice { .. } => json!(self.chosen(text)),
            // The name of a choice may have commas in it.
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

    /// The choice that somebody meant by this text: the one of this value, or else of this value or title in any case.
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

    /// The value of the choice that was meant. What is no choice is left to the check.
    fn chosen<'a>(&'a self, text: &'a str) -> &'a str {
        self.choice(text).map_or(text.trim(), |choice| &choice.value)
    }

    /// The field's part of the schema, as it came.
    pub fn schema(&self) -> &Value {
        &self.schema
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

    /// The fields of a form's schema, in the order in which they are to be shown.
    pub(super) fn of_schema(schema: &JsonObject, order: &[String], suggested: Option<&JsonObject>) -> Vec<Self> {
        let none = JsonObject::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: BTreeSet<&str> = required(schema).collect();
        let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
        arrange(&mut names, order.iter().map(String::as_str), |name| name);
        // What is required and not described can still be given.
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
        // Checking takes as long as there are items and choices, multiplied.
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
    /// The choices of a schema that has some; nothing in place of them when they are not of texts.
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

/// How many items there are in a list, and in the lists that are in it.
fn items(value: &Value) -> usize {
    value.as_array().map_or(0, |list| list.iter().map(|item| 1 + items(item)).sum())
}
