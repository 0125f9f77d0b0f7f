//! How handlers that are called again for each round serve clients of the legacy era.

use std::time::Duration;

/// How a handler that is called again for each round ([`Round`]) asks a client of the legacy era.
///
/// [`Round`]: crate::Round
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Legacy {
    /// The handler decides, after a look at [`Round::era`](crate::Round::era): it uses a default, or returns an error
    /// of its own. If it asks anyway, the call fails with a tool error that says so.
    #[default]
    Degrade,
    /// The server pushes the handler's questions over the live connection and calls the handler again with the answers,
    /// as often as it asks. The handler needs no code for the legacy era. Between the calls its state stays in this
    /// process. If the connection has no back channel, the call fails with
    /// [`FlowError::NoBackChannel`](crate::FlowError::NoBackChannel) at once.
    Push {
        /// How many times the handler may ask. [`Limits::rounds`](crate::Limits::rounds) applies as well.
        max_rounds: u32,
        /// Timeout of one question.
        timeout: Duration,
    },
}

impl Legacy {
    /// [`Push`](Self::Push), with at most eight rounds and a timeout of ten minutes each.
    pub const fn push() -> Self {
        Self::Push { max_rounds: 8, timeout: Duration::from_secs(10 * 60) }
    }

    /// The limit of rounds and the timeout of each, or none if questions are not pushed.
    pub(crate) const fn pushes(self) -> Option<(u32, Duration)> {
        match self {
            Self::Degrade => None,
            Self::Push { max_rounds, timeout } => Some((max_rounds, timeout)),
        }
    }
}
