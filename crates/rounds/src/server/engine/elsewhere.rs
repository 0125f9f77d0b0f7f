//! The engine's side of questions that are answered elsewhere: the decisions that a leg is given to go on with.

use std::sync::Arc;

use rmcp::model::InputResponses;

use crate::server::seal::{FlowId, envelope::Envelope};

/// The decisions on the questions of one round. They travel in the request's extensions, where only this crate can put
/// them, and take the place of what the client sent.
#[derive(Debug, Clone)]
pub(crate) struct Decisions {
    flow: FlowId,
    round: u32,
    answers: Arc<InputResponses>,
}

impl Decisions {
    pub(crate) fn new(envelope: &Envelope, answers: InputResponses) -> Self {
        Self { flow: envelope.flow, round: envelope.round, answers: Arc::new(answers) }
    }

    /// The answers, if they are those to this round.
    pub(super) fn of(&self, envelope: &Envelope) -> Option<&InputResponses> {
        (self.flow == envelope.flow && self.round == envelope.round).then_some(&*self.answers)
    }
}

/// Marks a request that the server makes itself, to go on with a call whose client no longer waits. It travels in the
/// request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continued;
