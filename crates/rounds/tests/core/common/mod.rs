//! One server for the tests of the core. Each test writes its behaviour as a function of the leg, and the server counts
//! its effects.

#![allow(dead_code, unreachable_pub, reason = "not every test file uses all of it")]

pub mod gate;
#[cfg(feature = "http")]
pub mod http;
pub mod ledger;

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, handler::server::tool::IntoCallToolResult, model::*, schemars,
    service::RequestContext,
};
use rounds::{
    FlowError, Given, Round, RoundsBuilder,
    test::{Client, Clock, Leg},
    time::BoxFuture,
};
use rounds_testkit::Stage;
use serde::Deserialize;
use serde_json::{Value, json};

/// A server with one handler for every tool, prompt and resource.
pub struct Desk {
    work: Box<dyn Fn(Turn) -> BoxFuture<'static, Result<Reply, FlowError>> + Send + Sync>,
    effects: Effects,
}

/// The effects of a handler, which should run once.
#[derive(Clone, Default)]
pub struct Effects(Arc<AtomicUsize>);

impl Effects {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Runs the effect, and returns how often it ran before.
    pub fn have(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// One leg, as a handler sees it.
pub struct Turn {
    pub target: String,
    pub answers: Option<InputResponses>,
    pub state: Option<String>,
    pub context: RequestContext<RoleServer>,
    pub effects: Effects,
}

impl Turn {
    pub fn round(&self) -> Result<Round<Reply>, FlowError> {
        Round::from_context(&self.context)
    }
}

/// The outcome of a handler, for all three methods.
pub enum Reply {
    Text(String),
    Asks(InputRequiredResult),
}

impl Reply {
    pub fn text(text: impl Into<String>) -> Result<Self, FlowError> {
        Ok(Self::Text(text.into()))
    }

    /// A question as it is on the wire.
    pub fn raw(asks: Value) -> Result<Self, FlowError> {
        Ok(Self::Asks(serde_json::from_value(asks).expect("a question that rmcp knows")))
    }

    fn into<R: From<InputRequiredResult>>(self, complete: impl FnOnce(String) -> R) -> R {
        match self {
            Self::Text(text) => complete(text),
            Self::Asks(asks) => asks.into(),
        }
    }
}

impl From<InputRequiredResult> for Reply {
    fn from(asks: InputRequiredResult) -> Self {
        Self::Asks(asks)
    }
}

impl Desk {
    pub fn new<F>(work: impl Fn(Turn) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Reply, FlowError>> + Send + 'static,
    {
        Self { work: Box::new(move |turn| Box::pin(work(turn))), effects: Effects::default() }
    }

    async fn take(
        &self,
        target: &str,
        answers: Option<InputResponses>,
        state: Option<String>,
        context: RequestContext<RoleServer>,
    ) -> Result<Reply, FlowError> {
        let effects = self.effects.clone();
        (self.work)(Turn { target: target.to_owned(), answers, state, context, effects }).await
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.take(&request.name, request.input_responses, request.request_state, context).await {
            Ok(reply) => Ok(reply.into(rounds::text)),
            Err(error) => error.into_call_tool_result(),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let reply = self.take(&request.name, request.input_responses, request.request_state, context).await?;
        let message = |text| GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into();
        Ok(reply.into(message))
    }

    /// Declares every resource as publicly cacheable for a minute.
    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let reply = self.take(&request.uri, request.input_responses, request.request_state, context).await?;
        let contents = |text| {
            let mut result = ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]);
            result.ttl_ms = Some(60_000);
            result.cache_scope = Some(CacheScope::Public);
            result.into()
        };
        Ok(reply.into(contents))
    }
}

/// A wrapped desk with a client and an observer.
pub struct Visit {
    pub client: Client,
    pub effects: Effects,
    stage: Stage<Desk>,
    _watchdog: Watchdog,
}

/// A test that would wait forever fails within a minute, and its name is printed.
struct Watchdog(#[expect(dead_code, reason = "only its drop matters")] mpsc::Sender<()>);

impl Watchdog {
    fn new() -> Self {
        let (stage, gone) = mpsc::channel();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            if gone.recv_timeout(secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{test} still waits after a minute");
                std::process::abort();
            }
        });
        Self(stage)
    }
}

/// The server, its clock and its events are those of the stage.
impl Deref for Visit {
    type Target = Stage<Desk>;

    fn deref(&self) -> &Stage<Desk> {
        &self.stage
    }
}

impl Visit {
    pub async fn of(desk: Desk) -> Self {
        Self::with(desk, |builder| builder).await
    }

    pub async fn with(desk: Desk, configure: impl FnOnce(RoundsBuilder<Desk>) -> RoundsBuilder<Desk>) -> Self {
        Self::at(&Clock::new(), desk, configure).await
    }

    /// With a clock that others share.
    pub async fn at(
        clock: &Clock,
        desk: Desk,
        configure: impl FnOnce(RoundsBuilder<Desk>) -> RoundsBuilder<Desk>,
    ) -> Self {
        let effects = desk.effects.clone();
        let stage = Stage::at(clock, desk, configure);
        Self { client: stage.modern().await, effects, stage, _watchdog: Watchdog::new() }
    }

    /// How often the handler ran, for all methods.
    pub fn runs(&self) -> usize {
        let stations = self.events.stations();
        stations.iter().filter(|station| **station == rounds::observe::Station::Started).count()
    }

    /// Starts the flow that most tests need.
    pub async fn order(&self) -> rounds::test::AskedRound {
        self.client.call("order", json!({"item": "tea"})).await.asked()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    Small,
    Large,
}

/// Asks for a size, and runs its effect when it has one.
pub fn shop() -> Desk {
    Desk::new(|turn| async move { sell(&turn) })
}

pub fn sell(turn: &Turn) -> Result<Reply, FlowError> {
    let round = turn.round()?;
    match round.given::<Size>("size") {
        Given::Accepted(size) => {
            let before = turn.effects.have();
            Reply::text(format!("{size:?} {} number {}", turn.target, before + 1))
        }
        Given::Declined => Reply::text("declined"),
        Given::Cancelled => Reply::text("cancelled"),
        Given::Missing | Given::Invalid(_) => round.ask_form::<Size>("size", "Which size?"),
    }
}

pub fn small() -> Value {
    json!({"size": "small"})
}

pub fn large() -> Value {
    json!({"size": "large"})
}

/// Expects exactly the error that asks the client to send the same request again.
#[track_caller]
pub fn asks_for_a_retry(leg: &Leg) {
    let error = leg.error();
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(error["data"]["reason"], "retry", "{error}");
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A ring with one key for each byte, which consists of that byte.
pub fn ring(keys: &[u8]) -> rounds::KeyRing {
    rounds::KeyRing::from_bytes(keys.iter().map(|key| [*key; 32])).expect("the keys are long enough")
}
