//! Forms: filled in field by field, reviewed, and only then sent.

use rmcp::model::JsonObject;
use rounds::client::{AskedQuestion, Field, FieldKind, UserAnswer};
use unicode_width::UnicodeWidthStr;

use super::{Command, Left, Terminal, Typed, clean, field, is_start_of, time_left};

/// How many characters of a schema are shown.
const LONGEST_SCHEMA: usize = 400;

/// Message for a word that was not offered.
pub(super) const ONE_OF_THESE: &str = "type one of these words, or its first letter";

/// The fields that are prompted for.
#[derive(Clone, Copy)]
enum Edited {
    All,
    One(usize),
}

/// Outcome of the review.
enum Reviewed {
    Over(UserAnswer),
    Edit(Edited),
}

/// Outcome of the prompt for a field.
enum Filled {
    Next,
    Back,
    Over(UserAnswer),
}

impl Terminal {
    /// Prompts for a form's fields, and lets the user review them.
    pub(super) async fn fill_in(&self, question: &AskedQuestion) -> Result<UserAnswer, Left> {
        if let [only] = question.fields()
            && matches!(only.kind, FieldKind::Boolean)
        {
            return self.yes_or_no(question, only).await;
        }
        let mut content = question.prefilled();
        if !question.fields().is_empty() {
            self.say(&self.paint.dim(
                "Enter takes the value in [brackets]; :decline, :cancel and :help work at any \
                                      time.",
            ));
        }
        let mut edited = Edited::All;
        loop {
            if let Some(over) = self.fill_fields(question, &mut content, edited).await? {
                return Ok(over);
            }
            edited = Edited::All;
            let form = match question.check(UserAnswer::Form(content.clone())) {
                Ok(form) => form,
                Err(wrong) => {
                    self.wrong(&wrong.to_string());
                    continue;
                }
            };
            edited = match self.review(question, &content, form).await? {
                Reviewed::Over(answer) => return Ok(answer),
                Reviewed::Edit(edited) => edited,
            };
        }
    }

    /// Prompts once for a question that is one yes or no. The answer is sent without a review, so it takes a word: Enter
    /// is not enough, whatever the server suggests.
    async fn yes_or_no(&self, question: &AskedQuestion, field: &Field) -> Result<UserAnswer, Left> {
        self.show_field(field);
        loop {
            let content = match self.prompt("  yes, no, decline or cancel; it is sent at once >").await? {
                Typed::Command(Command::Decline) => return Ok(UserAnswer::Decline),
                Typed::Command(Command::Cancel) => return Ok(UserAnswer::Cancel),
                Typed::Command(Command::Skip) if !field.required => JsonObject::new(),
                Typed::Command(_) => continue,
                Typed::Text(text) => match text.trim() {
                    text if is_start_of(text, "yes") => said(field, true),
                    text if is_start_of(text, "no") => said(field, false),
                    text if is_start_of(text, "decline") => return Ok(UserAnswer::Decline),
                    text if is_start_of(text, "cancel") => return Ok(UserAnswer::Cancel),
                    _ => {
                        self.wrong(ONE_OF_THESE);
                        continue;
                    }
                },
            };
            match question.check(UserAnswer::Form(content)) {
                Ok(answer) => return Ok(answer),
                Err(wrong) => self.wrong(&wrong.to_string()),
            }
        }
    }

    /// Prompts for the fields in order, or for one of them, until they are done or the user declines or cancels.
    async fn fill_fields(
        &self,
        question: &AskedQuestion,
        content: &mut JsonObject,
        edited: Edited,
    ) -> Result<Option<UserAnswer>, Left> {
        let mut at = 0;
        if let Edited::One(place) = edited {
            let Some(field) = question.fields().get(place) else { return Ok(None) };
            return Ok(match self.fill_field(field, content).await? {
                Filled::Next | Filled::Back => None,
                Filled::Over(answer) => Some(answer),
            });
        }
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

    /// Shows what would be sent, and lets the user send it, refuse, or edit it.
    async fn review(&self, question: &AskedQuestion, content: &JsonObject, form: UserAnswer) -> Result<Reviewed, Left> {
        let fields = question.fields();
        self.show_answer(question, content);
        // A question without fields asks for consent, which must not be given by pressing Enter once too often.
        let sends = if fields.is_empty() { "Agree? yes," } else { "Send it? [yes], edit," };
        loop {
            let text = match self.prompt(&format!("{sends} decline or cancel >")).await? {
                Typed::Command(Command::Decline) => return Ok(Reviewed::Over(UserAnswer::Decline)),
                Typed::Command(Command::Cancel) => return Ok(Reviewed::Over(UserAnswer::Cancel)),
                Typed::Command(_) => return Ok(Reviewed::Edit(Edited::All)),
                Typed::Text(text) => text,
            };
            let (word, which) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
            if is_start_of(word, "edit") && !fields.is_empty() {
                if let Some(edited) = self.edited(fields, which.trim()).await? {
                    return Ok(Reviewed::Edit(edited));
                }
                continue;
            }
            match text.trim() {
                "" if !fields.is_empty() => return Ok(Reviewed::Over(form)),
                text if is_start_of(text, "yes") => return Ok(Reviewed::Over(form)),
                text if is_start_of(text, "decline") => return Ok(Reviewed::Over(UserAnswer::Decline)),
                text if is_start_of(text, "cancel") => return Ok(Reviewed::Over(UserAnswer::Cancel)),
                _ => self.wrong(ONE_OF_THESE),
            }
        }
    }

    /// Shows the answer field by field. Several fields are numbered, so that one of them can be edited.
    fn show_answer(&self, question: &AskedQuestion, content: &JsonObject) {
        let fields = question.fields();
        self.say("");
        if !fields.is_empty() {
            self.say(&format!("Your answer{}:", time_left(question)));
        }
        let labels: Vec<_> = fields.iter().map(|field| clean::line(&field.label)).collect();
        let width = labels.iter().map(|label| label.width()).max().unwrap_or_default();
        for (at, (field, label)) in fields.iter().zip(&labels).enumerate() {
            let value = content.get(&field.name).map(|value| field::show(field, value));
            let value = value.unwrap_or_else(|| self.paint.dim("(left out)"));
            let number = if fields.len() > 1 { format!("  {:>2}", at + 1) } else { String::new() };
            self.say(&format!("{number}  {label}{}  {value}", " ".repeat(width - label.width())));
        }
    }

    /// The fields that the user wants to edit: the one that was named or numbered, the only one, or the one that the user
    /// chooses now. None if there is no such field.
    async fn edited(&self, fields: &[Field], which: &str) -> Result<Option<Edited>, Left> {
        let chosen = match (fields, which) {
            ([_], "") => return Ok(Some(Edited::One(0))),
            (_, "") => {
                let prompt = format!("Which field? 1 to {}, a name, or Enter for [all] >", fields.len());
                match self.prompt(&prompt).await? {
                    Typed::Text(text) => text,
                    Typed::Command(_) => return Ok(None),
                }
            }
            (_, which) => which.to_owned(),
        };
        let chosen = chosen.trim();
        if chosen.is_empty() || chosen.eq_ignore_ascii_case("all") {
            return Ok(Some(Edited::All));
        }
        let place = field::place(fields, chosen);
        if place.is_none() {
            self.wrong(&format!("there is no field {chosen:?}: type its number or its name"));
        }
        Ok(place.map(Edited::One))
    }
}

/// A form whose only field has this value.
fn said(field: &Field, yes: bool) -> JsonObject {
    JsonObject::from_iter([(field.name.clone(), yes.into())])
}
