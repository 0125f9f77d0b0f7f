//! The memory that the claims of a ledger count, in all and for each caller.

use std::collections::HashMap;

use super::super::{LedgerError, PrincipalShare};

/// Counts bytes, in all and for each share.
pub(super) struct MemoryShares {
    limit: usize,
    /// Configured limits of callers without a principal and of each principal. If unset, they are parts of the total
    /// limit.
    anonymous_limit: Option<usize>,
    principal_limit: Option<usize>,
    used: usize,
    anonymous: usize,
    principals: HashMap<[u8; 16], ShareId>,
    /// One for each principal that has a claim, at the index of its [`ShareId`].
    accounts: Vec<Account>,
    free: Vec<u32>,
}

struct Account {
    key: [u8; 16],
    bytes: usize,
}

/// The share of a claim, in four bytes, because every claim has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareId(u32);

impl ShareId {
    const COMMON: Self = Self(0);
    const ANONYMOUS: Self = Self(1);
    /// The accounts of principals are counted from here.
    const FIRST: u32 = 2;

    fn account(self) -> Option<usize> {
        self.0.checked_sub(Self::FIRST).map(|place| place as usize)
    }
}

/// The memory of an account with its entry in the map. It counts in all, and not in the principal's share.
const ACCOUNT_BYTES: usize = 96;

impl MemoryShares {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            anonymous_limit: None,
            principal_limit: None,
            used: 0,
            anonymous: 0,
            principals: HashMap::new(),
            accounts: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(super) fn set_anonymous_limit(&mut self, bytes: usize) {
        self.anonymous_limit = Some(bytes);
    }

    pub(super) fn set_principal_limit(&mut self, bytes: usize) {
        self.principal_limit = Some(bytes);
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// How many bytes are counted in all.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether so many bytes more are within the limits.
    pub(super) fn fits(&self, share: PrincipalShare, bytes: usize) -> Result<(), LedgerError> {
        let within = |whose, used: usize, limit: usize| match used.saturating_add(bytes) > limit {
            true => Err(LedgerError::Full { whose, limit }),
            false => Ok(()),
        };
        match share {
            PrincipalShare::Common => {}
            PrincipalShare::Anonymous => {
                let limit = self.anonymous_limit.unwrap_or(self.limit / 2);
                within("the records of callers without a principal", self.anonymous, limit)?;
            }
            PrincipalShare::Principal(key) => {
                let account = self.principals.get(&key).and_then(|id| self.accounts.get(id.account()?));
                let limit = self.principal_limit.unwrap_or(self.limit / 10);
                within("the records of one principal", account.map_or(0, |account| account.bytes), limit)?;
            }
        }
        within("all records", self.used, self.limit)
    }

    /// Counts so many bytes for a share, and opens an account for it if it has none.
    pub(super) fn charge(&mut self, share: PrincipalShare, bytes: usize) -> ShareId {
        let id = match share {
            PrincipalShare::Common => ShareId::COMMON,
            PrincipalShare::Anonymous => ShareId::ANONYMOUS,
            PrincipalShare::Principal(key) => match self.principals.get(&key) {
                Some(id) => *id,
                None => self.open_account(key),
            },
        };
        self.add(id, bytes);
        id
    }

    fn open_account(&mut self, key: [u8; 16]) -> ShareId {
        let account = Account { key, bytes: 0 };
        let place = match self.free.pop() {
            Some(place) => {
                self.accounts[place as usize] = account;
                place
            }
            None => {
                self.accounts.push(account);
                self.accounts.len() as u32 - 1
            }
        };
        let id = ShareId(place + ShareId::FIRST);
        self.principals.insert(key, id);
        self.used += ACCOUNT_BYTES;
        id
    }

    pub(super) fn add(&mut self, id: ShareId, bytes: usize) {
        self.used += bytes;
        match id.account() {
            Some(place) => self.accounts[place].bytes += bytes,
            None if id == ShareId::ANONYMOUS => self.anonymous += bytes,
            None => {}
        }
    }

    /// Counts so many bytes less. The account of a principal without a byte is closed.
    pub(super) fn subtract(&mut self, id: ShareId, bytes: usize) {
        self.used -= bytes;
        let Some(place) = id.account() else {
            if id == ShareId::ANONYMOUS {
                self.anonymous -= bytes;
            }
            return;
        };
        let account = &mut self.accounts[place];
        account.bytes -= bytes;
        if account.bytes == 0 {
            self.principals.remove(&account.key);
            self.free.push(place as u32);
            self.used -= ACCOUNT_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PrincipalShare = PrincipalShare::Principal([1; 16]);
    const B: PrincipalShare = PrincipalShare::Principal([2; 16]);

    fn refused(shares: &MemoryShares, share: PrincipalShare, bytes: usize) -> String {
        shares.fits(share, bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_caller_at_its_share_is_refused_and_the_others_are_not() {
        let mut shares = MemoryShares::new(10_000);
        shares.charge(A, 990);
        assert!(refused(&shares, A, 11).contains("the records of one principal may take 1000 bytes"));
        assert!(
            shares.fits(A, 10).is_ok()
                && shares.fits(B, 1000).is_ok()
                && shares.fits(PrincipalShare::Anonymous, 5000).is_ok()
        );
        shares.charge(PrincipalShare::Anonymous, 5000);
        assert!(
            refused(&shares, PrincipalShare::Anonymous, 1).contains("callers without a principal may take 5000 bytes")
        );
        assert!(shares.fits(B, 1000).is_ok() && shares.fits(PrincipalShare::Common, 3000).is_ok());
        shares.charge(PrincipalShare::Common, 3900);
        assert!(refused(&shares, B, 100).contains("all records may take 10000 bytes"), "what is left is for all");
    }

    #[test]
    fn shares_that_were_set_hold_in_place_of_the_usual_parts() {
        let mut shares = MemoryShares::new(10_000);
        shares.set_anonymous_limit(100);
        shares.set_principal_limit(usize::MAX);
        assert!(shares.fits(PrincipalShare::Anonymous, 101).is_err() && shares.fits(A, 9_999).is_ok());
        shares.set_limit(50);
        assert!(shares.fits(A, 51).is_err());
    }

    #[test]
    fn an_account_goes_with_its_last_byte_and_its_place_is_used_again() {
        let mut shares = MemoryShares::new(10_000);
        for round in 0..3 {
            let (a, b) = (shares.charge(A, 64), shares.charge(B, 64));
            assert_eq!(shares.charge(A, 64), a);
            assert_ne!(a, b);
            assert_eq!(shares.used(), 3 * 64 + 2 * ACCOUNT_BYTES, "{round}");
            for id in [a, b, a] {
                shares.subtract(id, 64);
            }
            assert_eq!((shares.used(), shares.principals.len(), shares.accounts.len()), (0, 0, 2));
        }
    }
}
