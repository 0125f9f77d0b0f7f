//! Replay of a saved journal with the current code, before that code is deployed.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, ErrorCode},
    service::RequestContext,
};
use serde_json::Value;

use super::Client;
use crate::server::{
    Rounds,
    engine::{
        core::Core,
        frame::{Ending, FrameStep},
        journal::Fault,
        leg::{self, Rehearsed},
    },
    policy::error::Failure,
    seal::{
        envelope::{Envelope, Resume},
        journal::{Pages, Text},
        token,
    },
};

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// The handler took the recorded path, and asks these questions; none at a
    /// [`checkpoint`](crate::Durable::checkpoint).
    Asks(Vec<String>),
    /// The handler took the recorded path, and would now run this effect. The effect did not run.
    Live {
        /// The name of the effect.
        effect: String,
    },
    /// The handler took the recorded path to its end.
    Ended,
    /// The handler took another path: a flow with this journal would end with the frozen error.
    Diverged {
        /// The index of the entry, counted from zero.
        position: usize,
        /// A description of the recorded entry.
        recorded: String,
        /// A description of the operation that the handler reached.
        wanted: String,
    },
}

/// Replays a saved journal with a durable tool, to check whether open flows survive the next deploy. No effect runs, no
/// question is sent, and the ledger is not used.
///
/// Save journals of open flows with [`journal`], and keep them beside the tests. The arguments are those of the call,
/// because a journal does not contain them.
///
/// ```
/// # use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler};
/// use rounds::{Durable, FlowError, Rounds, durable, test::{Client, Replayed, journal, replay}};
/// use serde_json::json;
/// # struct Shop { tool_router: ToolRouter<Self> }
/// # #[tool_handler(router = self.tool_router)]
/// # impl ServerHandler for Shop {}
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Trip { to: String }
/// # fn shop(route: rmcp::handler::server::tool::ToolRoute<Shop>) -> Rounds<Shop> {
/// #     Rounds::new(Shop { tool_router: ToolRouter::new().with_route(route) })
/// # }
///
/// async fn monday(flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
///     let seat: String = flow.form(format!("Which seat to {}?", trip.to)).key("seat").await?;
///     if flow.confirm("Sure?").await? { Ok(seat) } else { Ok("none".to_owned()) }
/// }
///
/// async fn tuesday(flow: Durable<Shop>, trip: Trip) -> Result<String, FlowError> {
///     let seat: String = flow.form(format!("Your seat to {}?", trip.to)).key("seat").await?; // reworded
///     if flow.confirm("Sure?").await? { Ok(seat) } else { Ok("none".to_owned()) }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // A flow of Monday's code that has its seat.
/// let old = shop(durable("book", "Books", monday));
/// let client = Client::modern(old.clone()).await;
/// let asked = client.call("book", json!({"to": "Rome"})).await.asked();
/// let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
/// let saved = journal(&old, asked.state());
///
/// let replayed = replay(&old, "book", json!({"to": "Rome"}), &saved).await;
/// assert_eq!(replayed, Replayed::Asks(vec!["confirm".to_owned()]));
///
/// let new = shop(durable("book", "Books", tuesday));
/// let replayed = replay(&new, "book", json!({"to": "Rome"}), &saved).await;
/// assert!(matches!(replayed, Replayed::Diverged { position: 0, .. }));
/// # }
/// ```
///
/// # Panics
///
/// If the journal cannot be read, if a value in it does not have the type that the handler now wants, if the arguments
/// are not valid, or if the handler panics or breaks a rule of [`Durable`](crate::Durable).
pub async fn replay<H: ServerHandler>(server: &Rounds<H>, tool: &str, arguments: Value, journal: &str) -> Replayed {
    let pages = Pages::from_json(journal).unwrap_or_else(|error| panic!("this is not a saved journal: {error}"));
    let (handler, core) = server.parts();
    let rehearsed = Arc::new(Mutex::new(None));
    let rehearsal = Rehearsal {
        handler: handler.clone(),
        core: core.clone(),
        pages,
        rehearsed: rehearsed.clone(),
        server: server.clone(),
    };
    let leg = Client::modern(rehearsal).await.call(tool, arguments).await;
    let rehearsed = rehearsed.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Rehearsed { fault, step }) = rehearsed else { panic!("`{tool}` could not be called: {}", leg.response()) };
    match (fault, step) {
        (Some(Fault::Diverged { position, recorded, wanted }), _) => Replayed::Diverged { position, recorded, wanted },
        (Some(Fault::Changed { position, key, asked, now }), _) => {
            let shown = |text: Option<Text>| text.map_or_else(String::new, |text| format!(", {:?}", text.as_str()));
            let (recorded, wanted) = (shown(asked), shown(Some(now)));
            let question = |text: String| format!("the question `{key}`{text}");
            Replayed::Diverged { position, recorded: question(recorded), wanted: question(wanted) }
        }
        (Some(Fault::Live { effect }), _) => Replayed::Live { effect },
        (Some(fault), _) => panic!("{}", crate::FlowError::from(fault)),
        (None, FrameStep::Asked(round)) => Replayed::Asks(round.requests.into_keys().collect()),
        (None, FrameStep::Ended(Ending::Returned(Err(Failure { error, .. }))))
            if error.code == ErrorCode::INVALID_PARAMS =>
        {
            panic!("`{tool}` could not read the call or its journal: {}", error.message)
        }
        (None, FrameStep::Ended(Ending::Returned(_))) => Replayed::Ended,
        (None, FrameStep::Ended(_)) => panic!("`{tool}` panicked in its replay"),
    }
}

/// The journal in a state that this server has sealed, as JSON to be saved and [replayed](replay) later. It contains
/// the user's answers and the values of the effects.
///
/// # Panics
///
/// If the server cannot open the state, or if the state is not that of a [`Durable`](crate::Durable) handler.
pub fn journal<H: ServerHandler>(server: &Rounds<H>, state: &str) -> String {
    let (_, core) = server.parts();
    let opened = token::open(&core.keys(), core.limits.token_bytes, state);
    let envelope = opened.and_then(|plaintext| Envelope::from_bytes(&plaintext));
    let resume = envelope.unwrap_or_else(|refusal| panic!("the state cannot be opened: {refusal:?}")).resume;
    resume.journal_json().unwrap_or_else(|| match resume {
        Resume::Spilled(_) => panic!("this state was too large for its token: its journal is in the ledger"),
        _ => panic!("this state has no journal: its handler is not durable"),
    })
}

/// The server of a replay, which answers one call and keeps the outcome of its handler.
struct Rehearsal<H> {
    handler: Arc<H>,
    core: Arc<Core>,
    pages: Pages,
    rehearsed: Arc<Mutex<Option<Rehearsed>>>,
    server: Rounds<H>,
}

impl<H: ServerHandler> ServerHandler for Rehearsal<H> {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let rehearsed = leg::rehearse(&self.core, &self.handler, request, context, self.pages.clone()).await;
        *self.rehearsed.lock().unwrap_or_else(PoisonError::into_inner) = Some(rehearsed);
        Err(ErrorData::internal_error("a replay has no result", None))
    }

    fn get_info(&self) -> rmcp::model::ServerConfig {
        ServerHandler::get_info(&self.server)
    }
}
