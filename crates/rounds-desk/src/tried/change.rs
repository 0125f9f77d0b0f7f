//! A state with one character changed.

/// The change of one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateChange {
    /// The place of the character, counted from zero.
    pub(crate) at: usize,
    pub(crate) was: char,
    pub(crate) is: char,
}

impl StateChange {
    /// Changes a character in the middle of a state, which is inside the ciphertext.
    pub(crate) fn of(state: &str) -> (String, Self) {
        let at = state.chars().count() / 2;
        let was = state.chars().nth(at).unwrap_or('A');
        let is = if was == 'A' { 'B' } else { 'A' };
        let changed = state.chars().enumerate().map(|(place, c)| if place == at { is } else { c }).collect();
        (changed, Self { at, was, is })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_character_changes() {
        for state in ["r1.AAAA", "r1.BCDE", "ü", "öAö"] {
            let (changed, change) = StateChange::of(state);
            let differences = state.chars().zip(changed.chars()).filter(|(a, b)| a != b).count();
            assert_eq!((differences, state.chars().count()), (1, changed.chars().count()), "{state}");
            assert_eq!(changed.chars().nth(change.at), Some(change.is));
            assert_eq!(state.chars().nth(change.at), Some(change.was));
        }
    }
}
