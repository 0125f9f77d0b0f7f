//! Linear handlers: they run once, wait for their user, and go on where they stopped. And which handler that is, with all shapes.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without is there, or the test fails")]

mod asking;
mod attack;
mod blocking;
mod budget;
mod ending;
mod handlers;
mod http;
mod left;
mod legacy;
mod routed;
mod sessions;
mod waiting;

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse, ServerCapabilities, ServerConfig},
    schemars,
    service::RequestContext,
};
use rounds::{
    Ask, FlowError, Limits, Rounds, RoundsBuilder,
    test::{Clock, Events},
    time::BoxFuture,
};
use serde::Deserialize;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Units {
    Metric,
    Imperial,
}

/// A server whose every tool is this function.
struct Tool<F>(F);

impl<F, Fut> ServerHandler for Tool<F>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ask = Ask::from_context(&context)?;
        drop(context);
        (self.0)(ask).await.into_call_tool_result()
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// A server with one function for a tool, with its time and its events in the test's hands.
struct Stage<H> {
    server: Rounds<H>,
    clock: Clock,
    events: Events,
}

fn stage<F, Fut>(tool: F) -> Stage<Tool<F>>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    stage_with(tool, |builder| builder)
}

fn stage_with<F, Fut>(
    tool: F,
    configure: impl FnOnce(RoundsBuilder<Tool<F>>) -> RoundsBuilder<Tool<F>>,
) -> Stage<Tool<F>>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    let (clock, events) = (Clock::new(), Events::new());
    let builder = Rounds::builder(Tool(tool)).clock(clock.clone()).observe(events.clone());
    let server = configure(builder).build().unwrap();
    Stage { server, clock, events }
}

/// Leaves no time to a handler that has asked and whose client is gone.
fn without_grace<H: ServerHandler>(builder: RoundsBuilder<H>) -> RoundsBuilder<H> {
    builder.limits(Limits::default().with_grace(Duration::ZERO))
}

/// Asks for units and says what it was told.
async fn units(ask: Ask) -> Result<String, FlowError> {
    let units: Units = ask.form("Which units?").await?;
    Ok(format!("{units:?}"))
}

/// The same, and counts when it is dropped.
fn units_until(dropped: &Count) -> impl Fn(Ask) -> BoxFuture<'static, Result<String, FlowError>> + use<> {
    let dropped = dropped.clone();
    move |ask| {
        let guard = dropped.on_drop();
        Box::pin(async move {
            let _guard = guard;
            units(ask).await
        })
    }
}

/// Counts what happens.
#[derive(Clone, Default)]
struct Count(Arc<watch::Sender<usize>>);

impl Count {
    fn up(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    fn get(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until it has happened this often.
    async fn reaches(&self, wanted: usize) {
        let mut count = self.0.subscribe();
        let reached = tokio::time::timeout(Duration::from_secs(300), count.wait_for(|count| *count >= wanted)).await;
        assert!(reached.is_ok(), "it happened {} times instead of {wanted}", self.get());
    }

    /// Something that counts when it is dropped.
    fn on_drop(&self) -> OnDrop {
        OnDrop(self.clone())
    }
}

struct OnDrop(Count);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.up();
    }
}
