//! The seal without a server, for benchmarks.

use std::{mem, time::Duration};

use rmcp::model::JsonObject;

use crate::{
    KeyRing,
    observe::Refusal,
    server::seal::{
        Digest, FlowId,
        envelope::{AskedKey, Binding, Envelope, HandlerRecord, Method, QuestionKind, Resume, Span},
        ring::{DerivedRing, Purpose},
        token,
    },
    shared::clock::{Clock, SystemClock, Timestamp},
};

/// Seals and opens the state of one call that has asked one question, as a server does.
pub struct Seal {
    ring: DerivedRing,
    binding: Binding,
}

impl Seal {
    /// A seal for a call of this tool with these arguments, at a server with these keys.
    pub fn new(keys: &KeyRing, audience: &str, tool: &str, arguments: &JsonObject) -> Self {
        let binding = Binding {
            principal: None,
            method: Method::Tool,
            target: tool.to_owned(),
            arguments: Digest::of_arguments(Some(arguments)),
        };
        Self { ring: keys.derive(Purpose::State, audience), binding }
    }

    /// The token of a round whose handler keeps this state. A handler passes the state by value; here it is borrowed,
    /// so that it can be sealed repeatedly without a copy.
    pub fn seal(&self, state: &mut String) -> String {
        let now = Self::now();
        let envelope = Envelope {
            flow: FlowId::from_bytes([7; 16]),
            round: 1,
            span: Span {
                issued_at: now,
                expires_at: now + Duration::from_secs(600),
                deadline: now + Duration::from_secs(3600),
            },
            binding: &self.binding,
            asked: vec![AskedKey { key: "units", kind: QuestionKind::Form }],
            resume: Resume::Handler(HandlerRecord { state: Some(mem::take(state)), ..HandlerRecord::default() }),
        };
        let mut nonce = token::Nonce::default();
        getrandom::fill(&mut nonce).expect("the operating system provides randomness");
        let token = token::seal(&self.ring, nonce, envelope.to_plaintext());
        if let Resume::Handler(HandlerRecord { state: Some(lent), .. }) = envelope.resume {
            *state = lent;
        }
        token
    }

    /// The state in a token, after every check except that of the ledger.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] of a server.
    pub fn open(&self, token: &str) -> Result<Option<String>, Refusal> {
        let envelope = Envelope::from_bytes(&token::open(&self.ring, token.len(), token)?)?;
        envelope.check(&self.binding, Self::now())?;
        match envelope.resume {
            Resume::Handler(kept) => Ok(kept.state),
            _ => Ok(None),
        }
    }

    fn now() -> Timestamp {
        SystemClock.now().into()
    }
}
