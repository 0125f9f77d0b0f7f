//! The gate in front of tools that change something: the user confirms a call before its handler runs.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use rmcp::model::{InputRequests, JsonObject, Tool};
use serde_json::Value;

use super::{
    engine::{admission::Admit, frame::Declared, view::View},
    policy::error::FlowError,
    shape::{DeclaredQuestion, SettledQuestion},
};
use crate::shared::escape::Escaped;

/// Which tools need the user's confirmation before they run, and how it is asked for. Set it with
/// [`RoundsBuilder::confirm`](crate::RoundsBuilder::confirm).
///
/// The server need not contain a question: the tools run as they are, once the user has said yes.
///
/// ```
/// use rounds::{Rounds, confirm::Confirm};
/// # struct Files;
/// # impl rmcp::ServerHandler for Files {}
///
/// let server = Rounds::builder(Files).confirm(Confirm::destructive()).build()?;
/// # Ok::<(), rounds::BuildError>(())
/// ```
///
/// # What the user sees
///
/// A form with one yes-or-no field, under the key `confirm_call`. The message has the tool's title and the arguments of
/// the call: `Run "Delete a branch"? repo: "shop", force: true`. Characters that could deceive are escaped, and long
/// values are cut. [`message`](Self::message) sets another. The arguments are bound by the seal: a call with other
/// arguments than those that were shown is refused.
///
/// # What comes of it
///
/// With a yes, the tool runs. A no, a decline and a dismissal end the call with a tool error, and the tool does not run.
/// A client that cannot be asked is refused, unless [`run_unasked`](Self::run_unasked) says otherwise. A confirmation
/// counts as one of the [rounds](crate::Limits::rounds) of a call. It works in front of handlers of every shape, for
/// clients of both eras.
///
/// The annotations are read from [`get_tool`](rmcp::ServerHandler::get_tool) or, if the server does not have it, from
/// its list of tools. The tool's handler must not ask under the key `confirm_call` itself.
#[derive(Clone)]
pub struct Confirm {
    applies: Arc<AppliesTo>,
    message: Option<Arc<Wording>>,
    runs_unasked: bool,
}

type AppliesTo = dyn Fn(&Tool, &JsonObject) -> bool + Send + Sync;
type Wording = dyn Fn(&Tool, &JsonObject) -> String + Send + Sync;

/// The key of the question, and the name of its field.
const KEY: &str = "confirm_call";

/// How many arguments are shown, and how many characters of each, of a message and of a title.
const ARGUMENTS: usize = 20;
const VALUE_CHARS: usize = 200;
const MESSAGE_CHARS: usize = 4000;

impl Confirm {
    /// Confirms tools that are explicitly annotated as destructive: `destructiveHint: true`.
    pub fn destructive() -> Self {
        let hint = |tool: &Tool| tool.annotations.as_ref()?.destructive_hint;
        Self::when(move |tool, _| hint(tool) == Some(true))
    }

    /// Confirms every tool that is not annotated as read-only: `readOnlyHint: true`. A tool without annotations is
    /// confirmed.
    pub fn unless_read_only() -> Self {
        let hint = |tool: &Tool| tool.annotations.as_ref()?.read_only_hint;
        Self::when(move |tool, _| hint(tool) != Some(true))
    }

    /// Confirms the calls for which this is true. It runs on every leg, so it must give the same for the same call.
    pub fn when(applies: impl Fn(&Tool, &JsonObject) -> bool + Send + Sync + 'static) -> Self {
        Self { applies: Arc::new(applies), message: None, runs_unasked: false }
    }

    /// Sets the message of the question. It has to be the same for the same call: a user who has confirmed another
    /// message is asked again.
    pub fn message(mut self, message: impl Fn(&Tool, &JsonObject) -> String + Send + Sync + 'static) -> Self {
        self.message = Some(Arc::new(message));
        self
    }

    /// Runs the tool without a confirmation if the client cannot be asked. By default, the call is refused.
    pub fn run_unasked(mut self) -> Self {
        self.runs_unasked = true;
        self
    }

    fn question(&self, tool: &Tool, arguments: &JsonObject) -> String {
        match &self.message {
            Some(message) => harmless(&message(tool, arguments), MESSAGE_CHARS),
            None => describe(tool, arguments),
        }
    }
}

impl Admit for Confirm {
    fn admit(&self, view: &View, tool: &Tool, arguments: Option<&JsonObject>) -> Result<(), Declared> {
        let arguments = arguments.map_or_else(|| Cow::Owned(JsonObject::new()), Cow::Borrowed);
        if !(self.applies)(tool, &arguments) {
            return Ok(());
        }
        let message = self.question(tool, &arguments);
        let question = DeclaredQuestion::<bool>::form(message.clone()).key(KEY);
        let question = if self.runs_unasked { question.or(true) } else { question };
        match question.settle(view, true) {
            Ok(SettledQuestion::Value(true)) => Ok(()),
            Ok(SettledQuestion::Value(false)) => Err(Declared::Failed(FlowError::Declined { question: message })),
            Ok(SettledQuestion::Asks(key, request)) => {
                Err(Declared::Asks(InputRequests::from([(key, *request)]), None))
            }
            Err(error) => Err(Declared::Failed(error)),
        }
    }
}

/// The question for a call, from its tool's title and its arguments.
fn describe(tool: &Tool, arguments: &JsonObject) -> String {
    let annotated = tool.annotations.as_ref().and_then(|annotations| annotations.title.as_deref());
    let title = tool.title.as_deref().or(annotated).unwrap_or(&tool.name);
    let mut message = format!("Run \"{}\"?", harmless(title, VALUE_CHARS));
    for (place, (name, value)) in arguments.iter().take(ARGUMENTS).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Never fails: it is a `String`.
        let _ = write!(message, "{comma} {}: {}", label(name), harmless(&value.to_string(), VALUE_CHARS));
    }
    if let Some(more) = arguments.len().checked_sub(ARGUMENTS).filter(|more| *more > 0) {
        let _ = write!(message, ", and {more} more arguments");
    }
    message
}

/// The name of an argument. The caller chose it, so one that is not plain is quoted.
fn label(name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_plain { cut(name, VALUE_CHARS) } else { harmless(&Value::from(name).to_string(), VALUE_CHARS) }
}

/// A text in which no character can deceive, and not longer than this.
fn harmless(text: &str, chars: usize) -> String {
    Escaped(&cut(text, chars)).to_string()
}

/// The beginning of a text, with the number of characters that are missing.
fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}… ({} more characters)", &text[..end], text[end..].chars().count()),
        None => text.to_owned(),
    }
}

impl std::fmt::Debug for Confirm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Confirm").field("runs_unasked", &self.runs_unasked).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rmcp::{model::ToolAnnotations, object};

    use super::*;

    #[test]
    fn a_message_shows_the_title_and_the_arguments() {
        let tool = Tool::new("delete", "", JsonObject::new());
        assert_eq!(describe(&tool, &JsonObject::new()), "Run \"delete\"?");
        let tool = tool.annotate(ToolAnnotations::with_title("Delete a branch"));
        let arguments = object!({ "force": true, "repo": "shop" });
        assert_eq!(describe(&tool, &arguments), "Run \"Delete a branch\"? force: true, repo: \"shop\"");
    }

    #[test]
    fn no_character_of_an_argument_can_deceive() {
        let tool = Tool::new("delete", "", JsonObject::new());
        let arguments = object!({ "path": "a\u{202e}b\n\u{1b}[2J", "x\", safe: \"": "\", safe: true" });
        let shown = describe(&tool, &arguments);
        assert!(shown.chars().all(crate::shared::escape::is_harmless), "{shown}");
        assert!(shown.contains(r"a\u{202e}b"), "{shown}");
        assert!(shown.contains(r#""x\", safe: \"": "\", safe: true""#), "{shown}");
    }

    #[test]
    fn a_message_is_bounded() {
        let tool = Tool::new("delete", "", JsonObject::new());
        let arguments = (0..1000).map(|n| (format!("a{n:03}"), Value::from("x".repeat(10_000)))).collect();
        let shown = describe(&tool, &arguments);
        assert!(shown.len() < 6000, "{}", shown.len());
        assert!(shown.ends_with(", and 980 more arguments"), "{shown}");
        assert!(shown.contains("… (9802 more characters)"), "{shown}");
    }
}
