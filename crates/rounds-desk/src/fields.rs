//! The fields of a form, from the form model that every host of this library has: how they are shown, and how they are
//! read.

use std::collections::HashMap;

use maud::{Markup, html};
use rmcp::model::JsonObject;
use rounds::client::{AskedQuestion, Field, FieldKind, TextFormat};
use serde_json::Value;

use crate::{content::Text, content::visible, forms::Form};

/// The fields of one question or of one tool, with what a visitor has entered.
pub(crate) struct Fields<'a> {
    /// Tells these fields from others in the same form.
    prefix: String,
    fields: &'a [Field],
    /// What was entered. None before the form was sent.
    entered: Option<&'a Form>,
    problems: HashMap<usize, String>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(prefix: impl Into<String>, fields: &'a [Field]) -> Self {
        Self { prefix: prefix.into(), fields, entered: None, problems: HashMap::new() }
    }

    /// The fields of the question with this number on the page.
    pub(crate) fn of_question(number: usize, question: &'a AskedQuestion) -> Self {
        Self::new(format!("q{number}"), question.fields())
    }

    /// Reads what was entered. Problems are shown beside their fields when this is rendered.
    pub(crate) fn read(&mut self, form: &'a Form) -> Result<JsonObject, NotValid> {
        self.entered = Some(form);
        let mut content = JsonObject::new();
        for (at, field) in self.fields.iter().enumerate() {
            match read(field, form, &self.name(at)) {
                Ok(Some(value)) => {
                    content.insert(field.name.clone(), value);
                }
                Ok(None) => {}
                Err(problem) => {
                    self.problems.insert(at, problem);
                }
            }
        }
        if self.problems.is_empty() { Ok(content) } else { Err(NotValid) }
    }

    pub(crate) fn render(&self) -> Markup {
        html! { @for at in 0..self.fields.len() { (self.field(at)) } }
    }

    fn name(&self, at: usize) -> String {
        format!("{}.{at}", self.prefix)
    }

    fn field(&self, at: usize) -> Markup {
        let field = &self.fields[at];
        let name = self.name(at);
        let control = Control {
            field,
            hint: hint(field),
            problem: self.problems.get(&at).map(String::as_str),
            entered: self.entered,
            name: &name,
        };
        html! { div .field { (control.render()) } }
    }
}

/// Something that was entered is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotValid;

/// The value of a field, or none if it was left empty.
fn read(field: &Field, form: &Form, name: &str) -> Result<Option<Value>, String> {
    let words = |problem: rounds::form::InvalidAnswer| {
        // The field's name is beside the message already.
        problem.to_string().replacen(&format!("`{}` ", field.name), "This ", 1)
    };
    match &field.kind {
        FieldKind::Boolean => field.check(&form.has(name).into()).map(Some).map_err(words),
        FieldKind::Choices { .. } => {
            let chosen: Vec<Value> = form.all(name).map(Value::from).collect();
            if chosen.is_empty() && !field.required {
                return Ok(None);
            }
            field.check(&chosen.into()).map(Some).map_err(words)
        }
        kind => match (form.get(name).unwrap_or_default(), kind) {
            ("", _) if field.required => Err("Enter a value.".to_owned()),
            ("", _) => Ok(None),
            // A choice is sent by its value, which may look like the title of another one.
            (text, FieldKind::Choice { .. }) => field.check(&text.into()).map(Some).map_err(words),
            (text, _) => field.parse(text).map(Some).map_err(words),
        },
    }
}

/// One field with its label, its hint and what is wrong with it.
struct Control<'a> {
    field: &'a Field,
    name: &'a str,
    hint: Option<String>,
    problem: Option<&'a str>,
    entered: Option<&'a Form>,
}

impl Control<'_> {
    fn render(&self) -> Markup {
        match &self.field.kind {
            FieldKind::Boolean => html! {
                div .check { (self.checkbox()) (self.label()) }
                (self.notes())
            },
            FieldKind::Choices { choices, .. } => html! {
                fieldset aria-describedby=[self.described_by()] {
                    legend { (Text(&self.field.label)) }
                    @for (at, choice) in choices.iter().enumerate() {
                        @let id = format!("{}.{at}", self.name);
                        div .check {
                            input type="checkbox" id=(id) name=(self.name) value=(choice.value)
                                checked[self.is_chosen(&choice.value)];
                            label for=(id) { (Text(&choice.title)) }
                        }
                    }
                }
                (self.notes())
            },
            FieldKind::Choice { choices } => {
                let current = self.text();
                html! {
                    (self.label())
                    select id=(self.name) name=(self.name) aria-describedby=[self.described_by()]
                        aria-invalid=[self.is_invalid()] aria-required=[self.is_required()] {
                        option value="" selected[current.is_empty()] { "Choose…" }
                        @for choice in choices {
                            option value=(choice.value) selected[choice.value == current] { (Text(&choice.title)) }
                        }
                    }
                    (self.notes())
                }
            }
            FieldKind::Unknown { .. } => html! {
                (self.label())
                textarea id=(self.name) name=(self.name) rows="4" spellcheck="false"
                    aria-describedby=[self.described_by()] aria-invalid=[self.is_invalid()]
                    aria-required=[self.is_required()] { (self.text()) }
                (self.notes())
            },
            kind => html! {
                (self.label())
                input id=(self.name) name=(self.name) type=(input_type(kind)) inputmode=[input_mode(kind)]
                    value=(self.text()) autocomplete="off" aria-describedby=[self.described_by()]
                    aria-invalid=[self.is_invalid()] aria-required=[self.is_required()];
                (self.notes())
            },
        }
    }

    fn label(&self) -> Markup {
        html! { label for=(self.name) { (Text(&self.field.label)) } }
    }

    fn checkbox(&self) -> Markup {
        let checked = match self.entered {
            Some(form) => form.has(self.name),
            None => self.prefilled() == Some(&Value::Bool(true)),
        };
        html! {
            input type="checkbox" id=(self.name) name=(self.name) value="true" checked[checked]
                aria-describedby=[self.described_by()];
        }
    }

    fn notes(&self) -> Markup {
        html! {
            @if let Some(hint) = &self.hint { p .hint id={ (self.name) "-hint" } { (Text(hint)) } }
            @if let Some(problem) = self.problem { p .problem id={ (self.name) "-problem" } { (Text(problem)) } }
        }
    }

    fn described_by(&self) -> Option<String> {
        let hint = self.hint.as_ref().map(|_| format!("{}-hint", self.name));
        let problem = self.problem.map(|_| format!("{}-problem", self.name));
        match (problem, hint) {
            (Some(problem), Some(hint)) => Some(format!("{problem} {hint}")),
            (problem, hint) => problem.or(hint),
        }
    }

    fn is_invalid(&self) -> Option<&'static str> {
        self.problem.map(|_| "true")
    }

    fn is_required(&self) -> Option<&'static str> {
        self.field.required.then_some("true")
    }

    /// What the field contains as text: what was entered, or else what the server suggests.
    fn text(&self) -> String {
        let text = match self.entered {
            Some(form) => form.get(self.name).unwrap_or_default().to_owned(),
            None => match self.prefilled() {
                None => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            },
        };
        match self.field.kind {
            // Sent back as it is.
            FieldKind::Choice { .. } => text,
            _ => visible(&text),
        }
    }

    fn is_chosen(&self, choice: &str) -> bool {
        match self.entered {
            Some(form) => form.all(self.name).any(|chosen| chosen == choice),
            None => {
                let chosen = self.prefilled().and_then(Value::as_array).into_iter().flatten();
                chosen.into_iter().any(|chosen| chosen == choice)
            }
        }
    }

    fn prefilled(&self) -> Option<&Value> {
        self.field.suggested.as_ref().or(self.field.default.as_ref())
    }
}

fn input_type(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::Text { format: Some(TextFormat::Email), .. } => "email",
        FieldKind::Text { format: Some(TextFormat::Uri), .. } => "url",
        FieldKind::Text { format: Some(TextFormat::Date), .. } => "date",
        _ => "text",
    }
}

fn input_mode(kind: &FieldKind) -> Option<&'static str> {
    match kind {
        FieldKind::Integer { .. } => Some("numeric"),
        FieldKind::Number { .. } => Some("decimal"),
        _ => None,
    }
}

/// What is said below a field: its description, its bounds, and whether it may be left empty.
fn hint(field: &Field) -> Option<String> {
    let mut parts: Vec<String> = field.description.clone().into_iter().collect();
    let between = |low: Option<String>, high: Option<String>, what: &str| match (low, high) {
        (Some(low), Some(high)) => Some(format!("{low} to {high}{what}")),
        (Some(low), None) => Some(format!("At least {low}{what}")),
        (None, Some(high)) => Some(format!("At most {high}{what}")),
        (None, None) => None,
    };
    let text = |number: &Option<u64>| number.map(|number| number.to_string());
    let float = |number: &Option<f64>| number.map(|number| number.to_string());
    parts.extend(match &field.kind {
        FieldKind::Text { min_length, max_length, format } => match format {
            Some(TextFormat::DateTime) => Some("A date and a time, such as 2026-07-28T09:30:00Z".to_owned()),
            _ => between(text(min_length), text(max_length), " characters"),
        },
        FieldKind::Number { minimum, maximum } => between(float(minimum), float(maximum), ""),
        FieldKind::Integer { minimum, maximum } => between(float(minimum), float(maximum), ""),
        FieldKind::Choices { min, max, .. } => between(text(min), text(max), " choices"),
        FieldKind::Unknown { .. } => Some("JSON".to_owned()),
        _ => None,
    });
    let may_be_empty = !matches!(field.kind, FieldKind::Boolean | FieldKind::Choices { .. });
    if !field.required && may_be_empty {
        parts.push("Optional".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(". "))
}
