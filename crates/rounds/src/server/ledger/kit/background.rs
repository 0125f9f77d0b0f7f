//! What a ledger on a shared store does while no caller waits for it: looking at a claim that runs elsewhere, and freeing
//! claims whose release did not arrive.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{super::LedgerError, Waiter};
use crate::shared::clock::BoxFuture;

/// First and longest pause between two looks of a waiting leg at its claim.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// First and longest pause between two attempts to free a claim that was not found.
const ATTEMPTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(8));

/// First and longest pause after an attempt that the store did not answer.
const AWAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Attempts at the same time while the store answers. While it does not, there is one.
const BATCH: usize = 64;

/// Resolves when a claim may have stopped running: it was settled or released in this process, or a look at the store
/// says so. A look that fails has to say so too: then the caller claims again and learns of the failure.
///
/// The longest pause between two looks is a quarter of a second.
pub async fn until_changed<F: Future<Output = bool>>(waiter: Waiter, is_running: impl Fn() -> F) {
    let (mut pause, longest) = LOOKS;
    loop {
        tokio::select! {
            biased;
            () = waiter.woken() => return,
            () = sleep(pause) => {}
        }
        if !is_running().await {
            return;
        }
        pause = (pause * 2).min(longest);
    }
}

/// Opens a store, and waits this long for one that is away. The log says so, every ten seconds.
///
/// # Errors
///
/// The latest error, when the time is over, or at once if the error does not mean that the store is away.
pub async fn until_there<T, E: std::error::Error + 'static, F: Future<Output = Result<T, E>>>(
    within: Duration,
    is_away: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> F,
) -> Result<T, E> {
    const PAUSE: Duration = Duration::from_millis(500);
    const LINES: Duration = Duration::from_secs(10);
    let began = Instant::now();
    let mut said = None;
    loop {
        match open().await {
            Err(error) if is_away(&error) && began.elapsed() < within => {
                if said.is_none_or(|said: Instant| said.elapsed() >= LINES) {
                    said = Some(Instant::now());
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(target: "rounds", error, "waiting for the store");
                }
            }
            opened => return opened,
        }
        sleep(PAUSE).await;
    }
}

/// A request for a claim whose reply has not arrived. If it is dropped before [`confirm`](Self::confirm), the claim may
/// have been taken without its caller knowing, and the given function has to see to it that it becomes free.
#[derive(Debug)]
pub struct Unconfirmed<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Unconfirmed<F> {
    /// Calls the function unless the claim is confirmed.
    pub fn new(free: F) -> Self {
        Self(Some(free))
    }

    /// The reply has arrived: the caller knows what became of the claim.
    pub fn confirm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Unconfirmed<F> {
    fn drop(&mut self) {
        if let Some(free) = self.0.take() {
            free();
        }
    }
}

/// Frees claims in the background: those whose owner never learned of them, and those whose release failed.
///
/// The claims that wait to be freed are limited in bytes. While the store does not answer, one claim is tried at a time,
/// and as soon as it answers, the others follow in batches. A claim that does not fit, or whose time is over before the
/// store answers, has to wait until its lease lapses: the log says how many. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Freeing(Arc<Queue>);

impl Freeing {
    /// How long freeing a claim is attempted, if its lease is not longer: longer than most leases.
    pub const WITHIN: Duration = Duration::from_secs(60);

    /// Limit in bytes by default: tens of thousands of claims.
    pub const BYTES: usize = 32 << 20;

    /// Bytes that a claim counts beside what its attempt keeps.
    const CLAIM_BYTES: usize = 512;

    /// Limits the claims that wait to be freed to these bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Queue {
            limit: bytes,
            free: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))),
            left: AtomicU64::new(0),
            jobs: Mutex::default(),
        }))
    }

    /// Repeats the attempt until it returns true, or until this time is over. It keeps that many bytes.
    ///
    /// An attempt returns false if there was nothing to free: the request may still arrive late, so it is looked for
    /// again. Its error means that the store did not answer. Outside of a Tokio runtime nothing happens.
    pub fn free(
        &self,
        bytes: usize,
        within: Duration,
        attempt: impl FnMut() -> BoxFuture<'static, Result<bool, LedgerError>> + Send + 'static,
    ) {
        let Ok(runtime) = Handle::try_current() else { return };
        let bytes = u32::try_from(bytes.saturating_add(Self::CLAIM_BYTES)).unwrap_or(u32::MAX);
        let Ok(permit) = self.0.free.clone().try_acquire_many_owned(bytes) else {
            self.0.left.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (now, pause) = (Instant::now(), ATTEMPTS.0);
        let until = now + within;
        if self.0.add(now + pause, Job { until, pause, attempt: Box::new(attempt), _permit: permit }) {
            runtime.spawn(Worker { queue: self.0.clone(), has_ended: false }.work());
        }
    }
}

impl Default for Freeing {
    fn default() -> Self {
        Self::new(Self::BYTES)
    }
}

/// The claims that wait to be freed.
#[derive(Debug)]
struct Queue {
    limit: usize,
    /// Bytes that are free.
    free: Arc<Semaphore>,
    /// Claims that are left to their leases, and that the log does not tell of yet.
    left: AtomicU64,
    jobs: Mutex<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    /// By the time of the next attempt, and by a number that tells those of the same time apart.
    due: BTreeMap<(Instant, u64), Job>,
    added: u64,
    is_worked_on: bool,
}

struct Job {
    until: Instant,
    /// The pause before the next attempt.
    pause: Duration,
    attempt: Box<dyn FnMut() -> BoxFuture<'static, Result<bool, LedgerError>> + Send>,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("until", &self.until).finish_non_exhaustive()
    }
}

/// What a worker does next.
enum Next {
    Try(Vec<Job>),
    Wait(Instant),
    End,
}

impl Queue {
    /// Adds a job, and returns whether it needs a worker.
    fn add(&self, due: Instant, job: Job) -> bool {
        let mut jobs = self.jobs();
        jobs.added += 1;
        let number = jobs.added;
        jobs.due.insert((due, number), job);
        !std::mem::replace(&mut jobs.is_worked_on, true)
    }

    /// Takes up to this many jobs that are due. At the end, the next job needs another worker.
    fn next(&self, most: usize) -> Next {
        let now = Instant::now();
        let mut jobs = self.jobs();
        let mut batch = Vec::new();
        while batch.len() < most {
            match jobs.due.first_entry() {
                Some(first) if first.key().0 <= now => batch.push(first.remove()),
                Some(first) if batch.is_empty() => return Next::Wait(first.key().0),
                None if batch.is_empty() => {
                    jobs.is_worked_on = false;
                    return Next::End;
                }
                _ => break,
            }
        }
        Next::Try(batch)
    }

    /// Removes the jobs whose time is over, which the store has not answered.
    fn expire(&self, now: Instant) {
        let mut jobs = self.jobs();
        let before = jobs.due.len();
        jobs.due.retain(|_, job| job.until > now);
        self.left.fetch_add((before - jobs.due.len()) as u64, Ordering::Relaxed);
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that frees what is in the queue. It ends when the queue is empty.
struct Worker {
    queue: Arc<Queue>,
    /// Whether it has found the queue empty, and was not dropped with its runtime.
    has_ended: bool,
}

impl Worker {
    async fn work(mut self) {
        let mut away = None;
        loop {
            match self.queue.next(if away.is_some() { 1 } else { BATCH }) {
                Next::Try(batch) => {
                    away = match self.attempt(batch).await {
                        true => None,
                        false => Some(away.map_or(AWAY.0, |pause: Duration| (pause * 2).min(AWAY.1))),
                    };
                    self.report();
                    if let Some(pause) = away {
                        sleep(pause).await;
                    }
                }
                Next::Wait(until) => sleep_until(until).await,
                Next::End => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    /// Attempts these jobs together, and returns whether the store has answered all of them.
    async fn attempt(&self, batch: Vec<Job>) -> bool {
        let mut attempts = JoinSet::new();
        for mut job in batch {
            attempts.spawn(async move {
                let outcome = (job.attempt)().await;
                (job, outcome)
            });
        }
        let mut answered = true;
        while let Some(attempted) = attempts.join_next().await {
            let Ok((job, outcome)) = attempted else { continue };
            let now = Instant::now();
            match outcome {
                Ok(true) => {}
                // It never arrived.
                Ok(false) if job.until <= now => {}
                Ok(false) => {
                    let pause = (job.pause * 2).min(ATTEMPTS.1);
                    self.queue.add(now + job.pause, Job { pause, ..job });
                }
                Err(_) => {
                    answered = false;
                    self.queue.add(now, job);
                }
            }
        }
        if !answered {
            self.queue.expire(Instant::now());
        }
        answered
    }

    fn report(&self) {
        let (claims, limit) = (self.queue.left.swap(0, Ordering::Relaxed), self.queue.limit);
        if claims > 0 {
            tracing::warn!(
                target: "rounds", claims, limit,
                "claims could not be freed in the background, because the store did not answer in time or too many wait \
                 to be freed: calls that continue with them wait until their leases lapse, and handlers that wait in \
                 memory are lost to them"
            );
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.has_ended {
            self.queue.jobs().is_worked_on = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A store that answers or does not, and the number of attempts that reached it.
    #[derive(Clone, Default)]
    struct Store {
        is_there: Arc<AtomicBool>,
        attempts: Arc<AtomicU64>,
        freed: Arc<AtomicU64>,
    }

    impl Store {
        fn free(&self, freeing: &Freeing, within: Duration) {
            let store = self.clone();
            freeing.free(0, within, move || {
                let store = store.clone();
                Box::pin(async move {
                    store.attempts.fetch_add(1, Ordering::Relaxed);
                    if !store.is_there.load(Ordering::Relaxed) {
                        sleep(Duration::from_secs(1)).await;
                        return Err(LedgerError::Unavailable("away".into()));
                    }
                    store.freed.fetch_add(1, Ordering::Relaxed);
                    Ok(true)
                })
            });
        }

        fn freed(&self) -> u64 {
            self.freed.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_claims_are_freed_as_soon_as_the_store_is_back() {
        let (freeing, store) = (Freeing::default(), Store::default());
        (0..10_000).for_each(|_| store.free(&freeing, Freeing::WITHIN));
        sleep(Duration::from_secs(20)).await;
        assert_eq!(store.freed(), 0);
        let attempts = store.attempts.load(Ordering::Relaxed);
        assert!(attempts < BATCH as u64 + 20, "{attempts} calls to a store that does not answer");
        store.is_there.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(store.freed(), 10_000);
        assert!(!freeing.0.jobs().is_worked_on, "the worker has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn claims_beyond_the_limit_are_left_to_their_leases_and_the_limit_is_returned() {
        let (freeing, store) = (Freeing::new(10 * Freeing::CLAIM_BYTES), Store::default());
        (0..15).for_each(|_| store.free(&freeing, Duration::from_secs(30)));
        assert_eq!(freeing.0.left.load(Ordering::Relaxed), 5);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(freeing.0.free.available_permits(), 10 * Freeing::CLAIM_BYTES, "their time is over");
        store.is_there.store(true, Ordering::Relaxed);
        (0..10).for_each(|_| store.free(&freeing, Duration::from_secs(30)));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(store.freed(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_is_waited_for_and_one_that_refuses_is_not() {
        let (hour, attempts) = (Duration::from_secs(3600), std::cell::Cell::new(0));
        let open = |away: u32| {
            attempts.set(attempts.get() + 1);
            let outcome = if attempts.get() > away { Ok(()) } else { Err(LedgerError::Unavailable("away".into())) };
            std::future::ready(outcome)
        };
        until_there(hour, |_| true, || open(10)).await.unwrap();
        assert_eq!(attempts.get(), 11);
        let began = Instant::now();
        assert!(until_there(hour, |_| true, || open(u32::MAX)).await.is_err());
        assert!(began.elapsed() >= hour);
        let began = Instant::now();
        assert!(until_there(hour, |_| false, || open(u32::MAX)).await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_arrives_late_is_looked_for_again() {
        let (freeing, looks) = (Freeing::default(), Arc::new(AtomicU64::new(0)));
        let counted = looks.clone();
        freeing.free(0, Freeing::WITHIN, move || {
            let look = counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { Ok(look == 5) })
        });
        sleep(Duration::from_secs(60)).await;
        assert_eq!(looks.load(Ordering::Relaxed), 6);
    }
}
