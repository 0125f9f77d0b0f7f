//! Text from clients, tools and people, and JSON, as pages show them.

use std::fmt::Write as _;

use maud::{Markup, Render, html};
use rounds::client::is_harmless;
use serde_json::Value;

/// How many characters of a value a page shows.
const SHOWN: usize = 64 << 10;

/// A text that was not written by us. Characters that a page would not show as what they are, such as those that turn
/// text around, are written as their escapes; markup is escaped as all text is.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl Render for Text<'_> {
    fn render_to(&self, to: &mut String) {
        visible(self.0).render_to(to);
    }
}

/// The text with every deceptive character escaped. Line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars().take(SHOWN) {
        match c {
            '\n' | '\t' => shown.push(c),
            c if is_harmless(c) => shown.push(c),
            c => {
                // Writing to a string cannot fail.
                let _ = write!(shown, "{}", c.escape_unicode());
            }
        }
    }
    if text.chars().nth(SHOWN).is_some() {
        let _ = write!(shown, "… ({} bytes in all)", text.len());
    }
    shown
}

/// The beginning of a text, on one line.
pub(crate) fn line(text: &str, characters: usize) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(characters) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// A JSON value, indented. A region of its own, because it may have to be scrolled.
pub(crate) fn json(label: &str, value: &Value) -> Markup {
    // A value that was read from JSON can be written as JSON.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    code(label, &text)
}

/// A preformatted text with a name. It can be scrolled with the keyboard.
pub(crate) fn code(label: &str, text: &str) -> Markup {
    html! { pre tabindex="0" role="group" aria-label=(label) { code { (Text(text)) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_deceptive_characters_are_escaped() {
        let shown = html! { (Text("<b>\u{202e}a\u{0}\nb</b>")) }.into_string();
        assert_eq!(shown, "&lt;b&gt;\\u{202e}a\\u{0}\nb&lt;/b&gt;");
    }

    #[test]
    fn long_texts_are_cut() {
        let shown = visible(&"ö".repeat(SHOWN + 1));
        assert!(shown.ends_with(&format!("… ({} bytes in all)", 2 * (SHOWN + 1))));
        assert_eq!(line("a\n b  c", 3), "a b…");
    }
}
