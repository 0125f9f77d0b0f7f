//! How a pending question gets its answer: the one seam between a question and what answers it.
//!
//! Whatever asks (a shape, a request through `context.peer`, a task) poses its question with [`Frame::pose`] and waits for
//! it. It cannot tell which of the ends answers:
//!
//! - **replay**: the handler is durable, and its journal has the answer of an earlier leg. Chosen once for a frame, with
//!   [`Frame::replay`], before the handler asks; [`Frame::answering`] says so.
//! - **leg**: the question leaves with the reply of the leg in flight, and a later leg brings the answer. An update of a
//!   task is such a leg.
//! - **push**: the client is of the legacy era, and the question is a request to it. The driver chooses between leg and push
//!   when the handler has come to rest.

use super::Frame;
use crate::server::engine::journal::Journal;

/// How the handler of a frame gets from a question to its answer.
#[derive(Clone, Copy)]
pub(crate) enum Answering<'a> {
    /// It waits in memory, and the answer is brought to it.
    Waits,
    /// It runs from its beginning on every leg, and takes what its journal has.
    Replays(&'a Journal),
}

impl Frame {
    pub(crate) fn answering(&self) -> Answering<'_> {
        self.journal.get().map_or(Answering::Waits, |journal| Answering::Replays(journal))
    }

    /// The journal, if the handler replays one.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.get().map(|journal| &**journal)
    }

    /// The handler is durable and replays a journal: this one, unless it has one already.
    pub(crate) fn replay(&self, journal: impl FnOnce() -> Journal) -> &Journal {
        self.journal.get_or_init(|| Box::new(journal()))
    }

    /// Whether a durable handler is at work just now.
    pub(in crate::server::engine) fn is_durable(&self) -> bool {
        self.journal().is_some_and(Journal::is_entered)
    }
}
