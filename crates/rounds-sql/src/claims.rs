//! What both ledgers do alike: how claims are written as columns, and when expired ones are removed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rounds::{
    ledger::{ClaimId, ClaimKind, ClaimRequest, OwnerLost, Retention},
    time::Timestamp,
};
use tokio::time::sleep;

/// Default limits on the bytes of all callers without a principal, and of one principal.
pub(crate) const SHARES: (usize, usize) = (512 << 20, 102 << 20);

/// How long a waiter counts after it was registered: far longer than the longest pause between two looks.
pub(crate) const COUNTS_MILLIS: i64 = 3000;

/// Mean pause between two sweeps of an instance. Each waits a random part of twice this time, so that the instances of a
/// fleet do not sweep together.
const SWEEP: Duration = Duration::from_secs(60);

/// The numbers by which the states of a claim are stored.
pub(crate) mod state {
    pub(crate) const FREE: i64 = 0;
    #[cfg(feature = "sqlite")]
    pub(crate) const RUNNING: i64 = 1;
    #[cfg(feature = "sqlite")]
    pub(crate) const DONE: i64 = 2;
    pub(crate) const DEAD: i64 = 3;
}

/// The columns of a claim's key.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) flow: Vec<u8>,
    pub(crate) what: Vec<u8>,
}

impl Key {
    pub(crate) fn of(id: ClaimId) -> Self {
        Self { flow: id.flow.as_bytes().to_vec(), what: what(id) }
    }
}

/// The round or effect: a letter, and the number in big endian or the digest.
pub(crate) fn what(id: ClaimId) -> Vec<u8> {
    match id.what {
        ClaimKind::Round(number) => [&b"r"[..], &number.to_be_bytes()].concat(),
        ClaimKind::Once(name) => [&b"e"[..], name.as_bytes()].concat(),
        // A kind that this version does not know gets a key of its own as well.
        other => format!("?{other:?}").into_bytes(),
    }
}

/// The columns of a record's lifetime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) now: i64,
    pub(crate) until: i64,
}

impl Kept {
    pub(crate) fn of(keep: Retention) -> Self {
        /// A hundred years.
        const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        Self { now: millis(keep.now), until: millis(keep.until.min(keep.now + LONGEST)) }
    }
}

/// The columns of a request for a claim.
#[derive(Debug)]
pub(crate) struct Bid {
    pub(crate) answers: Vec<u8>,
    pub(crate) keep: Kept,
    pub(crate) lease_until: i64,
    pub(crate) dies: bool,
}

impl Bid {
    pub(crate) fn of(request: &ClaimRequest) -> Self {
        Self {
            answers: request.answers.as_bytes().to_vec(),
            keep: Kept::of(request.keep),
            lease_until: millis(request.keep.now + request.lease),
            dies: released_state(request.orphan) == state::DEAD,
        }
    }
}

/// The state of a claim after its owner is lost.
pub(crate) fn released_state(orphan: OwnerLost) -> i64 {
    match orphan {
        OwnerLost::Free => state::FREE,
        // A kind that this version does not know is not known to be safe to run again.
        _ => state::DEAD,
    }
}

pub(crate) fn millis(moment: Timestamp) -> i64 {
    /// Beyond the time of any clock, and far from an overflow in sums.
    const LATEST: u64 = 1 << 52;
    moment.as_millis().min(LATEST) as i64
}

/// The system's clock.
pub(crate) fn clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    bytes
}

/// The fence of a claim that has never run. It is random: if the store has lost a claim, its former owner must not hold
/// a valid fence for the new claim.
pub(crate) fn first_fence() -> i64 {
    let [a, b, c] = random();
    i64::from(u32::from_be_bytes([0, a, b, c])) + 1
}

/// Sweeps at random times, for as long as there is a ledger to sweep.
pub(crate) async fn sweep_at_random_times<L>(ledger: std::sync::Weak<L>, sweep: impl AsyncFn(&L)) {
    loop {
        let [share] = random();
        sleep(SWEEP * 2 * u32::from(share) / 255).await;
        let Some(ledger) = ledger.upgrade() else { return };
        sweep(&ledger).await;
    }
}
