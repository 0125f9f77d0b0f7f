//! The other side: a multi-round call as a value, and whoever answers its questions.
//!
//! # Which one do I want?
//!
//! | you want to | use | what to know |
//! |---|---|---|
//! | call, and have whatever is asked answered | [`drive`] with a [`Responder`] | limits that fit people; what exceeds one still has everything that was typed |
//! | show a question now and answer it later, elsewhere | [`Call::send`], then [`Pending`] | it serialises; it is answered only to the server that asked |
//! | talk to servers of both eras with one function | [`Host`] | it answers what a legacy server pushes, and declares what the responder can do |
//!
//! # A call as a value
//!
//! [`Call::send`] gives a result, or a [`Pending`] with its questions as a form model: for each [`Field`] a label, what it
//! takes ([`FieldKind`]), within which bounds, a default. Nothing of JSON Schema is left to do. Answers are checked as they
//! are given. A `Pending` can be written down with [`to_json`](Pending::to_json) and read by another process tomorrow.
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
//! /// Answers what a legacy server pushes, and what is driven. Here nobody is at home.
//! async fn ask(_: Question) -> Result<Answer, std::convert::Infallible> {
//!     Ok(Answer::Cancel)
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
//! # What a server is trusted with
//!
//! Nothing. Its state is carried and not looked at, and is given back to nobody else; a state or a set of
//! questions that is too large is refused; what is no question is an error, with the server's fault in words
//! ([`BadServer`]). Texts to be shown are the server's own: show who asks ([`AskedQuestion::origin`]), take control characters
//! out, show a URL whole and do not open it unasked.
//!
//! rmcp reads questions before this module does, and keeps of a form's schema what the protocol knows. Where a server uses
//! further keywords of JSON Schema, such as `pattern`, they are not seen here, and the server asks again if it minds.

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
pub use server::{Origin, Server};

pub use crate::shared::escape::is_harmless;
