//! Keys, and what can be opened with them.

use std::{
    fmt::Write as _,
    io::{self, Read},
    path::PathBuf,
};

use clap::{Args, builder::NonEmptyStringValueParser};
use rounds::{Inspected, KeyRing, Limits};

use crate::Failure;

/// The audience of servers with a key file that were told no other.
pub(crate) const AUDIENCE: &str = "gallery";

pub(crate) const EXAMPLES: &str = "\
Examples:
  rounds open r1.AAAA... --key-file keys
  jq -r .result.requestState response.json | rounds open - --key-file keys";

/// A token, and what opens it.
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
}

/// A new key, as a line of a key file.
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

/// What is in a token, in lines.
pub(crate) fn open(token: &Token) -> Result<String, Failure> {
    let keys = KeyRing::from_file(&token.key_file)?;
    let state = if token.token == "-" { read_stdin()? } else { token.token.clone() };
    let inspected = Inspected::open(&keys, &token.audience, state.trim()).map_err(Failure::Token)?;
    Ok(format!("{inspected}\n"))
}

fn read_stdin() -> Result<String, Failure> {
    // A longer one is refused for its length, however much longer it is; the rest leaves room for white space.
    let limit = Limits::default().token_bytes as u64 + 1024;
    let mut state = String::new();
    io::stdin().lock().take(limit).read_to_string(&mut state).map_err(Failure::io("read the token from stdin"))?;
    Ok(state)
}
