//! A schema in the few keywords that a form has: made from a type, or given at run time.

use std::fmt;

use rmcp::{
    model::{ElicitationSchema, JsonObject, PrimitiveSchemaDefinition},
    schemars::generate::SchemaSettings,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{FormType, declared};
use crate::shared::{
    check::{Rule, must_match, required},
    order,
};

/// A schema that a form may have, before it is known whether rmcp can express each field.
#[derive(Clone)]
pub(super) enum Plain {
    /// An object, with the names of its fields in the order in which they are shown.
    Object { schema: JsonObject, order: Vec<String> },
    /// One value, which is the only field of its form.
    Single { field: Value, is_nullable: bool },
}

/// What a form cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) field: Option<String>,
    why: String,
}

impl Misfit {
    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self { field: None, why: why.into() }
    }

    pub(super) fn of(field: &str, why: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), why: why.into() }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "`{field}` {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl Plain {
    /// The schema of a type.
    pub(super) fn of<T: FormType>() -> Result<Self, Misfit> {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        match settings.into_generator().into_root_schema_for::<T>().to_value() {
            Value::Object(schema) if schema.get("type") == Some(&json!("object")) => {
                Self::object(schema, declared::fields::<T>())
            }
            Value::Object(schema) => Ok(Self::single(schema)),
            _ => Err(Misfit::whole("its schema is not an object")),
        }
    }

    /// A schema that was given at run time.
    pub(super) fn given(schema: Value) -> Result<Self, Misfit> {
        let Value::Object(schema) = schema else { return Err(Misfit::whole("it is not an object")) };
        if schema.get("type") != Some(&json!("object")) {
            return Err(Misfit::whole("its `type` is not `object`"));
        }
        let known = |keyword: &&String| KEYWORDS.contains(&keyword.as_str()) || UNBOUNDED.contains(&keyword.as_str());
        if let Some(keyword) = schema.keys().find(|keyword| !known(keyword)) {
            return Err(Misfit::whole(format!("it uses `{keyword}`, which a form cannot express")));
        }
        if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
            return Err(Misfit::whole("its `properties` are not an object"));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let is_property = |name: &str| properties.is_some_and(|properties| properties.contains_key(name));
        if let Some(name) = required(&schema).find(|name| !is_property(name)) {
            return Err(Misfit::of(name, "is required and is not one of the properties"));
        }
        Self::object(schema, &[])
    }

    fn object(mut schema: JsonObject, declared: &[&str]) -> Result<Self, Misfit> {
        schema.remove("$schema");
        if let Some(keyword) =
            UNBOUNDED.into_iter().find(|keyword| schema.get(*keyword).is_some_and(|given| given != false))
        {
            return Err(Misfit::whole(match keyword {
                "additionalProperties" => {
                    "it is a map or has one flattened into it, and a form has a fixed set of fields".to_owned()
                }
                keyword => format!("it uses `{keyword}`, which a form cannot express"),
            }));
        }
        schema.remove("title");
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for field in properties.values_mut() {
                *field = plain_field(field.take());
            }
        }
        schema.entry("properties").or_insert_with(|| json!({}));
        let order = in_order(&schema, declared);
        Ok(Self::Object { schema, order })
    }

    fn single(mut schema: JsonObject) -> Self {
        schema.remove("$schema");
        if schema.get("enum").is_none() && schema.get("oneOf").is_none() {
            // The title of a plain type is its Rust name: `boolean`, `uint32`.
            schema.remove("title");
        }
        let field = Value::Object(schema);
        Self::Single { is_nullable: is_nullable(&field), field: plain_field(field) }
    }

    /// The schema of a field; without a name, of the only one.
    pub(super) fn field_mut(&mut self, name: Option<&str>) -> Result<&mut JsonObject, Misfit> {
        let found = match (&mut *self, name) {
            (Self::Single { field, .. }, None) => field.as_object_mut(),
            (Self::Object { schema, .. }, Some(name)) => {
                schema.get_mut("properties").and_then(|fields| fields.get_mut(name)).and_then(Value::as_object_mut)
            }
            (Self::Single { .. }, Some(_)) => None,
            (Self::Object { .. }, None) => return Err(Misfit::whole("it has fields, and none of them was named")),
        };
        found.ok_or_else(|| match name {
            Some(name) => Misfit::of(name, "is not one of its fields"),
            None => Misfit::whole("it has no field"),
        })
    }

    /// The largest number of options that a field has.
    pub(super) fn options(&self) -> usize {
        self.fields().map(|(_, field)| options(field)).max().unwrap_or(0)
    }

    /// The schema itself, if each default is a value that its field may have.
    pub(super) fn with_fitting_defaults(self) -> Result<Self, Misfit> {
        for (name, field) in self.fields() {
            let Some(default) = field.get("default") else { continue };
            let rule = Rule::of(field).matching(field);
            if let Err(why) = rule.and_then(|rule| rule.check(default.clone())) {
                let why = format!("cannot have the default {default}: it {why}");
                return Err(name.map_or_else(|| Misfit::whole(format!("it {why}")), |name| Misfit::of(name, &*why)));
            }
        }
        Ok(self)
    }

    fn fields(&self) -> impl Iterator<Item = (Option<&str>, &Value)> {
        let (single, object) = match self {
            Self::Single { field, .. } => (Some((None, field)), None),
            Self::Object { schema, .. } => (None, schema.get("properties").and_then(Value::as_object)),
        };
        let named = object.into_iter().flatten().map(|(name, field)| (Some(name.as_str()), field));
        single.into_iter().chain(named)
    }
}

fn options(field: &Value) -> usize {
    let listed = |of: &Value| {
        let lists = ["enum", "oneOf", "anyOf"].into_iter().filter_map(|keyword| of.get(keyword)?.as_array());
        lists.map(Vec::len).max().unwrap_or(0)
    };
    listed(field).max(field.get("items").map_or(0, listed))
}

/// The memory that a form takes in bytes, about: its texts are in its rules and in what is sent.
pub(super) fn weight(schema: &Value) -> usize {
    4 * schema.to_string().len()
}

/// Keywords that a schema of an object can have in a form.
const KEYWORDS: [&str; 6] = ["$schema", "type", "title", "description", "properties", "required"];

/// Keywords that a schema of an object can have beside its properties, and a form cannot.
const UNBOUNDED: [&str; 12] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "dependentRequired",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "$ref",
];

/// The string formats that the protocol has.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// String formats that the protocol does not have, and that are checked in answers all the same.
const OUR_FORMATS: [&str; 4] = ["uuid", "ip", "ipv4", "ipv6"];

/// The names of the fields in the order of their declaration. If the type has flattened parts, which hide that order:
/// the required fields first, in their order, then the others by name.
fn in_order(schema: &JsonObject, declared: &[&str]) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut names: Vec<String> = properties.into_iter().flat_map(|fields| fields.keys().cloned()).collect();
    order::arrange(&mut names, declared.iter().copied().chain(required(schema)), |name| name);
    names
}

/// rmcp's elicitation schema, if it can express everything in this schema.
pub(super) fn expressible(schema: &JsonObject) -> Result<ElicitationSchema, Misfit> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let fields = properties.into_iter().flatten().map(|(name, field)| {
        let definition = carried(field).map_err(|why| Misfit::of(name, why))?;
        Ok((name.clone(), definition))
    });
    let mut asked = ElicitationSchema::new(fields.collect::<Result<_, Misfit>>()?);
    asked.description = schema.get("description").and_then(Value::as_str).map(|text| text.to_owned().into());
    let required: Vec<_> = required(schema).map(str::to_owned).collect();
    asked.required = schema.contains_key("required").then_some(required);
    Ok(asked)
}

/// A field as rmcp represents it, if it can express everything in its schema except what is checked here only.
/// Otherwise, why it cannot: the part of a sentence that follows the name of the field.
pub(super) fn carried(field: &Value) -> Result<PrimitiveSchemaDefinition, String> {
    let mut wanted = field.clone();
    match (field.get("type").and_then(Value::as_str), field.get("format").and_then(Value::as_str)) {
        (Some("object"), _) => {
            let is_map = field.get("additionalProperties").is_some_and(|given| given != false);
            let (kind, instead) = if is_map {
                ("a map", "ask for one entry at a time, or make the form at run time with `form_with`")
            } else {
                ("a struct", "add `#[serde(flatten)]` to it, or ask for it in a question of its own")
            };
            return Err(format!("is {kind}, and the fields of a form are plain values: {instead}"));
        }
        (Some("null"), _) => {
            return Err(
                "has no value: say what to ask for, as in `let units: Units = ask.form(\"..\").await?`".to_owned()
            );
        }
        (Some("string"), Some(format)) if OUR_FORMATS.contains(&format) => {
            wanted.as_object_mut().map(|wanted| wanted.remove("format"));
        }
        (Some("string"), Some(format)) if !FORMATS.contains(&format) => {
            let known = FORMATS.into_iter().chain(OUR_FORMATS).collect::<Vec<_>>().join(", ");
            return Err(format!("has the format `{format}`, which is not supported (those that are: {known})"));
        }
        _ => {}
    }
    describe_pattern(&mut wanted);
    let definition = PrimitiveSchemaDefinition::deserialize(&wanted)
        .map_err(|_| "is not a string, a number, a boolean, an enum without data or a list of such enums".to_owned())?;
    let written = serde_json::to_value(&definition).map_err(|error| error.to_string())?;
    match lost(&wanted, &written) {
        Some(keyword) => Err(format!("uses `{keyword}`, which a form cannot express")),
        None => Ok(definition),
    }
}

/// Moves the pattern of a text into its description: the protocol's forms have no patterns, and the user should know the
/// rule before the answer is checked.
fn describe_pattern(field: &mut Value) {
    let Value::Object(field) = field else { return };
    if field.get("type").and_then(Value::as_str) != Some("string") {
        return;
    }
    if let Some(Value::String(pattern)) = field.remove("pattern") {
        let rule = must_match(&pattern);
        let described = match field.get("description").and_then(Value::as_str) {
            Some(description) => format!("{description} ({rule})"),
            None => rule,
        };
        field.insert("description".to_owned(), described.into());
    }
}

fn lost<'a>(wanted: &'a Value, carried: &Value) -> Option<&'a str> {
    let wanted = wanted.as_object()?;
    wanted.keys().map(String::as_str).find(|keyword| carried.get(keyword).is_none())
}

/// Whether a value may be null, as for an `Option`.
fn is_nullable(field: &Value) -> bool {
    let list = |keyword: &str| field.get(keyword).and_then(Value::as_array).into_iter().flatten();
    list("type").any(|name| name == "null")
        || list("anyOf").any(|option| option == &json!({ "type": "null" }))
        || list("enum").any(Value::is_null)
}

/// Rewrites the schema that `schemars` generates for a field into the few keywords of an elicitation schema.
fn plain_field(field: Value) -> Value {
    let Value::Object(mut field) = field else {
        return field;
    };
    // `Option<T>`: the field is absent from `required`, which is enough.
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
    // `uint32`, `double` and so on: Rust's names for what deserialising checks anyway.
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
