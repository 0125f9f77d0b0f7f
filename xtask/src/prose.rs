//! The prose of a file, word by word: a Markdown document without its code, and the comments and string literals of Rust source.

use crate::rust::{Kind, tokens};

/// A word in lower case, a punctuation mark, or one of [`BREAK`] and [`CODE`]; with its line, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// Where a paragraph, a heading, an item or a literal begins or ends: no phrase crosses it.
pub(crate) const BREAK: &str = "¶";

/// A code span, whatever its contents.
pub(crate) const CODE: &str = "`";

/// The words of a Markdown document.
pub(crate) fn of_markdown(text: &str) -> Vec<Word> {
    words(&text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect::<Vec<_>>())
}

/// The words of the comments and string literals of Rust source. Comments on consecutive lines are one document.
pub(crate) fn of_rust(source: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut comment: Vec<(usize, &str)> = Vec::new();
    for token in tokens(source) {
        let follows = comment.last().is_none_or(|(line, _)| line + 1 == token.line);
        if !matches!(token.kind, Kind::Comment(_)) || !follows {
            found.extend(words(&std::mem::take(&mut comment)));
        }
        match token.kind {
            Kind::Comment(text) => comment.extend(lines(text, token.line).map(|(at, line)| (at, uncommented(line)))),
            Kind::Text(text) => found.extend(literal(text, token.line)),
            Kind::Word(_) | Kind::Punctuation(_) => {}
        }
    }
    found.extend(words(&comment));
    found
}

fn lines(text: &str, first: usize) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(move |(at, line)| (first + at, line))
}

/// A line of a comment without its markers.
fn uncommented(line: &str) -> &str {
    let line = line.trim().trim_end_matches("*/");
    line.trim_start_matches(['/', '*']).trim_start_matches('!')
}

/// A string literal is one paragraph, except for escaped line breaks.
fn literal(text: &str, first: usize) -> Vec<Word> {
    let joined: Vec<_> = lines(text, first).map(|(at, line)| (at, line.trim().trim_end_matches('\\'))).collect();
    let mut parts = Vec::new();
    for (at, line) in joined {
        for (nth, part) in line.split("\\n").enumerate() {
            // An empty line ends a paragraph.
            parts.extend((nth > 0).then_some((at, "")));
            parts.push((at, part));
        }
    }
    words(&parts)
}

/// The words of Markdown that is given line by line.
fn words(lines: &[(usize, &str)]) -> Vec<Word> {
    let mut found = Vec::new();
    let mut paragraph: Vec<(usize, &str)> = Vec::new();
    let mut fence = None;
    for &(at, line) in lines {
        let mark = fence_of(line);
        if fence.is_some() {
            fence = fence.filter(|_| fence != mark);
            continue;
        }
        fence = mark;
        if mark.is_some() || begins_something(line) {
            found.extend(spans(&std::mem::take(&mut paragraph)));
        }
        if mark.is_none() {
            paragraph.push((at, line));
        }
    }
    found.extend(spans(&paragraph));
    found
}

fn fence_of(line: &str) -> Option<&'static str> {
    ["```", "~~~"].into_iter().find(|fence| line.trim_start().starts_with(fence))
}

/// Whether no phrase crosses from the line above into this one.
fn begins_something(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || ["#", "- ", "* ", "|", ">"].iter().any(|mark| line.starts_with(mark))
}

/// The words of one paragraph. A code span and the address of a link are left out.
fn spans(lines: &[(usize, &str)]) -> Vec<Word> {
    let Some(&(first, _)) = lines.first() else { return Vec::new() };
    let mut found = vec![Word { text: BREAK.to_owned(), line: first }];
    let text: Vec<_> =
        lines.iter().flat_map(|(at, line)| line.chars().chain([' ']).map(move |char| (*at, char))).collect();
    let mut at = 0;
    while at < text.len() {
        let length = span(&text[at..]);
        let word: String = text[at..at + length].iter().map(|(_, char)| char.to_ascii_lowercase()).collect();
        let line = text[at].0;
        at += length;
        match word.chars().next() {
            Some('`') if length > 1 => found.push(Word { text: CODE.to_owned(), line }),
            // An emphasised word counts as the word; the address of a link does not count.
            Some(']' | '*' | ' ') => {}
            _ => found.push(Word { text: word, line }),
        }
    }
    found
}

/// Number of characters at the beginning that form one word.
fn span(text: &[(usize, char)]) -> usize {
    let is = |at: usize, wanted: char| text.get(at).is_some_and(|(_, char)| *char == wanted);
    let end = |from: usize, wanted: char| text[from..].iter().position(|(_, char)| *char == wanted);
    let word = text.iter().take_while(|(_, char)| char.is_alphanumeric() || *char == '_').count();
    match text[0].1 {
        '`' => {
            let ticks = text.iter().take_while(|(_, char)| *char == '`').count();
            let closes = text[ticks..].windows(ticks).position(|window| window.iter().all(|(_, char)| *char == '`'));
            closes.map_or(1, |at| at + 2 * ticks)
        }
        ']' if is(1, '(') => end(2, ')').map_or(1, |at| at + 3),
        _ => word.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: Vec<Word>) -> String {
        words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn markdown_is_read_without_its_code_and_its_addresses() {
        let text = "# Title\n\nAsk *Them*, in `some code` or\n[here](docs/a.md).\n\n```text\nnot this\n```\nbut this";
        assert_eq!(said(of_markdown(text)), "¶ # title ¶ ask them , in ` or [ here . ¶ ¶ but this");
        assert_eq!(of_markdown("one\ntwo").last().map(|word| word.line), Some(2));
    }

    #[test]
    fn rust_is_read_for_its_comments_and_literals() {
        let source = "/// One\n/// phrase.\nfn code() { say(\"Two \\\n   words\\nthen\"); } // three";
        assert_eq!(said(of_rust(source)), "¶ one phrase . ¶ two words ¶ then ¶ three");
    }

    #[test]
    fn code_in_the_documentation_of_an_item_is_code() {
        assert_eq!(said(of_rust("/// Before.\n/// ```\n/// let x = 1;\n/// ```\n/// After.")), "¶ before . ¶ after .");
    }

    #[test]
    fn a_backtick_that_nothing_closes_hides_nothing() {
        assert_eq!(said(of_markdown("a ` b")), "¶ a ` b");
    }
}
