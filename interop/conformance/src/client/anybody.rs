//! A user who answers every question with a value that fits.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use rmcp::model::{CreateMessageResult, JsonObject, ListRootsResult, SamplingMessage};
use rounds::{
    client::{AskedQuestion, BoxError, Field, FieldKind, Responder, UserAnswer},
    observe::QuestionKind,
    time::BoxFuture,
};
use serde_json::{Value, json};

/// Fills in every field without a default, accepts every page, and answers for a model too.
pub(crate) struct Anybody;

impl Responder for Anybody {
    fn answer(&self, question: AskedQuestion) -> BoxFuture<'_, Result<UserAnswer, BoxError>> {
        Box::pin(async move {
            Ok(match question.kind() {
                QuestionKind::Form => UserAnswer::Form(fill_in(&question)),
                QuestionKind::Url => UserAnswer::Visit,
                QuestionKind::Sample => {
                    let said = SamplingMessage::assistant_text("Whatever fits.");
                    UserAnswer::Sample(Box::new(CreateMessageResult::new(said, "no-model".to_owned())))
                }
                QuestionKind::Roots => UserAnswer::Roots(ListRootsResult::new(Vec::new())),
                other => return Err(format!("unknown kind of question: {other:?}").into()),
            })
        })
    }

    fn can(&self, _kind: QuestionKind) -> bool {
        true
    }
}

/// A form with a value for every field.
pub(crate) fn fill_in(question: &AskedQuestion) -> JsonObject {
    question.fields().iter().map(|field| (field.name.clone(), value(field))).collect()
}

fn value(field: &Field) -> Value {
    if let Some(default) = &field.default {
        return default.clone();
    }
    match &field.kind {
        FieldKind::Number { minimum, .. } | FieldKind::Integer { minimum, .. } => json!(minimum.unwrap_or(1.0) as i64),
        FieldKind::Boolean => json!(true),
        FieldKind::Choice { choices } => json!(choices.first().map(|choice| &choice.value)),
        FieldKind::Choices { choices, .. } => json!([choices.first().map(|choice| &choice.value)]),
        _ => json!("text"),
    }
}
