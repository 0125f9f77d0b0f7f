//! Limits on a call that is driven: everything that a server could draw out has one.

use std::time::Duration;

/// How much of everything a call that is driven may take.
///
/// ```
/// use std::time::Duration;
///
/// use rounds::client::DriveLimits;
///
/// let limits = Limits::default().with_rounds(3).with_question(Duration::from_secs(60));
/// assert_eq!(limits.rounds, 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriveLimits {
    /// How many rounds: 10, as other clients have it. Those count in which the server asks nothing and wants to be called
    /// again, and those of a pending call before it was driven. It is looked at when the server asks: a pending call that has had more
    /// is answered once when it is driven.
    pub rounds: u32,
    /// How long the server may take, in all: 5 minutes. While a person thinks, the clock stands still.
    pub total: Duration,
    /// How long one question may wait for its answer: 15 minutes. Then it is cancelled.
    pub question: Duration,
    /// How long all of it may take, people included: 24 hours.
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
