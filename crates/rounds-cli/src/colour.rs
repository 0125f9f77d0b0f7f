//! Colour, for terminals on which the user has not disabled it.

use std::{env, io::IsTerminal};

/// Whether output to this stream is coloured. As on <https://no-color.org>, an empty NO_COLOR counts as unset.
pub(crate) fn is_wanted(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours text, or leaves it unchanged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    coloured: bool,
}

impl Paint {
    pub(crate) fn on(stream: &impl IsTerminal) -> Self {
        Self { coloured: is_wanted(stream) }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
