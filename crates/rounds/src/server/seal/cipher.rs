//! Bytes that only holders of the ring can read and write: key id (8 bytes), nonce (24), ciphertext and tag (16).
//!
//! Tokens and the records of a ledger both consist of these, each with keys and a context of its own. The context is
//! authenticated with the ciphertext and contains the key id. The cipher itself binds the nonce.

use chacha20::{R20, hchacha};
use ring::aead::{self, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use zeroize::Zeroizing;

use super::ring::{DerivedKey, DerivedRing, KeyId};

/// A random nonce for everything that is sealed. 24 bytes are enough to draw nonces without a record of earlier ones.
pub(crate) type Nonce = [u8; 24];

pub(super) const KEY_ID_BYTES: usize = size_of::<KeyId>();
const HEAD_BYTES: usize = KEY_ID_BYTES + size_of::<Nonce>();

/// Bytes to be sealed, with space before and after them, so that they are encrypted in place.
pub(crate) struct Plaintext(Vec<u8>);

impl Plaintext {
    /// An empty plaintext with space for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut all = Vec::with_capacity(HEAD_BYTES + bytes + CHACHA20_POLY1305.tag_len());
        all.extend_from_slice(&[0; HEAD_BYTES]);
        Self(all)
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
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

/// Encrypts and authenticates. Bytes that were sealed in one context do not open in another.
pub(crate) fn seal<C: AsRef<[u8]>>(
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
        .expect("sealed bytes are far shorter than the limit of the cipher");
    sealed.extend_from_slice(tag.as_ref());
    sealed
}

/// Verifies and decrypts in place, or returns why the bytes do not open.
pub(crate) fn open<C: AsRef<[u8]>>(
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
    #[error("the bytes are too short to have been sealed")]
    Short,
    #[error("no key of this ring sealed the bytes")]
    UnknownKey(KeyId),
    #[error("the bytes were changed, or belong to another place")]
    Tampered,
}

/// XChaCha20-Poly1305: the first 16 bytes of a nonce go into a key for this message, the others into the nonce of
/// ChaCha20-Poly1305 under that key.
fn of_message(key: &DerivedKey, nonce: &Nonce) -> (LessSafeKey, aead::Nonce) {
    let (salt, rest) = nonce.split_first_chunk::<16>().expect("a nonce has 24 bytes");
    let subkey: Zeroizing<[u8; 32]> = Zeroizing::new(hchacha::<R20>((&*key.secret).into(), salt.into()).into());
    let cipher = UnboundKey::new(&CHACHA20_POLY1305, &subkey[..]).expect("the cipher takes keys of 32 bytes");
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[4..].copy_from_slice(rest);
    (LessSafeKey::new(cipher), aead::Nonce::assume_unique_for_key(nonce))
}

/// The vectors of draft-irtf-cfrg-xchacha-03.
#[cfg(test)]
mod tests {
    use super::*;

    const KEY_ID: KeyId = *b"a key id";
    const CONTEXT: [u8; 12] = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
    const PLAINTEXT: &str = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                             sunscreen would be it.";
    const CIPHERTEXT: &str = "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda\
                              7e39ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b23835\
                              65d3fff921f9664c97637da9768812f615c68b13b52e";
    const TAG: &str = "c0875924c1c7987947deafd8780acf49";

    fn ring() -> DerivedRing {
        DerivedRing::of_secret(KEY_ID, std::array::from_fn(|at| 0x80 + at as u8))
    }

    fn nonce() -> Nonce {
        std::array::from_fn(|at| 0x40 + at as u8)
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Section 2.2.1: the key of a message.
    #[test]
    fn the_subkey_is_that_of_the_draft() {
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let salt = [0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0, 0x31, 0x41, 0x59, 0x27];
        let subkey: [u8; 32] = hchacha::<R20>((&key).into(), (&salt).into()).into();
        assert_eq!(hex(&subkey), "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc");
    }

    /// Section A.3.1: a message as a whole, sealed as a token is.
    #[test]
    fn what_is_sealed_is_that_of_the_draft() {
        let sealed = seal(&ring(), nonce(), |_| CONTEXT, PLAINTEXT);
        let expected = [hex(&KEY_ID), hex(&nonce()), CIPHERTEXT.to_owned(), TAG.to_owned()].concat();
        assert_eq!(hex(&sealed), expected);
        assert_eq!(open(&ring(), |_| CONTEXT, sealed), Ok(PLAINTEXT.as_bytes().to_vec()));
    }

    #[test]
    fn a_message_of_the_draft_does_not_open_when_any_part_of_it_is_another() {
        let sealed = seal(&ring(), nonce(), |_| CONTEXT, PLAINTEXT);
        for at in KEY_ID_BYTES..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&ring(), |_| CONTEXT, changed), Err(Unopened::Tampered), "{at}");
        }
        assert_eq!(open(&ring(), |_| [0; 12], sealed), Err(Unopened::Tampered));
    }
}
