//! What a handler can see of its leg. It travels in the request's extensions, and the extractors take it out.

use std::{any::Any, sync::Arc};

use rmcp::{ErrorData, RoleServer, model::InputRequest, service::RequestContext};

use super::frame::Frame;
use crate::server::{
    ledger::{ClaimId, ClaimKind},
    policy::{
        error::FlowError,
        gate::{Era, Peer},
    },
    seal::{FlowId, envelope::QuestionKind},
};

/// One round of one flow. The first leg answers none, and has the number zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundId {
    pub(crate) flow: FlowId,
    /// The name by which a ledger knows the flow.
    in_ledger: FlowId,
    pub(crate) number: u32,
}

impl RoundId {
    /// Of a leg whose flow is not known, yet or for good.
    pub(crate) const UNKNOWN: Self = {
        let nobody = FlowId::from_bytes([0; 16]);
        Self { flow: nobody, in_ledger: nobody, number: 0 }
    };

    pub(crate) fn new(flow: FlowId, number: u32) -> Self {
        Self { flow, in_ledger: flow.in_ledger(), number }
    }

    /// The round after this one.
    pub(crate) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }

    pub(crate) fn claim_id(self) -> ClaimId {
        ClaimId { flow: self.in_ledger, what: ClaimKind::Round(self.number) }
    }
}

/// One leg, from the inside.
pub(crate) struct View {
    /// The round this leg answers; its number is zero on the first leg.
    pub(crate) round: RoundId,
    pub(crate) peer: Peer,
    /// The state that the handler kept, in its own text.
    pub(crate) state: Option<String>,
    /// Whether the answers were asked for: they came with a state, and the state was opened.
    pub(crate) solicited: bool,
    /// The server that was wrapped.
    pub(crate) server: Arc<dyn Any + Send + Sync>,
    /// Where the handler's questions go, if it waits for them.
    pub(crate) frame: Arc<Frame>,
    /// Why the idempotency key of a first leg cannot be used. A handler that can ask does not start then.
    refused_key: Option<&'static str>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.frame.was_viewed();
    }
}

/// How a [`View`] travels. Only this module can put one into a request, because the type cannot be named outside.
#[derive(Clone)]
struct Carried(Arc<View>);

impl View {
    pub(crate) fn new(
        round: RoundId,
        peer: Peer,
        state: Option<String>,
        solicited: bool,
        server: Arc<dyn Any + Send + Sync>,
        frame: Arc<Frame>,
        refused_key: Option<&'static str>,
    ) -> Arc<Self> {
        frame.is_viewed();
        Arc::new(Self { round, peer, state, solicited, server, frame, refused_key })
    }

    /// Whether a handler that is called again for each round can ask: there is a way, and the client declared it.
    pub(crate) fn can(&self, kind: QuestionKind) -> bool {
        self.reaches() && self.peer.can(kind)
    }

    /// Whether this question can be asked by a handler that is called again for each round; if not, why not.
    pub(crate) fn permits(&self, kind: QuestionKind, request: &InputRequest) -> Result<(), FlowError> {
        match self.peer.era == Era::Legacy && kind != QuestionKind::Elsewhere && self.frame.legacy().pushes().is_none()
        {
            true => Err(FlowError::LegacyClient),
            false => self.peer.permits(kind, request),
        }
    }

    fn reaches(&self) -> bool {
        self.peer.era == Era::Modern || (self.frame.legacy().pushes().is_some() && self.peer.back_channel)
    }

    pub(crate) fn put(self: &Arc<Self>, context: &mut RequestContext<RoleServer>) {
        context.extensions.insert(Carried(self.clone()));
    }

    pub(crate) fn take(context: &RequestContext<RoleServer>, extractor: &'static str) -> Result<Arc<Self>, FlowError> {
        let carried = context.extensions.get::<Carried>();
        let view = carried.map(|Carried(view)| view.clone()).ok_or(FlowError::NotWrapped { extractor })?;
        if let Some(why) = view.refused_key {
            return Err(FlowError::Protocol(ErrorData::invalid_params(why, None)));
        }
        view.frame.shapes.note(extractor);
        Ok(view)
    }
}
