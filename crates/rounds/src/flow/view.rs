//! What a handler can see of its leg. It travels in the request's extensions, and the extractors take it out.

use std::{any::Any, sync::Arc};

use rmcp::{RoleServer, service::RequestContext};

use super::frame::Frame;
use crate::{
    error::FlowError,
    gate::Peer,
    ledger::{ClaimId, What},
    seal::FlowId,
};

/// One round of one flow. The first leg answers none, and has the number zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundId {
    pub(crate) flow: FlowId,
    pub(crate) number: u32,
}

impl RoundId {
    pub(crate) fn claim(self) -> ClaimId {
        ClaimId { flow: self.flow.in_ledger(), what: What::Round(self.number) }
    }
}

/// One leg, from the inside.
pub(crate) struct View {
    /// The round this leg answers; its number is zero on the first leg.
    pub(crate) round: RoundId,
    pub(crate) peer: Peer,
    /// What the handler kept, as it wrote it.
    pub(crate) state: Option<String>,
    /// Whether the answers were asked for: they came with a state, and the state was opened.
    pub(crate) solicited: bool,
    /// The server that was wrapped.
    pub(crate) server: Arc<dyn Any + Send + Sync>,
    /// Where the handler's questions go, if it waits for them.
    pub(crate) frame: Arc<Frame>,
}

/// How a [`View`] travels. Nobody else can put one into a request: the type cannot be named outside.
#[derive(Clone)]
struct Carried(Arc<View>);

impl View {
    pub(crate) fn put(self: &Arc<Self>, context: &mut RequestContext<RoleServer>) {
        context.extensions.insert(Carried(self.clone()));
    }

    pub(crate) fn take(context: &RequestContext<RoleServer>, extractor: &'static str) -> Result<Arc<Self>, FlowError> {
        let carried = context.extensions.get::<Carried>();
        carried.map(|Carried(view)| view.clone()).ok_or(FlowError::NotWrapped { extractor })
    }
}
