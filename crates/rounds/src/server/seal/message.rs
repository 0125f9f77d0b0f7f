//! Messages between the instances of a fleet: sealed, and addressed to one of them.

use super::{
    cipher::{self, Nonce, Unopened},
    ring::{DerivedRing, KeyId},
};

pub(crate) fn seal(ring: &DerivedRing, nonce: Nonce, to: &str, plaintext: &[u8]) -> Vec<u8> {
    cipher::seal(ring, nonce, |key| context(to, key), plaintext)
}

pub(crate) fn open(ring: &DerivedRing, here: &str, sealed: &[u8]) -> Result<Vec<u8>, Unopened> {
    cipher::open(ring, |key| context(here, key), sealed.to_vec())
}

fn context(to: &str, key: KeyId) -> Vec<u8> {
    [b"rounds/message/1\0", to.as_bytes(), &key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::seal::{KeyRing, ring::Purpose};

    #[test]
    fn a_message_opens_where_it_was_addressed_to_and_nowhere_else() {
        let keys = KeyRing::from_bytes([[1; 32]]).unwrap();
        let ring = keys.derive(Purpose::Message, "test");
        let sealed = seal(&ring, [9; 24], "a", b"an errand");
        assert_eq!(open(&ring, "a", &sealed).unwrap(), b"an errand");
        assert_eq!(open(&ring, "b", &sealed), Err(Unopened::Tampered));
        assert!(open(&keys.derive(Purpose::Record, "test"), "a", &sealed).is_err());
        assert!(open(&keys.derive(Purpose::Message, "other"), "a", &sealed).is_err());
    }
}
