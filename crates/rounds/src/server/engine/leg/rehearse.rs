//! Replaying a durable handler for tests: nothing is asked, claimed, run or recorded.

use std::{future::poll_fn, sync::Arc};

use rmcp::{RoleServer, ServerHandler, service::RequestContext};

use super::{Leg, run::call};
use crate::server::engine::{
    core::Core,
    exchange::Exchange,
    frame::{Driver, FrameStep},
    journal::{Fault, Journal},
    view::RoundId,
};
#[cfg(feature = "test")]
use crate::server::seal::journal::Pages;

/// Shows a durable handler its past, and gives what it comes to after it. Nothing is asked, claimed, had or recorded.
#[cfg(feature = "test")]
pub(crate) async fn rehearse<X: Exchange, H: ServerHandler>(
    core: &Arc<Core>,
    handler: &Arc<H>,
    request: X,
    context: RequestContext<RoleServer>,
    pages: Pages,
) -> Rehearsed {
    let mut given = Box::new((request, context));
    let mut leg = Leg::new(core, &given.0, &given.1);
    leg.of(RoundId::new(core.new_flow(), 0));
    let view = leg.view(handler, None, None, None, true, &given);
    view.frame.replay(|| Journal::dry(pages, &core.limits));
    view.put(&mut given.1);
    let handler = handler.clone();
    let called = Box::pin(async move { call(&*handler, given).await.map(|response| Box::new(response.into())) });
    let mut driver = Driver::new(view.frame.clone(), 0, called, None, None);
    let step = poll_fn(|cx| driver.poll_step(cx)).await;
    drop(driver);
    Rehearsed { fault: view.frame.journal().and_then(|journal| journal.fault_at(&step)), step }
}

/// What a handler came to that was only shown its past.
#[cfg(feature = "test")]
pub(crate) struct Rehearsed {
    pub(crate) fault: Option<Fault>,
    pub(crate) step: FrameStep,
}
