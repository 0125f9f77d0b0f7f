//! Opening the state that a leg brings, and refusing one that does not hold.

use rmcp::ErrorData;
use serde_json::Value;

use super::Leg;
use crate::server::{
    engine::{core::Core, stop::Stop, view::RoundId},
    policy::{
        gate::Era,
        observe::{Event, Outcome, Station},
    },
    seal::{
        envelope::{Envelope, Method},
        refusal::Refusal,
        token,
    },
};

impl Leg<'_> {
    pub(super) fn open(&mut self, state: &str) -> Result<Box<Envelope>, Refusal> {
        let plaintext = token::open(&self.core.keys(), self.core.limits.token_bytes, state)?;
        // Boxed because several futures pass it on.
        let envelope = Box::new(Envelope::from_bytes(&plaintext)?);
        // Known from here on, so that a refusal can be told of its flow.
        self.of(RoundId::new(envelope.flow, envelope.round));
        envelope.check(&self.binding, self.core.now())?;
        if self.peer.era == Era::Legacy && !self.continued {
            return Err(Refusal::LegacyClient);
        }
        Ok(envelope)
    }

    /// Says what came of opening the state.
    pub(super) fn opened(&self, opened: Result<Box<Envelope>, Refusal>) -> Result<Box<Envelope>, Stop> {
        opened.inspect(|_| self.event(&Station::Opened)).map_err(|refusal| self.refuse(refusal))
    }

    pub(super) fn refuse(&self, refusal: Refusal) -> Stop {
        self.event(&Station::Refused(refusal));
        Stop::refused()
    }
}

/// Refuses a leg whose state or answers are not even of the right type.
pub(crate) fn refuse_unreadable(core: &Core, method: Method, params: Option<&Value>) -> ErrorData {
    let target = params.and_then(|params| params.get("name").or(params.get("uri"))).and_then(Value::as_str);
    let (flow, round, target) = (None, 0, target.unwrap_or_default());
    let error = Refusal::frozen();
    let ended = Station::Ended(Outcome::Error { code: error.code.0 });
    for station in &[Station::Refused(Refusal::WrongType), ended] {
        core.observe(&Event { flow, round, method, target, station, elapsed: None, ends_flow: false });
    }
    error
}
