//! Answers that were given on the command line: `--answer`, `--answers` and `--decline`.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use clap::Args;
use rmcp::model::{CreateMessageResult, JsonObject, ListRootsResult};
use rounds::{
    client::{AnswerError, AskedQuestion, Field, FieldKind, UserAnswer},
    observe::QuestionKind,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Failure,
    pair::{Given, Pair},
    terminal::clean,
};

/// Answers that are given without a prompt.
#[derive(Debug, Args)]
#[command(next_help_heading = "Answers given on the command line")]
pub(crate) struct AnswerOptions {
    /// Answer a field of a question; `:=` takes JSON. With any of these, there is no prompt
    ///
    /// A choice may be given by its value or its title. Fields that are not named get their defaults.
    /// KEY alone stands for the whole question: KEY=accept accepts it with its defaults, or agrees to visit a page;
    /// KEY=decline and KEY=cancel decline and cancel it; KEY:=JSON is the whole answer; and if there is only one
    /// field, KEY=VALUE is enough. The questions of a legacy server have no key: there the name of the field
    /// decides, and `*` stands for every question. A model's message (KEY:={"role": ..}) and roots
    /// (KEY:={"roots": ..}) are given to such a server in order, whatever their KEY is.
    #[arg(long, value_name = "KEY.FIELD=VALUE", value_parser = Pair::parse, verbatim_doc_comment)]
    answer: Vec<Pair>,
    /// Answer from a JSON file: {"KEY": {"FIELD": "value"}}
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Decline every question that has no other answer
    #[arg(long)]
    decline: bool,
}

/// Answers by the key of a question, or by the key and a field.
#[derive(Debug)]
pub(crate) struct Answers {
    given: Vec<Entry>,
    decline: bool,
}

#[derive(Debug)]
struct Entry {
    pair: Pair,
    used: AtomicBool,
}

/// A given answer that does not fit its question, and is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer to {key} does not fit, and was not sent: {why}")]
pub(crate) struct Wrong {
    key: String,
    why: String,
}

impl AnswerOptions {
    /// Whether any option answers instead of a person.
    pub(crate) fn is_given(&self) -> bool {
        !self.answer.is_empty() || self.answers.is_some() || self.decline
    }

    /// The given answers. Those of the file come first, so that the command line overrides them.
    pub(crate) fn load(&self) -> Result<Answers, Failure> {
        let mut given = Vec::new();
        if let Some(file) = &self.answers {
            let name = || file.display().to_string();
            let text = fs::read_to_string(file).map_err(|source| Failure::Read { file: name(), source })?;
            let read: JsonObject =
                serde_json::from_str(&text).map_err(|source| Failure::NoAnswers { file: name(), source })?;
            given.extend(read.into_iter().map(|(name, value)| Pair {
                name,
                value: if let Value::String(text) = value { Given::Text(text) } else { Given::Json(value) },
            }));
        }
        given.extend(self.answer.iter().cloned());
        let given = given.into_iter().map(|pair| Entry { pair, used: AtomicBool::new(false) }).collect();
        Ok(Answers { given, decline: self.decline })
    }
}

impl Answers {
    /// No answers.
    pub(crate) fn none() -> Self {
        Self { given: Vec::new(), decline: false }
    }

    /// Whether to declare to the server that it can ask this kind of question. Sampling and roots are declared only if
    /// an answer for them was given.
    pub(crate) fn can(&self, kind: QuestionKind) -> bool {
        matches!(kind, QuestionKind::Form | QuestionKind::Url)
            || self.given.iter().any(|entry| entry.is_result_for(kind))
    }

    /// The answer to this question, if there is one. It has been checked.
    pub(crate) fn to(&self, question: &AskedQuestion) -> Result<Option<UserAnswer>, Wrong> {
        self.find(question).map_err(|why| Wrong { key: name_of(question), why: clean::line(&why) })
    }

    fn find(&self, question: &AskedQuestion) -> Result<Option<UserAnswer>, String> {
        let fields = self.fields_of(question)?;
        let named = self.given.iter().rfind(|entry| entry.is_whole(question));
        let answer = match named.or_else(|| self.result_for(question)) {
            Some(entry) => whole(question, entry.take(), &fields)?,
            None if !fields.is_empty() => filled(defaults(question), &fields)?,
            None if self.decline && matches!(question.kind(), QuestionKind::Form | QuestionKind::Url) => {
                UserAnswer::Decline
            }
            None => return Ok(None),
        };
        question.check(answer).map(Some).map_err(|error| match error {
            AnswerError::Invalid { problem, .. } => problem.to_string(),
            other => other.to_string(),
        })
    }

    /// The result for a question without a key: each is used in order, and then the last one again.
    fn result_for(&self, question: &AskedQuestion) -> Option<&Entry> {
        let mut results =
            self.given.iter().filter(|entry| question.is_pushed() && entry.is_result_for(question.kind()));
        results.clone().find(|entry| !entry.used.load(Ordering::Relaxed)).or_else(|| results.next_back())
    }

    /// Whether any of these answers is for this question.
    pub(crate) fn is_about(&self, question: &AskedQuestion) -> bool {
        let is_field = |name: &str| name.strip_prefix(question.name()).is_some_and(|rest| rest.starts_with('.'));
        self.given.iter().any(|entry| entry.is_whole(question) || is_field(&entry.pair.name))
    }

    /// The names of the answers for which there was no question.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let unused = self.given.iter().filter(|entry| !entry.used.load(Ordering::Relaxed));
        unused.map(|entry| entry.pair.name.as_str()).collect()
    }

    /// The fields of this question for which there is an answer.
    fn fields_of<'a>(&'a self, question: &'a AskedQuestion) -> Result<Vec<(&'a Field, &'a Given)>, String> {
        let mut fields = Vec::new();
        for entry in self.given.iter().filter(|entry| !entry.is_whole(question)) {
            let name = entry.pair.name.as_str();
            let field = if question.is_pushed() {
                let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
                question.field(name).or_else(|| question.field(last))
            } else if let Some(name) = name.strip_prefix(question.name()).and_then(|rest| rest.strip_prefix('.')) {
                Some(known(question, name)?)
            } else {
                None
            };
            fields.extend(field.map(|field| (field, entry.take())));
        }
        Ok(fields)
    }
}

impl Entry {
    /// Whether this answers the whole question, and not one of its fields.
    fn is_whole(&self, question: &AskedQuestion) -> bool {
        let name = self.pair.name.as_str();
        let is_only_field = || matches!(question.fields(), [only] if only.name == name);
        match question.is_pushed() {
            _ if name == "*" => true,
            true => name == question.message() || is_only_field(),
            false => name == question.name(),
        }
    }

    /// Whether this is a model's message, or roots, whatever key it was given for.
    fn is_result_for(&self, kind: QuestionKind) -> bool {
        let member = match kind {
            QuestionKind::Sample => "role",
            QuestionKind::Roots => "roots",
            _ => return false,
        };
        matches!(&self.pair.value, Given::Json(json) if json.get(member).is_some())
    }

    fn take(&self) -> &Given {
        self.used.store(true, Ordering::Relaxed);
        &self.pair.value
    }
}

/// A question's key, or its message if it has no key.
pub(crate) fn name_of(question: &AskedQuestion) -> String {
    let name = if question.is_pushed() { question.message() } else { question.name() };
    format!("\"{}\"", clean::short(name, 80))
}

fn defaults(question: &AskedQuestion) -> JsonObject {
    let default = |field: &Field| Some((field.name.clone(), field.default.clone()?));
    question.fields().iter().filter_map(default).collect()
}

/// The answer from an entry for the whole question, and from entries for its fields.
fn whole(question: &AskedQuestion, given: &Given, fields: &[(&Field, &Given)]) -> Result<UserAnswer, String> {
    match (given, question.kind()) {
        (Given::Text(word), QuestionKind::Form | QuestionKind::Url) if word == "decline" => Ok(UserAnswer::Decline),
        (Given::Text(word), QuestionKind::Form | QuestionKind::Url) if word == "cancel" => Ok(UserAnswer::Cancel),
        (Given::Text(word), QuestionKind::Form) if word == "accept" => filled(defaults(question), fields),
        (Given::Text(word), QuestionKind::Url) if word == "accept" => Ok(UserAnswer::Visit),
        (Given::Json(Value::Bool(true)), QuestionKind::Url) => Ok(UserAnswer::Visit),
        (_, QuestionKind::Url) => Err("a page takes accept, decline or cancel".to_owned()),
        (Given::Json(Value::Object(content)), QuestionKind::Form) => {
            for name in content.keys() {
                known(question, name)?;
            }
            filled(content.clone(), fields)
        }
        (given, QuestionKind::Form) => match question.fields() {
            [only] => filled(JsonObject::new(), &[(only, given)]),
            _ => Err("a form takes its fields, accept, decline or cancel".to_owned()),
        },
        (Given::Json(json), QuestionKind::Sample) => read::<Box<CreateMessageResult>>(json).map(UserAnswer::Sample),
        (Given::Json(json), QuestionKind::Roots) => read::<ListRootsResult>(json).map(UserAnswer::Roots),
        _ => Err("it takes a result as JSON: KEY:=JSON".to_owned()),
    }
}

/// The form with these fields added, each parsed according to its kind.
fn filled(mut content: JsonObject, fields: &[(&Field, &Given)]) -> Result<UserAnswer, String> {
    for (field, given) in fields {
        let value = match given {
            Given::Text(text) => field.parse(text),
            Given::Json(json) => field.check(json),
        };
        content.insert(field.name.clone(), value.map_err(|problem| problem.to_string())?);
    }
    Ok(UserAnswer::Form(content))
}

/// The field of this name, or an error: an unknown field must not be dropped silently.
fn known<'a>(question: &'a AskedQuestion, name: &str) -> Result<&'a Field, String> {
    question.field(name).ok_or_else(|| {
        let fields: Vec<_> = question.fields().iter().map(|field| field.name.as_str()).collect();
        let fields = if fields.is_empty() { "none".to_owned() } else { fields.join(", ") };
        format!("it has no field `{name}`; its fields: {fields}")
    })
}

fn read<T: DeserializeOwned>(json: &Value) -> Result<T, String> {
    serde_json::from_value(json.clone()).map_err(|error| error.to_string())
}

/// The options that would answer a question, one line per field. They contain the server's text, for the user to paste.
pub(crate) fn ways_to_answer(question: &AskedQuestion) -> Vec<String> {
    let key = if question.is_pushed() { "*".to_owned() } else { question.name().to_owned() };
    let way = |field: &Field| {
        let name = if question.is_pushed() { field.name.clone() } else { format!("{key}.{}", field.name) };
        let value = match &field.kind {
            FieldKind::Choice { choices } | FieldKind::Choices { choices, .. } => {
                let values: Vec<_> = choices.iter().map(|choice| choice.value.as_str()).collect();
                format!("={}", clean::short(&values.join("|"), 60))
            }
            FieldKind::Boolean => "=yes|no".to_owned(),
            FieldKind::Unknown { .. } => ":=JSON".to_owned(),
            _ => "=VALUE".to_owned(),
        };
        let optional = if field.required { "" } else { "  (optional)" };
        format!("{}{optional}", way_to_answer(&name, &value))
    };
    let mut ways: Vec<_> = question.fields().iter().map(way).collect();
    if ways.is_empty() {
        ways.push(match question.kind() {
            QuestionKind::Form | QuestionKind::Url => way_to_answer(&key, "=accept|decline|cancel"),
            _ => way_to_answer(&key, ":=JSON"),
        });
    }
    ways
}

fn way_to_answer(name: &str, value: &str) -> String {
    if name.contains('=') {
        return format!("--answers FILE, for {:?}: its name has a = in it", clean::short(name, 80));
    }
    let pair = clean::line(&format!("{name}{value}"));
    // Only a NUL cannot be quoted, and `clean::line` has escaped it.
    shlex::try_quote(&pair).map_or_else(|_| "--answers FILE".to_owned(), |pair| format!("--answer {pair}"))
}
