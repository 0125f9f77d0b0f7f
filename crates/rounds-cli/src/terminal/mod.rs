//! Prompts at a terminal. All output goes to stderr, because stdout is for results. Text of a server is cleaned first,
//! and its question is shown behind a bar that no other text has.

pub(crate) mod clean;
mod field;
mod form;
mod lines;
mod page;
mod spinner;

use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    sync::atomic::{AtomicUsize, Ordering},
};

use rounds::{
    client::{AskedQuestion, UserAnswer},
    observe::QuestionKind,
};

use self::lines::Lines;
pub(crate) use self::{
    field::describe,
    spinner::{Spinner, Told},
};
use crate::{colour::Paint, duration};

/// Maximum width of text: longer lines are hard to read.
const WIDEST: usize = 100;

/// Whether a person can be asked: both stdin and stderr are terminals.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// A person at stdin and stderr.
#[derive(Debug)]
pub(crate) struct Terminal {
    paint: Paint,
    lines: Lines,
    /// Number of questions in this round, and how many of them were shown.
    questions: AtomicUsize,
    shown: AtomicUsize,
}

/// Reason why a person has not answered. No answer was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Left {
    #[error("the input ended before an answer, so nothing was sent")]
    End,
    #[error("cannot read what is typed")]
    Io(#[from] io::Error),
    #[error("it asks for something that cannot be typed at a terminal")]
    NotTypable,
}

/// What the user typed at a prompt.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    Text(String),
    Command(Command),
}

/// Commands that work at every prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Decline,
    Cancel,
    Back,
    Skip,
    Help,
}

const COMMANDS: [(&str, Command, &str); 5] = [
    (":decline", Command::Decline, "say no: the server is told that you declined"),
    (":cancel", Command::Cancel, "dismiss the question: the server is told that you neither agreed nor declined"),
    (":back", Command::Back, "return to the previous field"),
    (":skip", Command::Skip, "leave an optional field out"),
    (":help", Command::Help, "show this; to type a text that begins with a colon, type two colons"),
];

impl Terminal {
    pub(crate) fn new() -> Self {
        let (questions, shown) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { paint: Paint::on(&io::stderr()), lines: Lines::new(), questions, shown }
    }

    /// Sets the number of questions in the round that begins.
    pub(crate) fn expect(&self, questions: usize) {
        self.questions.store(questions, Ordering::Relaxed);
        self.shown.store(0, Ordering::Relaxed);
    }

    /// Shows a question, and returns the user's answer. It has been checked.
    pub(crate) async fn ask(&self, question: &AskedQuestion) -> Result<UserAnswer, Left> {
        self.lines.forget().await;
        self.show_who_asks(question);
        match question.kind() {
            QuestionKind::Form => self.fill_in(question).await,
            QuestionKind::Url => self.visit(question).await,
            _ => Err(Left::NotTypable),
        }
    }

    /// Asks a yes-or-no question of this program. `by_enter` is the answer for Enter.
    pub(crate) async fn agrees(&self, ours: &str, by_enter: bool) -> Result<bool, Left> {
        self.lines.forget().await;
        let answers = if by_enter { "[yes] or no" } else { "yes or [no]" };
        loop {
            let Typed::Text(text) = self.prompt(&format!("{ours} {answers} >")).await? else { continue };
            match text.trim() {
                "" => return Ok(by_enter),
                text if is_start_of(text, "yes") => return Ok(true),
                text if is_start_of(text, "no") => return Ok(false),
                _ => self.wrong("say yes or no"),
            }
        }
    }

    fn show_who_asks(&self, question: &AskedQuestion) {
        let origin = clean::line(&question.origin().to_string());
        let (shown, all) = (self.shown.fetch_add(1, Ordering::Relaxed) + 1, self.questions.load(Ordering::Relaxed));
        let which = if all > 1 && shown <= all { format!(", {shown} of {all}") } else { String::new() };
        self.say("");
        self.say(&format!("{} asks{which}{}:", self.paint.bold(&origin), time_left(question)));
        self.quote(question.message());
    }

    /// Shows the server's question, behind a bar.
    fn quote(&self, theirs: &str) {
        for line in clean::wrapped(theirs, columns() - 2) {
            let line = format!("{} {}", self.paint.green("│"), self.paint.bold(&line));
            self.say(line.trim_end());
        }
    }

    /// Shows the server's text about a field, indented and dimmed.
    fn note(&self, theirs: &str) {
        for line in clean::wrapped(theirs, columns() - 4) {
            self.say(&format!("    {}", self.paint.dim(&line)));
        }
    }

    fn say(&self, ours: &str) {
        // If stderr is closed, the message is lost.
        let _ = writeln!(io::stderr(), "{ours}");
    }

    fn wrong(&self, why: &str) {
        self.say(&self.paint.red(&format!("  ! {}", clean::line(why))));
    }

    async fn prompt(&self, prompt: &str) -> Result<Typed, Left> {
        loop {
            let _ = write!(io::stderr(), "{prompt} ");
            let mut prompted = Prompted { answered: false };
            let line = match self.lines.next().await {
                Err(error) if error.kind() == ErrorKind::InvalidData => String::from('\0'),
                line => line?.ok_or(Left::End)?,
            };
            prompted.answered = true;
            if line.contains(|c: char| c.is_control() && c != '\t') {
                self.wrong("the line contains keys that are not text, such as arrow keys; type it again");
                continue;
            }
            match Typed::of(&line) {
                Some(Typed::Command(Command::Help)) => self.help(),
                Some(typed) => return Ok(typed),
                None => self.wrong(&format!("{line} is not a command; :help lists them")),
            }
        }
    }

    fn help(&self) {
        for (name, _, what) in COMMANDS {
            self.say(&format!("  {name:<9} {}", self.paint.dim(what)));
        }
        self.say(&format!(
            "  {:<9} {}",
            "Ctrl-C",
            self.paint.dim("stop; the server is told nothing about the question")
        ));
    }
}

/// A prompt. If it is not answered, because the input ended, the server withdrew its question or the user stopped, the
/// next output begins on a new line.
struct Prompted {
    answered: bool,
}

impl Drop for Prompted {
    fn drop(&mut self) {
        if !self.answered {
            let _ = writeln!(io::stderr());
        }
    }
}

impl Typed {
    /// Parses a line; `None` if it is an unknown command.
    fn of(line: &str) -> Option<Self> {
        let Some(command) = line.strip_prefix(':') else { return Some(Self::Text(line.to_owned())) };
        if command.starts_with(':') {
            return Some(Self::Text(command.to_owned()));
        }
        let meant = |(name, _, _): &&(&str, Command, &str)| is_start_of(line.trim_end(), name);
        let command = COMMANDS.iter().find(meant).filter(|_| !command.trim().is_empty())?;
        Some(Self::Command(command.1))
    }
}

/// Whether the text is the beginning of this word.
fn is_start_of(text: &str, word: &str) -> bool {
    !text.is_empty() && word.starts_with(&text.to_lowercase())
}

/// The time that is left to answer, to append to a message.
fn time_left(question: &AskedQuestion) -> String {
    match question.expires_in() {
        None => String::new(),
        Some(left) if left.is_zero() => " (its time has expired)".to_owned(),
        Some(left) => format!(" ({} left)", duration::rough(left)),
    }
}

/// Width of text in columns.
pub(crate) fn columns() -> usize {
    width().filter(|columns| *columns > 0).unwrap_or(80).clamp(20, WIDEST)
}

#[cfg(unix)]
fn width() -> Option<usize> {
    rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn width() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_begins_a_command_and_two_begin_a_text() {
        assert_eq!(Typed::of(":decline"), Some(Typed::Command(Command::Decline)));
        assert_eq!(Typed::of(":D"), Some(Typed::Command(Command::Decline)));
        assert_eq!(Typed::of(":c "), Some(Typed::Command(Command::Cancel)));
        assert_eq!(Typed::of("::c"), Some(Typed::Text(":c".to_owned())));
        assert_eq!(Typed::of(" :c"), Some(Typed::Text(" :c".to_owned())));
        assert_eq!((Typed::of(":"), Typed::of(":dance")), (None, None));
    }
}
