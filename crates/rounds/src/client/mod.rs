//! The client half: a multi-round call as a value, and the responders that answer its questions.
//!
//! # Which one do I want?
//!
//! | you want to | use | what to know |
//! |---|---|---|
//! | call, and have every question answered | [`drive`] with a [`Responder`] | its limits suit people; after an exceeded limit, the answers so far are kept |
//! | show a question now and answer it later, elsewhere | [`Call::send`], then [`Pending`] | it serialises; its answers are sent only to the server that asked |
//! | talk to servers of both eras with one function | [`Host`] | it answers what a legacy server pushes, and declares what the responder can answer |
//!
//! # A call as a value
//!
//! [`Call::send`] returns a result, or a [`Pending`] with its questions as a form model: each [`Field`] has a label, a
//! type ([`FieldKind`]) with its bounds, and a default. The host need not read JSON Schema. Answers are checked when
//! they are given. A `Pending` can be saved with [`to_json`](Pending::to_json) and loaded by another process later.
//!
//! ```
//! use rmcp::{ServerHandler, ServiceExt, handler::server::router::tool::ToolRouter, object, tool, tool_handler, tool_router};
//! use rounds::{Ask, FlowError, Rounds, client::{UserAnswer, Call, Host, Pending, AskedQuestion, Sent}};
//!
//! struct Greeter { tool_router: ToolRouter<Self> }
//!
//! #[tool_router]
//! impl Greeter {
//!     #[tool(description = "Greets by name")]
//!     async fn greet(&self, ask: Ask) -> Result<String, FlowError> {
//!         let name: String = ask.form("What is your name?").key("name").await?;
//!         Ok(format!("Hello, {name}!"))
//!     }
//! }
//!
//! #[tool_handler(router = self.tool_router)]
//! impl ServerHandler for Greeter {}
//!
//! /// Answers pushed questions of legacy servers, and the questions of driven calls. Here no user is present.
//! async fn ask(_: AskedQuestion) -> Result<UserAnswer, std::convert::Infallible> {
//!     Ok(UserAnswer::Cancel)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (ours, theirs) = tokio::io::duplex(4096);
//! # let server = Rounds::new(Greeter { tool_router: Greeter::tool_router() });
//! # tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
//! let client = Host::new(ask).connect(ours).await?;
//! let Sent::Asks(pending) = Call::tool("greet", object!({})).send(&client).await? else { panic!("it asks") };
//! assert_eq!(pending.questions()[0].message(), "What is your name?");
//! assert_eq!(pending.questions()[0].fields()[0].label, "name");
//! let saved = pending.to_json();
//!
//! let mut pending = Pending::from_json(&saved)?;
//! assert_eq!(pending.open(), ["name"]);
//! let wrong = pending.accept("name", object!({"name": 7})).unwrap_err();
//! assert_eq!(wrong.to_string(), "\"name\": `name` must be of type string");
//! pending.accept("name", object!({"name": "Ada"}))?;
//! let Sent::Done(done) = pending.send(&client).await? else { panic!("it ends") };
//! assert_eq!(done.text(), "Hello, Ada!");
//! # Ok(())
//! # }
//! ```
//!
//! # Trust in the server
//!
//! The client trusts nothing that a server sends. It carries the server's state without reading it, and sends it to no
//! other server. It rejects a state or a set of questions that is too large. A malformed question is an error that
//! names the server's fault ([`BadServer`]). Texts to be shown are the server's own: show which server asks
//! ([`AskedQuestion::origin`]), remove control characters, and show a URL completely and do not open it without the
//! user's consent.
//!
//! rmcp reads questions before this module does, and keeps only the keywords of a form's schema that the protocol has.
//! Other keywords of JSON Schema, such as `pattern`, are not visible here; a server that uses them has to reject the
//! answer and ask again.

mod answer;
mod call;
mod drive;
mod error;
mod field;
mod host;
mod leg;
mod limits;
mod pending;
mod push;
mod question;
mod ready;
mod reply;
mod responder;
mod saved;
mod server;
mod task;

pub use answer::{AnswerError, UserAnswer};
pub use call::{Call, Done, Sent};
pub use drive::{DriveError, DriveOutcome, Progress, Start, Stopped, drive};
pub use error::{BadServer, SendError};
pub use field::{Choice, Field, FieldKind, TextFormat};
pub use host::Host;
pub use limits::DriveLimits;
pub use pending::Pending;
pub use question::AskedQuestion;
pub use ready::{
    Concurrently, DefaultsOnly, NotAnswered, Observed, Only, Scripted, Unavailable, concurrently, defaults_only,
    observed, only, scripted, unavailable,
};
pub use responder::{BoxError, Responder};
pub use saved::LoadError;
#[cfg(feature = "test")]
pub(crate) use saved::fuzz;
pub use server::{Origin, Server};

pub use crate::shared::escape::is_harmless;
