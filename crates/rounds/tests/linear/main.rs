//! Linear handlers: they run once, wait for their user, and continue where they stopped. Also which handler serves a
//! request, for all shapes.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod asking;
mod attack;
mod blocking;
mod budget;
mod draining;
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

/// A server with one function as its tool, with its clock and its events under the test's control.
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

/// No grace period for a handler that has asked and whose client is gone.
fn without_grace<H: ServerHandler>(builder: RoundsBuilder<H>) -> RoundsBuilder<H> {
    builder.limits(Limits::default().with_grace(Duration::ZERO))
}

/// Asks for units, and counts its drops.
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

/// Counts occurrences.
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

    /// A value that counts its drops.
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
