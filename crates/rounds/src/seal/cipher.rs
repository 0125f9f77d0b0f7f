//! Bytes that only the ring can read and write: key id (8 bytes), nonce (24), ciphertext and tag (16).
//!
//! The token and the records of a ledger are both made of these, each with keys and a context of its own.

use chacha20poly1305::{
    Tag, XNonce,
    aead::{Aead, AeadInOut, Payload},
};

use super::ring::{DerivedRing, KeyId};

/// Random for everything that is sealed. 24 bytes are enough to draw without ever looking back.
pub(crate) type Nonce = [u8; 24];

pub(super) const KEY_ID_BYTES: usize = size_of::<KeyId>();
const NONCE_BYTES: usize = size_of::<Nonce>();
const HEAD_BYTES: usize = KEY_ID_BYTES + NONCE_BYTES;

/// Encrypts and authenticates. What is sealed in one context opens in no other.
pub(super) fn seal(ring: &DerivedRing, nonce: Nonce, context: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let key = ring.sealing();
    let mut sealed = Vec::with_capacity(HEAD_BYTES + plaintext.len() + size_of::<Tag>());
    sealed.extend_from_slice(&key.id);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(plaintext);
    let tag = key
        .cipher
        .encrypt_inout_detached(
            &XNonce::from(nonce),
            &associated(context, key.id),
            sealed[HEAD_BYTES..].as_mut().into(),
        )
        .expect("what is sealed here is far shorter than what the cipher can take");
    sealed.extend_from_slice(&tag);
    sealed
}

/// Verifies and decrypts, or says why not.
pub(super) fn open(ring: &DerivedRing, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unopened> {
    let (id, rest) = sealed.split_first_chunk::<KEY_ID_BYTES>().ok_or(Unopened::Short)?;
    let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(Unopened::Short)?;
    let key = ring.find(*id).ok_or(Unopened::UnknownKey(*id))?;
    let payload = Payload { msg: ciphertext, aad: &associated(context, *id) };
    key.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| Unopened::Tampered)
}

/// Why sealed bytes do not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unopened {
    #[error("it is too short to have been sealed")]
    Short,
    #[error("no key of this ring sealed it")]
    UnknownKey(KeyId),
    #[error("it was changed, or belongs elsewhere")]
    Tampered,
}

/// What is authenticated beside the ciphertext: the context and the key id. The nonce is bound by the cipher itself.
fn associated(context: &[u8], id: KeyId) -> Vec<u8> {
    [context, &id].concat()
}
