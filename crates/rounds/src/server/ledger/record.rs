//! Records: what a ledger outside of this process keeps of a flow, sealed and bound to its claim.
//!
//! A ledger is shared, and other parties may read it or write to it. They can read no record, and a record that is
//! moved to another claim, within a flow or between flows, does not open there.

use super::{ClaimId, ClaimKind, documents::DocumentId};
use crate::server::seal::{
    Digest, FlowId,
    cipher::{self, Nonce, Unopened},
    ring::{DerivedRing, KeyId},
};

/// The kind of a record, and the claim that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// The outcome of a claim with these answers: a reply, or the value of an effect.
    Outcome(ClaimId, Digest),
    /// The state that a round begins with, if it was too large for its token.
    Spill(ClaimId),
    /// A part of the flow's record, by its number.
    Part(FlowId, u32),
    /// The content of a document.
    Document(DocumentId),
}

impl Place {
    pub(crate) fn seal(self, ring: &DerivedRing, nonce: Nonce, plaintext: &[u8]) -> Vec<u8> {
        cipher::seal(ring, nonce, |key| self.context(key), plaintext)
    }

    pub(crate) fn open(self, ring: &DerivedRing, sealed: Vec<u8>) -> Result<Vec<u8>, Unopened> {
        cipher::open(ring, |key| self.context(key), sealed)
    }

    /// Unambiguous: every part has a fixed length, or follows a byte that identifies it.
    fn context(self, key: KeyId) -> Vec<u8> {
        let (tag, id, answers) = match self {
            Self::Outcome(id, answers) => (b'o', id, Some(answers)),
            Self::Spill(id) => (b's', id, None),
            Self::Part(flow, number) => (b'p', ClaimId { flow, what: ClaimKind::Round(number) }, None),
            Self::Document(id) => return document_context(id, key),
        };
        let mut context = Vec::with_capacity(128);
        context.extend(b"rounds/record/1\0");
        context.push(tag);
        context.extend(id.flow.as_bytes());
        match id.what {
            ClaimKind::Round(number) => {
                context.push(b'r');
                context.extend(number.to_be_bytes());
            }
            ClaimKind::Once(name) => {
                context.push(b'e');
                context.extend(name.as_bytes());
            }
        }
        context.extend(answers.iter().flat_map(Digest::as_bytes));
        context.extend(key);
        context
    }
}

fn document_context(id: DocumentId, key: KeyId) -> Vec<u8> {
    let kind = id.kind.as_str().as_bytes();
    [b"rounds/record/1\0d", kind, b"\0", id.key.as_bytes(), &key[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ledger::documents::DocumentKind;
    use crate::server::seal::{FlowId, KeyRing, golden, ring::Purpose};

    fn ring(keys: &[u8]) -> DerivedRing {
        let keys = keys.iter().map(|byte| [*byte; 32]);
        KeyRing::from_bytes(keys).unwrap().derive(Purpose::Record, "test")
    }

    #[test]
    fn a_record_opens_in_its_own_place_only() {
        let (one, other) = (FlowId::from_bytes([1; 16]), FlowId::from_bytes([2; 16]));
        let (yes, no) = (Digest::of_principal("yes"), Digest::of_principal("no"));
        let round = |flow, number| ClaimId { flow, what: ClaimKind::Round(number) };
        let effect = |flow, name| ClaimId { flow, what: ClaimKind::Once(name) };
        let places = [
            Place::Outcome(round(one, 1), yes),
            Place::Outcome(round(one, 1), no),
            Place::Outcome(round(one, 2), yes),
            Place::Outcome(round(other, 1), yes),
            Place::Outcome(effect(one, yes), yes),
            Place::Outcome(effect(one, no), yes),
            Place::Outcome(effect(other, yes), yes),
            Place::Spill(round(one, 1)),
            Place::Spill(round(one, 2)),
            Place::Spill(round(other, 1)),
            Place::Part(one, 1),
            Place::Part(one, 2),
            Place::Part(other, 1),
            Place::Document(DocumentId { kind: DocumentKind::Task, key: yes }),
            Place::Document(DocumentId { kind: DocumentKind::Task, key: no }),
            Place::Document(DocumentId { kind: DocumentKind::Decision, key: yes }),
        ];
        let ring = ring(&[1]);
        for (i, here) in places.iter().enumerate() {
            let sealed = here.seal(&ring, [9; 24], b"the reply");
            for (j, there) in places.iter().enumerate() {
                let opened = there.open(&ring, sealed.clone());
                let expected = if i == j { Ok(b"the reply".to_vec()) } else { Err(Unopened::Tampered) };
                assert_eq!(opened, expected, "{here:?} at {there:?}");
            }
        }
    }

    #[test]
    fn nothing_but_what_was_sealed_opens() {
        let place = Place::Spill(ClaimId { flow: FlowId::from_bytes([1; 16]), what: ClaimKind::Round(1) });
        let ring = ring(&[1]);
        let sealed = place.seal(&ring, [9; 24], b"the state");
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(place.open(&ring, flipped).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(place.open(&ring, sealed[..length].to_vec()).is_err(), "{length}");
        }
    }

    #[test]
    fn an_older_key_of_the_ring_still_opens_and_a_retired_one_does_not() {
        let place = Place::Spill(ClaimId { flow: FlowId::from_bytes([1; 16]), what: ClaimKind::Round(1) });
        let old = place.seal(&ring(&[1]), [9; 24], b"the state");
        assert_eq!(place.open(&ring(&[2, 1]), old.clone()).unwrap(), b"the state");
        assert!(matches!(place.open(&ring(&[2]), old), Err(Unopened::UnknownKey(_))));
    }

    /// A change here changes the format: records that a ledger holds during the deploy will not open.
    #[test]
    fn both_formats_are_pinned_by_golden_records() {
        let id = ClaimId { flow: FlowId::from_bytes([7; 16]), what: ClaimKind::Round(1) };
        let place = Place::Outcome(id, Digest::of_principal("yes"));
        let sealed = place.seal(&ring(&[42]), [24; 24], b"the reply");
        for golden in [include_str!("golden-1.record"), include_str!("golden-2.record")] {
            assert_eq!(golden::hex(&sealed), golden.trim());
            assert_eq!(place.open(&ring(&[42]), golden::bytes(golden)).unwrap(), b"the reply");
        }
    }

    #[test]
    fn a_key_for_tokens_opens_no_record() {
        let place = Place::Spill(ClaimId { flow: FlowId::from_bytes([1; 16]), what: ClaimKind::Round(1) });
        let keys = KeyRing::from_bytes([[1; 32]]).unwrap();
        let sealed = place.seal(&keys.derive(Purpose::Record, "test"), [9; 24], b"the state");
        assert!(matches!(place.open(&keys.derive(Purpose::State, "test"), sealed), Err(Unopened::UnknownKey(_))));
    }
}
