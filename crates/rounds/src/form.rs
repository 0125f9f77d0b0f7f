//! Forms: from a Rust type to the flat schema a client can show, and from its answer back to the type.

use std::{
    any::TypeId,
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use rmcp::{
    model::{ElicitationSchema, JsonObject},
    schemars::{JsonSchema, generate::SchemaSettings},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A type that can be asked for with a form: a struct of plain fields, or an enum, a boolean, a number or a string,
/// which becomes a form of one field named after the question's key.
///
/// Fields may be strings, numbers, booleans, enums without data, lists of such enums, and options of any of these.
/// Nothing has to be implemented: whatever derives `Deserialize` and `JsonSchema` has it. A type that no form can
/// express, such as a struct within a struct, is reported when it is first asked.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be asked for with a form",
    note = "write `use rmcp::schemars;` and derive `serde::Deserialize` and `schemars::JsonSchema` for it (it cannot borrow)"
)]
pub trait FormType: DeserializeOwned + JsonSchema + Send + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> FormType for T {}

/// Why a type cannot be asked for with a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{type_name}` cannot be asked for with a form: {why}")]
pub struct Unaskable {
    type_name: &'static str,
    why: String,
}

/// What is wrong with an answer, in words for the person who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    field: Option<String>,
    why: String,
}

impl Problem {
    pub(crate) fn whole(why: impl Into<String>) -> Self {
        Self { field: None, why: why.into() }
    }

    fn of(field: &str, why: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), why: why.into() }
    }

    /// The question with a note of what was wrong with its last answer.
    pub(crate) fn noted(&self, question: &str) -> String {
        format!("{question} ({self})")
    }

    /// The field that is wrong, when it is one.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "`{field}` {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// The form of one question.
pub(crate) struct Form {
    shape: Arc<Shape>,
    key: String,
}

/// What a type looks like, whatever the key it is asked under.
enum Shape {
    /// An object, whose properties are the fields.
    Fields(JsonObject),
    /// Anything else, to become the one field of a form.
    Single(Value),
}

impl Form {
    /// The form that asks for a `T` under this key.
    pub(crate) fn of<T: FormType>(key: &str) -> Result<Self, Unaskable> {
        type Known = HashMap<TypeId, Result<Arc<Shape>, Unaskable>>;
        static SHAPES: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);
        let id = TypeId::of::<T>();
        let known = SHAPES.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let shape = known.unwrap_or_else(|| {
            let shape =
                Shape::of::<T>().map(Arc::new).map_err(|why| Unaskable { type_name: std::any::type_name::<T>(), why });
            let mut shapes = SHAPES.write().unwrap_or_else(PoisonError::into_inner);
            shapes.entry(id).or_insert(shape).clone()
        })?;
        Ok(Self { shape, key: key.to_owned() })
    }

    /// The key that a question for a `T` has by default: the type's name, `Units` as `units`, and `answer` for a plain type.
    pub(crate) fn default_key<T: FormType>() -> String {
        let name = T::schema_name();
        // Rust's own types have lower-case names here: `boolean`, `string`, `uint8`.
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return "answer".to_owned();
        }
        let mut key = String::with_capacity(name.len() + 4);
        for c in name.chars().filter(|c| c.is_ascii_alphanumeric()) {
            if c.is_ascii_uppercase() && !key.is_empty() {
                key.push('_');
            }
            key.push(c.to_ascii_lowercase());
        }
        key
    }

    /// The schema as it goes over the wire.
    pub(crate) fn schema(&self) -> ElicitationSchema {
        ElicitationSchema::from_json_schema(self.json())
            .expect("a shape is only kept after it was read as an elicitation schema")
    }

    fn json(&self) -> JsonObject {
        match &*self.shape {
            Shape::Fields(object) => object.clone(),
            Shape::Single(field) => single_field(&self.key, field),
        }
    }

    /// Checks an answer against the schema, then makes the type of it.
    pub(crate) fn read<T: FormType>(&self, content: &Value) -> Result<T, Problem> {
        let schema = self.json();
        let content = check(&schema, content)?;
        let value = match &*self.shape {
            Shape::Fields(_) => Value::Object(content),
            Shape::Single(_) => content.get(&self.key).cloned().unwrap_or_default(),
        };
        serde_json::from_value(value).map_err(|error| Problem::whole(format!("does not fit: {error}")))
    }
}

impl Shape {
    fn of<T: JsonSchema>() -> Result<Self, String> {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        let Value::Object(mut schema) = schema else {
            return Err("its schema is not an object".to_owned());
        };
        schema.remove("$schema");
        if schema.get("type") != Some(&json!("object")) {
            if schema.get("enum").is_none() && schema.get("oneOf").is_none() {
                // The title of a plain type is its Rust name: `boolean`, `uint32`.
                schema.remove("title");
            }
            let field = plain_field(Value::Object(schema));
            let wrapped = single_field("value", &field);
            expressible(&wrapped)?;
            return Ok(Self::Single(field));
        }
        schema.remove("title");
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for field in properties.values_mut() {
                *field = plain_field(field.take());
            }
        }
        schema.entry("properties").or_insert_with(|| json!({}));
        expressible(&schema)?;
        Ok(Self::Fields(schema))
    }
}

fn single_field(key: &str, field: &Value) -> JsonObject {
    let optional = field.get("default").is_some();
    let mut object = JsonObject::new();
    object.insert("type".to_owned(), json!("object"));
    object.insert("properties".to_owned(), json!({ key: field }));
    if !optional {
        object.insert("required".to_owned(), json!([key]));
    }
    object
}

/// Whether rmcp's elicitation schema can carry all that this schema says.
fn expressible(schema: &JsonObject) -> Result<(), String> {
    let no_properties = JsonObject::new();
    let fields = |schema: &JsonObject| schema.get("properties").and_then(Value::as_object).cloned();
    let wanted = fields(schema).unwrap_or(no_properties);
    for (name, field) in &wanted {
        let alone = single_field(name, field);
        let carried = ElicitationSchema::from_json_schema(alone).and_then(serde_json::to_value).map_err(|_| {
            format!("`{name}` is not a string, a number, a boolean, an enum without data or a list of such enums")
        })?;
        let carried = &carried["properties"][name];
        if let Some(keyword) = lost(field, carried) {
            return Err(format!("`{name}` uses `{keyword}`, which a form cannot express"));
        }
    }
    Ok(())
}

fn lost<'a>(wanted: &'a Value, carried: &Value) -> Option<&'a str> {
    let wanted = wanted.as_object()?;
    wanted.keys().map(String::as_str).find(|keyword| carried.get(keyword).is_none())
}

/// Rewrites what `schemars` says of a field into the few keywords of an elicitation schema.
fn plain_field(field: Value) -> Value {
    let Value::Object(mut field) = field else {
        return field;
    };
    // `Option<T>`: the field is absent from `required`, which says it all.
    if let Some(Value::Array(types)) = field.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            field.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(options)) = field.get_mut("anyOf") {
        options.retain(|option| option != &json!({ "type": "null" }));
        if let [Value::Object(only)] = options.as_slice() {
            let only = only.clone();
            field.remove("anyOf");
            field.extend(only);
        }
    }
    if let Some(Value::Array(values)) = field.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if field.get("default").is_some_and(Value::is_null) {
        field.remove("default");
    }
    // `uint32`, `double` and so on: Rust's names for what the type checks anyway.
    if matches!(field.get("type").and_then(Value::as_str), Some("integer" | "number")) {
        field.remove("format");
    }
    if let Some(value) = field.remove("const") {
        field.insert("enum".to_owned(), json!([value]));
    }
    if let Some(choices) = field.get("oneOf").and_then(titled) {
        field.insert("type".to_owned(), json!("string"));
        field.insert("oneOf".to_owned(), choices);
    }
    if let Some(items) = field.get_mut("items") {
        let mut plain = plain_field(items.take());
        if let Some(choices) = plain.get_mut("oneOf").map(Value::take) {
            plain = json!({ "anyOf": choices });
        } else if let Some(plain) = plain.as_object_mut() {
            plain.retain(|keyword, _| keyword == "type" || keyword == "enum");
        }
        *items = plain;
        // A set: duplicates do no harm, and no form can forbid them.
        field.remove("uniqueItems");
    }
    Value::Object(field)
}

/// An enum whose variants have documentation, as choices with titles.
fn titled(options: &Value) -> Option<Value> {
    let mut choices = Vec::new();
    for option in options.as_array()? {
        if let Some(values) = option.get("enum").and_then(Value::as_array) {
            for value in values {
                choices.push(json!({ "const": value.as_str()?, "title": value }));
            }
        } else {
            let value = option.get("const")?.as_str()?;
            let title = option.get("title").or(option.get("description")).and_then(Value::as_str);
            choices.push(json!({ "const": value, "title": title.unwrap_or(value) }));
        }
    }
    Some(Value::Array(choices))
}

/// Checks an answer against the flat schema of its form. Integers that were spelled as floats come back as integers,
/// and what the schema does not know is left out.
pub(crate) fn check(schema: &JsonObject, content: &Value) -> Result<JsonObject, Problem> {
    let content = content.as_object().ok_or_else(|| Problem::whole("the answer is not an object"))?;
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if content.get(name).is_none_or(Value::is_null) {
            return Err(Problem::of(name, "is missing"));
        }
    }
    let mut checked = JsonObject::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, field) in properties.into_iter().flatten() {
        match content.get(name) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let value = check_field(field, value).map_err(|why| Problem::of(name, why))?;
                checked.insert(name.clone(), value);
            }
        }
    }
    Ok(checked)
}

fn check_field(field: &Value, value: &Value) -> Result<Value, String> {
    let value = typed(field, value)?;
    let choices: Option<Vec<&Value>> = match (field.get("enum"), field.get("oneOf").or(field.get("anyOf"))) {
        (Some(Value::Array(values)), _) => Some(values.iter().collect()),
        (_, Some(Value::Array(options))) => options.iter().map(|option| option.get("const")).collect(),
        _ => None,
    };
    if let Some(choices) = choices
        && !choices.contains(&&value)
    {
        let names: Vec<_> = choices.iter().filter_map(|choice| choice.as_str()).collect();
        return Err(format!("must be one of {}", names.join(", ")));
    }
    let bound = |keyword: &str| field.get(keyword).and_then(Value::as_f64);
    let within = |measure: f64, least: &str, most: &str, what: &str| match (bound(least), bound(most)) {
        (Some(least), _) if measure < least => Err(format!("must {what} at least {least}")),
        (_, Some(most)) if measure > most => Err(format!("must {what} at most {most}")),
        _ => Ok(()),
    };
    match &value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            within(number, "minimum", "maximum", "be")?;
        }
        Value::String(text) => {
            within(text.chars().count() as f64, "minLength", "maxLength", "have a length of")?;
            if let Some(format) = field.get("format").and_then(Value::as_str) {
                check_format(format, text)?;
            }
        }
        Value::Array(items) => {
            within(items.len() as f64, "minItems", "maxItems", "have a number of choices of")?;
            if let Some(schema) = field.get("items") {
                for item in items {
                    check_field(schema, item)?;
                }
            }
        }
        _ => {}
    }
    Ok(value)
}

fn typed(field: &Value, value: &Value) -> Result<Value, String> {
    let wanted = field.get("type").and_then(Value::as_str);
    let right = match wanted {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("integer") => return integer(value).ok_or_else(|| "must be a whole number".to_owned()),
        _ => true,
    };
    match wanted {
        Some(wanted) if !right => Err(format!("must be of type {wanted}")),
        _ => Ok(value.clone()),
    }
}

/// A whole number, also when it was spelled `3.0`.
fn integer(value: &Value) -> Option<Value> {
    if value.is_i64() || value.is_u64() {
        return Some(value.clone());
    }
    let float = value.as_f64()?;
    // Beyond 2^53 a float no longer says which integer was meant.
    let exact = float.fract() == 0.0 && float.abs() <= (1u64 << 53) as f64;
    exact.then(|| json!(float as i64))
}

fn check_format(format: &str, text: &str) -> Result<(), String> {
    let (right, what) = match format {
        "email" => (is_email(text), "an e-mail address"),
        "uri" => (is_uri(text), "a URI with a scheme"),
        "date" => (is_date(text), "a date such as 2026-07-28"),
        "date-time" => (is_date_time(text), "a date and time such as 2026-07-28T09:30:00Z"),
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
    use rmcp::schemars;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Units {
        Metric,
        Imperial,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    enum Class {
        /// Somewhat more room
        Comfort,
        Economy,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Trip {
        /// Who travels
        name: String,
        class: Class,
        units: Option<Units>,
        #[schemars(range(min = 1, max = 9))]
        seats: u8,
        price: Option<f64>,
        #[serde(default)]
        window: bool,
        #[schemars(length(min = 1))]
        meals: Vec<Units>,
        #[schemars(extend("format" = "date"))]
        day: Option<String>,
    }

    fn schema<T: FormType>(key: &str) -> Value {
        serde_json::to_value(Form::of::<T>(key).unwrap().schema()).unwrap()
    }

    fn read<T: FormType>(key: &str, content: Value) -> Result<T, String> {
        Form::of::<T>(key).unwrap().read(&content).map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_ordinary_enum_is_a_form_of_one_field_named_after_the_key() {
        let expected = json!({
            "type": "object",
            "properties": {"units": {"type": "string", "enum": ["metric", "imperial"], "title": "Units"}},
            "required": ["units"],
        });
        assert_eq!(schema::<Units>("units"), expected);
        assert_eq!(read("units", json!({"units": "metric"})), Ok(Units::Metric));
        assert_eq!(
            read::<Units>("units", json!({"units": "kelvin"})),
            Err("`units` must be one of metric, imperial".to_owned())
        );
    }

    #[test]
    fn a_question_is_named_after_its_type() {
        assert_eq!(Form::default_key::<Units>(), "units");
        assert_eq!(Form::default_key::<bool>(), "answer");
        assert_eq!(Form::default_key::<u8>(), "answer");
        assert_eq!(Form::default_key::<String>(), "answer");
        #[derive(Deserialize, JsonSchema)]
        struct SeatOnPlane {}
        assert_eq!(Form::default_key::<SeatOnPlane>(), "seat_on_plane");
    }

    #[test]
    fn plain_types_are_forms_of_one_field_too() {
        assert_eq!(schema::<bool>("ok")["properties"], json!({"ok": {"type": "boolean"}}));
        assert_eq!(read("ok", json!({"ok": true})), Ok(true));
        assert_eq!(read::<bool>("ok", json!({"ok": "yes"})), Err("`ok` must be of type boolean".to_owned()));
        assert_eq!(read("n", json!({"n": 3})), Ok(3u8));
        assert_eq!(read("name", json!({"name": "Ada"})), Ok("Ada".to_owned()));
    }

    #[test]
    fn a_struct_of_every_kind_of_field_survives_the_way_there_and_back() {
        let sent = schema::<Trip>("trip");
        assert!(sent.get("$schema").is_none() && sent.get("title").is_none(), "{sent}");
        let fields = &sent["properties"];
        assert_eq!(
            fields["class"]["oneOf"],
            json!([{"const": "Economy", "title": "Economy"}, {"const": "Comfort", "title": "Somewhat more room"}])
        );
        assert_eq!(fields["units"]["enum"], json!(["metric", "imperial"]));
        assert_eq!(fields["seats"]["minimum"], json!(1));
        assert_eq!(fields["window"]["default"], json!(false));
        assert_eq!(fields["meals"]["items"], json!({"type": "string", "enum": ["metric", "imperial"]}));
        assert_eq!(fields["day"]["format"], json!("date"));
        let required = sent["required"].as_array().unwrap();
        assert!(!required.contains(&json!("units")) && required.contains(&json!("name")), "{sent}");

        let answer = json!({
            "name": "Ada", "class": "Economy", "seats": 2.0, "window": true, "meals": ["metric"], "day": "2028-02-29",
        });
        let trip: Trip = read("trip", answer).unwrap();
        assert_eq!((trip.seats, trip.class, trip.units, trip.window), (2, Class::Economy, None, true));
    }

    #[test]
    fn a_wrong_answer_says_which_field_and_why() {
        let good = json!({"name": "Ada", "class": "Economy", "seats": 2, "meals": ["metric"]});
        let wrong = |field: &str, value: Value| {
            let mut answer = good.clone();
            answer[field] = value;
            read::<Trip>("trip", answer).unwrap_err()
        };
        assert!(read::<Trip>("trip", good.clone()).is_ok());
        assert_eq!(wrong("name", json!(7)), "`name` must be of type string");
        assert_eq!(wrong("name", Value::Null), "`name` is missing");
        assert_eq!(wrong("class", json!("First")), "`class` must be one of Economy, Comfort");
        assert_eq!(wrong("seats", json!(0)), "`seats` must be at least 1");
        assert_eq!(wrong("seats", json!(10)), "`seats` must be at most 9");
        assert_eq!(wrong("seats", json!(2.5)), "`seats` must be a whole number");
        assert_eq!(wrong("seats", json!("2")), "`seats` must be a whole number");
        assert_eq!(wrong("meals", json!([])), "`meals` must have a number of choices of at least 1");
        assert_eq!(wrong("meals", json!(["metric", "kelvin"])), "`meals` must be one of metric, imperial");
        assert_eq!(wrong("day", json!("2027-02-29")), "`day` must be a date such as 2026-07-28");
        assert_eq!(read::<Trip>("trip", json!([])).unwrap_err(), "the answer is not an object");
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
        ] {
            for text in good {
                assert_eq!(check_format(format, text), Ok(()), "{text}");
            }
            for text in bad {
                assert!(check_format(format, text).is_err(), "{format}: {text}");
            }
        }
    }

    #[test]
    fn a_type_that_no_form_can_express_says_so() {
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Nested {
            trip: Trip,
        }
        #[derive(Debug, Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is looked at")]
        struct Patterned {
            #[schemars(regex(pattern = "^a+$"))]
            code: String,
        }
        let said = |unaskable: Option<Unaskable>| unaskable.unwrap().to_string();
        let nested = said(Form::of::<Nested>("n").err());
        assert!(nested.contains("Nested` cannot be asked for with a form: `trip` is not a string"), "{nested}");
        let patterned = said(Form::of::<Patterned>("p").err());
        assert!(patterned.ends_with("`code` uses `pattern`, which a form cannot express"), "{patterned}");
    }
}
