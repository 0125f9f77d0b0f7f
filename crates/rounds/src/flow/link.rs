//! The leg in flight, as far as a handler that outlives it may reach it.

use rmcp::{
    Peer, RoleServer,
    model::{ProgressToken, RequestMetaObject},
    service::RequestContext,
};

/// The way to the client of the leg in flight.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) progress_token: Option<ProgressToken>,
}

impl Link {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        Self::new(context.peer.clone(), &context.meta)
    }

    pub(crate) fn new(peer: Peer<RoleServer>, meta: &RequestMetaObject) -> Self {
        Self { peer, progress_token: meta.get_progress_token() }
    }
}
