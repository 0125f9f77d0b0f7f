//! Untrusted text made safe for a terminal: it cannot move the cursor, reverse text or hide characters.

use rounds::client::is_harmless;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text on one line.
pub(crate) fn line(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => cleaned.push(' '),
            c if is_harmless(c) => cleaned.push(c),
            c => cleaned.extend(c.escape_unicode()),
        }
    }
    cleaned
}

/// The text with its lines kept.
pub(crate) fn lines(text: &str) -> String {
    let lines = text.split('\n').map(|one| line(one.strip_suffix('\r').unwrap_or(one)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Lines of at most this many columns, broken between words if possible.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut wrapped = Vec::new();
    for one in lines(text).split('\n') {
        let (mut line, mut taken) = (String::new(), 0);
        for word in one.split_inclusive(' ') {
            if taken + word.trim_end().width() > columns && !line.is_empty() {
                wrapped.push(std::mem::take(&mut line).trim_end().to_owned());
                taken = 0;
            }
            for c in word.chars() {
                let width = c.width().unwrap_or(0);
                if taken + width > columns && c != ' ' {
                    wrapped.push(std::mem::take(&mut line));
                    taken = 0;
                }
                line.push(c);
                taken += width;
            }
        }
        wrapped.push(line.trim_end().to_owned());
    }
    wrapped
}

/// At most this many characters, on one line.
pub(crate) fn short(text: &str, most: usize) -> String {
    let text = line(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        assert_eq!(line("\x1b[2Jgone\x07"), r"\u{1b}[2Jgone\u{7}");
        assert_eq!(line("\u{9b}31m\x7f\r"), r"\u{9b}31m\u{7f}\u{d}");
        assert_eq!(line("two\nlines\tand a tab"), "two lines and a tab");
        assert_eq!(lines("two\r\nlines\x08"), "two\nlines\\u{8}");
    }

    #[test]
    fn nothing_is_turned_around_or_hidden() {
        assert_eq!(line("https://\u{202e}moc.live"), r"https://\u{202e}moc.live");
        assert_eq!(line("pay\u{200b}pal \u{e0041}"), r"pay\u{200b}pal \u{e0041}");
        assert_eq!(line("Zürich 東京 👩‍🚀"), "Zürich 東京 👩‍🚀");
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_anywhere() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("a\n\nb", 8), ["a", "", "b"]);
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("東京東京", 5), ["東京", "東京"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    /// A loop that measures the whole line for each mark would take hours.
    #[test]
    fn a_text_of_a_million_marks_without_a_width_is_broken_all_the_same() {
        assert_eq!(wrapped(&("e".to_owned() + &"\u{301}".repeat(1_000_000) + " end"), 3).len(), 2);
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(short("abcdef", 3), "abc…");
        assert_eq!(short("abc", 3), "abc");
    }
}
