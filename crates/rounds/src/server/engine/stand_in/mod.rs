//! The stand-in: the peer that a handler gets in place of the real one, so that requests which it sends to a modern client become
//! questions of its flow.
//!
//! rmcp makes a `Peer` only for a running service. So each call gets a small service of its own, over a transport that is a
//! queue in memory ([`Line`]). What the handler sends passes three stations: the queue of rmcp's `Peer`, rmcp's service loop in a task
//! of its own, and the line. [`StandIn`] wraps the handler's future and polls both ends, so that the driver sees a handler that asks.
//!
//! ```text
//! handler ─▶ Peer ─▶ rmcp's loop ─▶ Line ─▶ StandIn ─▶ Frame::pose     a question
//!                                        └▶ Link ─▶ the real peer      anything else
//! handler ◀─ Peer ◀─ rmcp's loop ◀─ Line ◀─ StandIn ◀─ PendingAnswer   its answer
//! ```
//!
//! Which questions form a round does not depend on how fast rmcp's loop runs. After each poll of the handler, the stand-in sends a
//! barrier through the handler's own queue and does not poll the handler before the barrier has arrived. The questions are opened
//! then, all in one poll. In the other direction, the handler is polled only after rmcp's loop has handed on every answer.

mod client;
mod forward;
mod line;
mod question;

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use rmcp::{
    RoleServer, ServerHandler,
    service::{RequestContext, RunningService, serve_directly},
    transport::Transport,
};
use tokio::task::coop::has_budget_remaining;
use tracing::{Dispatch, dispatcher::with_default};

use self::{
    client::DeclaredClient,
    line::{Flushed, Line, LineEnd},
    question::PeerQuestions,
};
use super::frame::Frame;

/// The memory of rmcp's service for one call: its task, its queues and its peer.
const SERVICE: usize = 26 * 1024;

/// How often in a row a handler may be put off by tokio before its questions are asked all the same. A handler that never comes to rest is
/// not to keep its questions from being asked.
const MOST_PUT_OFF: u32 = 64;

/// The stand-in of one call.
pub(super) struct StandIn {
    frame: Arc<Frame>,
    line: Arc<Line>,
    /// Its peer is the one that the handler has. The peer is closed when this is dropped.
    service: RunningService<RoleServer, Nobody>,
    client: DeclaredClient,
    questions: PeerQuestions,
    /// Whether the driver has to look at the questions before the handler is polled again, once they are complete.
    look: bool,
    /// How often in a row tokio has put the handler off, which wants to go on.
    put_off: u32,
}

impl StandIn {
    /// Puts a stand-in into the context of a call. From here on the real peer is reached through the frame.
    pub(super) fn put(frame: &Arc<Frame>, context: &mut RequestContext<RoleServer>) -> Self {
        Self::put_over(frame, context, |wire| wire)
    }

    /// The same over another transport, which has the wire.
    fn put_over<T: Transport<RoleServer> + 'static>(
        frame: &Arc<Frame>,
        context: &mut RequestContext<RoleServer>,
        transport: impl FnOnce(LineEnd) -> T,
    ) -> Self {
        frame.reach(context);
        let (client, info) = DeclaredClient::of(context, frame);
        let line = Arc::new(Line::new(frame.clone(), context.meta.get_progress_token()));
        let wire = transport(LineEnd(line.clone()));
        // The service outlives the leg, and must not keep the leg's span open.
        let service = with_default(&Dispatch::none(), || serve_directly(Nobody, wire, Some(info)));
        context.peer = service.peer().clone();
        let questions = PeerQuestions::of(frame.clone());
        Self { frame: frame.clone(), line, service, client, questions, look: false, put_off: 0 }
    }

    /// Polls the handler that has this stand-in until it ends.
    pub(super) async fn attend<F: Future>(mut self, mut handler: Pin<&mut F>) -> F::Output {
        let waker = Waker::from(self.line.clone());
        poll_fn(|cx| {
            self.line.belongs_to(cx.waker());
            self.client.follow(&self.frame, self.service.peer());
            let polled = self.poll(cx, || handler.as_mut().poll(&mut Context::from_waker(&waker)));
            self.frame.settle(!matches!(polled, Polled::Unsettled));
            self.frame.keep_beside(SERVICE + self.client.bytes() + self.questions.bytes());
            match polled {
                Polled::Ended(output) => Poll::Ready(output),
                Polled::Unsettled | Polled::AtRest => Poll::Pending,
            }
        })
        .await
    }

    fn poll<T>(&mut self, cx: &mut Context<'_>, mut handler: impl FnMut() -> Poll<T>) -> Polled<T> {
        loop {
            let flushed = self.line.flush(self.service.peer());
            match flushed {
                Flushed::Yes => {}
                // The handler itself may wait for space in its queue.
                Flushed::Full if self.line.wants_poll() => self.look = false,
                Flushed::No | Flushed::Full => return Polled::Unsettled,
            }
            self.questions.take_in(self.line.take_sent());
            let answers = self.questions.poll(cx);
            // A handler that was answered is polled first: it may ask something else then.
            self.look &= answers.is_empty();
            if !self.line.hand_on(answers) {
                return Polled::Unsettled;
            }
            if std::mem::take(&mut self.look) {
                if self.line.wants_poll() {
                    cx.waker().wake_by_ref();
                }
                return Polled::AtRest;
            }
            if !self.line.begin_poll() {
                return Polled::AtRest;
            }
            if let Poll::Ready(output) = handler() {
                return Polled::Ended(output);
            }
            // A durable handler has no context, and so no peer.
            if self.frame.is_durable() {
                self.line.skip_barrier();
                return Polled::AtRest;
            }
            self.look = flushed == Flushed::Yes && !self.is_put_off();
            if !self.look {
                // Polled again at once, it would get no further: others have to run first.
                cx.waker().wake_by_ref();
                return Polled::Unsettled;
            }
        }
    }

    /// Whether the handler has only yielded because tokio lets a task do no more in one poll.
    fn is_put_off(&mut self) -> bool {
        let put_off = !has_budget_remaining() && self.put_off < MOST_PUT_OFF;
        self.put_off = if put_off { self.put_off + 1 } else { 0 };
        put_off
    }
}

/// What a poll of a handler with a stand-in has come to.
enum Polled<T> {
    Ended(T),
    /// Messages are on their way between the handler and the line.
    Unsettled,
    /// The handler waits, and everything that it has sent was taken in.
    AtRest,
}

/// The server side of a stand-in. Nothing is ever requested of it.
struct Nobody;

impl ServerHandler for Nobody {}

#[cfg(all(test, feature = "test"))]
mod tests;
