//! Bytes that only the ring can read and write: key id (8 bytes), nonce (24), ciphertext and tag (16).
//!
//! The token and the records of a ledger are both made of these, each with keys and a context of its own: what is authenticated
//! beside the ciphertext, with the key id in it. The nonce is bound by the cipher itself.

use chacha20::{R20, hchacha};
use ring::aead::{self, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use zeroize::Zeroizing;

use super::ring::{DerivedKey, DerivedRing, KeyId};

/// Random for everything that is sealed. 24 bytes are enough to draw without ever looking back.
pub(crate) type Nonce = [u8; 24];

pub(super) const KEY_ID_BYTES: usize = size_of::<KeyId>();
const HEAD_BYTES: usize = KEY_ID_BYTES + size_of::<Nonce>();

/// What is to be sealed, with room around it for what comes before and after, so that it is encrypted where it is.
pub(crate) struct Plaintext(Vec<u8>);

impl Plaintext {
    /// Nothing so far, with room for this many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut all = Vec::with_capacity(HEAD_BYTES + bytes + CHACHA20_POLY1305.tag_len());
        all.extend_from_slice(&[0; HEAD_BYTES]);
        Self(all)
    }

    #[cfg(test)]
    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.0[HEAD_BYTES..].to_vec()
    }
}

impl Extend<u8> for Plaintext {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, bytes: T) {
        self.0.extend(bytes);
    }
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for Plaintext {
    fn from(bytes: &T) -> Self {
        let bytes = bytes.as_ref();
        let mut plaintext = Self::with_capacity(bytes.len());
        plaintext.0.extend_from_slice(bytes);
        plaintext
    }
}

/// Encrypts and authenticates. What is sealed in one context opens in no other.
pub(super) fn seal<C: AsRef<[u8]>>(
    ring: &DerivedRing,
    nonce: Nonce,
    context: impl FnOnce(KeyId) -> C,
    plaintext: impl Into<Plaintext>,
) -> Vec<u8> {
    let key = ring.sealing();
    let Plaintext(mut sealed) = plaintext.into();
    sealed[..KEY_ID_BYTES].copy_from_slice(&key.id);
    sealed[KEY_ID_BYTES..HEAD_BYTES].copy_from_slice(&nonce);
    let (cipher, nonce) = of_message(key, &nonce);
    let tag = cipher
        .seal_in_place_separate_tag(nonce, Aad::from(context(key.id)), &mut sealed[HEAD_BYTES..])
        .expect("what is sealed here is far shorter than what the cipher can take");
    sealed.extend_from_slice(tag.as_ref());
    sealed
}

/// Verifies and decrypts, in place, or says why not.
pub(super) fn open<C: AsRef<[u8]>>(
    ring: &DerivedRing,
    context: impl FnOnce(KeyId) -> C,
    mut sealed: Vec<u8>,
) -> Result<Vec<u8>, Unopened> {
    let (id, rest) = sealed.split_first_chunk::<KEY_ID_BYTES>().ok_or(Unopened::Short)?;
    let (nonce, _) = rest.split_first_chunk().ok_or(Unopened::Short)?;
    let key = ring.find(*id).ok_or(Unopened::UnknownKey(*id))?;
    let (cipher, nonce) = of_message(key, nonce);
    let opened = cipher.open_within(nonce, Aad::from(context(key.id)), &mut sealed, HEAD_BYTES..);
    let length = opened.map_err(|_| Unopened::Tampered)?.len();
    sealed.truncate(length);
    Ok(sealed)
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

/// XChaCha20-Poly1305: the first 16 bytes of a nonce go into a key for the one message, the others into the nonce of
/// ChaCha20-Poly1305 under that key.
fn of_message(key: &DerivedKey, nonce: &Nonce) -> (LessSafeKey, aead::Nonce) {
    let (salt, rest) = nonce.split_first_chunk::<16>().expect("a nonce has 24 bytes");
    let subkey: Zeroizing<[u8; 32]> = Zeroizing::new(hchacha::<R20>((&*key.secret).into(), salt.into()).into());
    let cipher = UnboundKey::new(&CHACHA20_POLY1305, &subkey[..]).expect("the cipher takes keys of 32 bytes");
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[4..].copy_from_slice(rest);
    (LessSafeKey::new(cipher), aead::Nonce::assume_unique_for_key(nonce))
}
