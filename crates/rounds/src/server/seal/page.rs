//! The name of a page of the author's own: the question that the page is for, sealed. It cannot be guessed, and needs no
//! record.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    cipher::{self, Nonce},
    envelope::FlowId,
    ring::{DerivedRing, KeyId},
};

/// The longest name that is opened.
const LONGEST: usize = 1024;

/// The question that a page is for: the flow by its id in the ledger, the round, and the key.
pub(crate) type PageQuestion = (FlowId, u32, String);

/// Names the page of this question.
pub(crate) fn name(ring: &DerivedRing, nonce: Nonce, question: &PageQuestion) -> String {
    let plaintext = postcard::to_stdvec(question).expect("a question has no type that postcard cannot write");
    URL_SAFE_NO_PAD.encode(cipher::seal(ring, nonce, context, &plaintext))
}

/// The question of a page. None for a name that was not made with these keys.
pub(crate) fn question(ring: &DerivedRing, name: &str) -> Option<PageQuestion> {
    let sealed = URL_SAFE_NO_PAD.decode(Some(name).filter(|name| name.len() <= LONGEST)?).ok()?;
    postcard::from_bytes(&cipher::open(ring, context, sealed).ok()?).ok()
}

fn context(key: KeyId) -> Vec<u8> {
    [&b"rounds/page/1\0"[..], &key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::seal::{KeyRing, ring::Purpose};

    #[test]
    fn a_name_opens_with_the_keys_that_made_it_and_only_whole() {
        let ring = |key: u8| KeyRing::from_bytes([[key; 32]]).unwrap().derive(Purpose::Record, "test");
        let asked = (FlowId::from_bytes([1; 16]), 2, "sign_in".to_owned());
        let name = name(&ring(1), [9; 24], &asked);
        assert_eq!(question(&ring(1), &name), Some(asked));
        assert_eq!(question(&ring(2), &name), None);
        assert_eq!(question(&ring(1), &name[..name.len() - 1]), None);
        assert_eq!(question(&ring(1), &format!("{name}A")), None);
        assert_eq!(question(&ring(1), ""), None);
        assert_eq!(question(&ring(1), &"A".repeat(LONGEST + 1)), None);
    }
}
