//! Limits: everything that could grow has one.

use std::time::Duration;

/// How much of everything there may be. Each limit has a default that suits most servers.
///
/// ```
/// use rounds::Limits;
///
/// let limits = Limits::default().with_rounds(3).with_token_bytes(8 * 1024).with_onces(64, 1024);
/// assert_eq!(limits.rounds, 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How many rounds a flow may have: 10, which is also how many a client plays along with by default.
    pub rounds: u32,
    /// How many questions a round may have: 16.
    pub questions: usize,
    /// How many effects a flow may have with `once`, and how many entries the journal of a durable flow: 64.
    pub effects: usize,
    /// How large the value of an effect, or an entry, may be, in bytes: 16 KiB. No effect begins without room for this much in three
    /// quarters of a token, or in what may spill: who makes tokens shorter makes this smaller too.
    pub effect_bytes: usize,
    /// How often a question is asked again for an answer that does not fit: 3 times. A handler with a
    /// [`Round`](crate::Round) decides for itself, within the limit of rounds.
    pub reasks: u32,
    /// How many handlers may be waiting for an answer, in all: 10,000. Those are the ones with an [`Ask`](crate::Ask), between legs,
    /// and all whose question was pushed to a client of the legacy era.
    pub frames: usize,
    /// How many handlers may be waiting for one principal: 100. Callers without a principal share one half of the limit above where the
    /// server [identifies principals](crate::RoundsBuilder::principal), and all of it elsewhere.
    pub frames_per_principal: usize,
    /// How many bytes the handlers that wait may take, in all: 256 MiB. What counts is what the library keeps for each of them: the
    /// handler's future, its arguments as JSON text, its questions, answers and effects, and what the client sent in `_meta` and in
    /// headers if the handler keeps its `RequestContext`. What the handler has on the heap does not count.
    pub frame_bytes: usize,
    /// How many bytes the handlers that wait for one principal may take: 32 MiB. Callers without a principal share one half of the limit
    /// above, or all of it, as with [`frames_per_principal`](Self::frames_per_principal).
    pub frame_bytes_per_principal: usize,
    /// How many sessions of legacy clients there may be over HTTP, in all: 10,000. See [`http::Sessions`](crate::http::Sessions) for what happens beyond
    /// that. A session takes about 53 KiB. One with a large `initialize` counts as several, one for each 72 KiB that it takes, so that
    /// 10,000 take about 700 MiB at the most.
    #[cfg(feature = "http")]
    pub sessions: usize,
    /// How many of them one principal may have: 100. Callers without a principal share one half of the limit above where the
    /// server [identifies principals](crate::RoundsBuilder::principal), and all of it elsewhere.
    #[cfg(feature = "http")]
    pub sessions_per_principal: usize,
    /// How long a token may be, in bytes: 64 KiB. It has to have room for [`effect_bytes`](Self::once_bytes) where there are effects.
    pub token_bytes: usize,
    /// How large a state may be that [spills](crate::RoundsBuilder::spill) into the ledger, in bytes: 1 MiB.
    pub spill_bytes: usize,
    /// Whether states spill.
    pub(crate) spills: bool,
    /// How large a reply may be to be kept for retries, in bytes: 256 KiB. A larger one is sent and not kept: a retry
    /// of its leg gets the frozen error.
    pub reply_bytes: usize,
    /// How long a leg waits for an equal one that is at work: 30 seconds.
    pub wait: Duration,
    /// For how long an instance that is at work on a leg is believed to be there without saying so: 30 seconds. It says so
    /// every third of this, and where the ledger is away every thirtieth, until it has.
    pub lease: Duration,
    /// Grace period of a handler that has asked and whose client is gone: how long it may run on after its cancellation token was cancelled,
    /// before it is dropped: 5 seconds. With none it is dropped at its next `await`. A handler that has not asked is not dropped.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rounds: 10,
            questions: 16,
            effects: 64,
            effect_bytes: 16 * 1024,
            reasks: 3,
            frames: 10_000,
            frames_per_principal: 100,
            frame_bytes: 256 * 1024 * 1024,
            frame_bytes_per_principal: 32 * 1024 * 1024,
            #[cfg(feature = "http")]
            sessions: 10_000,
            #[cfg(feature = "http")]
            sessions_per_principal: 100,
            token_bytes: 64 * 1024,
            spill_bytes: 1024 * 1024,
            spills: false,
            reply_bytes: 256 * 1024,
            wait: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// How many bytes a state may have: as many as fit into a token, of which base64 makes four characters of three bytes, or
    /// into the ledger.
    pub(crate) fn room(&self) -> usize {
        let token = self.token_bytes / 4 * 3;
        if self.spills { token.max(self.spill_bytes) } else { token }
    }

    /// Sets how many rounds a flow may have.
    pub fn with_rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets how many questions a round may have.
    pub fn with_questions(mut self, questions: usize) -> Self {
        self.questions = questions;
        self
    }

    /// Sets how many effects a flow may have, and how large the value of each may be.
    pub fn with_effects(mut self, effects: usize, bytes: usize) -> Self {
        self.effects = effects;
        self.effect_bytes = bytes;
        self
    }

    /// Sets how often a person is asked again for an answer that does not fit.
    pub fn with_reasks(mut self, reasks: u32) -> Self {
        self.reasks = reasks;
        self
    }

    /// Sets how many handlers may be waiting, in all and for one principal.
    pub fn with_frames(mut self, frames: usize, per_principal: usize) -> Self {
        self.frames = frames;
        self.frames_per_principal = per_principal;
        self
    }

    /// Sets how many bytes the handlers that wait may take, in all and for one principal.
    pub fn with_frame_bytes(mut self, bytes: usize, per_principal: usize) -> Self {
        self.frame_bytes = bytes;
        self.frame_bytes_per_principal = per_principal;
        self
    }

    /// Sets how many sessions of legacy clients there may be over HTTP, in all and for one principal.
    #[cfg(feature = "http")]
    pub fn with_sessions(mut self, sessions: usize, per_principal: usize) -> Self {
        self.sessions = sessions;
        self.sessions_per_principal = per_principal;
        self
    }

    /// Sets how long a token may be.
    pub fn with_token_bytes(mut self, bytes: usize) -> Self {
        self.token_bytes = bytes;
        self
    }

    /// Sets how large a state may be that spills into the ledger.
    pub fn with_spill_bytes(mut self, bytes: usize) -> Self {
        self.spill_bytes = bytes;
        self
    }

    /// Sets how large a reply may be to be kept for retries.
    pub fn with_reply_bytes(mut self, bytes: usize) -> Self {
        self.reply_bytes = bytes;
        self
    }

    /// Sets how long a leg waits for an equal one that is at work.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets for how long an instance is believed to be there without saying so.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long a handler that has asked may run on when its client is gone.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}
