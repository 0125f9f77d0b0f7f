//! `cargo xtask phrases`: phrases that make the prose hard to read, and what to write instead.
//!
//! It reads the Markdown documents of the project, and the comments and string literals of its Rust source. Code, code spans and
//! code blocks are left out, so a phrase can be quoted between backticks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::prose::{self, Word};

/// A phrase, and what to write instead.
///
/// A phrase is a list of words that are separated by spaces. `a|b` is one of these words, and `!a|b` anything but these.
const BANNED: &[(&str, &str)] = &[
    ("whoever|whomever|whosever|whoso", "name the actor: the client, the handler, the caller, the owner of the claim"),
    ("nobody", "name the actor, and say what it does not do: \"no client waits\", \"unauthenticated callers\""),
    ("somebody", "name the actor: the client, the handler, the caller, the owner of the claim"),
    ("those who", "name the actors: clients, handlers, callers that …"),
    ("anew", "write \"again\""),
    ("is|are|was|were|be|been|being had", "use the technical verb: an effect runs, a value is recorded"),
    ("come|comes|came|coming to a|an|the|nothing", "use the technical verb: reaches, runs, returns, ends with"),
    (", as it|they|there|this|that|each|every", "write \"because\", or a second sentence"),
    (
        "!there is|are|was|were no !more|longer|less|fewer|later|earlier|larger|smaller|different|better|worse",
        "write \"is not a …\"",
    ),
    ("is|are|was|were|be|been|still at it", "use the technical verb: runs, holds the claim"),
];

/// The one file that has to spell the phrases out.
const TABLE: &str = "xtask/src/phrases.rs";

/// Looks for the phrases in every tracked file that has prose. The failure has a line for each that it found.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut findings = Vec::new();
    for path in tracked(root)? {
        let text = fs::read_to_string(root.join(&path));
        let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let words = if path.extension().is_some_and(|is| is == "rs") {
            prose::of_rust(&text)
        } else {
            prose::of_markdown(&text)
        };
        findings.extend(find(&words).into_iter().map(|finding| format!("{}:{finding}", path.display())));
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{} phrases to replace", findings.join("\n"), findings.len()))
}

/// The documents and sources that git knows, but not those that are deleted and not committed yet.
fn tracked(root: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git").args(["ls-files", "-z", "*.rs", "*.md"]).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot start git, which knows the files of the project: {error}"))?;
    if !output.status.success() {
        return Err(format!("git cannot list the files of the project: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let paths = String::from_utf8_lossy(&output.stdout);
    let paths = paths.split_terminator('\0').filter(|path| *path != TABLE && root.join(path).exists());
    Ok(paths.map(PathBuf::from).collect())
}

/// A line for each banned phrase: where it is, what it is, and what to write instead.
fn find(words: &[Word]) -> Vec<String> {
    let mut found = Vec::new();
    for at in 0..words.len() {
        for (phrase, instead) in BANNED {
            if let Some(matched) = matched(phrase, &words[at..]) {
                found.push(format!("{}: {}: {instead}", matched[0].line, quoted(matched)));
            }
        }
    }
    found
}

/// The words that a phrase covers, if they begin with it. A word in front that is only excluded does not belong to it.
fn matched<'a>(phrase: &str, words: &'a [Word]) -> Option<&'a [Word]> {
    let mut places = phrase.split(' ').zip(words);
    if !places.all(|(place, word)| fits(place, &word.text)) {
        return None;
    }
    let covered = words.get(..phrase.split(' ').count())?;
    Some(&covered[usize::from(phrase.starts_with('!'))..])
}

fn fits(place: &str, word: &str) -> bool {
    match place.strip_prefix('!') {
        Some(excluded) => excluded.split('|').all(|excluded| excluded != word),
        None => place.split('|').any(|wanted| wanted == word),
    }
}

fn quoted(words: &[Word]) -> String {
    let words = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    format!("\"{}\"", words.replace(prose::CODE, "`…`").replace(prose::BREAK, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phrases that are found in a text, without the advice.
    fn found(text: &str) -> Vec<String> {
        let findings = find(&prose::of_markdown(text));
        findings.into_iter().map(|finding| finding.split('"').nth(1).unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn each_banned_phrase_is_found() {
        let text = "Whoever waits for somebody, and nobody's client. Those who ask anew. The effect is had, or is to be had. \
                    It comes to nothing. It is kept, as it may be wanted. An answer is no question. One is at it.";
        let wanted = [
            "whoever",
            "somebody",
            "nobody",
            "those who",
            "anew",
            "is had",
            "be had",
            "comes to nothing",
            ", as it",
            "is no question",
            "is at it",
        ];
        assert_eq!(found(text), wanted);
    }

    #[test]
    fn plain_sentences_have_none_of_them() {
        let text = "There is no connection. It is no longer kept, and no more. A client that looks at it had an answer. The reply \
                    comes to one of them as JSON, as a string. What it had. The `nobody` of [a link](docs/whoever.md).";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn a_phrase_is_found_across_lines_but_not_across_paragraphs() {
        assert_eq!(found("the value is\nhad"), ["is had"]);
        assert_eq!(found("what it is\n\nhad"), Vec::<String>::new());
        assert_eq!(
            find(&prose::of_rust("// The value\n// is no\n// `Value`."))[0],
            "2: \"is no `…`\": write \"is not a …\""
        );
    }

    #[test]
    fn code_is_not_prose() {
        let source = "fn nobody(whoever: u8) {} // anew\nconst SAID: &str = \"somebody\";";
        let found = find(&prose::of_rust(source));
        assert!(found[0].starts_with("1: \"anew\"") && found[1].starts_with("2: \"somebody\""), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
