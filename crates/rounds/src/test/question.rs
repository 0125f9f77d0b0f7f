//! One question of a leg, by name.

use std::ops::Deref;

use serde_json::Value;

use crate::shared::order::{ORDER, arrange, listed};

/// A question that was asked, for expectations: `asked.question("units").options()`.
///
/// It dereferences to the request as it came, `{"method": .., "params": ..}`, for what has no method here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AskedQuestion<'a> {
    request: &'a Value,
}

impl<'a> AskedQuestion<'a> {
    pub(super) fn new(request: &'a Value) -> Self {
        Self { request }
    }

    /// The request, unchanged.
    pub fn raw(&self) -> &'a Value {
        self.request
    }

    /// The message that the user reads.
    pub fn message(&self) -> &'a str {
        self.request["params"]["message"].as_str().unwrap_or_default()
    }

    /// The page to visit. None for other kinds of question.
    pub fn url(&self) -> Option<&'a str> {
        self.request["params"]["url"].as_str()
    }

    /// The form's schema.
    pub fn schema(&self) -> &'a Value {
        &self.request["params"]["requestedSchema"]
    }

    /// The names of the form's fields, in the order in which to show them.
    pub fn fields(&self) -> Vec<&'a str> {
        let properties = self.schema()["properties"].as_object();
        let mut names: Vec<_> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        arrange(&mut names, listed(self.request["params"]["_meta"].get(ORDER)), |name| name);
        names
    }

    /// The schema of a field.
    ///
    /// # Panics
    ///
    /// If the form has no such field.
    #[track_caller]
    pub fn field(&self, name: &str) -> &'a Value {
        let field = &self.schema()["properties"][name];
        assert!(field.is_object(), "the form has no field `{name}`: {}", self.request);
        field
    }

    /// The values of the options of the form's only field, in the order in which to show them. Empty if the field has no
    /// options.
    ///
    /// # Panics
    ///
    /// If it is not a form with one field: then use [`options_of`](Self::options_of).
    #[track_caller]
    pub fn options(&self) -> Vec<&'a str> {
        match self.fields()[..] {
            [only] => self.options_of(only),
            _ => panic!("it is not a form with one field, so name the field: {}", self.request),
        }
    }

    /// The values of the options of a field, in the order in which to show them. Empty if the field has no options.
    ///
    /// # Panics
    ///
    /// If the form has no such field.
    #[track_caller]
    pub fn options_of(&self, field: &str) -> Vec<&'a str> {
        let schema = self.field(field);
        let of = if schema["items"].is_object() { &schema["items"] } else { schema };
        let list = |keyword: &str| of[keyword].as_array().into_iter().flatten();
        let titled = list("oneOf").chain(list("anyOf")).map(|option| &option["const"]);
        list("enum").chain(titled).filter_map(Value::as_str).collect()
    }

    /// The titles of the options of a field, which the user sees, in the same order. An option without a title is its
    /// value.
    ///
    /// # Panics
    ///
    /// If the form has no such field.
    #[track_caller]
    pub fn titles_of(&self, field: &str) -> Vec<&'a str> {
        let schema = self.field(field);
        let of = if schema["items"].is_object() { &schema["items"] } else { schema };
        let list = |keyword: &str| of[keyword].as_array().into_iter().flatten();
        let titled = list("oneOf").chain(list("anyOf")).map(|option| &option["title"]);
        list("enum").chain(titled).filter_map(Value::as_str).collect()
    }

    /// The value that a field has before the user changes it.
    ///
    /// # Panics
    ///
    /// If the form has no such field.
    #[track_caller]
    pub fn default_of(&self, field: &str) -> Option<&'a Value> {
        self.field(field).get("default")
    }

    /// Whether the form needs a value for a field.
    pub fn requires(&self, field: &str) -> bool {
        self.schema()["required"].as_array().into_iter().flatten().any(|required| required == field)
    }
}

impl Deref for AskedQuestion<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.request
    }
}
