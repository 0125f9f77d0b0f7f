//! Limits of a driven call: a bound for everything that a server could prolong.

use std::time::Duration;

/// Limits of a driven call.
///
/// ```
/// use std::time::Duration;
///
/// use rounds::client::DriveLimits;
///
/// let limits = DriveLimits::default().with_rounds(3).with_question(Duration::from_secs(60));
/// assert_eq!(limits.rounds, 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriveLimits {
    /// Rounds of a call: 10, as in other clients. Rounds in which the server asks nothing and wants to be called again
    /// count, and so do the rounds of a pending call before it was driven. The limit is checked when the server asks: a
    /// pending call with more rounds is still answered once when it is driven.
    pub rounds: u32,
    /// Time that the server may take, in all: 5 minutes. The time that a user takes to answer does not count.
    pub total: Duration,
    /// Timeout of one question: 15 minutes. Then it is cancelled.
    pub question: Duration,
    /// Time that the whole call may take, answers included: 24 hours.
    pub longest: Duration,
}

impl Default for DriveLimits {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self { rounds: 10, total: minutes(5), question: minutes(15), longest: minutes(24 * 60) }
    }
}

impl DriveLimits {
    /// Sets [`rounds`](Self::rounds).
    pub fn with_rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets [`total`](Self::total).
    pub fn with_total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// Sets [`question`](Self::question).
    pub fn with_question(mut self, question: Duration) -> Self {
        self.question = question;
        self
    }

    /// Sets [`longest`](Self::longest).
    pub fn with_longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }
}
