//! The channel of this instance: it stays subscribed as long as the server lives, however often the connection to Redis
//! is lost.

use std::{
    future::{pending, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_core::Stream as _;
use redis::aio::{PubSubSink, PubSubStream};
use rounds::relay::Inbox;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    address::Address,
    connection::{self, Away, Connection, Times},
};

/// First and longest pause between two attempts to subscribe.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// How many call timeouts pass between two pings of the subscription, and between two looks at what the server counts: an
/// idle instance sends less than one command a second.
const PINGS: u32 = 2;
const LOOKS: u32 = 5;

/// Everything that subscribing needs.
pub(crate) struct Line {
    pub(crate) address: Address,
    pub(crate) channel: String,
    pub(crate) times: Times,
}

/// A connection that has subscribed to the channel.
pub(crate) struct Subscription {
    sink: PubSubSink,
    stream: PubSubStream,
}

impl Line {
    pub(crate) async fn subscribe(&self) -> Result<Subscription, Away> {
        let (sink, stream) = connection::subscribe(&self.address, &self.channel, self.times.connect).await?.split();
        Ok(Subscription { sink, stream })
    }

    /// Delivers the messages of the channel, and subscribes again whenever the connection is lost.
    pub(crate) async fn listen(
        self,
        mut subscription: Subscription,
        inbox: Inbox,
        standing: Standing,
        sending: Option<Arc<Connection>>,
    ) {
        let mut pause = self.times.call.saturating_mul(LOOKS);
        loop {
            tokio::select! {
                () = subscription.deliver(&inbox, self.times.call) => standing.lost(),
                connection = self.has_moved(sending.as_deref(), &mut pause) => {
                    // In this order: no call may trust the subscriber count of the new connection before the instances
                    // have had time to reconnect.
                    standing.lost();
                    connection.renew();
                }
            }
            tracing::warn!(target: "rounds",
                "the subscription to Redis is lost: legs from other instances do not arrive until it is restored");
            subscription = self.again().await;
            standing.regained();
            tracing::warn!(target: "rounds", "subscribed to Redis again");
        }
    }

    /// Resolves when this instance has to reconnect because a failover has moved one of its connections: the server it
    /// publishes on does not count its own subscription, or is not the primary. The checks back off while reconnecting
    /// does not help. Never resolves if Redis does not report subscribers.
    async fn has_moved<'a>(&self, sending: Option<&'a Connection>, pause: &mut Duration) -> &'a Connection {
        let Some(connection) = sending else { return pending().await };
        loop {
            sleep(*pause).await;
            let listens = connection.listeners(&self.channel).await;
            if matches!(listens, Ok(0)) || matches!(connection.is_primary().await, Ok(false)) {
                *pause = pause.saturating_mul(2).min(self.times.call.saturating_mul(30));
                return connection;
            }
            *pause = self.times.call.saturating_mul(LOOKS);
        }
    }

    async fn again(&self) -> Subscription {
        let (mut pause, longest) = PAUSES;
        loop {
            if let Ok(subscription) = self.subscribe().await {
                return subscription;
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

impl Subscription {
    /// Returns when the connection is closed, or when the server does not answer a ping.
    async fn deliver(&mut self, inbox: &Inbox, patience: Duration) {
        let Self { sink, stream } = self;
        let silence = async {
            loop {
                sleep(patience.saturating_mul(PINGS)).await;
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

/// Whether this instance can tell which instances are connected.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    stands: Arc<Mutex<Stands>>,
    /// How long other instances may take to reconnect after losing Redis together with this one: the time to notice the
    /// loss, plus a few attempts to connect.
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
            settling: timeout.saturating_mul(LOOKS + 2).saturating_add(PAUSES.1),
        }
    }

    pub(crate) fn is_steady(&self) -> bool {
        match *self.stands() {
            Stands::FromTheStart => true,
            Stands::Not => false,
            Stands::Since(moment) => moment.elapsed() >= self.settling,
        }
    }

    /// Whether this instance is subscribed, as far as is known.
    pub(crate) fn is_subscribed(&self) -> bool {
        !matches!(*self.stands(), Stands::Not)
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
