//! One field of a form: the description of what it accepts, and the parser of what the user typed.

use rounds::{
    client::{Choice, Field, FieldKind, TextFormat},
    form::InvalidAnswer,
};
use serde_json::{Value, json};

use super::clean;

/// Describes what a field accepts, in a few words. Choices are listed below the field; here they are only counted.
pub(crate) fn describe(field: &Field) -> String {
    match &field.kind {
        FieldKind::Text { min_length, max_length, format } => {
            let what = format.as_ref().map_or_else(|| "text".to_owned(), describe_format);
            match (min_length, max_length) {
                (Some(least), Some(most)) if least == most => format!("{what}, {least} characters"),
                (Some(least), Some(most)) => format!("{what}, {least} to {most} characters"),
                (Some(least), None) if *least > 0 => format!("{what}, at least {least} characters"),
                (_, Some(most)) => format!("{what}, at most {most} characters"),
                _ => what,
            }
        }
        FieldKind::Number { minimum, maximum } => describe_bounds("number", *minimum, *maximum),
        FieldKind::Integer { minimum, maximum } => describe_bounds("whole number", *minimum, *maximum),
        FieldKind::Boolean => "yes or no".to_owned(),
        FieldKind::Choice { .. } => "one of these".to_owned(),
        FieldKind::Choices { min, max, .. } => match (min.filter(|least| *least > 0), max) {
            (Some(least), Some(most)) if least == *most => format!("{least} of these, with commas"),
            (Some(least), Some(most)) => format!("{least} to {most} of these, with commas"),
            (Some(least), None) => format!("at least {least} of these, with commas"),
            (None, Some(most)) => format!("up to {most} of these, with commas"),
            (None, None) => "any of these, with commas".to_owned(),
        },
        _ => "JSON".to_owned(),
    }
}

fn describe_format(format: &TextFormat) -> String {
    match format {
        TextFormat::Email => "e-mail address".to_owned(),
        TextFormat::Uri => "URI with its scheme".to_owned(),
        TextFormat::Date => "date such as 2026-07-28".to_owned(),
        TextFormat::DateTime => "date and time such as 2026-07-28T09:30:00Z".to_owned(),
        TextFormat::Other(name) => format!("text, as {}", clean::short(name, 40)),
        _ => "text".to_owned(),
    }
}

fn describe_bounds(what: &str, minimum: Option<f64>, maximum: Option<f64>) -> String {
    match (minimum, maximum) {
        (Some(least), Some(most)) => format!("{what} from {least} to {most}"),
        (Some(least), None) => format!("{what}, {least} or more"),
        (None, Some(most)) => format!("{what}, {most} or less"),
        (None, None) => what.to_owned(),
    }
}

/// The choices of a field that has some.
pub(super) fn choices(field: &Field) -> &[Choice] {
    match &field.kind {
        FieldKind::Choice { choices } | FieldKind::Choices { choices, .. } => choices,
        _ => &[],
    }
}

/// Parses what the user typed. A choice may also be given by its number in the list.
pub(super) fn read(field: &Field, text: &str) -> Result<Value, InvalidAnswer> {
    match &field.kind {
        FieldKind::Choice { .. } => field.check(&json!(meant(field, text))),
        // The name of a choice may contain commas.
        FieldKind::Choices { .. } if text.trim().is_empty() || field.choice(text).is_none() => {
            let chosen = text.split(',').filter(|one| !one.trim().is_empty()).map(|one| meant(field, one));
            field.check(&chosen.collect())
        }
        _ => field.parse(text),
    }
}

/// The value of the chosen choice: by its name, or by its number unless a choice has that name.
fn meant<'a>(field: &'a Field, text: &'a str) -> &'a str {
    let text = text.trim();
    let by_number = || choices(field).get(text.parse::<usize>().ok()?.checked_sub(1)?);
    field.choice(text).or_else(by_number).map_or(text, |choice| &choice.value)
}

/// The place of the field that the user means: by its number as it is shown, or else by its label or its name.
pub(super) fn place(fields: &[Field], text: &str) -> Option<usize> {
    let numbered = || text.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < fields.len());
    let is_named =
        |field: &Field| [&field.label, &field.name].iter().any(|name| name.to_lowercase() == text.to_lowercase());
    numbered().or_else(|| fields.iter().position(is_named))
}

/// The message for an invalid input, next to the field.
pub(super) fn tell(field: &Field, problem: &InvalidAnswer) -> String {
    let said = problem.to_string();
    match &field.kind {
        FieldKind::Choice { .. } => "that is not one of these: type a number or a name".to_owned(),
        FieldKind::Choices { .. } if said.contains("must be one of") => {
            "that is not one of these: type numbers or names, with commas between them".to_owned()
        }
        _ => said.strip_prefix(&format!("`{}` ", field.name)).unwrap_or(&said).to_owned(),
    }
}

/// A value of this field for display.
pub(super) fn show(field: &Field, value: &Value) -> String {
    let title = |value: &Value| {
        let chosen = choices(field).iter().find(|choice| value.as_str() == Some(&choice.value));
        chosen.map(|choice| choice.title.clone())
    };
    let shown = match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(values) if values.iter().all(|value| title(value).is_some()) => {
            let titles: Vec<_> = values.iter().filter_map(title).collect();
            if titles.is_empty() { "none".to_owned() } else { titles.join(", ") }
        }
        Value::String(text) => title(value).unwrap_or_else(|| text.clone()),
        other => other.to_string(),
    };
    clean::line(&shown)
}
