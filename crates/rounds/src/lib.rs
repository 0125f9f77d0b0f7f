//! Ask your user a question in the middle of an MCP call, and go on where you stopped.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "server")]
mod answer;
#[cfg(feature = "server")]
mod clock;
#[cfg(feature = "server")]
mod era;
#[cfg(feature = "server")]
mod error;
#[cfg(feature = "server")]
mod exchange;
#[cfg(feature = "server")]
mod flow;
#[cfg(feature = "server")]
mod form;
#[cfg(feature = "server")]
mod gate;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "server")]
pub mod ledger;
#[cfg(feature = "server")]
mod limits;
#[cfg(feature = "server")]
pub mod observe;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "server")]
mod principal;
#[cfg(feature = "server")]
mod refusal;
#[cfg(feature = "server")]
mod rounds;
#[cfg(feature = "server")]
mod seal;
#[cfg(feature = "server")]
mod shape;
#[cfg(feature = "test")]
pub mod test;

#[cfg(feature = "server")]
pub use self::{
    clock::{BoxFuture, Clock, SystemClock, Timestamp},
    error::FlowError,
    form::{FormType, Problem, Unaskable},
    gate::Era,
    limits::Limits,
    principal::{Identify, Principal, Required},
    refusal::Refusal,
    rounds::{BuildError, Legacy, Rounds, RoundsBuilder},
    seal::{
        Digest, FlowId, Inspected, KeyError, KeyRing,
        envelope::{Kind, Method},
    },
    shape::{Answer, Ask, Asking, Asks, Given, Round},
};

/// A tool result of one text.
#[cfg(feature = "server")]
pub fn text(text: impl Into<String>) -> rmcp::model::CallToolResponse {
    use rmcp::model::{CallToolResult, ContentBlock};
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}
