//! The poll of a handler, as seen by code that runs within it: which frame this thread polls, whether the code blocks that thread, and
//! which errors that mean something to the engine were made there.

use std::{
    cell::{Cell, RefCell},
    task::Waker,
};

use rmcp::ErrorData;

use super::frame::Frame;
use crate::error::{Failure, Meaning};

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here { frame: 0, noted: false }) };
    /// Looked at only where `HERE` says that something was noted.
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes(Vec::new())) };
}

/// What this thread polls.
#[derive(Clone, Copy)]
struct Here {
    /// The address of the frame, which is only compared; zero outside of a poll.
    frame: usize,
    noted: bool,
}

/// Runs one poll of this frame's handler. Returns what was noted meanwhile; most often that is nothing.
pub(super) fn within<T>(frame: &Frame, poll: impl FnOnce() -> T) -> (T, Option<Notes>) {
    let outer = HERE.replace(Here { frame: address(frame), noted: false });
    // A handler can run a whole runtime within its poll, and that runtime other handlers.
    let outer_notes = outer.noted.then(|| NOTES.take());
    let polled = poll();
    let notes = HERE.replace(outer).noted.then(|| NOTES.take());
    if let Some(outer_notes) = outer_notes {
        NOTES.set(outer_notes);
    }
    (polled, notes)
}

fn address(frame: &Frame) -> usize {
    std::ptr::from_ref(frame).addr()
}

/// Whether whoever polls a question with this waker blocks the thread that polls the question's handler, as `block_on` does: the poll does not
/// come to its end, and the question cannot be sent.
///
/// Within the poll of a handler, every waker leads to the frame's. A combinator has a waker of its own, and passes what wakes it on to the
/// one that it was polled with. What blocks the thread has been polled with none, and wakes the thread.
pub(super) fn is_blocked(frame: &Frame, waker: &Waker) -> bool {
    // Without data a waker does nothing, and is for a single poll.
    HERE.get().frame == address(frame) && !waker.data().is_null() && !frame.is_woken_by(waker)
}

/// Notes that an error with a meaning is handed to the handler that this thread polls.
pub(crate) fn note(failure: &Failure) {
    let here = HERE.get();
    if here.frame == 0 || failure.meaning == Meaning::Final {
        return;
    }
    HERE.set(Here { noted: true, ..here });
    NOTES.with_borrow_mut(|notes| notes.add(failure.clone()));
}

/// The errors with a meaning that one run of a handler has made of its [`FlowError`](crate::FlowError)s.
#[derive(Default)]
pub(super) struct Notes(Vec<Failure>);

impl Notes {
    /// A handler that makes more of them than this returns one of the latest.
    const LIMIT: usize = 8;

    fn add(&mut self, failure: Failure) {
        self.0.retain(|noted| *noted != failure);
        if self.0.len() == Self::LIMIT {
            self.0.remove(0);
        }
        self.0.push(failure);
    }

    pub(super) fn extend(&mut self, later: Self) {
        for failure in later.0 {
            self.add(failure);
        }
    }

    /// What an error means that the handler returned. One that was not made of a `FlowError` in this run is its reply, whatever it
    /// looks like.
    pub(super) fn meaning(&self, error: &ErrorData) -> Meaning {
        self.0.iter().find(|noted| noted.error == *error).map_or(Meaning::Final, |noted| noted.meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowError;

    fn lookalike(number: i32) -> Failure {
        Failure { error: ErrorData::internal_error(number.to_string(), None), meaning: Meaning::Retry }
    }

    #[test]
    fn the_latest_notes_are_kept_and_each_once() {
        let mut notes = Notes::default();
        for number in (0..20).chain([15, 15]) {
            notes.add(lookalike(number));
        }
        let kept: Vec<_> = notes.0.iter().map(|noted| noted.error.message.to_string()).collect();
        assert_eq!(kept, ["12", "13", "14", "16", "17", "18", "19", "15"]);
    }

    #[test]
    fn nothing_is_noted_outside_of_a_poll() {
        drop(ErrorData::from(FlowError::retry("away")));
        assert!(!HERE.get().noted && NOTES.take().0.is_empty());
    }
}
