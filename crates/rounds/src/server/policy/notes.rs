//! Notes of the errors that have a meaning to the engine, taken while a thread polls a handler. With them the engine
//! learns the meaning of an error that the handler returns without looking at its contents.

use std::cell::{Cell, RefCell};

use rmcp::ErrorData;

use super::error::{Failure, Meaning};

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here { frame: 0, noted: false }) };
    /// Read only if `HERE` says that an error was noted.
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes(Vec::new())) };
}

/// The poll that this thread is in.
#[derive(Clone, Copy)]
struct Here {
    /// The address of the frame, used only for comparison; zero outside of a poll.
    frame: usize,
    noted: bool,
}

/// The address of the frame whose handler this thread polls; zero outside of a poll.
pub(crate) fn polled_frame() -> usize {
    HERE.get().frame
}

/// Runs one poll of the handler of the frame at this address. Returns the notes taken meanwhile, usually none.
pub(crate) fn within<T>(frame: usize, poll: impl FnOnce() -> T) -> (T, Option<Notes>) {
    let outer = HERE.replace(Here { frame, noted: false });
    // A handler can run a whole runtime within its poll, and that runtime can poll other handlers.
    let outer_notes = outer.noted.then(|| NOTES.take());
    let polled = poll();
    let notes = HERE.replace(outer).noted.then(|| NOTES.take());
    if let Some(outer_notes) = outer_notes {
        NOTES.set(outer_notes);
    }
    (polled, notes)
}

/// Notes that an error with a meaning is returned to the handler that this thread polls.
pub(crate) fn note(failure: &Failure) {
    let here = HERE.get();
    if here.frame == 0 || (failure.meaning == Meaning::Final && failure.cause.is_none()) {
        return;
    }
    HERE.set(Here { noted: true, ..here });
    NOTES.with_borrow_mut(|notes| notes.add(failure.clone()));
}

/// The errors with a meaning that one run of a handler has converted from [`FlowError`](crate::FlowError)s.
#[derive(Default)]
pub(crate) struct Notes(Vec<Failure>);

impl Notes {
    /// Kept are the latest: a handler that makes more errors than this returns one of them.
    const LIMIT: usize = 8;

    fn add(&mut self, failure: Failure) {
        self.0.retain(|noted| *noted != failure);
        if self.0.len() == Self::LIMIT {
            self.0.remove(0);
        }
        self.0.push(failure);
    }

    pub(crate) fn extend(&mut self, later: Self) {
        for failure in later.0 {
            self.add(failure);
        }
    }

    /// The meaning of an error that the handler returned. An error that was not converted from a `FlowError` in this
    /// run is the reply, whatever its contents.
    pub(crate) fn failure(&self, error: ErrorData) -> Failure {
        let noted = self.0.iter().rev().find(|noted| noted.error == error);
        noted.cloned().unwrap_or_else(|| Failure::is_reply(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::policy::error::FlowError;

    fn lookalike(number: i32) -> Failure {
        let error = ErrorData::internal_error(number.to_string(), None);
        Failure { meaning: Meaning::Retry, ..Failure::is_reply(error) }
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
