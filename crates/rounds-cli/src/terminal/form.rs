//! Forms: filled in field by field, reviewed, and only then sent.

use rmcp::model::JsonObject;
use rounds::client::{AskedQuestion, Field, FieldKind, UserAnswer};
use unicode_width::UnicodeWidthStr;

use super::{Command, Left, Terminal, Typed, clean, field, is_start_of, time_left};

/// How many characters of a schema are shown.
const LONGEST_SCHEMA: usize = 400;

/// Outcome of the prompt for a field.
enum Filled {
    Next,
    Back,
    Over(UserAnswer),
}

impl Terminal {
    /// Prompts for a form's fields, and lets the user review them.
    pub(super) async fn fill_in(&self, question: &AskedQuestion) -> Result<UserAnswer, Left> {
        let mut content = question.prefilled();
        if !question.fields().is_empty() {
            self.say(&self.paint.dim(
                "Enter takes the value in [brackets]; :decline, :cancel and :help work at any \
                                      time.",
            ));
        }
        loop {
            if let Some(over) = self.fill_fields(question, &mut content).await? {
                return Ok(over);
            }
            let form = match question.check(UserAnswer::Form(content.clone())) {
                Ok(form) => form,
                Err(wrong) => {
                    self.wrong(&wrong.to_string());
                    continue;
                }
            };
            if let Some(answer) = self.review(question, &content, form).await? {
                return Ok(answer);
            }
        }
    }

    /// Prompts for the fields in order, until all are done or the user declines or cancels.
    async fn fill_fields(
        &self,
        question: &AskedQuestion,
        content: &mut JsonObject,
    ) -> Result<Option<UserAnswer>, Left> {
        let mut at = 0;
        while let Some(field) = question.fields().get(at) {
            match self.fill_field(field, content).await? {
                Filled::Next => at += 1,
                Filled::Back => at = at.saturating_sub(1),
                Filled::Over(answer) => return Ok(Some(answer)),
            }
        }
        Ok(None)
    }

    async fn fill_field(&self, field: &Field, content: &mut JsonObject) -> Result<Filled, Left> {
        self.show_field(field);
        let held = content.get(&field.name).map(|value| field::show(field, value));
        let prompt = match &held {
            Some(held) => format!("  {} >", self.paint.bold(&format!("[{held}]"))),
            None => "  >".to_owned(),
        };
        loop {
            let text = match self.prompt(&prompt).await? {
                Typed::Command(Command::Decline) => return Ok(Filled::Over(UserAnswer::Decline)),
                Typed::Command(Command::Cancel) => return Ok(Filled::Over(UserAnswer::Cancel)),
                Typed::Command(Command::Back) => return Ok(Filled::Back),
                Typed::Command(Command::Skip) if field.required => {
                    self.wrong("it is required and cannot be left out; answer it, or type :decline or :cancel");
                    continue;
                }
                Typed::Command(_) => {
                    content.remove(&field.name);
                    return Ok(Filled::Next);
                }
                Typed::Text(text) => text,
            };
            if text.trim().is_empty() {
                if held.is_some() || !field.required {
                    return Ok(Filled::Next);
                }
                // For several choices, an empty selection can be valid. For any other required field, an empty line is
                // not an answer.
                if !matches!(field.kind, FieldKind::Choices { .. }) {
                    self.wrong("it is required; answer it, or type :decline or :cancel");
                    continue;
                }
            }
            match field::read(field, &text) {
                Ok(value) => {
                    content.insert(field.name.clone(), value);
                    return Ok(Filled::Next);
                }
                Err(problem) => self.wrong(&field::tell(field, &problem)),
            }
        }
    }

    fn show_field(&self, field: &Field) {
        let what = field::describe(field);
        let what = if field.required { what } else { format!("{what}, optional") };
        self.say("");
        self.say(&format!(
            "  {} {}",
            self.paint.bold(&clean::line(&field.label)),
            self.paint.dim(&format!("({what})"))
        ));
        if let Some(description) = &field.description {
            self.note(description);
        }
        if let FieldKind::Unknown { schema } = &field.kind {
            self.note(&clean::short(&format!("as in the schema {schema}"), LONGEST_SCHEMA));
        }
        for (at, choice) in field::choices(field).iter().enumerate() {
            self.say(&format!("    {:>2}  {}", at + 1, clean::line(&choice.title)));
        }
    }

    /// Shows what would be sent. Returns `None` if the user wants to edit it.
    async fn review(
        &self,
        question: &AskedQuestion,
        content: &JsonObject,
        form: UserAnswer,
    ) -> Result<Option<UserAnswer>, Left> {
        let fields = question.fields();
        self.say("");
        if !fields.is_empty() {
            self.say(&format!("Your answer{}:", time_left(question)));
        }
        let labels: Vec<_> = fields.iter().map(|field| clean::line(&field.label)).collect();
        let width = labels.iter().map(|label| label.width()).max().unwrap_or_default();
        for (field, label) in fields.iter().zip(&labels) {
            let value = content.get(&field.name).map(|value| field::show(field, value));
            let value = value.unwrap_or_else(|| self.paint.dim("(left out)"));
            self.say(&format!("  {label}{}  {value}", " ".repeat(width - label.width())));
        }
        // A question without fields asks for consent, which must not be given by pressing Enter once too often.
        let sends = if fields.is_empty() { "Agree? yes," } else { "Send it? [yes], edit," };
        loop {
            let text = match self.prompt(&format!("{sends} decline or cancel >")).await? {
                Typed::Command(Command::Decline) => return Ok(Some(UserAnswer::Decline)),
                Typed::Command(Command::Cancel) => return Ok(Some(UserAnswer::Cancel)),
                Typed::Command(_) => return Ok(None),
                Typed::Text(text) => text,
            };
            match text.trim() {
                "" if !fields.is_empty() => return Ok(Some(form)),
                text if is_start_of(text, "yes") => return Ok(Some(form)),
                text if is_start_of(text, "edit") && !fields.is_empty() => return Ok(None),
                text if is_start_of(text, "decline") => return Ok(Some(UserAnswer::Decline)),
                text if is_start_of(text, "cancel") => return Ok(Some(UserAnswer::Cancel)),
                _ => self.wrong("type one of these words, or its first letter"),
            }
        }
    }
}
