//! What both ledgers do alike: how claims are written as columns, how long legs wait, and how claims are freed in the
//! background.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rounds::{
    ledger::{ClaimId, ClaimKind, ClaimRequest, OwnerLost, Retention, kit::Waiter},
    time::Timestamp,
};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{sleep, timeout},
};

/// Bytes that a round counts against a share, including its reply and its effects.
pub(crate) const ROUND_BYTES: usize = 2 << 10;

/// Default limits on the bytes of all callers without a principal, and of one principal.
pub(crate) const SHARES: (usize, usize) = (512 << 20, 102 << 20);

/// How long a waiter counts after it was registered: far longer than the longest pause between two looks.
pub(crate) const COUNTS_MILLIS: i64 = 3000;

/// First and longest pause between two looks of a waiting leg at its claim.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// How long freeing a claim is retried: longer than most leases.
pub(crate) const GIVING_BACK: Duration = Duration::from_secs(60);

/// Limit on the claims that are being freed in the background at the same time.
pub(crate) const GIVEN_BACK: usize = 1000;

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

/// Resolves when a claim may have stopped running: it was settled or released here, or a look at the store says so or
/// fails.
pub(crate) async fn changed<F: Future<Output = bool>>(waiter: Waiter, is_running: impl Fn() -> F) {
    let (mut pause, longest) = LOOKS;
    loop {
        tokio::select! {
            () = waiter.woken() => return,
            () = sleep(pause) => {}
        }
        if !is_running().await {
            return;
        }
        pause = (pause * 2).min(longest);
    }
}

/// Frees a claim in the background: repeats the attempt until one succeeds. If too many claims are being freed already,
/// their leases have to lapse instead.
pub(crate) fn give_back<F: Future<Output = bool> + Send + 'static>(
    room: &Arc<Semaphore>,
    within: Duration,
    mut attempt: impl FnMut() -> F + Send + 'static,
) {
    let (Ok(permit), Ok(runtime)) = (room.clone().try_acquire_owned(), Handle::try_current()) else { return };
    runtime.spawn(async move {
        let giving_back = async {
            let mut pause = Duration::from_millis(100);
            loop {
                sleep(pause).await;
                if attempt().await {
                    return;
                }
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        };
        let _ = timeout(within, giving_back).await;
        drop(permit);
    });
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
