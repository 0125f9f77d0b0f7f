//! Ask your user a question in the middle of an MCP call, and go on where you stopped.
//!
//! # Which one do I want?
//!
//! | you want to | write | what to know |
//! |---|---|---|
//! | ask, wait and go on, in straight-line code | [`Ask`] as an argument of a `#[tool]` or `#[prompt]` method | the handler runs once and waits in memory; the next leg has to reach the same process, or a fleet has a [`Relay`] |
//! | the same, and go on after a restart or on any instance | a function of a [`Durable`], as a route made by [`durable`] | what has happened travels sealed with the client; every effect stands in a `once` |
//! | ask before anything is done | [`Asked`] as an argument: the question is declared, and the handler gets the answer | the handler runs once, on any instance; what is asked depends on the arguments and on other answers only |
//! | see every round for yourself, on any instance | [`Round`] as an argument, or a route of [`Steps`] | called again for each round: effects below the question, in a `once`, or in the finish. Clients from before 2026-07-28 are asked only if the server is told to [push](Legacy::Push) |
//!
//! The first three ask such clients over their live connections. Where a resource is read, or without rmcp's macros, take
//! [`Ask::from_context`], [`Asked::from_context`], [`Durable::from_context`] or [`Round::from_context`].
//!
//! [The guide](guide::choosing_a_shape) compares them all, with a test for every row. Whichever it is, wrap the server once:
//! [`Rounds::new`] takes any rmcp `ServerHandler` and is one itself.
//!
//! # The vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | flow | one call as its author thinks of it, from the first request to the final result |
//! | leg | one request and its response |
//! | round | a set of questions and their answers; a flow of n rounds has n + 1 legs |
//! | ask | a question to the client: a form, a page to visit, a sample of its model, its roots |
//! | answer | what came back: accepted, declined or cancelled; see [`Answer`] and [`Given`] |
//! | frame | a handler that waits in memory for an answer, with everything it holds; see [`Ask`] |
//! | journal | what a durable handler has been through, to go through it again; see [`Durable`] |
//! | push | a question to a client of the legacy era, as a request of the server's own |
//! | seal, open | encrypt what a flow knows into `requestState`, bound to its request; verify and decrypt it |
//! | claim | the right to answer one round; see [`ledger::Claim`] |
//! | ledger | the store of claims and replies, which makes a state good for one use; see [`ledger::Ledger`] |
//! | relay | what carries a leg to the instance where its handler waits; see [`Relay`] |
//! | principal | whoever a flow belongs to, by a name that outlives their credentials; see [`Principal`] |
//! | refusal | why a state was not accepted: one error on the wire, the reason in the log; see [`Refusal`] |
//! | era | modern (2026-07-28 and later) or legacy (2025-11-25 and before); see [`Era`] |
//!
//! # A quick example
//!
//! ```
//! use rmcp::{
//!     ServerHandler,
//!     handler::server::{router::tool::ToolRouter, wrapper::Parameters},
//!     schemars, tool, tool_handler, tool_router,
//! };
//! use rounds::{Ask, FlowError, Rounds};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Folder {
//!     path: String,
//! }
//!
//! struct Files {
//!     tool_router: ToolRouter<Self>,
//! }
//!
//! #[tool_router]
//! impl Files {
//!     #[tool(description = "Empties a folder, after asking")]
//!     async fn empty(&self, Parameters(folder): Parameters<Folder>, ask: Ask) -> Result<String, FlowError> {
//!         if ask.confirm(format!("Delete everything in {}?", folder.path)).await? {
//!             Ok(format!("Emptied {}.", folder.path))
//!         } else {
//!             Ok("Nothing was touched.".to_owned())
//!         }
//!     }
//! }
//!
//! #[tool_handler(router = self.tool_router)]
//! impl ServerHandler for Files {}
//!
//! let server = Rounds::new(Files { tool_router: Files::tool_router() });
//! // `server.serve(stdio())`, or `server.streamable_http(config)` in any tower stack.
//! # let _ = server;
//! ```
//!
//! # The other side
//!
//! A host that calls such a server has the module `client` (feature `client`): a call as a value, which can be shown to
//! somebody today and answered tomorrow from another process; a form model of what is asked; a driver with limits that
//! fit people; and one `Responder` for the servers of both eras.
//!
//! # Features
//!
//! | feature | on by default | what it adds |
//! |---|---|---|
//! | `server` | yes | everything above |
//! | `client` | no | the module `client`; alone, it brings no cryptography and no ledger |
//! | `http` | yes | `Rounds::streamable_http`, and principals that HTTP middleware left in the request |
//! | `otel` | no | the span of a leg is named for exporters, and continues the trace of its client, by `_meta.traceparent` |
//! | `test` | no | the module `test`, for tests of your own handlers, and `ledger::suite`, for a ledger of your own |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
pub mod client;
pub mod guide;
#[cfg(feature = "server")]
mod server;
#[cfg(any(feature = "server", feature = "client"))]
mod shared;
#[cfg(feature = "test")]
pub mod test;

#[cfg(feature = "http")]
pub use self::server::http;
#[cfg(feature = "server")]
pub use self::server::{
    BuildError, Rounds, RoundsBuilder, ledger,
    policy::{error::FlowError, legacy::Legacy, limits::Limits, principal::Principal},
    seal::{FlowId, KeyRing},
    shape::{Answer, Ask, Asked, Durable, Given, Round, Steps, by_era, durable, durable_prompt},
    transport,
};
#[cfg(any(feature = "server", feature = "client"))]
pub use self::shared::{kind::Era, order};

/// What [`Ask`] and [`Durable`] return for a question: it is configured, then awaited.
#[cfg(feature = "server")]
pub mod ask {
    pub use crate::server::shape::QuestionBuilder;
}

/// Declaring the questions of a handler as types, for [`Asked`].
#[cfg(feature = "server")]
pub mod asked {
    pub use crate::server::shape::{DeclaredQuestion, FixedQuestion, Question, QuestionInput};
}

/// Asking several questions of a [`Durable`](crate::Durable) handler in one round.
#[cfg(feature = "server")]
pub mod durable {
    pub use crate::server::shape::Together;
}

/// The types that can be asked for with a form, and why an answer does not fit one.
#[cfg(any(feature = "server", feature = "client"))]
pub mod form {
    #[cfg(feature = "server")]
    pub use crate::server::form::{FormType, FormTypeError};
    pub use crate::shared::check::InvalidAnswer;
}

/// Keys, and looking into a token with them.
#[cfg(feature = "server")]
pub mod keys {
    pub use crate::server::seal::{Digest, KeyError, OpenedToken};
}

/// Events: what happens in a flow, station by station.
#[cfg(any(feature = "server", feature = "client"))]
pub mod observe {
    #[cfg(feature = "server")]
    pub use crate::server::{
        policy::observe::{Event, Observe, Outcome, Station},
        seal::Refusal,
    };
    pub use crate::shared::kind::{Method, QuestionKind};
}

/// Telling whose request it is.
#[cfg(feature = "server")]
pub mod principal {
    pub use crate::server::policy::principal::{Identify, Required};
}

/// What a prompt returns that asks with a [`Round`](crate::Round).
#[cfg(feature = "server")]
pub mod prompt {
    pub use crate::server::shape::PromptResponse;
}

/// Carrying a leg to the instance where its handler waits.
#[cfg(feature = "server")]
pub mod relay {
    pub use crate::server::engine::relay::{Inbox, Relay, RelayError};
}

/// The questions of one round, for handlers with a [`Round`](crate::Round).
#[cfg(feature = "server")]
pub mod round {
    pub use crate::server::shape::Questions;
}

/// The parts of [`Steps`](crate::Steps).
#[cfg(feature = "server")]
pub mod steps {
    pub use crate::server::shape::{Append, Collected, Finished, Refused, Step, StepValue, StepsError};
}

/// Time, which is injected.
#[cfg(any(feature = "server", feature = "client"))]
pub mod time {
    pub use crate::shared::clock::{BoxFuture, Clock, SystemClock, Timestamp};
}

/// A tool result of one text, for handlers that return a `CallToolResponse`, as those with a [`Round`] do.
#[cfg(feature = "server")]
pub fn text(text: impl Into<String>) -> rmcp::model::CallToolResponse {
    use rmcp::model::{CallToolResult, ContentBlock};
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

/// The code in the README compiles, and what it asserts holds.
#[cfg(all(doctest, feature = "test"))]
#[doc = include_str!("../../../README.md")]
pub struct ReadmeDoctests;
