//! Ask your user a question in the middle of an MCP call, and continue where you stopped.
//!
//! # Which one do I want?
//!
//! | you want to | write | what to know |
//! |---|---|---|
//! | ask, wait and continue, in straight-line code | [`Ask`] as an argument of a `#[tool]` or `#[prompt]` method | the handler runs once and waits in memory; the next leg has to reach the same process, or a fleet needs a [relay](relay::Relay) |
//! | the same, and continue after a restart or on any instance | a function of a [`Durable`], as a route made by [`durable()`] | its journal travels sealed with the client; every effect is in a `once` |
//! | ask before the handler runs | [`Asked`] as an argument: the question is declared, and the handler gets the answer | the handler runs once, on any instance; a question depends only on the arguments and on other answers |
//! | handle every round yourself, on any instance | [`Round`] as an argument, or a route of [`Steps`] | the handler is called again for each round: put effects after the question, in a `once`, or in the finish. Clients before 2026-07-28 are asked only if the server is configured to [push](Legacy::Push) |
//!
//! The first three ask clients before 2026-07-28 over their live connections. For a resource, or without rmcp's macros,
//! use [`Ask::from_context`], [`Asked::from_context`], [`Durable::from_context`] or [`Round::from_context`].
//!
//! [The guide](guide::choosing_a_shape) compares all shapes, with a test for every row. With each of them, wrap the
//! server once: [`Rounds::new`] takes any rmcp `ServerHandler` and is one itself.
//!
//! # The vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | flow | one logical call, from the first request to the final result |
//! | leg | one request and its response |
//! | round | a set of questions and their answers; a flow of n rounds has n + 1 legs |
//! | ask | a question to the client: a form, a page to visit, a sample of its model, its roots |
//! | answer | the user's response: accepted, declined or cancelled; see [`Answer`] and [`Given`] |
//! | frame | a handler that waits in memory for an answer, with everything it holds; see [`Ask`] |
//! | journal | the recorded operations of a durable handler, which it replays on the next leg; see [`Durable`] |
//! | push | a question to a client of the legacy era, as a request of the server |
//! | seal, open | encrypt the state of a flow into `requestState`, bound to its request; verify and decrypt it |
//! | spill | keep a state in the ledger because it is too large for a token; see [`RoundsBuilder::spill`] |
//! | ledger | the store of claims and replies, which makes a state single-use; see [`ledger::Ledger`] |
//! | claim | the right to answer one round, or to run one effect; see [`ledger::Claim`] |
//! | lease | how long the owner of a claim may go without renewing it; see [`Limits::lease`] |
//! | fence | the number of the run that holds a claim; an owner with a lower one has lost it; see [`ledger::Fence`] |
//! | orphan | a claim whose owner is lost: it is free again, or dead; see [`ledger::OwnerLost`] |
//! | relay | carries a leg to the instance where its handler waits; see [`relay::Relay`] |
//! | errand | a leg that was handed to another instance over a relay |
//! | principal | the authenticated owner of a flow, by a name that outlives its credentials; see [`Principal`] |
//! | refusal | why a state was not accepted; see [`observe::Refusal`] |
//! | frozen error | the one error on the wire for every refusal: "Invalid or expired requestState"; the log has the reason |
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
//! # The client half
//!
//! A host that calls such a server uses the module `client` (feature `client`). It has a call as a value, which can be
//! shown to a user today and answered tomorrow from another process; a form model of the questions; a driver with
//! limits that suit people; and one `Responder` for the servers of both eras.
//!
//! # Features
//!
//! | feature | on by default | what it adds |
//! |---|---|---|
//! | `server` | yes | everything above |
//! | `client` | no | the module `client`; alone, it brings no cryptography and no ledger |
//! | `http` | yes | `Rounds::streamable_http`, and principals that HTTP middleware put into the request |
//! | `metrics` | no | `metrics::Prometheus`: metrics that a scraper fetches |
//! | `otel` | no | the span of a leg is named for exporters, and continues the trace of its client, from `_meta.traceparent`; `metrics::OpenTelemetry` |
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
#[cfg(any(feature = "metrics", feature = "otel"))]
pub use self::server::metrics;
#[cfg(feature = "server")]
pub use self::server::{
    BuildError, Rounds, RoundsBuilder, confirm, ledger,
    policy::{error::FlowError, legacy::Legacy, limits::Limits, principal::Principal},
    seal::{FlowId, KeyRing},
    shape::{Answer, Ask, Asked, Durable, Given, Round, Steps, by_era, durable, durable_prompt},
    transport,
};
#[cfg(any(feature = "server", feature = "client"))]
pub use self::shared::{kind::Era, order};

/// The question that [`Ask`] and [`Durable`] return: configure it, then await it.
#[cfg(feature = "server")]
pub mod ask {
    pub use crate::server::shape::QuestionBuilder;
}

/// Declared questions: the questions of a handler as types, for [`Asked`].
#[cfg(feature = "server")]
pub mod asked {
    pub use crate::server::shape::{
        AnyServer, AsServer, AskedBy, DeclaredQuestion, FixedQuestion, Question, QuestionInput, QuestionSet,
    };
}

/// Several questions of a [`Durable`] handler in one round, and durable tools with everything that a tool has.
#[cfg(feature = "server")]
pub mod durable {
    pub use crate::server::shape::{Arguments, Together, durable_tool as tool};
}

/// Questions whose answer does not come through the client: approvals, forms and pages. See
/// [the guide](crate::guide::elsewhere).
#[cfg(feature = "server")]
pub mod elsewhere {
    pub use crate::server::{
        elsewhere::{
            Elsewhere, Notice, Notify, NotifyError, WebhookError, WebhookKey, WebhookKeyError, WebhookSignature,
        },
        flows::{
            Approve, DecideError, Decision, DecisionOutcome, ElsewhereKind, Notified, QuestionElsewhere,
            RecordedDecision, Roles, Verdict, Way,
        },
        policy::elsewhere::Approvers,
    };
}

/// The types and the schemas that can be asked for with a form, and why an answer is not valid.
#[cfg(any(feature = "server", feature = "client"))]
pub mod form {
    #[cfg(feature = "server")]
    pub use crate::server::form::{Alternative, FormType, FormTypeError, Schema};
    pub use crate::shared::check::InvalidAnswer;
}

/// The format that a server writes, for a deploy in which instances of two releases serve one flow.
#[cfg(feature = "server")]
pub mod format {
    pub use crate::server::seal::Format;
}

/// Readiness of a server for probes, and how it drains before it ends.
#[cfg(feature = "server")]
pub mod health {
    pub use crate::server::health::{Drained, Health, NotReady};
}

/// Keys, and the inspection of tokens.
#[cfg(feature = "server")]
pub mod keys {
    pub use crate::server::{
        ChangeKeysError,
        seal::{Digest, KeyError, OpenedToken},
    };
}

/// Events: what happens in a flow, station by station.
#[cfg(any(feature = "server", feature = "client"))]
pub mod observe {
    #[cfg(feature = "server")]
    pub use crate::server::{
        policy::{
            measure::{ClaimCall, ClaimOutcome, Gauges, Limit, Reading, StoreCall},
            observe::{Event, Observe, Outcome, Station},
        },
        seal::Refusal,
    };
    pub use crate::shared::kind::{Method, QuestionKind};
}

/// Identification of the principal of a request.
#[cfg(feature = "server")]
pub mod principal {
    pub use crate::server::policy::principal::{Identify, Required};
}

/// The return type of a prompt that asks with a [`Round`].
#[cfg(feature = "server")]
pub mod prompt {
    pub use crate::server::shape::PromptResponse;
}

/// The register: the flows that a server knows.
#[cfg(feature = "server")]
pub mod register {
    pub use crate::server::{
        engine::register::{
            details::{FlowDetails, FlowEffect, FlowLeg, FlowRound, HandlerPart},
            journal::{FlowJournal, NoJournal},
        },
        flows::{FlowQuery, Flows, FlowsError},
        ledger::register::*,
        seal::NotAFlowId,
    };
}

/// Transport of a leg to the instance where its handler waits.
#[cfg(feature = "server")]
pub mod relay {
    pub use crate::server::engine::relay::{Inbox, Relay, RelayError};
}

/// The questions of one round, for handlers with a [`Round`].
#[cfg(feature = "server")]
pub mod round {
    pub use crate::server::shape::Questions;
}

/// Servers that are a `Service<RoleServer>` of rmcp's and not a `ServerHandler`.
#[cfg(feature = "server")]
pub mod service {
    pub use crate::server::{Wrap, service::AnyService};
}

/// The parts of [`Steps`].
#[cfg(feature = "server")]
pub mod steps {
    pub use crate::server::shape::{Append, Collected, Finished, Refused, Step, StepValue, StepsError};
}

/// Tasks: calls that are answered with a handle, which the client polls. See [the guide](crate::guide::tasks).
#[cfg(feature = "server")]
pub mod tasks {
    pub use crate::server::tasks::Tasks;
}

/// Injected time.
#[cfg(any(feature = "server", feature = "client"))]
pub mod time {
    pub use crate::shared::clock::{BoxFuture, Clock, SystemClock, Timestamp};
}

/// A tool result with one text, for handlers that return a `CallToolResponse`, such as those with a [`Round`].
#[cfg(feature = "server")]
pub fn text(text: impl Into<String>) -> rmcp::model::CallToolResponse {
    use rmcp::model::{CallToolResult, ContentBlock};
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

/// Compiles the code in the README and checks its assertions.
#[cfg(all(doctest, feature = "test"))]
#[doc = include_str!("../../../README.md")]
pub struct ReadmeDoctests;
