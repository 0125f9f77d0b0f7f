//! The token: `requestState` as it is on the wire.
//!
//! `r1.` and then, as canonical unpadded base64url, key id (8 bytes), nonce (24), ciphertext and tag (16).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

pub(crate) use super::cipher::Nonce;
use super::{
    cipher::{self, KEY_ID_BYTES, Plaintext, Unopened},
    refusal::Refusal,
    ring::{DerivedRing, KeyId, is_ephemeral_of_this_process},
};

const PREFIX: &str = "r1.";

/// Encrypts and authenticates the contents of a token.
pub(crate) fn seal(ring: &DerivedRing, nonce: Nonce, plaintext: impl Into<Plaintext>) -> String {
    let bytes = cipher::seal(ring, nonce, context, plaintext);
    let mut token = String::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4);
    token.push_str(PREFIX);
    base64_simd::URL_SAFE_NO_PAD.encode_append(&bytes, &mut token);
    token
}

/// The context of tokens: the prefix, which no other kind of sealed bytes has.
fn context(key: KeyId) -> [u8; PREFIX.len() + KEY_ID_BYTES] {
    let mut context = [0; PREFIX.len() + KEY_ID_BYTES];
    context[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
    context[PREFIX.len()..].copy_from_slice(&key);
    context
}

/// Verifies and decrypts a token, or returns why it was refused.
pub(crate) fn open(ring: &DerivedRing, limit: usize, token: &str) -> Result<Vec<u8>, Refusal> {
    if token.len() > limit {
        return Err(Refusal::TooLong);
    }
    let encoded = token.strip_prefix(PREFIX).ok_or(Refusal::NotAToken)?;
    // This engine rejects padding, the other alphabet, and left-over bits: a token has exactly one spelling.
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Refusal::NotAToken)?;
    cipher::open(ring, context, bytes).map_err(|unopened| match unopened {
        Unopened::Short => Refusal::NotAToken,
        Unopened::UnknownKey(id) if is_ephemeral_of_this_process(id) => Refusal::OtherRoundsOfThisProcess,
        Unopened::UnknownKey(_) => Refusal::UnknownKey,
        Unopened::Tampered => Refusal::Tampered,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::seal::ring::{KeyRing, Purpose};

    const LIMIT: usize = 64 * 1024;

    fn ring(keys: &[u8]) -> DerivedRing {
        let keys = keys.iter().map(|byte| [*byte; 32]);
        KeyRing::from_bytes(keys).unwrap().derive(Purpose::State, "test")
    }

    #[test]
    fn a_token_opens_to_what_was_sealed() {
        let token = seal(&ring(&[1]), [9; 24], b"what a flow knows");
        assert_eq!(open(&ring(&[1]), LIMIT, &token).unwrap(), b"what a flow knows");
    }

    #[test]
    fn no_flipped_bit_gets_through() {
        let ring = ring(&[1]);
        let token = seal(&ring, [9; 24], b"what a flow knows");
        let bytes = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let flipped = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(flipped));
            let refusal = open(&ring, LIMIT, &flipped).unwrap_err();
            let expected = if bit / 8 < KEY_ID_BYTES { Refusal::UnknownKey } else { Refusal::Tampered };
            assert_eq!(refusal, expected, "bit {bit}");
        }
    }

    #[test]
    fn no_other_character_gets_through() {
        let ring = ring(&[1]);
        let token = seal(&ring, [9; 24], b"what a flow knows");
        for place in 0..token.len() {
            for other in ["A", "b", "_", "=", "+", "/", " ", "\n", "é"] {
                if &token[place..=place] != other {
                    let changed = format!("{}{other}{}", &token[..place], &token[place + 1..]);
                    assert!(open(&ring, LIMIT, &changed).is_err(), "{changed}");
                }
            }
        }
    }

    #[test]
    fn no_prefix_of_a_token_and_nothing_longer_gets_through() {
        let ring = ring(&[1]);
        let token = seal(&ring, [9; 24], b"what a flow knows");
        for length in 0..token.len() {
            assert!(open(&ring, LIMIT, &token[..length]).is_err(), "{length}");
        }
        for more in ["A", "==", "AAAA", &token] {
            assert!(open(&ring, LIMIT, &format!("{token}{more}")).is_err(), "{more}");
        }
    }

    #[test]
    fn the_length_is_checked_before_anything_is_decoded() {
        let long = "r1.".to_owned() + &"!".repeat(1 << 20);
        assert_eq!(open(&ring(&[1]), LIMIT, &long), Err(Refusal::TooLong));
    }

    #[test]
    fn another_version_is_refused() {
        let ring = ring(&[1]);
        let token = seal(&ring, [9; 24], b"what a flow knows");
        for prefix in ["", "r2.", "R1.", "v1.", "r1"] {
            let other = token.replacen(PREFIX, prefix, 1);
            assert_eq!(open(&ring, LIMIT, &other), Err(Refusal::NotAToken), "{prefix}");
        }
    }

    #[test]
    fn a_swapped_key_id_is_refused_even_when_the_ring_has_that_key() {
        let ring = ring(&[1, 2]);
        let token = seal(&ring, [9; 24], b"what a flow knows");
        let mut bytes = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).unwrap();
        bytes[..KEY_ID_BYTES].copy_from_slice(&ring.keys_for_test()[1]);
        let swapped = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(open(&ring, LIMIT, &swapped), Err(Refusal::Tampered));
    }

    #[test]
    fn rotation_in_its_three_phases_loses_no_token_and_ends_with_the_old_key_retired() {
        let (before, appended, moved, after) = (ring(&[1]), ring(&[1, 2]), ring(&[2, 1]), ring(&[2]));
        let old = seal(&before, [9; 24], b"old");
        let new = seal(&moved, [9; 24], b"new");
        assert_eq!(seal(&appended, [9; 24], b"old"), old, "an appended key does not seal yet");
        for ring in [&before, &appended, &moved] {
            assert_eq!(open(ring, LIMIT, &old).unwrap(), b"old");
        }
        for ring in [&appended, &moved, &after] {
            assert_eq!(open(ring, LIMIT, &new).unwrap(), b"new");
        }
        assert_eq!(open(&after, LIMIT, &old), Err(Refusal::UnknownKey));
    }

    #[test]
    fn another_audience_does_not_know_the_key() {
        let keys = KeyRing::from_bytes([[1; 32]]).unwrap();
        let token = seal(&keys.derive(Purpose::State, "one"), [9; 24], b"what a flow knows");
        let other = keys.derive(Purpose::State, "two");
        assert_eq!(open(&other, LIMIT, &token), Err(Refusal::UnknownKey));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(plaintext in prop::collection::vec(any::<u8>(), 0..2048), nonce: Nonce) {
            let ring = ring(&[1]);
            let token = seal(&ring, nonce, &plaintext);
            prop_assert_eq!(open(&ring, LIMIT, &token).unwrap(), plaintext);
        }

        #[test]
        fn no_text_opens_that_was_not_sealed(text in "(r1\\.)?[A-Za-z0-9_-]{0,200}") {
            prop_assert!(open(&ring(&[1]), LIMIT, &text).is_err());
        }
    }

    impl DerivedRing {
        fn keys_for_test(&self) -> Vec<KeyId> {
            [1u8, 2]
                .iter()
                .map(|byte| ring(&[*byte]).sealing().id)
                .inspect(|id| assert!(self.find(*id).is_some()))
                .collect()
        }
    }
}
