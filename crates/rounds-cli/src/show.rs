//! Results and questions as they are printed, as text and as JSON.

use std::io::{self, IsTerminal};

use rmcp::model::{ContentBlock, JsonObject, ResourceContents};
use rounds::{
    client::{AskedQuestion, Done, Field, FieldKind, Pending, UserAnswer},
    observe::QuestionKind,
};
use serde_json::{Value, json};

use crate::{
    answers::{name_of, ways_to_answer},
    duration,
    terminal::{clean, describe},
};

/// A result as text. Other content is named.
pub(crate) fn done(done: &Done) -> String {
    let parts: Vec<String> = match done {
        Done::Tool(result) if result.content.is_empty() => {
            result.structured_content.iter().map(|json| format!("{json:#}")).collect()
        }
        Done::Tool(result) => result.content.iter().map(block).collect(),
        Done::Prompt(result) => {
            let said = |message: &rmcp::model::PromptMessage| {
                let role = json!(message.role);
                format!("{}: {}", role.as_str().unwrap_or_default(), block(&message.content))
            };
            result.messages.iter().map(said).collect()
        }
        Done::Resource(result) => result.contents.iter().map(contents).collect(),
        _ => vec![format!("{:#}", done.to_json())],
    };
    let text = parts.join("\n");
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

/// A server's text for stdout: unchanged if stdout is a file, escaped if it is a terminal.
pub(crate) fn for_stdout(text: String) -> String {
    if io::stdout().is_terminal() { clean::lines(&text) } else { text }
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[an image: {}; use --json to get it]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a recording: {}; use --json to get it]", audio.mime_type),
        ContentBlock::Resource(embedded) => contents(&embedded.resource),
        ContentBlock::ResourceLink(link) => format!("[a resource: {}]", link.uri),
        _ => "[other content; use --json to get it]".to_owned(),
    }
}

fn contents(contents: &ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => text.clone(),
        ResourceContents::BlobResourceContents { uri, .. } => format!("[bytes of {uri}; use --json to get them]"),
        _ => "[other content; use --json to get it]".to_owned(),
    }
}

pub(crate) fn done_json(done: &Done) -> Value {
    json!({"status": "done", "isError": done.is_error(), "result": done.to_json()})
}

/// A call that waits for answers, without its state.
pub(crate) fn pending_json(status: &str, pending: &Pending) -> Value {
    let origin = pending.origin();
    let questions = pending.questions().iter().filter(|question| pending.open().contains(&question.key()));
    let mut json = json!({
        "status": status,
        "server": {"name": origin.name, "version": origin.version, "address": origin.address},
        "round": pending.round(),
        "questions": questions.map(question).collect::<Vec<_>>(),
    });
    if let Some(left) = pending.expires_in() {
        json["expiresInSeconds"] = json!(left.as_secs());
    }
    json
}

/// A question as JSON.
pub(crate) fn question(question: &AskedQuestion) -> Value {
    let (kind, more) = match question.kind() {
        QuestionKind::Form => ("form", json!({"fields": question.fields().iter().map(field).collect::<Vec<_>>()})),
        QuestionKind::Url => ("url", json!({"url": question.url()})),
        QuestionKind::Sample => ("sample", json!({"params": question.raw().1})),
        QuestionKind::Roots => ("roots", json!({})),
        _ => ("other", json!({"params": question.raw().1})),
    };
    let mut json = json!({"key": question.key(), "kind": kind, "message": question.message()});
    if let (Value::Object(json), Value::Object(more)) = (&mut json, more) {
        json.extend(more);
    }
    json
}

fn field(field: &Field) -> Value {
    let mut json = json!({
        "name": field.name,
        "label": field.label,
        "takes": describe(field),
        "required": field.required,
        "schema": field.schema(),
    });
    if let FieldKind::Choice { choices } | FieldKind::Choices { choices, .. } = &field.kind {
        let choices = choices.iter().map(|choice| json!({"value": choice.value, "title": choice.title}));
        json["choices"] = choices.collect();
    }
    for (name, value) in [
        ("description", field.description.clone().map(Value::from)),
        ("default", field.default.clone()),
        ("suggested", field.suggested.clone()),
    ] {
        if let Some(value) = value {
            json[name] = value;
        }
    }
    json
}

/// The message about a call that was saved.
pub(crate) fn saved(pending: &Pending, file: &str) -> String {
    let file = clean::line(file);
    let left = pending.expires_in().map(|left| format!(", for {}", duration::rough(left))).unwrap_or_default();
    let mut said = match pending.task_id() {
        Some(id) if pending.questions().is_empty() => {
            format!("rounds: saved to {file}; it goes on at the server, as task {}.\n", clean::short(id, 80))
        }
        _ => format!("rounds: saved to {file}; it waits for answers{left}:\n"),
    };
    for question in pending.questions().iter().filter(|question| pending.open().contains(&question.key())) {
        said.push_str(&format!("  {}: {}\n", name_of(question), clean::short(question.message(), 200)));
        for way in ways_to_answer(question) {
            said.push_str(&format!("    {way}\n"));
        }
    }
    said + &format!("`rounds resume {file}` continues.\n")
}

pub(crate) fn has_answers(pending: &Pending) -> bool {
    pending.open().len() < pending.questions().len()
}

/// The answers of a call that failed, so that they need not be typed again.
pub(crate) fn rescued(pending: &Pending) -> String {
    let form = |question: &AskedQuestion| match pending.answered(question.key())? {
        UserAnswer::Form(content) => Some((question.key().to_owned(), Value::Object(content.clone()))),
        _ => None,
    };
    let forms: JsonObject = pending.questions().iter().filter_map(form).collect();
    match forms.is_empty() {
        true => String::new(),
        false => clean::lines(&format!(
            "rounds: these were your answers; to reuse them, save them to a file and pass it to --answers:\n{}\n",
            Value::Object(forms)
        )),
    }
}
