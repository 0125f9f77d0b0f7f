//! The program `rounds`: a tour, a server to talk to, a client for any server, keys, and a look into tokens.
//!
//! It is a library so that two programs can be built from it: `rounds` has all features, and `rounds-try`, which the repository's first
//! command builds, leaves out those that take long to compile. What is left out says so where it is used.
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis` | `rounds serve --redis`: several instances that share a Redis |
//! | `tls` | `https://` URLs for `rounds call` and `rounds resume` |

mod answering;
mod answers;
mod bound;
mod call;
mod colour;
mod connection;
mod conversation;
mod crowd;
mod duration;
mod features;
#[cfg(feature = "redis")]
mod fleet;
mod halt;
mod http;
mod keys;
mod pair;
mod person;
mod private;
mod reason;
mod reload;
mod resume;
mod saved;
mod serve;
mod show;
mod status;
mod terminal;
mod tour;

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use rounds::{BuildError, keys::KeyError, observe::Refusal};
use tokio::runtime::Runtime;
use tracing_subscriber::{
    filter::{LevelFilter, ParseError, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::colour::Paint;

/// Runs the program with the arguments of the process. The result is its exit code.
pub fn main() -> ExitCode {
    match run(Cli::parse().command.unwrap_or(Command::Tour)) {
        Ok(code) => code,
        Err(failure) => {
            // Where stderr is closed there is nobody to tell.
            let _ = writeln!(io::stderr(), "rounds: {}", Sentence(&failure));
            failure.code()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Tour => print(&block_on(tour::tell(Paint::on(&io::stdout())))??)?,
        Command::Serve(options) => block_on(serve::serve(*options))??,
        Command::Call(options) => return block_on(call::call(*options))?,
        Command::Resume(options) => return block_on(resume::resume(*options))?,
        Command::Keygen => print(&keys::generate()?)?,
        Command::Open(token) => {
            log_to_stderr()?;
            print(&keys::open(&token)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ask your user a question in the middle of an MCP tool call, and go on where you stopped.
///
/// Without a command it takes you on a tour.
#[derive(Debug, Parser)]
#[command(name = "rounds", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  rounds                                      the tour
  rounds serve --http 127.0.0.1:8000          a server to send requests to
  rounds call http://127.0.0.1:8000/mcp weather_e location=Tokyo
                                              call it, and be asked
  (umask 077; rounds keygen > keys)           a key that several servers can share
  rounds serve --stdio --key-file keys        for a client that starts its servers itself
  rounds open r1.AAAA... --key-file keys      what is in a requestState

`rounds help COMMAND` says more about each.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show one call, one forgery and every shape, all played in memory as you look
    ///
    /// Every line is taken from messages that were really exchanged, between the gallery's server and
    /// clients of both eras, in the moment you ran it. It is plain text unless stdout is a terminal, and
    /// NO_COLOR is respected.
    #[command(verbatim_doc_comment, after_help = "Example:\n  rounds tour | less")]
    Tour,
    /// Serve the gallery, the same weather tool in every shape, over HTTP or stdio
    ///
    /// Point any MCP client at it and call `weather_e`: it asks for units and goes on. `audit_log` tells how
    /// often each tool had its effect. Logs go to stderr; RUST_LOG says which, as in RUST_LOG=rounds=debug
    /// (default: warn).
    #[command(verbatim_doc_comment, after_help = serve::EXAMPLE, after_long_help = serve::EXAMPLES)]
    Serve(Box<serve::Options>),
    /// Call a tool, a prompt or a resource of any MCP server, and answer what it asks
    ///
    /// On a terminal you are shown who asks, what, and for how long; you fill in the form, review it, and send,
    /// decline or cancel it. Elsewhere, or with --answer, --answers or --decline, nobody is asked: an answer
    /// that does not fit is not sent, and a question without an answer is an error. With --save the call stops
    /// at its first question and waits in a file. Results go to stdout, everything else to stderr.
    #[command(verbatim_doc_comment, after_help = call::EXAMPLES)]
    Call(Box<call::Options>),
    /// Go on with a call that was saved, here or elsewhere, now or tomorrow
    ///
    /// The file has the server's address or command as it was typed, the questions and the server's state, and
    /// not the token. The call goes to the server that asked, and to no other. A command is started, and a token
    /// sent, only if you agree: somebody else may have written the file.
    #[command(verbatim_doc_comment, after_help = resume::EXAMPLES)]
    Resume(Box<resume::Options>),
    /// Print a new key: 32 random bytes in hex
    ///
    /// A key file has one such key a line. The first seals, all of them open, so a key is replaced in three
    /// steps, each on all servers: append the new one, move it to the front, and after a flow deadline remove
    /// the old one.
    #[command(verbatim_doc_comment, after_help = "Example:\n  (umask 077; rounds keygen > keys)")]
    Keygen,
    /// Show what is in a requestState, to whoever has its key
    ///
    /// It says to which flow and request the state belongs, what was asked, and what was settled and kept so
    /// far. Whether the state has expired or was used is not looked at.
    #[command(verbatim_doc_comment, after_help = keys::EXAMPLES)]
    Open(keys::Token),
}

/// Why a command could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[cfg(feature = "redis")]
    #[error("cannot share {redis}")]
    Redis { redis: String, source: Box<dyn Error + Send + Sync> },
    #[error("cannot open the token")]
    Token(#[source] Refusal),
    #[error("the token has no journal: only those of durable handlers have one")]
    NoJournal,
    #[error("cannot write {file}")]
    Write { file: String, source: io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    #[error("the client on stdio did not begin a conversation")]
    Stdio(#[source] Box<rmcp::service::ServerInitializeError>),
    #[error("the tour came to a halt")]
    Tour(#[source] Box<dyn Error + Send + Sync>),
    #[error("cannot read RUST_LOG")]
    Logs(#[from] ParseError),
    #[error("the operating system has no randomness to give")]
    Randomness(#[from] getrandom::Error),
    #[error("cannot {doing}")]
    Io { doing: &'static str, source: io::Error },
    #[error("{0}")]
    Usage(String),
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("{file} is no object of answers by question")]
    NoAnswers { file: String, source: serde_json::Error },
    #[error("{file} is no saved call")]
    NotSaved { file: String, source: saved::NotSaved },
    #[error("cannot start {program}")]
    Start { program: String, source: io::Error },
    #[error("cannot connect to {to}: {why}")]
    Connect { to: String, why: String },
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("{to} has ended without a word of MCP: {status}")]
    Ended { to: String, status: std::process::ExitStatus },
    #[error("{to} has not said who it is within {within:?}; --timeout gives it longer")]
    Silent { to: String, within: Duration },
    #[error(
        "the server has not finished within {0:?}, not counting the time in which it was being answered; --timeout gives it longer"
    )]
    Slow(Duration),
    #[error("{}", terminal::clean::line(&.0.to_string()))]
    Call(#[source] Box<rounds::client::DriveError>),
    #[error("cannot set up HTTP")]
    Http(#[source] reqwest::Error),
    #[error(transparent)]
    TooLong(#[from] bound::TooLong),
    #[error("{0}")]
    NotAnswered(String),
    #[error("the server no longer accepts this call: it has expired, or was answered before; {0}")]
    Refused(String),
    #[error("the time to answer this call is over; {0}")]
    Expired(String),
    #[error("the tool failed: {0}")]
    Tool(String),
    #[error("stopped; the question was neither answered nor declined")]
    Interrupted,
    #[error("stopped while the server was at work, which may have had its effect")]
    InterruptedLeg,
}

impl Failure {
    fn code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Interrupted | Self::InterruptedLeg => ExitCode::from(130),
            _ => ExitCode::FAILURE,
        }
    }

    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    fn tour(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Tour(Box::new(source))
    }
}

/// An error and what caused it, on one line.
struct Sentence<'a>(&'a dyn Error);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any of it may have the words of a server, or of a file, in it.
        let said = terminal::clean::lines(&self.0.to_string());
        f.write_str(&said)?;
        let mut said = terminal::clean::line(&said);
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let words = terminal::clean::line(&error.to_string());
            // Some errors speak with the words of their cause, and name the cause as well.
            if !said.contains(&words) {
                write!(f, ": {}", terminal::clean::short(&words, 400))?;
                said = words;
            }
            cause = error.source();
        }
        Ok(())
    }
}

/// stdout belongs to the protocol, or to what was asked for.
///
/// Without `RUST_LOG`, rmcp's warnings are left out: they quote what clients send, at any length and as often as it comes.
fn log_to_stderr() -> Result<(), Failure> {
    let set = std::env::var_os("RUST_LOG").unwrap_or_default();
    let filter = match set.is_empty() {
        true => Targets::new().with_default(LevelFilter::WARN).with_target("rmcp", LevelFilter::ERROR),
        false => targets(&set.to_string_lossy())?,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colour::is_wanted(&io::stderr()));
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}

/// Reads levels for targets, such as `rounds=debug,rmcp=error`. What it does not name is logged from warnings on.
fn targets(set: &str) -> Result<Targets, ParseError> {
    let targets: Targets = set.parse()?;
    Ok(match targets.default_level() {
        Some(_) => targets,
        None => targets.with_default(LevelFilter::WARN),
    })
}

fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = Runtime::new().map_err(Failure::io("start the runtime"))?;
    let output = runtime.block_on(future);
    // A read of stdin cannot be called off, and would keep the process until the client closes it.
    runtime.shutdown_background();
    Ok(output)
}

fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has seen enough, as in `rounds | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::io("write to stdout")),
    }
}
