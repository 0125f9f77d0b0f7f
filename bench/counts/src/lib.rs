//! The server that is counted and measured: the weather tool in a few shapes.
//!
//! [`Server`] calls the handler as rmcp does, but without a transport, so that only our own instructions are counted. A
//! [`lane::Lane`] calls it over HTTP without a socket. [`kept::Kept`] is a ledger that keeps tasks as a store does.

pub mod kept;
pub mod lane;

use rmcp::{
    RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, GetTaskParams, GetTaskResult, InputResponses,
        NumberOrString, ProtocolVersion, TaskStatus,
    },
    schemars,
    service::{Peer, RequestContext, RunningService, serve_directly},
    tool, tool_handler, tool_router,
};
use rounds::{Ask, Durable, FlowError, Given, Round, Rounds, durable, text};
use serde::{Deserialize, Serialize};

/// The server's handler, which owns its router.
pub struct Weather {
    tool_router: ToolRouter<Self>,
}

impl Weather {
    /// A handler with all its tools.
    pub fn new() -> Self {
        let once = durable("durable", "Weather for a place, asking for units (durable)", weather);
        let often = durable("questions", "Asks as many questions as it is told to (durable)", questions);
        Self { tool_router: Self::tool_router().with_route(once).with_route(often) }
    }
}

impl Default for Weather {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Place {
    location: String,
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Units {
    Metric,
    Imperial,
}

#[tool_router]
impl Weather {
    #[tool(description = "Weather for a place, which asks nothing")]
    async fn plain(&self, Parameters(place): Parameters<Place>) -> String {
        report(&place, &Units::Metric)
    }

    #[tool(description = "Weather for a place, asking for units (guard-first)")]
    async fn guard(&self, Parameters(place): Parameters<Place>, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.given::<Units>("units") {
            Given::Accepted(units) => Ok(text(report(&place, &units))),
            Given::Declined | Given::Cancelled => Ok(text("Cancelled.")),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Units>("units", "Which units?"),
        }
    }

    #[tool(description = "Weather for a place, asking for units (linear)")]
    async fn ask(&self, Parameters(place): Parameters<Place>, ask: Ask) -> Result<String, FlowError> {
        let units: Units = ask.form("Which units?").key("units").await?;
        Ok(report(&place, &units))
    }

    #[tool(description = "The same, and keeps the context of its request while it waits")]
    async fn keeping(
        &self,
        Parameters(place): Parameters<Place>,
        ask: Ask,
        context: RequestContext<RoleServer>,
    ) -> Result<String, FlowError> {
        // Captures the whole context: the macro's future would keep only the fields that are named below.
        let kept = context;
        let units: Units = ask.form("Which units?").key("units").await?;
        Ok(format!("{} ({})", report(&place, &units), kept.id))
    }
}

async fn weather(flow: Durable<Weather>, place: Place) -> Result<String, FlowError> {
    let units: Units = flow.form("Which units?").key("units").await?;
    Ok(report(&place, &units))
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Quiz {
    questions: u32,
}

async fn questions(flow: Durable<Weather>, quiz: Quiz) -> Result<String, FlowError> {
    for number in 1..=quiz.questions {
        let _: Units = flow.form(format!("Which units, for the {number}. time?")).key("units").await?;
    }
    Ok("That was all.".to_owned())
}

fn report(place: &Place, units: &Units) -> String {
    let degrees = match units {
        Units::Metric => "22°C",
        Units::Imperial => "72°F",
    };
    format!("Weather in {}: {degrees}, partly cloudy.", place.location)
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {}

/// A server that is called in this process.
pub struct Server {
    rounds: Rounds<Weather>,
    /// A context needs the peer of a connection.
    connection: RunningService<RoleServer, Rounds<Weather>>,
    capabilities: ClientCapabilities,
}

impl Server {
    /// Starts the server. Must be called within a runtime.
    pub fn start(rounds: Rounds<Weather>) -> Self {
        let (ours, _) = tokio::io::duplex(64);
        let connection = serve_directly(rounds.clone(), ours, None);
        Self { rounds, connection, capabilities: ClientCapabilities::builder().enable_elicitation().build() }
    }

    /// Its client declares the extension for tasks with each request.
    pub fn with_tasks(mut self) -> Self {
        self.capabilities = ClientCapabilities::builder().enable_elicitation().enable_tasks().build();
        self
    }

    /// Calls a tool as a modern client with support for forms.
    ///
    /// # Panics
    ///
    /// If the call is not well-formed.
    pub async fn call(&self, request: CallToolRequestParams) -> CallToolResponse {
        self.rounds.call_tool(request, self.context()).await.expect("the call is well-formed")
    }

    fn context(&self) -> RequestContext<RoleServer> {
        let peer: Peer<RoleServer> = self.connection.peer().clone();
        let mut context = RequestContext::new(NumberOrString::Number(1), peer);
        context.meta.set_protocol_version(ProtocolVersion::V_2026_07_28);
        context.meta.set_client_capabilities(self.capabilities.clone());
        context
    }

    /// Begins a task, and gives its id when it waits for the units.
    ///
    /// # Panics
    ///
    /// If the tool does anything else.
    pub async fn task(&self, tool: &'static str) -> String {
        let request = CallToolRequestParams::new(tool).with_arguments(rmcp::object!({"location": "Tokyo"}));
        let id = match self.call(request).await {
            CallToolResponse::Task(created) => created.task.task_id,
            other => panic!("expected a task, got {other:?}"),
        };
        while self.poll(&id).await.task.task.status != TaskStatus::InputRequired {
            tokio::task::yield_now().await;
        }
        id
    }

    /// Polls a task.
    ///
    /// # Panics
    ///
    /// If the server does not know it.
    pub async fn poll(&self, id: &str) -> GetTaskResult {
        self.rounds.get_task(GetTaskParams::new(id), self.context()).await.expect("the task is there")
    }

    /// Calls the tool that asks nothing.
    ///
    /// # Panics
    ///
    /// If the tool does anything else.
    pub async fn plain(&self) {
        let request = CallToolRequestParams::new("plain").with_arguments(rmcp::object!({"location": "Tokyo"}));
        let said = self.call(request).await;
        assert!(matches!(said, CallToolResponse::Complete(_)), "expected the weather, got {said:?}");
    }

    /// Plays a whole flow of two legs: one that asks for the units, and one with the answer.
    ///
    /// # Panics
    ///
    /// If the tool does anything else.
    pub async fn flow(&self, tool: &'static str) {
        let request = CallToolRequestParams::new(tool).with_arguments(rmcp::object!({"location": "Tokyo"}));
        let state = asked(self.call(request.clone()).await);
        let said = self.call(answered(request, state)).await;
        assert!(matches!(said, CallToolResponse::Complete(_)), "expected the weather, got {said:?}");
    }
}

/// The state in the response of a leg that asks.
///
/// # Panics
///
/// If the leg does not ask.
pub fn asked(response: CallToolResponse) -> String {
    match response {
        CallToolResponse::InputRequired(asked) => asked.request_state.expect("every question has a state"),
        other => panic!("expected a question, got {other:?}"),
    }
}

/// The same call again, with the units that were asked for.
pub fn answered(mut request: CallToolRequestParams, state: String) -> CallToolRequestParams {
    let units = serde_json::json!({"action": "accept", "content": {"units": "metric"}});
    request.input_responses = Some(InputResponses::from([("units".to_owned(), units)]));
    request.request_state = Some(state);
    request
}
