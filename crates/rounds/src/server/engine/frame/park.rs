//! The driver between two legs.

use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use super::driver::Driver;
use crate::server::{engine::frames::Slot, policy::error::FlowError, seal::envelope::Span};

impl Driver {
    /// Takes a place among the handlers that wait between legs. One that begins to wait must be allowed to.
    pub(crate) fn take_place_between_legs(&mut self) -> Result<(), FlowError> {
        if self.slot.is_none() {
            self.frame.core.may_wait()?;
        }
        self.take_place()
    }

    /// Takes a place among the handlers that wait, if there is one left, with room for what is kept of this one.
    pub(crate) fn take_place(&mut self) -> Result<(), FlowError> {
        // They were there for the leg that they came with.
        self.frame.forget_unsolicited();
        let bytes = self.bytes();
        match &mut self.slot {
            Some(slot) => slot.resize(bytes),
            None => {
                self.slot = Some(Slot::take(&self.frame, bytes)?);
                Ok(())
            }
        }
    }

    /// What is counted for it while it waits: what the library keeps, with the handler's future and without what that has on the
    /// heap.
    pub(super) fn bytes(&self) -> usize {
        let futures = self.handler.iter().map(|handler| size_of_val(&**handler));
        let pushes = self.pushes.iter().map(|(_, _, push)| size_of_val(&**push));
        futures.chain(pushes).fold(size_of::<Self>() + self.frame.bytes(), |bytes, future| bytes + future)
    }

    /// Waits for the next leg, and no longer than until its round is over.
    pub(crate) fn park(mut self, span: Span) {
        self.deadline = Some(span.deadline);
        self.timer = Some(self.sleep_until(span.expires_at));
        self.runtime = Some(Handle::current());
        let waker = Waker::from(self.frame.clone());
        if self.is_over(&mut Context::from_waker(&waker)) {
            drop(self.expired());
            return;
        }
        Box::new(self).rest();
    }

    /// Nothing is left to be polled: the driver is parked where a leg or a wake-up finds it.
    pub(super) fn rest(self: Box<Self>) {
        let frame = self.frame.clone();
        let mut state = frame.state();
        if let Some(wanted) = state.wanted.take() {
            drop(state);
            // It is polled there, whatever has happened meanwhile. A leg that is gone leaves a handler that no leg can wake.
            drop(wanted.send(self));
        } else if state.woken || state.aborted {
            drop(state);
            self.poll_alone();
        } else {
            state.parked = Some(self);
            // The task that had it is not to be kept.
            let left = state.waker.take();
            drop(state);
            drop(left);
        }
    }

    /// Polls a handler that something else than a leg has woken.
    pub(super) fn poll_alone(mut self: Box<Self>) {
        let Some(runtime) = self.runtime.clone() else { return };
        runtime.spawn(async move {
            if std::future::poll_fn(|cx| Poll::Ready(self.poll_step(cx).is_pending())).await {
                self.rest();
            }
        });
    }
}
