//! The program `rounds`: a tour, a server to try, a client for any server, key generation, and a viewer for tokens.
//!
//! It is a library so that two programs can be built from it: `rounds` has all features, and `rounds-try`, which the
//! repository's first command builds, leaves out those that take long to compile. An option whose feature is missing
//! fails with an error that names the feature.
//!
//! | feature | what it adds |
//! |---|---|
//! | `desk` | the desk at the root of `rounds serve --http` |
//! | `metrics` | `rounds serve --metrics`: metrics for Prometheus |
//! | `redis` | `rounds serve --redis`: several instances that share a Redis |
//! | `sql` | `rounds serve --data` and `--store` with SQLite and Postgres; it needs Rust 1.94 |
//! | `tls` | `https://` URLs for `rounds call` and `rounds resume`, and `rediss://` URLs for `rounds serve` |

mod answering;
mod answers;
mod bound;
mod call;
mod colour;
mod connection;
mod conversation;
mod crowd;
mod data;
#[cfg_attr(not(feature = "desk"), path = "no_desk.rs")]
mod desk;
mod duration;
mod ending;
mod features;
#[cfg(feature = "redis")]
mod fleet;
mod flows;
#[doc(hidden)]
pub mod fuzz;
mod halt;
mod http;
mod keys;
mod limits;
mod list;
mod log;
mod memory_options;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
mod metrics;
mod pair;
mod person;
mod private;
mod reason;
mod reload;
mod resume;
mod saved;
mod serve;
mod server_log;
mod show;
#[cfg(feature = "sql")]
mod sql;
mod status;
mod store;
mod store_options;
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
use tracing_subscriber::filter::ParseError;

use crate::colour::Paint;

/// Runs the program with the arguments of the process, and returns its exit code.
pub fn main() -> ExitCode {
    match run(Cli::parse().command.unwrap_or(Command::Tour)) {
        Ok(code) => code,
        Err(failure) => {
            // If stderr is closed, the message is lost.
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
        Command::List(options) => return block_on(list::list(*options))?,
        Command::Flows(options) => return block_on(flows::flows(*options))?,
        Command::Keygen => print(&keys::generate()?)?,
        Command::Open(token) => {
            log::to_stderr(None)?;
            print(&keys::open(&token)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ask your user a question in the middle of an MCP tool call, and continue where the handler stopped.
///
/// Without a command, it runs the tour.
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
  rounds list http://127.0.0.1:8000/mcp       what it offers
  rounds call http://127.0.0.1:8000/mcp weather_e location=Tokyo
                                              call it, and answer its question
  rounds serve --http 127.0.0.1:8000 --data data
                                              the same, and restarts lose nothing
  (umask 077; rounds keygen > keys)           a key that several servers can share
  rounds serve --stdio --key-file keys        for a client that starts its servers itself
  rounds open r1.AAAA... --key-file keys      show the contents of a requestState

`rounds help COMMAND` describes each command.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show one call, one forgery and every shape, all run in memory while you watch
    ///
    /// Every line is taken from messages that were exchanged during this run, between the gallery's server and
    /// clients of both eras. The output is plain text unless stdout is a terminal, and NO_COLOR is respected.
    #[command(verbatim_doc_comment, after_help = "Example:\n  rounds tour | less")]
    Tour,
    /// Serve the gallery, the same weather tool in every shape, over HTTP or stdio
    ///
    /// Point any MCP client at it and call `weather_e`: it asks for units and continues. `audit_log` reports how
    /// often the effect of each tool ran. Logs go to stderr; RUST_LOG selects them, as in RUST_LOG=rounds=debug
    /// (default: warn).
    #[command(verbatim_doc_comment, after_help = serve::EXAMPLE, after_long_help = serve::EXAMPLES)]
    Serve(Box<serve::Options>),
    /// Call a tool, a prompt or a resource of any MCP server, and answer its questions
    ///
    /// On a terminal it shows who asks, the question, and the time that is left. You fill in the form, review it, and
    /// send, decline or cancel it. Without a terminal, or with --answer, --answers or --decline, it does not prompt:
    /// an answer that does not fit the question is not sent, and a question without an answer is an error. With --save
    /// the call stops at its first question and is saved to a file. Results go to stdout, everything else to stderr.
    #[command(verbatim_doc_comment, after_help = call::EXAMPLES)]
    Call(Box<call::Options>),
    /// Continue a saved call, on this machine or another one, now or later
    ///
    /// The file contains the server's URL or command as it was typed, the questions and the server's state, but not
    /// the bearer token. The call goes only to the server that asked. A command is started, and a bearer token sent,
    /// only if you agree, because another person may have written the file.
    #[command(verbatim_doc_comment, after_help = resume::EXAMPLES)]
    Resume(Box<resume::Options>),
    /// List the tools, prompts and resources of any MCP server, with what each takes
    ///
    /// A tool is shown as `rounds call` takes it: required arguments as NAME=TEXT or NAME:=JSON, optional ones in
    /// brackets. The list goes to stdout.
    #[command(verbatim_doc_comment, after_help = list::EXAMPLES)]
    List(Box<list::Options>),
    /// List the flows that the servers of a store know, show one, or cancel one
    ///
    /// A list needs nothing that is sealed: it shows tools, times and statuses. `show` opens arguments, questions,
    /// answers and the result with the keys. Servers record flows if they keep a register, as `rounds serve` does with a
    /// store.
    #[command(verbatim_doc_comment, after_help = flows::EXAMPLES)]
    Flows(Box<flows::Options>),
    /// Print a new key: 32 random bytes in hex
    ///
    /// A key file has one such key per line. The first key seals, and all keys open. To replace a key, do three steps,
    /// each on all servers: append the new key; move it to the front; after one flow deadline, remove the old key.
    /// A server that keeps a register refuses to remove a key that open flows use, and says how many there are: answer
    /// or cancel them (`rounds flows`), or wait until they have ended.
    #[command(verbatim_doc_comment, after_help = "Example:\n  (umask 077; rounds keygen > keys)")]
    Keygen,
    /// Show the contents of a requestState, if you have its key
    ///
    /// It shows to which flow and request the state belongs, what was asked, and what has been recorded so far.
    /// It does not check whether the state has expired or was used.
    #[command(verbatim_doc_comment, after_help = keys::EXAMPLES)]
    Open(keys::Token),
}

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[cfg(any(feature = "redis", feature = "sql"))]
    #[error("cannot use {store}")]
    Store { store: String, source: Box<dyn Error + Send + Sync> },
    #[error(transparent)]
    Flows(#[from] rounds::register::FlowsError),
    #[error(transparent)]
    Decide(#[from] rounds::elsewhere::DecideError),
    #[error(transparent)]
    ChangeKeys(#[from] rounds::keys::ChangeKeysError),
    #[error("there is no flow {0} in this store")]
    NoFlow(rounds::FlowId),
    #[error("the flow has ended already: it is {0}")]
    FlowEnded(rounds::register::FlowStatus),
    #[error("cannot open the token")]
    Token(#[source] Refusal),
    #[error("the token has no journal: only the tokens of durable handlers have one, so leave out --journal")]
    NoJournal,
    #[error("cannot write {file}")]
    Write { file: String, source: io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    #[error("the client on stdio did not initialize the connection")]
    Stdio(#[source] Box<rmcp::service::ServerInitializeError>),
    #[error("the tour failed")]
    Tour(#[source] Box<dyn Error + Send + Sync>),
    #[error("cannot read RUST_LOG")]
    Logs(#[from] ParseError),
    #[error("the operating system provides no randomness")]
    Randomness(#[from] getrandom::Error),
    #[error("cannot {doing}")]
    Io { doing: &'static str, source: io::Error },
    #[error("{0}")]
    Usage(String),
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("{file} is not a JSON object with an answer for each question")]
    NoAnswers { file: String, source: serde_json::Error },
    #[error("{file} is not a saved call")]
    NotSaved { file: String, source: saved::NotSaved },
    #[error("cannot start {program}")]
    Start { program: String, source: io::Error },
    #[error("cannot connect to {to}: {why}")]
    Connect { to: String, why: String },
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("{to} ended without sending an MCP message: {status}")]
    Ended { to: String, status: std::process::ExitStatus },
    #[error("{to} did not complete the MCP handshake within {within:?}; allow more time with --timeout")]
    Silent { to: String, within: Duration },
    #[error(
        "the server did not finish within {0:?}, not counting the time it waited for answers; allow more time with \
         --timeout"
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
    #[error("the time to answer this call has expired; {0}")]
    Expired(String),
    #[error("the tool failed: {0}")]
    Tool(String),
    #[error("stopped; the question was neither answered nor declined")]
    Interrupted,
    #[error("stopped while the server was working; its effects may have happened")]
    InterruptedLeg,
    #[error("stopped; the call goes on at the server, as task {0}")]
    LeftRunning(String),
    #[error("stopped; the server was told to cancel the task")]
    CancelledTask,
}

impl Failure {
    fn code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Interrupted | Self::InterruptedLeg | Self::LeftRunning(_) | Self::CancelledTask => {
                ExitCode::from(130)
            }
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

/// An error and its causes, on one line.
struct Sentence<'a>(&'a dyn Error);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any of it may quote a server or a file.
        let said = terminal::clean::lines(&self.0.to_string());
        f.write_str(&said)?;
        let mut said = terminal::clean::line(&said);
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let words = terminal::clean::line(&error.to_string());
            // Some errors repeat the message of their source.
            if !said.contains(&words) {
                write!(f, ": {}", terminal::clean::short(&words, 400))?;
                said = words;
            }
            cause = error.source();
        }
        Ok(())
    }
}

fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime = Runtime::new().map_err(Failure::io("start the runtime"))?;
    let output = runtime.block_on(future);
    // A pending read of stdin cannot be cancelled, and would keep the process alive until the client closes stdin.
    runtime.shutdown_background();
    Ok(output)
}

fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader has closed its end, as in `rounds | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::io("write to stdout")),
    }
}
