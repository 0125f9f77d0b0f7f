//! Forms that are known only at run time: a schema as JSON, choices from a list, and a type whose fields are narrowed.

use std::{marker::PhantomData, ops::RangeInclusive, sync::Arc};

use rmcp::model::JsonObject;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{FormSource, FormSubject, FormType, FormTypeError, Misfit, Plain, Shape};

/// A form that is known only at run time, and that asks for a `T`.
///
/// Make one from a JSON Schema, from the options of a choice, or from a type whose fields are narrowed for this call.
/// Then ask with `form_with`, which every shape has.
///
/// ```
/// use rmcp::{model::JsonObject, schemars};
/// use rounds::form::Schema;
/// use serde_json::json;
///
/// // A JSON Schema. The answer is a map, or any type that deserialises from one.
/// let settings: Schema<JsonObject> = Schema::from(json!({
///     "type": "object",
///     "properties": {"name": {"type": "string", "maxLength": 20}, "size": {"type": "integer", "minimum": 1}},
///     "required": ["name"],
/// }));
///
/// // One of these, or several of them.
/// let branch: Schema<String> = Schema::choice(["main", "fix-login"]);
/// let branches: Schema<Vec<String>> = Schema::choices([("main", "The main branch"), ("old-ui", "The old pages")]);
///
/// // The fields of a type, as far as they are known before the call, and narrowed for this call.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Booking {
///     seat: String,
///     bags: u8,
/// }
/// let booking = Schema::<Booking>::of_type().options("seat", ["12A", "14C"]).bounds("bags", 0..=2).default("bags", 1);
/// ```
///
/// # What a form can express
///
/// The protocol's forms are flat: an object whose properties are strings (with `minLength`, `maxLength` and a `format`),
/// numbers and integers (with `minimum` and `maximum`), booleans, one of several options, or a list of such options. A
/// schema that has more is an error when it is asked: [`FlowError::FormType`](crate::FlowError::FormType), whose
/// [`field`](FormTypeError::field) is the property that is wrong. A field with more options than
/// [`Limits::choices`](crate::Limits::choices) is [`FlowError::TooManyChoices`](crate::FlowError::TooManyChoices).
///
/// # In durable handlers
///
/// A question has to be the same whenever the handler runs. Look options up in a `once`.
pub struct Schema<T> {
    plain: Result<Plain, Misfit>,
    subject: FormSubject,
    asks_for: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Schema<T> {
    /// One of these options. The value is deserialised from a string: a `String`, or a type of your own such as
    /// `struct Branch(String)`. An option whose value was given before is left out.
    pub fn choice<C: Into<Alternative>>(options: impl IntoIterator<Item = C>) -> Self {
        let field = Alternative::list(options).map(|options| one_of(&options));
        Self::made(field.map(|field| Plain::Single { field, is_nullable: false }))
    }

    /// Any number of these options, also none. The value is deserialised from a list of strings.
    pub fn choices<C: Into<Alternative>>(options: impl IntoIterator<Item = C>) -> Self {
        let field = Alternative::list(options).map(|options| some_of(&options));
        Self::made(field.map(|field| Plain::Single { field, is_nullable: false }))
    }

    fn made(plain: Result<Plain, Misfit>) -> Self {
        Self { plain, subject: FormSubject::Schema, asks_for: PhantomData }
    }
}

impl<T: FormType> Schema<T> {
    /// The form of a type, to be narrowed.
    pub fn of_type() -> Self {
        let subject = FormSubject::Type(std::any::type_name::<T>());
        Self { plain: Plain::of::<T>(), subject, asks_for: PhantomData }
    }
}

impl<T> Schema<T> {
    /// Sets the options of a field, which is a text or a list. Of a field that has options already, such as an enum,
    /// these have to be some. Without a name (`None`), it is the only field of a type that is not a struct.
    pub fn options<'a, C: Into<Alternative>>(
        self,
        field: impl Into<Option<&'a str>>,
        options: impl IntoIterator<Item = C>,
    ) -> Self {
        self.narrow(field.into(), |schema| {
            let options = Alternative::list(options).map_err(|misfit| misfit.to_string())?;
            let before = schema.get("items").cloned().unwrap_or_else(|| Value::Object(schema.clone()));
            let known = values(&before);
            let is_known = |option: &&Alternative| known.is_empty() || known.contains(&option.value.as_str());
            if let Some(stranger) = options.iter().find(|option| !is_known(option)) {
                return Err(format!("does not have the option `{}`", stranger.value));
            }
            let narrowed = match schema.get("type").and_then(Value::as_str) {
                Some("string") => one_of(&options),
                Some("array") => some_of(&options),
                _ => return Err("is neither a text nor a list, and cannot have options".to_owned()),
            };
            for replaced in ["enum", "oneOf", "minLength", "maxLength", "format", "pattern"] {
                schema.remove(replaced);
            }
            if let Value::Object(narrowed) = narrowed {
                schema.extend(narrowed);
            }
            Ok(())
        })
    }

    /// Sets the value that a field has before the user changes it.
    pub fn default<'a>(self, field: impl Into<Option<&'a str>>, value: impl Serialize) -> Self {
        self.narrow(field.into(), |schema| {
            let value = serde_json::to_value(value).map_err(|error| format!("cannot have this default: {error}"))?;
            schema.insert("default".to_owned(), value);
            Ok(())
        })
    }

    /// Sets the bounds of a field: of a number, of the length of a text, or of the number of options in a list. Bounds
    /// that the field has already stay in force.
    pub fn bounds<'a>(self, field: impl Into<Option<&'a str>>, bounds: RangeInclusive<i64>) -> Self {
        self.narrow(field.into(), |schema| {
            let (least, most) = match schema.get("type").and_then(Value::as_str) {
                Some("integer" | "number") => ("minimum", "maximum"),
                Some("string") => ("minLength", "maxLength"),
                Some("array") => ("minItems", "maxItems"),
                _ => return Err("has no bounds: it is neither a number, a text nor a list".to_owned()),
            };
            let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
            let (low, high) = (*bounds.start(), *bounds.end());
            let is_lower = bound(most).is_none_or(|known| known > high as f64);
            if bound(least).is_none_or(|known| known < low as f64) {
                schema.insert(least.to_owned(), json!(low));
            }
            if is_lower {
                schema.insert(most.to_owned(), json!(high));
            }
            Ok(())
        })
    }

    fn narrow(mut self, field: Option<&str>, narrow: impl FnOnce(&mut JsonObject) -> Result<(), String>) -> Self {
        let narrowed = match &mut self.plain {
            Ok(plain) => plain.field_mut(field).and_then(|schema| {
                narrow(schema).map_err(|why| match field {
                    Some(name) => Misfit::of(name, why),
                    None => Misfit::whole(format!("it {why}")),
                })
            }),
            Err(_) => Ok(()),
        };
        if let Err(misfit) = narrowed {
            self.plain = Err(misfit);
        }
        self
    }

    /// The form that a question asks with.
    pub(crate) fn source(&self) -> FormSource {
        let shape = self.plain.clone().and_then(|plain| plain.with_fitting_defaults()).and_then(Shape::of);
        FormSource::Made(Arc::new(shape.map_err(|misfit| FormTypeError { what: self.subject, misfit })))
    }
}

impl<T: DeserializeOwned> From<Value> for Schema<T> {
    /// A JSON Schema of an object with plain properties. What it has beyond that is an error when it is asked.
    fn from(schema: Value) -> Self {
        Self::made(Plain::given(schema))
    }
}

impl<T: DeserializeOwned> From<JsonObject> for Schema<T> {
    fn from(schema: JsonObject) -> Self {
        Value::Object(schema).into()
    }
}

impl<T> Clone for Schema<T> {
    fn clone(&self) -> Self {
        Self { plain: self.plain.clone(), subject: self.subject, asks_for: PhantomData }
    }
}

impl<T> From<&Schema<T>> for Schema<T> {
    fn from(schema: &Self) -> Self {
        schema.clone()
    }
}

impl<T> std::fmt::Debug for Schema<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema")
            .field("of", &self.subject)
            .field("misfit", &self.plain.as_ref().err())
            .finish_non_exhaustive()
    }
}

/// An option of a choice: the value that the handler gets, and the title that the user sees.
///
/// A text is an option with itself as its title; a pair is a value and its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    value: String,
    title: Option<String>,
}

impl Alternative {
    /// An option whose title is its value.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), title: None }
    }

    /// Sets the title that the user sees.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// These options, each value once.
    fn list<C: Into<Self>>(options: impl IntoIterator<Item = C>) -> Result<Vec<Self>, Misfit> {
        let mut seen = std::collections::HashSet::new();
        let all = options.into_iter().map(Into::into).filter(|option: &Self| seen.insert(option.value.clone()));
        let options: Vec<Self> = all.collect();
        if options.is_empty() { Err(Misfit::whole("there is nothing to choose from")) } else { Ok(options) }
    }
}

impl From<&str> for Alternative {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

impl From<&String> for Alternative {
    fn from(value: &String) -> Self {
        Self::new(value)
    }
}

impl From<String> for Alternative {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

impl<V: Into<String>, N: Into<String>> From<(V, N)> for Alternative {
    fn from((value, title): (V, N)) -> Self {
        Self::new(value).title(title)
    }
}

fn one_of(options: &[Alternative]) -> Value {
    match titled(options) {
        Some(titled) => json!({ "type": "string", "oneOf": titled }),
        None => json!({ "type": "string", "enum": plain_values(options) }),
    }
}

fn some_of(options: &[Alternative]) -> Value {
    let items = match titled(options) {
        Some(titled) => json!({ "anyOf": titled }),
        None => json!({ "type": "string", "enum": plain_values(options) }),
    };
    json!({ "type": "array", "items": items })
}

/// The options with their titles, if one has a title.
fn titled(options: &[Alternative]) -> Option<Value> {
    let titled = |option: &Alternative| json!({ "const": option.value, "title": option.title.as_ref().unwrap_or(&option.value) });
    options.iter().any(|option| option.title.is_some()).then(|| options.iter().map(titled).collect())
}

fn plain_values(options: &[Alternative]) -> Value {
    options.iter().map(|option| option.value.as_str()).collect()
}

/// The values of the options that a schema has.
fn values(schema: &Value) -> Vec<&str> {
    let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
    let titled = list("oneOf").chain(list("anyOf")).filter_map(|option| option.get("const"));
    list("enum").chain(titled).filter_map(Value::as_str).collect()
}
