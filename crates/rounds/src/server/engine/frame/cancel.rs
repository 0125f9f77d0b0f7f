//! What becomes of a handler whose client is gone.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
};

use tokio_util::sync::CancellationToken;

use super::{driver::Driver, step::Listener};
use crate::shared::clock::BoxFuture;

impl Driver {
    /// The token of the leg in flight.
    pub(crate) fn leg(&self) -> Option<CancellationToken> {
        self.leg.clone()
    }

    pub(crate) fn listener(&self) -> Listener {
        self.listener
    }

    /// Has the handler's token cancelled with the leg's for as long as the result is kept: by the thread that cancels the leg's, as a
    /// handler that is busy in a poll may look at its token.
    pub(crate) fn forward(&mut self) -> Option<BoxFuture<'static, ()>> {
        let (leg, token) = (self.leg.clone()?, self.over.take()?.disarm());
        self.over = Some(token.clone().drop_guard());
        let forward = Waker::from(Arc::new(Forward(token)));
        let mut cancelled = Box::pin(leg.cancelled_owned());
        if cancelled.as_mut().poll(&mut Context::from_waker(&forward)).is_ready() {
            forward.wake();
        }
        Some(cancelled)
    }

    /// The client is gone, and the handler goes on for a leg with equal answers.
    pub(crate) fn go_on_for_equal_leg(&mut self) {
        self.listener = Listener::EqualLeg;
    }

    /// The client is gone, and no other leg waits: tells the handler, and withdraws what was pushed.
    pub(crate) fn tell_to_stop(&mut self) {
        self.listener = Listener::None;
        self.over = None;
        self.pushes.clear();
    }

    /// Whether the handler has asked, and no client can answer.
    pub(crate) fn waits_in_vain(&self) -> bool {
        self.asked && self.listener == Listener::None
    }

    /// Whether a question would not reach anybody. The leg finds out who else waits when its client has just gone.
    pub(super) fn is_unheard(&self) -> bool {
        match self.listener {
            Listener::Client => self.leg.as_ref().is_some_and(CancellationToken::is_cancelled),
            Listener::EqualLeg => false,
            Listener::None => true,
        }
    }
}

/// Cancels a token when it is woken.
pub(super) struct Forward(CancellationToken);

impl Wake for Forward {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}
