//! The envelope: what a token carries, and everything it is bound to.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::digest::Digest;
pub(crate) use crate::kind::{Kind, Method};
use crate::{clock::Timestamp, flow::journal::Pages, refusal::Refusal};

/// The layout of [`Envelope`]. Changes with every change of its fields or their meaning.
const VERSION: u8 = 1;

/// How far ahead of ours the clock of the instance that minted a token may be.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Names a flow: 128 random bits, the same for all of its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowId([u8; 16]);

impl FlowId {
    /// The flow of this name.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the name.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a request has to agree with for a token to be opened by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    pub(crate) principal: Option<Digest>,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) arguments: Digest,
}

/// When a token was issued, and until when it is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) issued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) deadline: Timestamp,
}

impl Span {
    /// Until when the token may still look good to some instance of a fleet, and so until when its use is remembered.
    pub(crate) fn remembered_until(&self) -> Timestamp {
        self.expires_at + CLOCK_SKEW
    }

    /// The same of the flow, and so of the effects it has had.
    pub(crate) fn deadline_remembered_until(&self) -> Timestamp {
        self.deadline + CLOCK_SKEW
    }
}

/// Everything a flow knows between two legs. [`from_bytes`](Self::from_bytes) reads one from what was in a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) flow: FlowId,
    pub(crate) round: u32,
    pub(crate) span: Span,
    pub(crate) binding: Binding,
    /// The questions of this round. An answer to anything else is not looked at.
    pub(crate) asked: Vec<Asked>,
    pub(crate) resume: Resume,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) kind: Kind,
}

/// How the flow goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Resume {
    /// By calling the handler again, with what was answered so far, the values of its effects (as JSON text, by name) and
    /// the state it kept.
    Handler { settled: Vec<(String, Settled)>, onces: Vec<(String, String)>, state: Option<String> },
    /// By waking the handler that waits under the flow's name.
    Frame,
    /// By calling the handler again, to go through what it has been through already.
    Journal(Pages),
}

/// An answer of an earlier round. The wire carries the latest round's only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Settled {
    /// The answer as it came, as JSON text.
    Accepted {
        kind: Kind,
        json: String,
    },
    Declined,
    Cancelled,
}

impl Envelope {
    /// The plaintext of a token.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let start = vec![VERSION];
        postcard::to_extend(self, start).expect("an envelope has no type that postcard cannot write")
    }

    /// Reads a token's plaintext. To be bound to a request it still has to pass [`check`](Self::check).
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Refusal> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((envelope, [])) => Ok(envelope),
                _ => Err(Refusal::UnknownVersion),
            },
            _ => Err(Refusal::UnknownVersion),
        }
    }

    /// Whether this request, now, may go on with the flow.
    pub(crate) fn check(&self, request: &Binding, now: Timestamp) -> Result<(), Refusal> {
        let held = [
            (self.binding.principal == request.principal, Refusal::Principal),
            (self.binding.method == request.method, Refusal::Method),
            (self.binding.target == request.target, Refusal::Target),
            (self.binding.arguments == request.arguments, Refusal::Arguments),
            (self.span.issued_at <= now + CLOCK_SKEW, Refusal::FromTheFuture),
            // A round never outlives its flow, so that a passed deadline would always look like an expired round.
            (now < self.span.deadline, Refusal::DeadlinePassed),
            (now < self.span.expires_at, Refusal::Expired),
        ];
        match held.into_iter().find(|(holds, _)| !holds) {
            Some((_, refusal)) => Err(refusal),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::seal::{
        KeyRing,
        ring::Purpose,
        token::{open, seal},
    };

    fn envelope() -> Envelope {
        Envelope {
            flow: FlowId::from_bytes([7; 16]),
            round: 1,
            span: Span {
                issued_at: Timestamp::from_millis(1_800_000_000_000),
                expires_at: Timestamp::from_millis(1_800_000_600_000),
                deadline: Timestamp::from_millis(1_800_003_600_000),
            },
            binding: Binding {
                principal: None,
                method: Method::Tool,
                target: "weather_e".to_owned(),
                arguments: Digest::of_arguments(json!({"location": "Tokyo"}).as_object()),
            },
            asked: vec![Asked { key: "units".to_owned(), kind: Kind::Form }],
            resume: Resume::Handler { settled: vec![], onces: vec![], state: None },
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn every_binding_is_checked() {
        let alice = Some(Digest::of_principal("alice"));
        let bob = Some(Digest::of_principal("bob"));
        let of = |principal| {
            let mut envelope = envelope();
            envelope.binding.principal = principal;
            envelope
        };
        let with = |principal| of(principal).binding;
        assert_eq!(of(None).check(&with(None), NOW), Ok(()));
        assert_eq!(of(alice).check(&with(alice), NOW), Ok(()));
        assert_eq!(of(alice).check(&with(bob), NOW), Err(Refusal::Principal));
        assert_eq!(of(alice).check(&with(None), NOW), Err(Refusal::Principal));
        assert_eq!(of(None).check(&with(alice), NOW), Err(Refusal::Principal));

        let changed = |change: fn(&mut Binding)| {
            let mut binding = envelope().binding;
            change(&mut binding);
            envelope().check(&binding, NOW)
        };
        assert_eq!(changed(|b| b.method = Method::Prompt), Err(Refusal::Method));
        assert_eq!(changed(|b| b.target = "wipe".to_owned()), Err(Refusal::Target));
        assert_eq!(changed(|b| b.arguments = Digest::of_arguments(None)), Err(Refusal::Arguments));
    }

    #[test]
    fn time_is_checked_to_the_millisecond() {
        let at = |millis| envelope().check(&envelope().binding, Timestamp::from_millis(millis));
        assert_eq!(at(1_800_000_599_999), Ok(()));
        assert_eq!(at(1_800_000_600_000), Err(Refusal::Expired));
        assert_eq!(at(1_800_000_601_000), Err(Refusal::Expired));
        assert_eq!(at(1_800_000_000_000 - 60_000), Ok(()));
        assert_eq!(at(1_800_000_000_000 - 60_001), Err(Refusal::FromTheFuture));
        assert_eq!(at(1_800_003_600_000), Err(Refusal::DeadlinePassed));
    }

    #[test]
    fn an_envelope_of_another_layout_is_refused() {
        let mut bytes = envelope().to_bytes();
        assert_eq!(Envelope::from_bytes(&bytes), Ok(envelope()));
        bytes.push(0);
        assert_eq!(Envelope::from_bytes(&bytes), Err(Refusal::UnknownVersion));
        assert_eq!(Envelope::from_bytes(&[]), Err(Refusal::UnknownVersion));
        let mut next = envelope().to_bytes();
        next[0] = VERSION + 1;
        assert_eq!(Envelope::from_bytes(&next), Err(Refusal::UnknownVersion));
    }

    /// Fixed key, nonce and clock. A change here is a change of the format: raise the version and keep the old token
    /// as one that is refused.
    #[test]
    fn the_format_is_pinned_by_a_golden_token() {
        let ring = KeyRing::from_bytes([[42; 32]]).unwrap().derive(Purpose::State, "golden");
        let golden = include_str!("golden.token").trim();
        assert_eq!(seal(&ring, [24; 24], &envelope().to_bytes()), golden);
        let opened = open(&ring, 64 * 1024, golden).unwrap();
        assert_eq!(Envelope::from_bytes(&opened), Ok(envelope()));
    }
}
