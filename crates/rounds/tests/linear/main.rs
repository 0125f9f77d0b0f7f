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

use rmcp::ServerHandler;
use rounds::{Ask, FlowError, Limits, RoundsBuilder, time::BoxFuture};
use rounds_testkit::{Stage, Tool, Units, units};
use tokio::sync::watch;

/// A server with one function for a tool, with its time and its events in the test's hands.
fn stage<F, Fut>(tool: F) -> Stage<Tool<F>>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    Stage::of(Tool(tool))
}

fn stage_with<F, Fut>(
    tool: F,
    configure: impl FnOnce(RoundsBuilder<Tool<F>>) -> RoundsBuilder<Tool<F>>,
) -> Stage<Tool<F>>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, FlowError>> + Send + 'static,
{
    Stage::with(Tool(tool), configure)
}

/// Leaves no time to a handler that has asked and whose client is gone.
fn without_grace<H: ServerHandler>(builder: RoundsBuilder<H>) -> RoundsBuilder<H> {
    builder.limits(Limits::default().with_grace(Duration::ZERO))
}

/// Asks for units, and counts when it is dropped.
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
