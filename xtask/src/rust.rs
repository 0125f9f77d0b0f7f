//! Rust source as a list of tokens: enough to tell prose from code and to read paths. The grammar is not checked.

/// A token, and the line where it begins, from 1.
#[derive(Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) line: usize,
    pub(crate) kind: Kind<'a>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Kind<'a> {
    /// An identifier, a keyword or a number.
    Word(&'a str),
    Punctuation(char),
    /// The contents of a string literal, escapes included.
    Text(&'a str),
    /// A comment, with the characters that open and close it.
    Comment(&'a str),
}

/// The tokens of a source file. Character literals and lifetimes are left out: they are neither prose nor paths.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1 };
    std::iter::from_fn(|| lexer.next()).collect()
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            self.take_while(char::is_whitespace);
            let first = self.rest().chars().next()?;
            let line = self.line;
            if let Some(kind) = self.token(first) {
                return Some(Token { line, kind });
            }
        }
    }

    fn token(&mut self, first: char) -> Option<Kind<'a>> {
        match first {
            '/' if self.rest().starts_with("//") => Some(Kind::Comment(self.take_while(|char| char != '\n'))),
            '/' if self.rest().starts_with("/*") => Some(Kind::Comment(self.take(block_comment(self.rest())))),
            '"' => Some(Kind::Text(self.string())),
            '\'' => {
                self.take(character(self.rest()));
                None
            }
            first if is_word(first) => Some(self.word()),
            first => {
                self.take(first.len_utf8());
                Some(Kind::Punctuation(first))
            }
        }
    }

    /// A word, or the raw string that it opens.
    fn word(&mut self) -> Kind<'a> {
        let word = self.take_while(is_word);
        if !["r", "br", "cr"].contains(&word) {
            return Kind::Word(word);
        }
        let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
        if !self.rest()[hashes..].starts_with('"') {
            return Kind::Word(word);
        }
        self.take(hashes + 1);
        let end = format!("\"{}", "#".repeat(hashes));
        let length = self.rest().find(&end).unwrap_or(self.rest().len());
        let text = self.take(length);
        self.take(end.len());
        Kind::Text(text)
    }

    fn string(&mut self) -> &'a str {
        self.take(1);
        let mut escaped = false;
        let text = self.take_while(|char| {
            let inside = escaped || char != '"';
            escaped = char == '\\' && !escaped;
            inside
        });
        self.take(1);
        text
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn take_while(&mut self, mut wanted: impl FnMut(char) -> bool) -> &'a str {
        let length = self.rest().find(|char| !wanted(char)).unwrap_or(self.rest().len());
        self.take(length)
    }

    fn take(&mut self, length: usize) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..length.min(rest.len())];
        self.line += taken.matches('\n').count();
        self.at += taken.len();
        taken
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The length of a block comment, including nested comments.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(found) = rest[at..].find("/*").into_iter().chain(rest[at..].find("*/")).min() {
        at += found;
        if rest[at..].starts_with("/*") {
            depth += 1;
        } else {
            depth -= 1;
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        // The escaped character may be a quote itself.
        (Some((_, '\\')), Some(_)) => chars.find(|&(_, char)| char == '\'').map_or(rest.len(), |(at, _)| at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Kind<'_>> {
        tokens(source).into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn words_punctuation_text_and_comments_are_told_apart() {
        let found = kinds("use crate::x; // why\nlet y = \"a \\\" b\";");
        use Kind::{Comment, Punctuation, Text, Word};
        let colon = || Punctuation(':');
        let path = vec![Word("use"), Word("crate"), colon(), colon(), Word("x"), Punctuation(';'), Comment("// why")];
        let text = vec![Word("let"), Word("y"), Punctuation('='), Text("a \\\" b"), Punctuation(';')];
        assert_eq!(found, [path, text].into_iter().flatten().collect::<Vec<_>>());
    }

    #[test]
    fn raw_strings_end_at_as_many_hashes_as_they_began_with() {
        assert_eq!(kinds(r####"br##"a "# b"## r#type"####)[0], Kind::Text(r##"a "# b"##));
        assert_eq!(kinds("r#type"), [Kind::Word("r"), Kind::Punctuation('#'), Kind::Word("type")]);
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_open_no_string() {
        let words = ["x"].map(Kind::Word);
        assert_eq!(kinds("'\"' x"), words);
        assert_eq!(kinds(r"'\'' x"), words);
        assert_eq!(kinds("'a x"), ["a", "x"].map(Kind::Word));
    }

    #[test]
    fn block_comments_nest_and_lines_are_counted_through_all_of_it() {
        let found = tokens("/* a /* b */\n c */ \"d\ne\" f");
        assert_eq!(found[0].kind, Kind::Comment("/* a /* b */\n c */"));
        assert_eq!(found.iter().map(|token| token.line).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
