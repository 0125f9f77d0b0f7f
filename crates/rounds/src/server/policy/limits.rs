//! Limits: a bound for everything that a client or a handler can make grow.

use std::time::Duration;

/// Limits of a server. Each has a default that suits most servers.
///
/// ```
/// use rounds::Limits;
///
/// let limits = Limits::default().with_rounds(3).with_token_bytes(8 * 1024).with_effects(64, 1024);
/// assert_eq!(limits.rounds, 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Rounds in a flow: 10, which is also how many a client follows by default.
    pub rounds: u32,
    /// Questions in a round: 16.
    pub questions: usize,
    /// Options of a field in a form that is [made at run time](crate::form::Schema), such as a choice: 500.
    pub choices: usize,
    /// Effects that a flow may run with `once`, and entries in the journal of a durable flow: 64.
    pub effects: usize,
    /// Size of an effect's value, or of a journal entry, in bytes: 16 KiB. An effect runs only if this much fits into
    /// three quarters of a token, or into the spilled state: lower this too if you lower `token_bytes`.
    pub effect_bytes: usize,
    /// How often a question is asked again after an invalid answer: 3 times. A handler with a [`Round`](crate::Round)
    /// decides that itself, within the limit of rounds.
    pub reasks: u32,
    /// Handlers that may wait for an answer, in all: 10,000. These are handlers with an [`Ask`](crate::Ask) between two
    /// legs, and every handler whose question was pushed to a client of the legacy era.
    pub frames: usize,
    /// Handlers that may wait for an answer from one principal: 100. If the server [identifies
    /// principals](crate::RoundsBuilder::principal), callers without a principal share one half of
    /// [`frames`](Self::frames); otherwise they share all of it.
    pub frames_per_principal: usize,
    /// Memory of the waiting handlers in bytes, in all: 256 MiB. It counts what the library keeps for each handler: the
    /// handler's future, its arguments as JSON text, its questions, answers and effects, and, if the handler keeps its
    /// `RequestContext`, what the client sent in `_meta` and in headers. Heap allocations of the handler do not count.
    pub frame_bytes: usize,
    /// Memory of the handlers that wait for one principal, in bytes: 32 MiB. Callers without a principal share one half
    /// of [`frame_bytes`](Self::frame_bytes) or all of it, as with
    /// [`frames_per_principal`](Self::frames_per_principal).
    pub frame_bytes_per_principal: usize,
    /// [Tasks](crate::tasks), in all: 10,000. They count until they expire. A call for which there is no place does not
    /// become a task, and is answered like any other.
    pub tasks: usize,
    /// Tasks of one principal: 100. If the server [identifies principals](crate::RoundsBuilder::principal), callers
    /// without a principal share one half of [`tasks`](Self::tasks); otherwise they share all of it.
    pub tasks_per_principal: usize,
    /// Memory of the tasks in bytes, in all: 256 MiB. It counts their arguments, questions, answers and results.
    pub task_bytes: usize,
    /// Memory of the tasks of one principal in bytes: 32 MiB. Callers without a principal share one half of
    /// [`task_bytes`](Self::task_bytes) or all of it, as with [`tasks_per_principal`](Self::tasks_per_principal).
    pub task_bytes_per_principal: usize,
    /// Sessions of legacy clients over HTTP, in all: 10,000. [`http::Sessions`](crate::http::Sessions) says what
    /// happens beyond that. A session takes about 53 KiB. A session with a large `initialize` counts as several, one
    /// for each 72 KiB that it takes, so 10,000 take at most about 700 MiB.
    #[cfg(feature = "http")]
    pub sessions: usize,
    /// Sessions of one principal: 100. If the server [identifies principals](crate::RoundsBuilder::principal), callers
    /// without a principal share one half of [`sessions`](Self::sessions); otherwise they share all of it.
    #[cfg(feature = "http")]
    pub sessions_per_principal: usize,
    /// Length of a token in bytes: 64 KiB. If handlers run effects, a token must have space for
    /// [`effect_bytes`](Self::effect_bytes).
    pub token_bytes: usize,
    /// Size of a state that [spills](crate::RoundsBuilder::spill) into the ledger, in bytes: 1 MiB.
    pub spill_bytes: usize,
    /// Whether states spill.
    pub(crate) spills: bool,
    /// Size of a reply that is kept for retries, in bytes: 256 KiB. A larger reply is sent and not kept: a retry of its
    /// leg gets the frozen error.
    pub reply_bytes: usize,
    /// Size of what one leg adds to the sealed part of its flow's [record](crate::RoundsBuilder::register), in bytes: 64
    /// KiB. A record says how many bytes were left out because they are more.
    pub record_bytes: usize,
    /// How long a leg waits for an equal leg that is running: 30 seconds.
    pub wait: Duration,
    /// Lease duration: how long the owner of a claim may go without renewing it before another leg may take it over: 30
    /// seconds. The owner renews it every third of this time, and after a failed renewal every thirtieth, until it
    /// succeeds.
    pub lease: Duration,
    /// Grace period of a handler that has asked and whose client is gone: how long it may run after its cancellation
    /// token was cancelled before it is dropped: 5 seconds. With a grace period of zero it is dropped at its next
    /// `await`. A handler that has not asked is not dropped.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rounds: 10,
            questions: 16,
            choices: 500,
            effects: 64,
            effect_bytes: 16 * 1024,
            reasks: 3,
            frames: 10_000,
            frames_per_principal: 100,
            frame_bytes: 256 * 1024 * 1024,
            frame_bytes_per_principal: 32 * 1024 * 1024,
            tasks: 10_000,
            tasks_per_principal: 100,
            task_bytes: 256 * 1024 * 1024,
            task_bytes_per_principal: 32 * 1024 * 1024,
            #[cfg(feature = "http")]
            sessions: 10_000,
            #[cfg(feature = "http")]
            sessions_per_principal: 100,
            token_bytes: 64 * 1024,
            spill_bytes: 1024 * 1024,
            spills: false,
            reply_bytes: 256 * 1024,
            record_bytes: 64 * 1024,
            wait: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The limit of a state in bytes: what fits into a token, in which base64 writes three bytes as four characters, or
    /// into the ledger.
    pub(crate) fn room(&self) -> usize {
        let token = self.token_bytes / 4 * 3;
        if self.spills { token.max(self.spill_bytes) } else { token }
    }

    /// Sets the limit of rounds in a flow.
    pub fn with_rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets the limit of questions in a round.
    pub fn with_questions(mut self, questions: usize) -> Self {
        self.questions = questions;
        self
    }

    /// Sets the limit of options in a field of a form that is made at run time.
    pub fn with_choices(mut self, choices: usize) -> Self {
        self.choices = choices;
        self
    }

    /// Sets the limit of effects in a flow, and the size of each effect's value.
    pub fn with_effects(mut self, effects: usize, bytes: usize) -> Self {
        self.effects = effects;
        self.effect_bytes = bytes;
        self
    }

    /// Sets how often a question is asked again after an invalid answer.
    pub fn with_reasks(mut self, reasks: u32) -> Self {
        self.reasks = reasks;
        self
    }

    /// Sets the limit of waiting handlers, in all and for one principal.
    pub fn with_frames(mut self, frames: usize, per_principal: usize) -> Self {
        self.frames = frames;
        self.frames_per_principal = per_principal;
        self
    }

    /// Sets the memory limit of waiting handlers, in all and for one principal.
    pub fn with_frame_bytes(mut self, bytes: usize, per_principal: usize) -> Self {
        self.frame_bytes = bytes;
        self.frame_bytes_per_principal = per_principal;
        self
    }

    /// Sets the limit of tasks, in all and for one principal.
    pub fn with_tasks(mut self, tasks: usize, per_principal: usize) -> Self {
        self.tasks = tasks;
        self.tasks_per_principal = per_principal;
        self
    }

    /// Sets the memory limit of tasks, in all and for one principal.
    pub fn with_task_bytes(mut self, bytes: usize, per_principal: usize) -> Self {
        self.task_bytes = bytes;
        self.task_bytes_per_principal = per_principal;
        self
    }

    /// Sets the limit of legacy sessions over HTTP, in all and for one principal.
    #[cfg(feature = "http")]
    pub fn with_sessions(mut self, sessions: usize, per_principal: usize) -> Self {
        self.sessions = sessions;
        self.sessions_per_principal = per_principal;
        self
    }

    /// Sets the limit of a token's length.
    pub fn with_token_bytes(mut self, bytes: usize) -> Self {
        self.token_bytes = bytes;
        self
    }

    /// Sets the limit of a state that spills into the ledger.
    pub fn with_spill_bytes(mut self, bytes: usize) -> Self {
        self.spill_bytes = bytes;
        self
    }

    /// Sets the limit of a reply that is kept for retries.
    pub fn with_reply_bytes(mut self, bytes: usize) -> Self {
        self.reply_bytes = bytes;
        self
    }

    /// Sets the limit of what one leg adds to the record of its flow.
    pub fn with_record_bytes(mut self, bytes: usize) -> Self {
        self.record_bytes = bytes;
        self
    }

    /// Sets how long a leg waits for an equal leg that is running.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the lease duration.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the grace period of a handler that has asked and whose client is gone.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}
