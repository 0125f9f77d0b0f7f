//! What happened in a simulation, in order.

use crate::plan::Fault;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A fault begins, to this process if to one. A process that was killed stays so.
    Begins { number: usize, fault: Fault, process: String },
    /// The fault with this number is over.
    Ends { number: usize },
    /// The network lost a call to the store or a message.
    Lost,
    /// A client sends a leg.
    Sent(Leg),
    /// The server has a reply to a leg, whether it reaches the client or not.
    Replied { leg: u32, outcome: Outcome },
    /// What the client knows of a leg that it no longer waits for.
    Heard { leg: u32, outcome: Outcome },
    /// A flow is over for its client.
    Over { flow: u32, end: End },
    /// The shop booked a flight.
    Charged { flow: u32, key: String, instance: String },
    /// A lease lapsed, and a leg found that out while a leg waited. All moments are in milliseconds.
    Lapsed { claim: String, lapsed: u64, waits_since: u64 },
    /// A message arrived at an instance.
    Delivered { from: String, to: String },
}

/// A leg that a client sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leg {
    pub(crate) leg: u32,
    pub(crate) flow: u32,
    pub(crate) shape: Shape,
    pub(crate) instance: String,
    /// The token that it answers; none in a first leg.
    pub(crate) state: Option<String>,
    pub(crate) answer: &'static str,
}

/// How a handler is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Linear,
    Durable,
    Guard,
}

impl Shape {
    pub(crate) fn tool(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Durable => "durable",
            Self::Guard => "guard",
        }
    }
}

/// How a leg ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Asked {
        key: String,
        state: String,
    },
    Text(String),
    Retry,
    Frozen,
    Error(String),
    /// Nothing arrived, for this reason. The leg may have run.
    Nothing(&'static str),
}

impl Outcome {
    /// Whether it is a reply that is recorded and given to every equal leg.
    pub(crate) fn is_reply(&self) -> bool {
        matches!(self, Self::Asked { .. } | Self::Text(_))
    }
}

/// How a flow ended for its client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// With this text, in reply to this leg.
    Text { leg: u32, text: String },
    /// With an error that no retry helps against, in reply to this leg.
    Lost { leg: u32, outcome: Outcome },
    /// The client has retried long enough.
    GivenUp,
}
