//! The poll of a handler, as seen by code that runs within it: whether that code blocks the thread.

use std::task::Waker;

use super::frame::Frame;
use crate::server::policy::notes::{self, Notes};

/// Runs one poll of this frame's handler. Returns what was noted meanwhile; most often that is nothing.
pub(super) fn within<T>(frame: &Frame, poll: impl FnOnce() -> T) -> (T, Option<Notes>) {
    notes::within(address(frame), poll)
}

fn address(frame: &Frame) -> usize {
    std::ptr::from_ref(frame).addr()
}

/// Whether a poll of a question with this waker blocks the thread that polls the question's handler, as `block_on` does: the poll does not
/// come to its end, and the question cannot be sent.
///
/// Within the poll of a handler, every waker leads to the frame's. A combinator has a waker of its own, and passes what wakes it on to the
/// one that it was polled with. What blocks the thread has been polled with none, and wakes the thread.
pub(super) fn is_blocked(frame: &Frame, waker: &Waker) -> bool {
    // Without data a waker does nothing, and is for a single poll.
    notes::polled_frame() == address(frame) && !waker.data().is_null() && !frame.is_woken_by(waker)
}
