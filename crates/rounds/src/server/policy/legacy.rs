//! What to do with clients of the legacy era in handlers that are called again for each round.

use std::time::Duration;

/// What to do with a client of the legacy era when a handler that is called again for each round ([`Round`]) asks.
///
/// [`Round`]: crate::Round
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Legacy {
    /// The handler decides, by looking at [`Round::era`](crate::Round::era): a default, or an error of its own. One that
    /// asks anyway fails with a tool error in plain words.
    #[default]
    Degrade,
    /// The handler is written for the modern era alone, and the server does the rest: its questions are asked over the live
    /// connection, and it is called again with the answers, as often as it asks. Between the calls its state stays here. A
    /// connection without a way back gives [`FlowError::NoBackChannel`](crate::FlowError::NoBackChannel) at once.
    Push {
        /// How often the handler may ask. [`Limits::rounds`](crate::Limits::rounds) holds as well.
        max_rounds: u32,
        /// How long one question may wait for its answer.
        timeout: Duration,
    },
}

impl Legacy {
    /// [`Push`](Self::Push), for up to eight rounds of ten minutes each.
    pub const fn push() -> Self {
        Self::Push { max_rounds: 8, timeout: Duration::from_secs(10 * 60) }
    }

    /// For how many rounds, of what length, if it pushes at all.
    pub(crate) const fn pushes(self) -> Option<(u32, Duration)> {
        match self {
            Self::Degrade => None,
            Self::Push { max_rounds, timeout } => Some((max_rounds, timeout)),
        }
    }
}
