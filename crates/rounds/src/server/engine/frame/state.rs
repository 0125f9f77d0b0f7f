//! What changes in a frame.

use std::{convert::Infallible, num::NonZeroU32, task::Waker};

use tokio::sync::oneshot;

use super::{driver::Driver, question::PendingQuestion};
use crate::{
    server::{
        engine::{answer::Received, link::Link},
        policy::{error::FlowError, gate::Peer},
    },
    shared::clock::Timestamp,
};

pub(super) struct FrameState {
    /// The way to the client of the leg in flight. None when no leg is, or its client is connected to another instance.
    pub(super) link: Option<Box<Link>>,
    /// Whether the leg in flight is the one that the frame was made for, and nothing wanted to reach its client yet: most handlers
    /// never do.
    pub(super) unlinked: bool,
    /// What the latest leg's client can be asked.
    pub(super) peer: Peer,
    /// The questions that have no answer yet, in the order of asking.
    pub(super) open: Vec<PendingQuestion>,
    /// Answers that were not taken yet by what waits for them.
    pub(super) answered: Option<Box<UntakenAnswer>>,
    pub(super) next_number: u32,
    /// The round that a leg may answer, once: none while a leg runs. What a ledger knows of the round may get lost; this
    /// is here as long as the handler.
    pub(super) awaited: Option<NonZeroU32>,
    /// Since when it is awaited.
    pub(super) waits_since: Timestamp,
    /// The driver, while it is not polled between two legs.
    pub(super) parked: Option<Box<Driver>>,
    /// A leg that came for the driver while it was polled.
    pub(super) wanted: Option<oneshot::Sender<Box<Driver>>>,
    pub(super) aborted: bool,
    /// The handler has ended: no question can be asked.
    pub(super) ended: bool,
    /// Dropped when the handler ends, which wakes the tasks that wait for it.
    pub(super) outlived: Vec<oneshot::Sender<Infallible>>,
    /// The leg is gone, and the handler lives only to end an effect that it has begun.
    pub(super) cancelled: bool,
    /// How many effects are under way.
    pub(super) effects: u32,
    /// The driver is gone: no leg will ever have it.
    pub(super) closed: bool,
    /// Whether the driver is polling just now, and will look at what is open when it is done.
    pub(super) polling: bool,
    /// Whether something wants to be polled that was not, since the last poll began.
    pub(super) woken: bool,
    /// Whether questions of the handler, or answers to it, are on their way to it: what is open is not complete.
    pub(super) unsettled: bool,
    /// The task that has the driver.
    pub(super) waker: Option<Waker>,
}

impl FrameState {
    /// From here on the client is reached this way, or not at all.
    pub(super) fn set_link(&mut self, link: Option<Box<Link>>) {
        (self.link, self.unlinked) = (link, false);
    }

    pub(super) fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// Leaves an answer for what waits for it, which is to be woken.
    pub(super) fn answer(&mut self, open: PendingQuestion, received: Result<Received, FlowError>) -> Option<Waker> {
        let next = self.answered.take();
        self.answered = Some(Box::new(UntakenAnswer { id: open.id, received, next }));
        open.waker
    }

    /// Takes the answer to this question, if there is one.
    pub(super) fn take_answer(&mut self, id: u32) -> Option<Result<Received, FlowError>> {
        let mut place = &mut self.answered;
        while place.as_ref()?.id != id {
            place = &mut place.as_mut()?.next;
        }
        let UntakenAnswer { received, next, .. } = *place.take()?;
        *place = next;
        Some(received)
    }

    /// Takes out a question that has no answer yet.
    pub(super) fn take_open(&mut self, id: u32) -> Option<PendingQuestion> {
        let place = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.remove(place))
    }
}

/// An answer that was not taken yet, and the one that came before it.
pub(super) struct UntakenAnswer {
    pub(super) id: u32,
    pub(super) received: Result<Received, FlowError>,
    pub(super) next: Option<Box<UntakenAnswer>>,
}
