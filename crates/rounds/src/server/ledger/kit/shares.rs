//! Limits on the space in a shared store that one caller may take. Each instance counts the records that it created,
//! so counting needs no call to the store.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::super::{LedgerError, PrincipalShare, Retention};

/// Limits on the bytes of each caller's records in a shared store, counted by the instance that created them.
#[derive(Debug)]
pub struct Shares {
    anonymous_limit: usize,
    principal_limit: usize,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    bytes: HashMap<PrincipalShare, usize>,
    /// Bytes that stop counting at a second, by share.
    until: BTreeMap<u64, HashMap<PrincipalShare, usize>>,
}

impl Shares {
    /// Bytes that a round counts, including its reply and its effects.
    pub const ROUND_BYTES: usize = 2 << 10;

    /// Limits for all callers without a principal together, and for each principal, in bytes.
    pub fn new(anonymous_limit: usize, principal_limit: usize) -> Self {
        Self { anonymous_limit, principal_limit, counted: Mutex::default() }
    }

    /// Checks that a caller's records stay within its limit with that many more bytes.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if they would not.
    pub fn has_room(&self, keep: Retention, bytes: usize) -> Result<(), LedgerError> {
        let (whose, limit) = match keep.share {
            PrincipalShare::Principal(_) => ("the records of one principal", self.principal_limit),
            PrincipalShare::Anonymous => ("the records of callers without a principal", self.anonymous_limit),
            _ => return Ok(()),
        };
        let mut counted = self.counted();
        counted.forget(keep);
        let used = counted.bytes.get(&keep.share).copied().unwrap_or_default();
        match used.saturating_add(bytes) > limit {
            true => Err(LedgerError::Full { whose, limit }),
            false => Ok(()),
        }
    }

    /// Adds the bytes of a new record to its caller's share.
    pub fn add(&self, keep: Retention, bytes: usize) {
        if keep.share == PrincipalShare::Common {
            return;
        }
        let mut counted = self.counted();
        counted.forget(keep);
        *counted.bytes.entry(keep.share).or_default() += bytes;
        *counted.until.entry(due(keep)).or_default().entry(keep.share).or_default() += bytes;
    }

    /// Takes a step that adds these records, if all of them fit, and counts them if the step succeeds: if it returns true.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Full`] if one does not fit: then the step is not taken. Otherwise the error of the step.
    pub async fn count<E>(
        &self,
        added: impl IntoIterator<Item = (Retention, usize)> + Clone,
        step: impl Future<Output = Result<bool, E>>,
    ) -> Result<bool, LedgerError>
    where
        LedgerError: From<E>,
    {
        added.clone().into_iter().try_for_each(|(keep, bytes)| self.has_room(keep, bytes))?;
        let is_done = step.await?;
        if is_done {
            added.into_iter().for_each(|(keep, bytes)| self.add(keep, bytes));
        }
        Ok(is_done)
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Subtracts the records that have expired.
    fn forget(&mut self, keep: Retention) {
        while let Some(first) = self.until.first_entry().filter(|first| *first.key() <= seconds(keep.now.as_millis())) {
            for (share, bytes) in first.remove() {
                if let Some(left) = self.bytes.get_mut(&share) {
                    *left = left.saturating_sub(bytes);
                    if *left == 0 {
                        self.bytes.remove(&share);
                    }
                }
            }
        }
    }
}

/// The second at which a record stops counting. It is later than the record's expiry by at most a sixteenth of its
/// lifetime, so that each caller has a few entries instead of one per second.
fn due(keep: Retention) -> u64 {
    let until = keep.until.as_millis().div_ceil(1000);
    let step = (until.saturating_sub(seconds(keep.now.as_millis())) / 32).next_power_of_two();
    until.div_ceil(step).saturating_mul(step)
}

fn seconds(millis: u64) -> u64 {
    millis / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::clock::Timestamp;

    fn keep(share: PrincipalShare, now: u64) -> Retention {
        let at = |second| Timestamp::from_millis(second * 1000);
        Retention { now: at(now), until: at(now + 690), share }
    }

    const MINE: PrincipalShare = PrincipalShare::Principal([1; 16]);
    const YOURS: PrincipalShare = PrincipalShare::Principal([2; 16]);

    #[test]
    fn a_caller_at_its_share_waits_until_what_it_has_is_over_and_the_others_do_not() {
        let shares = Shares::new(5000, 1000);
        shares.add(keep(MINE, 0), 900);
        let refused = shares.has_room(keep(MINE, 1), 101).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the ledger is full: the records of one principal may take 1000 bytes, and another record does not fit; try again after some have expired"
        );
        assert!(shares.has_room(keep(MINE, 1), 100).is_ok() && shares.has_room(keep(YOURS, 1), 1000).is_ok());
        assert!(shares.has_room(keep(PrincipalShare::Anonymous, 1), 5001).is_err());
        assert!(shares.has_room(keep(PrincipalShare::Common, 1), usize::MAX).is_ok());
        assert!(shares.has_room(keep(MINE, 689), 101).is_err());
        assert!(shares.has_room(keep(MINE, 690 + 32), 1000).is_ok());
    }

    #[test]
    fn nothing_is_left_of_those_who_do_not_come_back() {
        let shares = Shares::new(5000, 1000);
        for caller in 0..200 {
            shares.add(keep(PrincipalShare::Principal([caller; 16]), u64::from(caller)), 10);
        }
        assert!(shares.counted().until.len() < 64, "a few entries instead of one per second");
        shares.add(keep(MINE, 10_000), 10);
        let counted = shares.counted();
        assert_eq!((counted.bytes.len(), counted.until.len()), (1, 1));
    }
}
