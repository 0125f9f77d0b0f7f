//! The line: what is on its way between rmcp's service loop and the stand-in.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use rmcp::{
    Peer, RoleServer, ServiceError,
    model::{
        CancelledNotificationParam, CustomNotification, InputRequest, JsonRpcMessage, JsonRpcNotification,
        JsonRpcRequest, ProgressToken, RequestId, ServerNotification, ServerRequest,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{sync::oneshot, task::coop::unconstrained};

use super::{
    forward::{self, Withdrawal},
    question,
};
use crate::{
    server::{engine::frame::Frame, policy::error::FlowError},
    shared::clock::BoxFuture,
};

/// How long one poll of a handler may take while a question of its waits for the end of the poll.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// What a handler has sent, as far as it concerns questions.
pub(super) enum SentQuestion {
    Asked(RequestId, Box<InputRequest>),
    Withdrawn(RequestId),
}

pub(super) struct Line {
    frame: Arc<Frame>,
    /// The token that the handler found in its request.
    token: Option<ProgressToken>,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    /// What the handler has sent and the stand-in has not taken in.
    sent: Vec<SentQuestion>,
    /// The number of the barrier that follows the latest poll of the handler.
    due: u64,
    /// The number of the latest barrier that is in the handler's queue, or was.
    queued: u64,
    /// The number of the latest barrier that has arrived.
    arrived: u64,
    /// Whether there was no space in the handler's queue for a barrier.
    full: bool,
    /// Messages of the handler's that are done, and wait for the barrier that is due.
    done: Vec<oneshot::Sender<()>>,
    /// Answers that rmcp's loop has not taken yet.
    answers: VecDeque<RxJsonRpcMessage<RoleServer>>,
    /// Whether rmcp's loop has taken an answer and has not come back for the next.
    in_hand: bool,
    /// rmcp's loop, while it waits for an answer.
    receiver: Option<Waker>,
    /// What has the handler polled.
    owner: Option<Waker>,
    /// Whether the handler itself wants to be polled.
    woken: bool,
    /// The requests that were passed on to the real peer and have no response yet.
    forwarded: HashMap<RequestId, oneshot::Sender<Withdrawal>>,
    /// rmcp's loop is gone.
    closed: bool,
}

impl LineState {
    fn has_handed_on(&self) -> bool {
        self.closed || (self.answers.is_empty() && !self.in_hand)
    }

    fn is_flushed(&self) -> bool {
        self.closed || self.arrived == self.due
    }
}

/// Whether all that the handler has sent has arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    Yes,
    /// A barrier is under way.
    No,
    /// There is no space in the handler's queue for a barrier.
    Full,
}

/// How a barrier is told from what a handler sends: no other code can name the type.
#[derive(Clone)]
struct Barrier(Arc<u64>);

impl Line {
    /// A line whose handler has not been polled yet.
    pub(super) fn new(frame: Arc<Frame>, token: Option<ProgressToken>) -> Self {
        Self { frame, token, state: Mutex::new(LineState { woken: true, ..LineState::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        // No other code runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This waker has the handler polled from here on.
    pub(super) fn belongs_to(&self, waker: &Waker) {
        let mut state = self.state();
        let same = state.owner.as_ref().is_some_and(|owner| owner.will_wake(waker));
        let old = if same { None } else { state.owner.replace(waker.clone()) };
        drop(state);
        drop(old);
    }

    /// Takes out what the handler has sent.
    pub(super) fn take_sent(&self) -> Vec<SentQuestion> {
        std::mem::take(&mut self.state().sent)
    }

    /// Whether the handler itself wants to be polled.
    pub(super) fn wants_poll(&self) -> bool {
        self.state().woken
    }

    /// The same, for a caller that polls the handler then. A barrier is due after that.
    pub(super) fn begin_poll(&self) -> bool {
        let mut state = self.state();
        let woken = std::mem::take(&mut state.woken);
        state.due += u64::from(woken);
        woken
    }

    /// Says that the handler has sent nothing, so that no barrier is due.
    pub(super) fn skip_barrier(&self) {
        let due = self.state().due;
        self.arrive(due);
    }

    /// Sees to it that a barrier follows what the handler has sent, and says whether it has arrived.
    pub(super) fn flush(&self, peer: &Peer<RoleServer>) -> Flushed {
        let due = match &mut *self.state() {
            state if state.is_flushed() => return Flushed::Yes,
            state if state.queued == state.due => return Flushed::No,
            state => {
                // Set before it is tried, so that space which comes after that is made known.
                state.full = true;
                state.due
            }
        };
        let queued = self.queue(peer, due);
        let mut state = self.state();
        if queued {
            (state.queued, state.full) = (due, false);
        }
        match (state.is_flushed(), queued) {
            (true, _) => Flushed::Yes,
            (false, true) => Flushed::No,
            (false, false) => Flushed::Full,
        }
    }

    /// Puts a barrier into the handler's queue, if there is space.
    fn queue(&self, peer: &Peer<RoleServer>, number: u64) -> bool {
        let number = Arc::new(number);
        let mut notification = CustomNotification::new("rounds/barrier", None);
        notification.extensions.insert(Barrier(number.clone()));
        // The handler may have used up what tokio lets a task do in one poll.
        let mut sending = Box::pin(unconstrained(peer.send_notification(notification.into())));
        let sent = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        // In the queue it stays there without the future, and outside it goes with the future.
        drop(sending);
        if matches!(sent, Poll::Ready(Err(_))) {
            self.close();
        }
        Arc::strong_count(&number) > 1 || self.state().is_flushed()
    }

    /// A barrier has arrived, and with it everything that the handler has sent before it.
    fn arrive(&self, barrier: u64) {
        let mut state = self.state();
        state.arrived = barrier;
        let (done, owner) = (std::mem::take(&mut state.done), state.owner.clone());
        drop(state);
        drop(done);
        wake(owner);
    }

    /// Resolves when the barrier that is due has arrived. What a handler sends in a poll is done after that poll, however fast
    /// rmcp's loop is: otherwise it would depend on that how far the handler gets.
    fn until_flushed(&self) -> impl Future<Output = ()> + Send + 'static {
        let (done, flushed) = oneshot::channel();
        let mut state = self.state();
        if !state.is_flushed() {
            state.done.push(done);
        }
        // Nothing is ever sent: the other half is dropped, now or when the barrier arrives.
        async { drop(flushed.await) }
    }

    /// Gives answers to rmcp's loop. Whether it has handed on all that it was given.
    pub(super) fn hand_on(&self, answers: Vec<RxJsonRpcMessage<RoleServer>>) -> bool {
        let mut state = self.state();
        if answers.is_empty() || state.closed {
            return state.has_handed_on();
        }
        state.answers.extend(answers);
        let receiver = state.receiver.take();
        drop(state);
        wake(receiver);
        false
    }

    /// Gives one answer to rmcp's loop that did not come from the stand-in.
    pub(super) fn respond(&self, id: &RequestId, answer: RxJsonRpcMessage<RoleServer>) {
        let mut state = self.state();
        if state.forwarded.remove(id).is_none() {
            return;
        }
        state.answers.push_back(answer);
        let receiver = state.receiver.take();
        drop(state);
        wake(receiver);
    }

    /// Takes a message of the handler's. What comes of it is to be awaited where the message is one for the real peer.
    fn take(
        self: &Arc<Self>,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> Option<BoxFuture<'static, Result<(), ServiceError>>> {
        self.made_space();
        match message {
            JsonRpcMessage::Request(JsonRpcRequest { id, request, .. }) => match question::of_request(request) {
                Ok(question) => {
                    self.sent(SentQuestion::Asked(id.clone(), Box::new(question)));
                    Some(self.watch(id))
                }
                Err(request) => Some(self.forward(id, *request)),
            },
            JsonRpcMessage::Notification(JsonRpcNotification { notification, .. }) => self.notified(notification),
            // Nothing is requested of the stand-in, so it responds to nothing.
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        }
    }

    /// Fails a question whose handler blocks its thread, as `block_on` does: the poll that sent it does not end before it is
    /// answered, and it cannot be asked before the poll has ended.
    fn watch(self: &Arc<Self>, id: RequestId) -> BoxFuture<'static, Result<(), ServiceError>> {
        let (line, flushed) = (self.clone(), self.until_flushed());
        Box::pin(async move {
            tokio::select! {
                biased;
                () = flushed => {}
                () = line.frame.core.clock.sleep(LONGEST_POLL) => line.fail_blocked(&id),
            }
            Ok(())
        })
    }

    fn fail_blocked(&self, id: &RequestId) {
        let mut state = self.state();
        let before = state.sent.len();
        state.sent.retain(|sent| !matches!(sent, SentQuestion::Asked(asked, _) if asked == id));
        if state.sent.len() == before {
            return;
        }
        state.answers.push_back(JsonRpcMessage::error(FlowError::Blocked.into(), Some(id.clone())));
        let receiver = state.receiver.take();
        drop(state);
        wake(receiver);
    }

    fn notified(&self, notification: ServerNotification) -> Option<BoxFuture<'static, Result<(), ServiceError>>> {
        if let ServerNotification::CustomNotification(custom) = &notification
            && let Some(Barrier(number)) = custom.extensions.get::<Barrier>()
        {
            self.arrive(**number);
            return None;
        }
        let flushed = self.until_flushed();
        let forwarded = match notification {
            ServerNotification::CancelledNotification(cancelled) => {
                self.withdraw(cancelled.params);
                None
            }
            notification => self.frame.link().map(|link| (link, notification, self.token.clone())),
        };
        Some(Box::pin(async move {
            let sent = match forwarded {
                Some((link, notification, token)) => link.notify(notification, token.as_ref()).await,
                None => Ok(()),
            };
            flushed.await;
            sent
        }))
    }

    /// The handler gives up on a request.
    fn withdraw(&self, CancelledNotificationParam { request_id, reason, .. }: CancelledNotificationParam) {
        let Some(id) = request_id else { return };
        let forwarded = self.state().forwarded.remove(&id);
        match forwarded {
            // It is not there to be told if the response has just come.
            Some(withdraw) => drop(withdraw.send(Withdrawal { reason })),
            None => self.sent(SentQuestion::Withdrawn(id)),
        }
    }

    fn forward(
        self: &Arc<Self>,
        id: RequestId,
        request: ServerRequest,
    ) -> BoxFuture<'static, Result<(), ServiceError>> {
        let (withdraw, withdrawn) = oneshot::channel();
        self.state().forwarded.insert(id.clone(), withdraw);
        let (line, link, flushed) = (self.clone(), self.frame.link(), self.until_flushed());
        Box::pin(async move {
            let response = forward::request(link, request, withdrawn).await;
            flushed.await;
            line.respond(&id, forward::message(response, id.clone()));
            Ok(())
        })
    }

    /// There is one message less in the handler's queue.
    fn made_space(&self) {
        let mut state = self.state();
        let owner = if std::mem::take(&mut state.full) { state.owner.clone() } else { None };
        drop(state);
        wake(owner);
    }

    fn sent(&self, sent: SentQuestion) {
        let mut state = self.state();
        state.sent.push(sent);
        // With a barrier to come, it is looked at when the barrier arrives.
        let owner = if state.is_flushed() { state.owner.clone() } else { None };
        drop(state);
        wake(owner);
    }

    /// rmcp's loop comes for an answer, and so has handed on the one before.
    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Option<RxJsonRpcMessage<RoleServer>>> {
        let mut state = self.state();
        let answer = state.answers.pop_front();
        let had_one = std::mem::replace(&mut state.in_hand, answer.is_some());
        if let Some(answer) = answer {
            return Poll::Ready(Some(answer));
        }
        let old = state.receiver.replace(cx.waker().clone());
        let owner = if had_one { state.owner.clone() } else { None };
        drop(state);
        drop(old);
        wake(owner);
        Poll::Pending
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let (forwarded, done) = (std::mem::take(&mut state.forwarded), std::mem::take(&mut state.done));
        let owner = state.owner.clone();
        drop(state);
        drop((forwarded, done));
        wake(owner);
    }
}

/// Wakes the handler.
impl Wake for Line {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state();
        state.woken = true;
        let owner = state.owner.clone();
        drop(state);
        wake(owner);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The end of the line that rmcp's service has.
pub(super) struct LineEnd(pub(super) Arc<Line>);

impl Transport<RoleServer> for LineEnd {
    type Error = ServiceError;

    /// A message is taken when this is called, in the order of the handler's queue. The future is for the handler to wait for.
    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), ServiceError>> + Send + 'static {
        let taken = self.0.take(message);
        async move {
            match taken {
                Some(forwarded) => forwarded.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        poll_fn(|cx| self.0.poll_receive(cx)).await
    }

    async fn close(&mut self) -> Result<(), ServiceError> {
        Ok(())
    }
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}
