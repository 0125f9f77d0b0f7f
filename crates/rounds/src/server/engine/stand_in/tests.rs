//! The stand-in, step by step: rmcp's loop runs as far as the test lets it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{collections::VecDeque, convert::Infallible, pin::pin, sync::Mutex, task::Wake};

use rmcp::{
    ServiceError,
    model::{JsonRpcMessage, NumberOrString},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
};

use super::*;
use crate::{
    Rounds,
    server::{
        engine::frame::FrameCall,
        policy::gate::{self, Era},
        seal::{FlowId, envelope::Method},
    },
    shared::clock::BoxFuture,
};

/// Messages that rmcp's loop has handed to the transport, and that have not arrived.
type Held = Arc<Mutex<VecDeque<TxJsonRpcMessage<RoleServer>>>>;

/// A transport that holds every message back.
struct Gate(Held);

impl Transport<RoleServer> for Gate {
    type Error = Infallible;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Infallible>> + 'static {
        self.0.lock().unwrap().push_back(message);
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        std::future::pending().await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

struct Stage {
    stand_in: StandIn,
    context: RequestContext<RoleServer>,
    wire: LineEnd,
    held: Held,
    polls: usize,
}

impl Stage {
    fn new() -> Self {
        let real = serve_directly(Nobody, Gate(Held::default()), None);
        let mut context = RequestContext::new(NumberOrString::Number(1), real.peer().clone());
        let rounds = Rounds::new(Nobody);
        let call = FrameCall {
            method: Method::Tool,
            target: "tool",
            arguments: None,
            principal: None,
            caller: None,
            context_bytes: 0,
            answers: None,
            onces: None,
        };
        let peer = gate::Peer { era: Era::Modern, ..gate::Peer::of(&context) };
        let frame = Frame::new(rounds.parts().1.clone(), FlowId::from_bytes([1; 16]), call, peer, None);
        let (held, mut wire) = (Held::default(), None);
        let stand_in = StandIn::put_over(&frame, &mut context, |of_the_line| {
            wire = Some(of_the_line);
            Gate(held.clone())
        });
        Self { stand_in, context, wire: wire.unwrap(), held, polls: 0 }
    }

    /// One poll of the driver's, in which the handler is polled if it may be.
    fn poll<T>(&mut self, handler: Pin<&mut impl Future<Output = T>>) -> Polled<T> {
        let (mut handler, polls) = (handler, &mut self.polls);
        let waker = Waker::from(self.stand_in.line.clone());
        self.stand_in.poll(&mut Context::from_waker(Waker::noop()), || {
            *polls += 1;
            handler.as_mut().poll(&mut Context::from_waker(&waker))
        })
    }

    /// Lets rmcp's loop run until it has handed on so many messages.
    async fn until_held(&self, messages: usize) {
        while self.held.lock().unwrap().len() < messages {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.held.lock().unwrap().len(), messages);
    }

    /// Lets the next message arrive.
    fn release(&mut self) -> impl Future<Output = Result<(), ServiceError>> + 'static {
        let message = self.held.lock().unwrap().pop_front().unwrap();
        self.wire.send(message)
    }
}

#[tokio::test]
#[expect(deprecated, reason = "the shortest request")]
async fn questions_are_opened_when_the_barrier_has_arrived_and_not_before() {
    let mut stage = Stage::new();
    let peer = stage.context.peer.clone();
    let mut handler = pin!(async { tokio::join!(peer.list_roots(), peer.list_roots()) });
    assert!(matches!(stage.poll(handler.as_mut()), Polled::Unsettled), "nothing has arrived");
    stage.until_held(3).await;
    for _ in 0..2 {
        drop(stage.release());
        // Whatever wakes the handler meanwhile, it has to wait.
        stage.stand_in.line.wake_by_ref();
        assert!(matches!(stage.poll(handler.as_mut()), Polled::Unsettled), "more may come");
        assert_eq!((stage.stand_in.questions.bytes(), stage.polls), (0, 1));
    }
    drop(stage.release());
    assert!(matches!(stage.poll(handler.as_mut()), Polled::AtRest));
    assert!(stage.stand_in.questions.bytes() > 0);
    assert_eq!(stage.polls, 1, "the driver looks first");
    assert!(matches!(stage.poll(handler.as_mut()), Polled::Unsettled));
    assert_eq!(stage.polls, 2, "then the handler runs, which was woken");
}

#[tokio::test]
async fn a_notification_is_done_when_the_poll_that_sent_it_is_over() {
    let mut stage = Stage::new();
    let peer = stage.context.peer.clone();
    let mut handler = pin!(peer.notify_tool_list_changed());
    assert!(matches!(stage.poll(handler.as_mut()), Polled::Unsettled));
    stage.until_held(2).await;
    let mut sent: BoxFuture<'_, _> = Box::pin(stage.release());
    let poll = |sent: &mut BoxFuture<'_, Result<(), ServiceError>>| {
        sent.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    for _ in 0..100 {
        assert!(poll(&mut sent).is_pending(), "the barrier has not arrived");
        tokio::task::yield_now().await;
    }
    drop(stage.release());
    while poll(&mut sent).is_pending() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_the_stand_in_can_send_a_barrier() {
    let mut stage = Stage::new();
    let peer = stage.context.peer.clone();
    let forged = rmcp::model::CustomNotification::new("rounds/barrier", None);
    let mut handler = pin!(peer.send_notification(forged.into()));
    assert!(matches!(stage.poll(handler.as_mut()), Polled::Unsettled));
    stage.until_held(2).await;
    drop(stage.release());
    assert!(matches!(stage.poll(handler.as_mut()), Polled::Unsettled), "it is a notification like any other");
    assert!(matches!(stage.held.lock().unwrap().front(), Some(JsonRpcMessage::Notification(_))));
}
