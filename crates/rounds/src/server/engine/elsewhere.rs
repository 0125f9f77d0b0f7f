//! The engine's side of questions that are answered elsewhere: the decisions that a leg is given to go on with.

use std::{fmt, sync::Arc};

use rmcp::model::InputResponses;

use crate::{
    server::seal::{
        FlowId,
        envelope::{AskedKey, Envelope, QuestionKind},
    },
    shared::clock::BoxFuture,
};

/// The decisions on the questions of one round. They travel in the request's extensions, where only this crate can put
/// them, and take the place of what the client sent.
#[derive(Clone)]
pub(crate) struct Decisions(Arc<Decided>);

struct Decided {
    flow: FlowId,
    round: u32,
    answers: InputResponses,
    /// The keys of those that do not count: the handler asked something else when the call continued before.
    void: Vec<String>,
    tell: TellUnlike,
}

/// Records that the decisions with these keys do not count.
pub(crate) type TellUnlike = Box<dyn Fn(Vec<String>) -> BoxFuture<'static, ()> + Send + Sync>;

impl Decisions {
    pub(crate) fn new(envelope: &Envelope, answers: InputResponses, void: Vec<String>, tell: TellUnlike) -> Self {
        Self(Arc::new(Decided { flow: envelope.flow, round: envelope.round, answers, void, tell }))
    }

    /// The answers, if they are those to this round.
    pub(super) fn of(&self, envelope: &Envelope) -> Option<&InputResponses> {
        (self.0.flow == envelope.flow && self.0.round == envelope.round).then_some(&self.0.answers)
    }

    /// Whether the decision with this key was found not to count.
    pub(super) fn is_void(&self, key: &str) -> bool {
        self.0.void.iter().any(|void| void == key)
    }

    /// Records that these do not count, so that the people who made them are told.
    pub(super) async fn tell_unlike(&self, keys: Vec<String>) {
        (self.0.tell)(keys).await;
    }
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decisions").field("flow", &self.0.flow).field("round", &self.0.round).finish_non_exhaustive()
    }
}

/// The keys of the questions of a round that are answered elsewhere.
pub(super) fn keys_elsewhere(asked: &[AskedKey]) -> impl Iterator<Item = &str> {
    asked.iter().filter(|asked| asked.kind == QuestionKind::Elsewhere).map(|asked| &*asked.key)
}

/// Marks a request that the server makes itself, to go on with a call whose client no longer waits. It travels in the
/// request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continued;
