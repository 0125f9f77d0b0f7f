//! The texts of the durable questions that this process asked last.
//!
//! A token of the previous [format](crate::server::seal::Format) does not carry the texts of its questions. If a question
//! changes, the warning shows the old text from here, if this process asked it.

use std::sync::{Mutex, PoisonError};

use crate::server::seal::{
    digest::Fingerprint,
    journal::{Text, WaitingQuestion},
};

/// How many texts are kept. A text has at most 256 characters, so all of them take 1 MiB at most.
const KEPT: usize = 1024;

/// Texts by fingerprint. Each fingerprint has one place, and a later question replaces an earlier one in the same place.
#[derive(Default)]
pub(crate) struct RecentTexts(Mutex<Vec<Option<(Fingerprint, Text)>>>);

impl RecentTexts {
    /// Keeps the texts of these questions.
    pub(crate) fn keep(&self, asked: &[WaitingQuestion]) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.resize(KEPT, None);
        for WaitingQuestion { question, text, .. } in asked {
            places[place(question)] = Some((*question, text.clone()));
        }
    }

    /// The text of this question, if it is still kept.
    pub(crate) fn get(&self, question: &Fingerprint) -> Option<Text> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, text) = places.get(place(question))?.as_ref()?;
        (known == question).then(|| text.clone())
    }
}

/// The place of a question. A fingerprint is a digest, so any part of it is spread evenly.
fn place(question: &Fingerprint) -> usize {
    usize::from(u16::from_le_bytes([question[0], question[1]])) % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(question: Fingerprint, text: &str) -> WaitingQuestion {
        WaitingQuestion { key: "key".to_owned(), question, text: text.to_owned().into(), until: None }
    }

    #[test]
    fn a_text_is_kept_until_another_takes_its_place() {
        let texts = RecentTexts::default();
        let (one, other, elsewhere) = ([1; 16], [[1; 8], [2; 8]].concat().try_into().unwrap(), [3; 16]);
        assert_eq!(texts.get(&one), None);
        texts.keep(&[asked(one, "Which seat?"), asked(elsewhere, "Sure?")]);
        assert_eq!(texts.get(&one), Some("Which seat?".to_owned().into()));
        assert_eq!(texts.get(&other), None, "it has the same place, and was not asked");
        texts.keep(&[asked(other, "Which meal?")]);
        assert_eq!([one, other, elsewhere].map(|question| texts.get(&question).is_some()), [false, true, true]);
    }
}
