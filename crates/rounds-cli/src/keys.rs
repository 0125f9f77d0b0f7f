//! Keys, and tokens that they open.

use std::{
    fmt::Write as _,
    io::{self, Read},
    path::PathBuf,
};

use clap::{Args, builder::NonEmptyStringValueParser};
use rounds::{KeyRing, keys::OpenedToken, observe::Refusal};

use crate::{Failure, private};

/// Default audience of servers with a key file.
pub(crate) const AUDIENCE: &str = "gallery";

pub(crate) const EXAMPLES: &str = "\
Examples:
  rounds open r1.AAAA... --key-file keys
  jq -r .result.requestState response.json | rounds open - --key-file keys
  rounds open r1.AAAA... --key-file keys --journal stuck.json";

/// A token, and the options for opening it.
#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The requestState; `-` reads it from stdin
    token: String,
    /// The key file of the server that sealed it
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// The audience of the server that sealed it
    #[arg(long, value_name = "NAME", default_value = AUDIENCE, value_parser = NonEmptyStringValueParser::new())]
    audience: String,
    /// Save the journal of a durable handler to this file, as JSON, for a test that replays it
    ///
    /// It contains the answers and effects of the token, no longer sealed: only you can read the file.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    journal: Option<PathBuf>,
}

/// Generates a new key, as a line of a key file.
pub(crate) fn generate() -> Result<String, Failure> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    let mut line = String::with_capacity(2 * key.len() + 1);
    for byte in key {
        // Writing to a string cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    line.push('\n');
    Ok(line)
}

/// Prints the contents of a token, and saves its journal if that was asked for.
pub(crate) fn open(token: &Token) -> Result<String, Failure> {
    let keys = KeyRing::from_file(&token.key_file)?;
    let state = if token.token == "-" { read_stdin()? } else { token.token.clone() };
    let inspected = OpenedToken::open(&keys, &token.audience, state.trim()).map_err(Failure::Token)?;
    if let Some(file) = &token.journal {
        let journal = inspected.journal_json().ok_or(Failure::NoJournal)?;
        private::write(file, &(journal + "\n"))
            .map_err(|source| Failure::Write { file: file.display().to_string(), source })?;
    }
    Ok(format!("{inspected}\n"))
}

/// Limit on what is read from stdin: far longer than any state, whatever limit its server has.
const LONGEST: u64 = 1 << 20;

fn read_stdin() -> Result<String, Failure> {
    let mut state = String::new();
    let read = io::stdin().lock().take(LONGEST + 1).read_to_string(&mut state);
    match read.map_err(Failure::io("read the token from stdin"))? as u64 {
        0..=LONGEST => Ok(state),
        _ => Err(Failure::Token(Refusal::TooLong)),
    }
}
