//! A handler that outlives its leg, in the middle of an effect.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
};

use tokio_util::sync::DropGuard;

use super::{Frame, driver::Handler};

/// What is left of a handler that is over.
pub(super) struct Left {
    pub(super) frame: Arc<Frame>,
    pub(super) handler: Option<Handler>,
    /// What the handler started is told when it is gone.
    pub(super) _over: Option<DropGuard>,
}

impl Left {
    /// Lets it end the effects that it has begun, for as long as a flow may take.
    pub(super) async fn at_work(mut self) {
        let core = self.frame.core.clone();
        let mut longest = core.clock.sleep(self.frame.flow_deadline());
        std::future::poll_fn(|cx| {
            // An effect may come to its end in another task.
            let old = self.frame.state().waker.replace(cx.waker().clone());
            drop(old);
            let Some(handler) = &mut self.handler else { return Poll::Ready(()) };
            let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
            let over = !matches!(polled, Ok(Poll::Pending)) || self.frame.state().effects == 0;
            if over || longest.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        drop_handler(&self.frame, self.handler.take());
        // An `Ask` that outlives its handler keeps the frame, and is not to keep the task as well.
        self.frame.close();
    }
}

/// Drops a handler. Its destructors are the author's code, and may panic: then it is false.
pub(super) fn drop_handler(frame: &Frame, handler: Option<Handler>) -> bool {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(handler)));
    frame.end();
    dropped.is_ok()
}
