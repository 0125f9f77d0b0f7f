//! The channel of this instance: it is listened to for as long as the server lives, however often Redis goes away.

use std::{
    future::{pending, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_core::Stream as _;
use redis::{
    Client, RedisError,
    aio::{PubSubSink, PubSubStream},
};
use rounds::relay::Inbox;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::Connection;

/// After how long it is tried again to subscribe, first and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// What it takes to subscribe.
pub(crate) struct Line {
    pub(crate) client: Client,
    pub(crate) channel: String,
    pub(crate) timeout: Duration,
}

/// A connection that has subscribed.
pub(crate) struct Subscription {
    sink: PubSubSink,
    stream: PubSubStream,
}

impl Line {
    pub(crate) async fn subscribe(&self) -> Result<Subscription, RedisError> {
        let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
        sink.subscribe(&self.channel).await?;
        Ok(Subscription { sink, stream })
    }

    /// Hands over what comes, and subscribes again whenever the connection is lost.
    pub(crate) async fn listen(
        self,
        mut subscription: Subscription,
        inbox: Inbox,
        standing: Standing,
        sending: Option<Arc<Connection>>,
    ) {
        let mut pause = self.timeout;
        loop {
            tokio::select! {
                () = subscription.deliver(&inbox, self.timeout) => standing.lost(),
                connection = self.has_moved(sending.as_deref(), &mut pause) => {
                    // In this order: who asks the next one who is there is not to believe it yet.
                    standing.lost();
                    connection.renew();
                }
            }
            tracing::warn!(target: "rounds", "the subscription to Redis is lost: legs from other instances do not arrive");
            subscription = self.again().await;
            standing.regained();
            tracing::warn!(target: "rounds", "subscribed to Redis again");
        }
    }

    /// Until another Redis has taken the place of the one where this instance listens or sends: it does not do both at the same
    /// one, or not at the primary. Then it has to connect anew for both: as long as that does not help, less and less often. Where
    /// it cannot be told, it takes for ever.
    async fn has_moved<'a>(&self, sending: Option<&'a Connection>, pause: &mut Duration) -> &'a Connection {
        let Some(connection) = sending else { return pending().await };
        loop {
            sleep(*pause).await;
            let listens = connection.listeners(&self.channel).await;
            if matches!(listens, Ok(0)) || matches!(connection.is_primary().await, Ok(false)) {
                *pause = pause.saturating_mul(2).min(self.timeout.saturating_mul(30));
                return connection;
            }
            *pause = self.timeout;
        }
    }

    async fn again(&self) -> Subscription {
        let (mut pause, longest) = PAUSES;
        loop {
            if let Ok(Ok(subscription)) = timeout(self.timeout, self.subscribe()).await {
                return subscription;
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

impl Subscription {
    /// Ends when the connection does, or nobody at its other end says anything any more.
    async fn deliver(&mut self, inbox: &Inbox, patience: Duration) {
        let Self { sink, stream } = self;
        let silence = async {
            loop {
                sleep(patience / 2).await;
                if !matches!(timeout(patience, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                    return;
                }
            }
        };
        tokio::pin!(silence);
        loop {
            tokio::select! {
                biased;
                message = poll_fn(|cx| std::pin::Pin::new(&mut *stream).poll_next(cx)) => match message {
                    Some(message) => inbox.deliver(message.get_payload_bytes()),
                    None => return,
                },
                () = &mut silence => return,
            }
        }
    }
}

/// Whether this instance can tell who is there.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    stands: Arc<Mutex<Stands>>,
    /// How long those who lost Redis together with this instance may take to come back: until they know of it, and then a few
    /// tries.
    settling: Duration,
}

#[derive(Debug)]
enum Stands {
    FromTheStart,
    Not,
    Since(Instant),
}

impl Standing {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            stands: Arc::new(Mutex::new(Stands::FromTheStart)),
            settling: timeout.saturating_mul(3).saturating_add(PAUSES.1),
        }
    }

    pub(crate) fn is_steady(&self) -> bool {
        match *self.stands() {
            Stands::FromTheStart => true,
            Stands::Not => false,
            Stands::Since(moment) => moment.elapsed() >= self.settling,
        }
    }

    fn lost(&self) {
        *self.stands() = Stands::Not;
    }

    fn regained(&self) {
        *self.stands() = Stands::Since(Instant::now());
    }

    fn stands(&self) -> MutexGuard<'_, Stands> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
