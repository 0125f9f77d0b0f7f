//! Answers to forms, checked against the flat schema of the question.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use rmcp::model::JsonObject;
#[cfg(feature = "client")]
use rmcp::model::{
    ElicitationSchema, EnumSchema, IntegerSchema, NumberSchema, PrimitiveSchemaDefinition, SingleSelectEnumSchema,
    StringSchema,
};
use serde_json::{Number, Value, json};

/// Length limit of the list of choices in a message, in characters.
const TOLD: usize = 300;

/// What is wrong with an answer, as a text for the user who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAnswer {
    field: Option<String>,
    why: String,
}

impl std::error::Error for InvalidAnswer {}

impl InvalidAnswer {
    pub(crate) fn whole(why: impl Into<String>) -> Self {
        Self { field: None, why: why.into() }
    }

    pub(crate) fn of(field: &str, why: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), why: why.into() }
    }

    /// The question's message with a note of what was wrong with its last answer, for a question that is asked again.
    #[cfg(feature = "server")]
    pub fn noted(&self, question: &str) -> String {
        format!("{question}{}", self.note())
    }

    #[cfg(feature = "server")]
    pub(crate) fn note(&self) -> String {
        format!(" ({self})")
    }

    /// The field that is wrong, if it is one field.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

impl fmt::Display for InvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "`{field}` {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// Removes from an answer what the flat schema of its form describes, checked as [`Fields::check`] does.
pub(crate) fn check(schema: &JsonObject, content: &mut JsonObject) -> Result<JsonObject, InvalidAnswer> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let rules = properties.into_iter().flatten().map(|(name, field)| (name, |value| Rule::of(field).check(value)));
    has_all(content, required(schema))?;
    by_rules(rules, |name| content.remove_entry(name))
}

/// The names of the required fields.
pub(crate) fn required(schema: &JsonObject) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Checks the value of one field, as [`Rule::check`] does.
#[cfg(feature = "client")]
pub(crate) fn check_field(field: &Value, value: &Value) -> Result<Value, String> {
    Rule::of(field).check(value.clone())
}

/// The rules for an answer to a form, read from the form's flat schema.
pub(crate) struct Fields {
    required: Vec<String>,
    rules: Vec<(String, Rule)>,
}

impl Fields {
    pub(crate) fn of(schema: &JsonObject) -> Self {
        let properties = schema.get("properties").and_then(Value::as_object);
        Self {
            required: required(schema).map(str::to_owned).collect(),
            rules: properties.into_iter().flatten().map(|(name, field)| (name.clone(), Rule::of(field))).collect(),
        }
    }

    /// The same rules, with the patterns of the fields.
    ///
    /// # Errors
    ///
    /// The field whose pattern is not valid, and why.
    #[cfg(feature = "server")]
    pub(crate) fn matching(mut self, schema: &JsonObject) -> Result<Self, (String, String)> {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, rule) in &mut self.rules {
            let Some(field) = properties.and_then(|properties| properties.get(name)) else { continue };
            rule.pattern = Pattern::of(field).map_err(|why| (name.clone(), why))?;
        }
        Ok(self)
    }

    /// Checks an answer. Integers that were written as floats are returned as integers, and fields that the schema does
    /// not have are left out.
    pub(crate) fn check(&self, content: &Value) -> Result<JsonObject, InvalidAnswer> {
        let rules = self.rules.iter().map(|(name, rule)| (name, |value| rule.check(value)));
        let content = object(content)?;
        has_all(content, self.required.iter().map(String::as_str))?;
        by_rules(rules, |name| content.get_key_value(name).map(|(name, value)| (name.clone(), value.clone())))
    }
}

/// Removes from an answer what a form that rmcp has read describes, checked as [`Fields::check`] does.
#[cfg(feature = "client")]
pub(crate) fn check_form(form: &ElicitationSchema, content: &mut JsonObject) -> Result<JsonObject, InvalidAnswer> {
    let required = form.required.iter().flatten().map(String::as_str);
    let rules = form.properties.iter().map(|(name, field)| (name, |value| check_read(field, value)));
    has_all(content, required)?;
    by_rules(rules, |name| content.remove_entry(name))
}

/// Checks the value of one field that rmcp has read, as [`Rule::check`] does.
#[cfg(feature = "client")]
fn check_read(field: &PrimitiveSchemaDefinition, value: Value) -> Result<Value, String> {
    // Fast path: most questions are a choice, and most answers are one of the choices.
    if let PrimitiveSchemaDefinition::Enum(EnumSchema::Single(SingleSelectEnumSchema::Untitled(field))) = field
        && let Value::String(chosen) = &value
        && field.enum_.contains(chosen)
    {
        return Ok(value);
    }
    Rule::of_field(field).check(value)
}

/// Whether an answer has all required fields.
fn has_all<'a>(content: &JsonObject, mut required: impl Iterator<Item = &'a str>) -> Result<(), InvalidAnswer> {
    match required.find(|name| content.get(*name).is_none_or(Value::is_null)) {
        Some(name) => Err(InvalidAnswer::of(name, "is missing")),
        None => Ok(()),
    }
}

/// The fields that have a rule, each checked by its rule.
fn by_rules<'a>(
    rules: impl Iterator<Item = (&'a String, impl FnOnce(Value) -> Result<Value, String>)>,
    mut take: impl FnMut(&str) -> Option<(String, Value)>,
) -> Result<JsonObject, InvalidAnswer> {
    let mut checked = JsonObject::new();
    for (name, check) in rules {
        match take(name) {
            None | Some((_, Value::Null)) => {}
            Some((name, value)) => {
                let value = check(value).map_err(|why| InvalidAnswer::of(&name, why))?;
                checked.insert(name, value);
            }
        }
    }
    Ok(checked)
}

/// The rule for the value of one field.
#[derive(Default)]
pub(crate) struct Rule {
    wanted: Option<Cow<'static, str>>,
    /// The only permitted values.
    choices: Option<Vec<Value>>,
    value: Bounds,
    length: Bounds,
    format: Option<String>,
    /// What a text has to match. The protocol's forms have no patterns, so a client has none to check.
    #[cfg(feature = "server")]
    pattern: Option<Box<Pattern>>,
    count: Bounds,
    /// The rule for each item of a list.
    items: Option<Box<Rule>>,
    /// The value to use if there is none.
    #[cfg(feature = "server")]
    default: Option<Value>,
    /// Whether the value may be null or absent.
    #[cfg(feature = "server")]
    nullable: bool,
}

impl Rule {
    pub(crate) fn of(field: &Value) -> Self {
        let text = |keyword: &str| field.get(keyword).and_then(Value::as_str).map(str::to_owned);
        let bounds = |least: &str, most: &str| {
            let bound = |keyword: &str| field.get(keyword).and_then(Value::as_f64);
            Bounds { least: bound(least), most: bound(most) }
        };
        let choices = match (field.get("enum"), field.get("oneOf").or(field.get("anyOf"))) {
            (Some(Value::Array(values)), _) => Some(values.clone()),
            (_, Some(Value::Array(options))) => options.iter().map(|option| option.get("const").cloned()).collect(),
            _ => None,
        };
        Self {
            wanted: text("type").map(Cow::Owned),
            choices,
            value: bounds("minimum", "maximum"),
            length: bounds("minLength", "maxLength"),
            format: text("format"),
            #[cfg(feature = "server")]
            pattern: None,
            count: bounds("minItems", "maxItems"),
            items: field.get("items").map(|items| Self::of(items).into()),
            #[cfg(feature = "server")]
            default: field.get("default").cloned(),
            #[cfg(feature = "server")]
            nullable: false,
        }
    }

    /// The same rule for a value that may be absent.
    #[cfg(feature = "server")]
    pub(crate) fn or_null(self) -> Self {
        Self { nullable: true, ..self }
    }

    /// The same rule with the field's pattern, if it has one.
    ///
    /// # Errors
    ///
    /// Why the pattern is not valid.
    #[cfg(feature = "server")]
    pub(crate) fn matching(self, field: &Value) -> Result<Self, String> {
        Ok(Self { pattern: Pattern::of(field)?, ..self })
    }

    /// The rule of a field that rmcp has read. Complex fields are converted to JSON first.
    #[cfg(feature = "client")]
    fn of_field(field: &PrimitiveSchemaDefinition) -> Self {
        let rule = |wanted: &'static str| Self { wanted: Some(wanted.into()), ..Self::default() };
        match field {
            PrimitiveSchemaDefinition::Boolean(_) => rule("boolean"),
            PrimitiveSchemaDefinition::Number(NumberSchema { minimum, maximum, .. }) => {
                Self { value: Bounds { least: *minimum, most: *maximum }, ..rule("number") }
            }
            PrimitiveSchemaDefinition::Integer(IntegerSchema { minimum, maximum, .. }) => {
                let (least, most) = (minimum.map(|bound| bound as f64), maximum.map(|bound| bound as f64));
                Self { value: Bounds { least, most }, ..rule("integer") }
            }
            PrimitiveSchemaDefinition::String(StringSchema { min_length, max_length, format: None, .. }) => Self {
                length: Bounds { least: min_length.map(f64::from), most: max_length.map(f64::from) },
                ..rule("string")
            },
            PrimitiveSchemaDefinition::Enum(EnumSchema::Single(SingleSelectEnumSchema::Untitled(field))) => {
                Self { choices: Some(field.enum_.iter().map(|choice| json!(choice)).collect()), ..rule("string") }
            }
            field => Self::of(&serde_json::to_value(field).unwrap_or_default()),
        }
    }

    /// Whether an answer to a form with only this field may lack it.
    #[cfg(feature = "server")]
    pub(crate) fn is_optional(&self) -> bool {
        self.nullable || self.default.is_some()
    }

    /// Checks the only field of a form: it needs a value unless the field has a default or is nullable.
    #[cfg(feature = "server")]
    pub(crate) fn check_alone(&self, name: &str, value: Option<Value>) -> Result<Value, InvalidAnswer> {
        match value.filter(|value| !value.is_null() && !self.is_nothing(value)) {
            Some(value) => self.check(value).map_err(|why| InvalidAnswer::of(name, why)),
            None if self.nullable => Ok(self.default.clone().unwrap_or_default()),
            None => self.default.clone().ok_or_else(|| InvalidAnswer::of(name, "is missing")),
        }
    }

    /// Whether this is the empty text of a field that was left empty.
    #[cfg(feature = "server")]
    fn is_nothing(&self, value: &Value) -> bool {
        let is_choice = || self.choices.as_ref().is_some_and(|choices| choices.contains(value));
        self.nullable && self.wanted.as_deref() == Some("string") && value == "" && !is_choice()
    }

    /// Checks a value, and returns it as [`Fields::check`] would.
    pub(crate) fn check(&self, value: Value) -> Result<Value, String> {
        let value = self.typed(value)?;
        if let Some(choices) = &self.choices
            && !choices.contains(&value)
        {
            let names: Vec<_> = choices.iter().filter_map(|choice| choice.as_str()).collect();
            let names = names.join(", ");
            let told: String = names.chars().take(TOLD).collect();
            let more = if told.len() < names.len() { "…" } else { "" };
            return Err(format!("must be one of {told}{more}"));
        }
        match &value {
            Value::Number(number) => self.value.hold(measure(number), "be")?,
            Value::String(text) => {
                self.length.hold(text.chars().count() as f64, "have a length of")?;
                if let Some(format) = &self.format {
                    check_format(format, text)?;
                }
                #[cfg(feature = "server")]
                if let Some(pattern) = &self.pattern {
                    pattern.check(text)?;
                }
            }
            Value::Array(items) => {
                self.count.hold(items.len() as f64, "have a number of choices of")?;
                if let Some(rule) = &self.items {
                    for item in items {
                        rule.check(item.clone())?;
                    }
                }
            }
            _ => {}
        }
        Ok(value)
    }

    fn typed(&self, value: Value) -> Result<Value, String> {
        let right = match self.wanted.as_deref() {
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("number") => value.is_number(),
            Some("array") => value.is_array(),
            Some("integer") => return integer(value).ok_or_else(|| "must be a whole number".to_owned()),
            _ => true,
        };
        match &self.wanted {
            Some(wanted) if !right => Err(format!("must be of type {wanted}")),
            _ => Ok(value),
        }
    }
}

/// A regular expression that a text has to match somewhere, as `pattern` in JSON Schema does.
#[cfg(feature = "server")]
pub(crate) struct Pattern(regex_lite::Regex);

#[cfg(feature = "server")]
impl Pattern {
    /// The pattern of a field, if it has one.
    fn of(field: &Value) -> Result<Option<Box<Self>>, String> {
        let unfit = |why: String| format!("has a `pattern` that cannot be checked: {why}");
        let Some(pattern) = field.get("pattern") else { return Ok(None) };
        let Value::String(pattern) = pattern else { return Err(unfit("it is not a text".to_owned())) };
        let regex = regex_lite::Regex::new(pattern).map_err(|error| unfit(error.to_string()))?;
        Ok(Some(Box::new(Self(regex))))
    }

    fn check(&self, text: &str) -> Result<(), String> {
        if self.0.is_match(text) { Ok(()) } else { Err(must_match(self.0.as_str())) }
    }
}

/// The rule of a pattern, for the user.
#[cfg(feature = "server")]
pub(crate) fn must_match(pattern: &str) -> String {
    format!("must match {pattern}")
}

#[derive(Default)]
struct Bounds {
    least: Option<f64>,
    most: Option<f64>,
}

impl Bounds {
    fn hold(&self, measure: f64, what: &str) -> Result<(), String> {
        match *self {
            Self { least: Some(least), .. } if measure < least => Err(format!("must {what} at least {least}")),
            Self { most: Some(most), .. } if measure > most => Err(format!("must {what} at most {most}")),
            _ => Ok(()),
        }
    }
}

pub(crate) fn object(content: &Value) -> Result<&JsonObject, InvalidAnswer> {
    content.as_object().ok_or_else(|| InvalidAnswer::whole("the answer is not an object"))
}

/// The size of a number. A number beyond all doubles, which exists only if `serde_json` keeps the digits of numbers, is
/// beyond all bounds.
fn measure(number: &Number) -> f64 {
    let beyond = || if number.to_string().starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY };
    number.as_f64().unwrap_or_else(beyond)
}

/// An integer, also if it was written `3.0`.
fn integer(value: Value) -> Option<Value> {
    if value.is_i64() || value.is_u64() {
        return Some(value);
    }
    let float = value.as_f64()?;
    // Beyond 2^53 a float does not determine an integer.
    let exact = float.fract() == 0.0 && float.abs() <= (1u64 << 53) as f64;
    exact.then(|| json!(float as i64))
}

fn check_format(format: &str, text: &str) -> Result<(), String> {
    let (right, what) = match format {
        "email" => (is_email(text), "an e-mail address"),
        "uri" => (is_uri(text), "a URI with a scheme"),
        "date" => (is_date(text), "a date such as 2026-07-28"),
        "date-time" => (is_date_time(text), "a date and time such as 2026-07-28T09:30:00Z"),
        "uuid" => (is_uuid(text), "a UUID such as 123e4567-e89b-12d3-a456-426614174000"),
        "ip" => (text.parse::<IpAddr>().is_ok(), "an IP address"),
        "ipv4" => (text.parse::<Ipv4Addr>().is_ok(), "an IPv4 address such as 192.0.2.1"),
        "ipv6" => (text.parse::<Ipv6Addr>().is_ok(), "an IPv6 address such as 2001:db8::1"),
        _ => (true, ""),
    };
    if right { Ok(()) } else { Err(format!("must be {what}")) }
}

fn is_email(text: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    text.rsplit_once('@').is_some_and(|(local, domain)| plain(local) && plain(domain) && !local.contains('@'))
}

fn is_uri(text: &str) -> bool {
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let plain = |rest: &str| !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control());
    text.split_once(':').is_some_and(|(name, rest)| scheme(name) && plain(rest))
}

fn is_uuid(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split('-').map(|part| is_hex(part).then_some(part.len())).eq([8, 4, 4, 4, 12].map(Some))
}

fn is_date(text: &str) -> bool {
    let part = |range: std::ops::Range<usize>| digits(text, range);
    let (Some(year), Some(month), Some(day)) = (part(0..4), part(5..7), part(8..10)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-' && (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else {
        return false;
    };
    let clock = |time: &str, parts: usize| {
        let bounds = [23, 59, 60];
        time.split(':').count() == parts
            && time
                .split(':')
                .zip(bounds)
                .all(|(part, most)| part.len() == 2 && digits(part, 0..2).is_some_and(|value| value <= most))
    };
    let zone = |zone: &str| zone.is_empty() || clock(zone, 2);
    let (time, zone_is_right) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, true),
        None => match time.rsplit_once(['+', '-']) {
            Some((time, offset)) => (time, !offset.is_empty() && zone(offset)),
            None => return false,
        },
    };
    let whole = match time.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit()) => whole,
        Some(_) => return false,
        None => time,
    };
    is_date(date) && clock(whole, 3) && zone_is_right
}

fn digits(text: &str, range: std::ops::Range<usize>) -> Option<u32> {
    let part = text.get(range)?;
    part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "client")]
    fn a_form_that_rmcp_has_read_is_checked_as_its_json_is() {
        let titled = json!([{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]);
        let schema = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "minLength": 2, "maxLength": 3},
                "mail": {"type": "string", "format": "email"},
                "number": {"type": "number", "minimum": 0.5, "maximum": 1.5},
                "whole": {"type": "integer", "minimum": 2, "maximum": 3},
                "free": {"type": "integer"},
                "yes": {"type": "boolean", "default": true},
                "one": {"type": "string", "enum": ["a", "b"]},
                "named": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
                "titled": {"type": "string", "oneOf": titled},
                "some": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
                "titles": {"type": "array", "items": {"anyOf": titled}},
            },
            "required": ["yes", "undescribed"],
        });
        let form: ElicitationSchema = serde_json::from_value(schema.clone()).unwrap();
        let of_json = Fields::of(schema.as_object().unwrap());
        let values = json!([
            null,
            true,
            0,
            1,
            2,
            3.0,
            4,
            1.5,
            1e300,
            "",
            "a",
            "b",
            "ab",
            "abcd",
            "ada@example.com",
            [],
            ["a"],
            ["a", "b", "a"],
            ["c"],
            [1],
            {}
        ]);
        let mut fitting = 0;
        for name in form.properties.keys() {
            for value in values.as_array().unwrap() {
                let answer = json!({"yes": false, "undescribed": 1, name: value});
                let checked = check_form(&form, &mut answer.as_object().unwrap().clone());
                assert_eq!(checked, of_json.check(&answer), "{name}: {value}");
                fitting += usize::from(checked.is_ok());
            }
        }
        assert!((30..200).contains(&fitting), "{fitting} fit, and the others do not");
        assert_eq!(check_form(&form, &mut JsonObject::new()), of_json.check(&json!({})));
    }

    #[test]
    fn formats_are_checked() {
        for (format, good, bad) in [
            ("email", vec!["ada@example.com"], vec!["ada", "@x", "a b@c", "a@b@c"]),
            (
                "uri",
                vec!["https://example.com/a?b", "urn:isbn:1"],
                vec!["example.com", ":x", "1a:b", "https:", "a:b c"],
            ),
            ("date", vec!["2026-12-31", "2000-02-29"], vec!["2026-13-01", "1900-02-29", "2026-1-1", "26-01-01x"]),
            (
                "date-time",
                vec!["2026-07-28T09:30:00Z", "2026-07-28T09:30:00.5+02:00"],
                vec![
                    "2026-07-28",
                    "2026-07-28T09:30:00",
                    "2026-07-28T24:00:00Z",
                    "2026-07-28T09:30:00.Z",
                    "2026-07-28T09:30:00+",
                ],
            ),
            (
                "uuid",
                vec!["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
                vec!["", "123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g", "-----"],
            ),
            ("ip", vec!["192.0.2.1", "2001:db8::1"], vec!["", "192.0.2", "host"]),
            ("ipv4", vec!["192.0.2.1"], vec!["2001:db8::1", "192.0.2.256"]),
            ("ipv6", vec!["2001:db8::1"], vec!["192.0.2.1", "2001:db8:::1"]),
        ] {
            for text in good {
                assert_eq!(check_format(format, text), Ok(()), "{text}");
            }
            for text in bad {
                assert!(check_format(format, text).is_err(), "{format}: {text}");
            }
        }
    }
}
