//! A clock that stands still until it is advanced.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{Notify, oneshot};

use crate::shared::clock::BoxFuture;

/// A clock that stands still until it is advanced. Clones are the same clock.
///
/// ```
/// # use std::time::Duration;
/// use rounds::{time::Clock as _, test::Clock};
///
/// let clock = Clock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now(), before + Duration::from_secs(60));
/// ```
#[derive(Debug, Clone)]
pub struct Clock {
    inner: Arc<Mutex<ClockState>>,
    more_asleep: Arc<Notify>,
}

#[derive(Debug)]
struct ClockState {
    now: SystemTime,
    sleepers: Vec<(SystemTime, oneshot::Sender<()>)>,
}

impl Clock {
    /// A clock that begins at a fixed moment in 2027.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new(ClockState {
                now: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
                sleepers: Vec::new(),
            })),
            more_asleep: Arc::default(),
        }
    }

    /// Advances the clock, and wakes the sleepers that are due.
    pub fn advance(&self, by: Duration) {
        let mut inner = self.inner();
        inner.now += by;
        let now = inner.now;
        let (due, rest) = inner.sleepers.drain(..).partition(|(until, _)| *until <= now);
        inner.sleepers = rest;
        drop(inner);
        for (_, wake) in due {
            let _ = wake.send(());
        }
    }

    /// Moves the clock back, like a machine whose clock is wrong.
    pub fn rewind(&self, by: Duration) {
        self.inner().now -= by;
    }

    /// The number of sleepers.
    pub fn sleepers(&self) -> usize {
        let mut inner = self.inner();
        inner.sleepers.retain(|(_, wake)| !wake.is_closed());
        inner.sleepers.len()
    }

    /// Waits for this many sleepers, so that the next [`advance`](Self::advance) wakes all of them.
    pub async fn until_asleep(&self, sleepers: usize) {
        loop {
            let more = self.more_asleep.notified();
            if self.sleepers() >= sleepers {
                return;
            }
            more.await;
        }
    }

    fn inner(&self) -> MutexGuard<'_, ClockState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl crate::time::Clock for Clock {
    fn now(&self) -> SystemTime {
        self.inner().now
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (wake, woken) = oneshot::channel();
        let mut inner = self.inner();
        // A moment that the clock cannot represent never comes.
        if let Some(until) = inner.now.checked_add(duration) {
            inner.sleepers.push((until, wake));
        }
        drop(inner);
        self.more_asleep.notify_waiters();
        Box::pin(async move {
            // A clock that was dropped never wakes a sleeper.
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use super::*;

    #[tokio::test]
    async fn a_sleep_whose_end_no_clock_can_show_does_not_end() {
        let clock = Clock::new();
        let mut sleep = crate::time::Clock::sleep(&clock, Duration::MAX);
        clock.advance(Duration::from_secs(1 << 40));
        assert!(poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await.is_pending());
    }
}
