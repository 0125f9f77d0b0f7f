//! Actions: what visitors did at the desk.

use rounds::{FlowId, Principal};

/// An action of a visitor, after it was done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Action {
    /// The visitor. None on a loopback address without sign-in.
    pub actor: Option<Principal>,
    /// What the visitor did.
    pub kind: ActionKind,
    /// The flow, by its id in the register. None for a call, whose flow begins with it.
    pub flow: Option<FlowId>,
    /// The tool.
    pub target: String,
}

/// A function that gets every action.
pub(crate) type Record = Box<dyn Fn(&Action) + Send + Sync>;

/// What a visitor did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ActionKind {
    /// Cancelled a flow.
    Cancelled,
    /// Answered a question, or approved it.
    Answered,
    /// Declined a question, or denied it.
    Declined,
    /// Called a tool, or sent a further leg of such a call, on the page "Try it".
    Tried,
}

impl ActionKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled a flow",
            Self::Answered => "answered a question",
            Self::Declined => "declined a question",
            Self::Tried => "tried a tool",
        }
    }
}

impl Action {
    /// The actor by name, for logs and causes.
    pub(crate) fn actor_name(&self) -> &str {
        self.actor.as_ref().map_or("a visitor without a principal", Principal::as_str)
    }

    pub(crate) fn log(&self) {
        let flow = self.flow.map(tracing::field::display);
        let (actor, target) = (self.actor_name(), self.target.as_str());
        tracing::info!(target: "rounds::desk", actor, flow, target, "{}", self.kind.as_str());
    }
}
