//! The relay: carries messages between the instances of a fleet, each of which has a channel.

use std::{
    fmt,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rounds::{
    ledger::kit::until_there,
    relay::{Inbox, Relay, RelayError},
    time::BoxFuture,
};
use tokio::{runtime::Handle, task::AbortHandle, time::sleep};

use crate::{
    connect::{self, ConnectError, Place},
    connection::{Away, Connection, Published},
    subscription::{Line, Standing, Subscription},
    tls::RedisTls,
};

/// Pause before a message without a receiver is published again: an instance that has just lost its connection has
/// reconnected by then.
const MOMENT: Duration = Duration::from_millis(250);

/// Maximum length of an instance's name in bytes.
const LONGEST: usize = 64;

/// Carries legs to the instance where their handler waits, over Redis publish and subscribe.
///
/// Each instance has a channel, and a dedicated connection that subscribes to it. The number of subscribers that
/// received a message tells at once whether the instance is still running. The server seals the messages: see
/// [`Relay`].
///
/// # When Redis is away
///
/// Each call ends within [the timeout](RedisRelayBuilder::timeout), or within a few times that if it must find out
/// which instances are connected. If it fails, the leg ends with a retryable error. This instance subscribes again by
/// itself, also after a failover to another Redis. For seven times the timeout and half a second after that, it does
/// not treat an unreachable instance as gone, because that instance may be reconnecting as well. Give all instances the
/// same timeout. An idle relay sends a command every two timeouts, and two more every five.
///
/// Behind a proxy that does not report subscribers, an instance that does not answer for three seconds counts as gone.
///
/// The subscription ends when the relay is dropped, together with the server that owns it.
pub struct RedisRelay {
    connection: Arc<Connection>,
    prefix: String,
    here: String,
    /// Whether a subscriber count of zero means that the instance is gone. A proxy may not report the count.
    counts: bool,
    standing: Standing,
    listening: Mutex<Listening>,
}

enum Listening {
    /// No server has opened the relay yet.
    NotYet(Box<(Subscription, Line, Handle)>),
    Since(AbortHandle),
    /// Only within [`Relay::listen`].
    Between,
}

impl RedisRelay {
    /// Connects with every default, to a server such as `redis://127.0.0.1/`. The name identifies this instance in
    /// logs; a random suffix makes it unique for this run.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], as for [`RedisRelayBuilder::connect`].
    pub async fn connect(url: &str, name: &str) -> Result<Self, ConnectError> {
        Self::builder(url, name).connect().await
    }

    /// Returns a builder, to connect with a configuration.
    pub fn builder(url: impl Into<String>, name: impl Into<String>) -> RedisRelayBuilder {
        RedisRelayBuilder { name: name.into(), place: Place::new(url.into()) }
    }

    async fn publish(&self, to: &str, message: &[u8]) -> Result<bool, Away> {
        let there = channel(&self.prefix, to);
        let mut published = self.connection.publish(&there, message).await?;
        if published.heard == 0 && self.counts && !published.broken {
            sleep(MOMENT).await;
            published = self.connection.publish(&there, message).await?;
        }
        let Published { heard, broken } = published;
        if heard > 0 || !self.counts {
            return Ok(true);
        }
        // During a failover, this server may have become the primary just now or have stopped being it. Then it does
        // not count even this instance's subscription, or is not a primary, and its count proves nothing.
        let own = channel(&self.prefix, &self.here);
        let tells = !broken
            && self.connection.listeners(&own).await? > 0
            && self.connection.is_primary().await?
            // Checked last, so that all replies came from the same server.
            && self.standing.is_steady();
        if tells { Ok(false) } else { Err(Away::Unsettled) }
    }
}

impl Relay for RedisRelay {
    fn here(&self) -> &str {
        &self.here
    }

    fn post(&self, to: &str, message: Vec<u8>) -> BoxFuture<'_, Result<bool, RelayError>> {
        let to = to.to_owned();
        Box::pin(async move { self.publish(&to, &message).await.map_err(RelayError::new) })
    }

    fn hears(&self) -> bool {
        self.standing.is_subscribed()
    }

    fn listen(&self, inbox: Inbox) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        *listening = match std::mem::replace(&mut *listening, Listening::Between) {
            Listening::NotYet(parts) => {
                let (subscription, line, runtime) = *parts;
                let sending = self.counts.then(|| self.connection.clone());
                let task = runtime.spawn(line.listen(subscription, inbox, self.standing.clone(), sending));
                Listening::Since(task.abort_handle())
            }
            // A second server must not receive the messages of the first.
            already => already,
        };
    }
}

impl Drop for RedisRelay {
    fn drop(&mut self) {
        if let Listening::Since(task) = &*self.listening.lock().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

impl fmt::Debug for RedisRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRelay").field("here", &self.here).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Configures a [`RedisRelay`]. Made by [`RedisRelay::builder`].
#[derive(Clone)]
pub struct RedisRelayBuilder {
    name: String,
    place: Place,
}

impl RedisRelayBuilder {
    /// Sets the prefix of every channel, which a colon follows: `rounds` by default. All instances of a service need
    /// the same prefix. Services that share a Redis need different prefixes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.place.prefix = prefix.into();
        self
    }

    /// Sets the timeout of one round trip to Redis: one second by default. Round trips of 80 % of it are served.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.place.times.call = timeout;
        self
    }

    /// Sets the timeout of connecting to Redis: five seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.place.times.connect = timeout;
        self
    }

    /// Sets the certificates for a `rediss://` URL.
    pub fn tls(mut self, tls: RedisTls) -> Self {
        self.place.tls = tls;
        self
    }

    /// Sets how long [`connect`](Self::connect) waits for a Redis that cannot be reached: not at all by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.place.wait = wait;
        self
    }

    /// Connects and subscribes. From then on, other instances can reach this one.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the configuration is wrong, or if Redis cannot be reached, is a replica, a sentinel or a node of
    /// a cluster, or does not permit to publish and to subscribe.
    pub async fn connect(self) -> Result<RedisRelay, ConnectError> {
        until_there(self.place.wait, ConnectError::is_away, || self.try_connect()).await
    }

    async fn try_connect(&self) -> Result<RedisRelay, ConnectError> {
        let Self { name, place } = self;
        let Place { prefix, times, .. } = place;
        if name.is_empty() || name.len() > LONGEST {
            return Err(ConnectError::Name { longest: LONGEST });
        }
        let (address, connection) = place.connection()?;
        connect::check_kind(&connection).await?;
        let here = unique(name);
        let line = Line { address, channel: channel(prefix, &here), times: *times };
        let subscription = line.subscribe().await.map_err(|away| ConnectError::of("subscribing", away))?;
        // To no instance.
        let published = connection.publish(&channel(prefix, ""), &[]).await;
        published.map_err(|away| ConnectError::of("publishing", away))?;
        let counts = tells_who_listens(&connection, &line.channel).await;
        let counts = counts.map_err(|away| ConnectError::of("counting subscribers", away))?;
        Ok(RedisRelay {
            connection: Arc::new(connection),
            prefix: prefix.clone(),
            here,
            counts,
            standing: Standing::new(times.call),
            listening: Mutex::new(Listening::NotYet(Box::new((subscription, line, Handle::current())))),
        })
    }
}

impl fmt::Debug for RedisRelayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("RedisRelayBuilder")
            .field("name", &self.name)
            .field("prefix", &self.place.prefix)
            .field("times", &self.place.times)
            .finish_non_exhaustive()
    }
}

/// Whether this Redis, and every proxy in front of it, reports the subscribers of a channel.
async fn tells_who_listens(connection: &Connection, own: &str) -> Result<bool, Away> {
    let told = match connection.listeners(own).await {
        Ok(listeners) => listeners > 0,
        Err(away) if away.is_refusal() => false,
        Err(away) => return Err(away),
    };
    if !told {
        tracing::warn!(
            target: "rounds",
            "Redis does not report subscribers (PUBSUB NUMSUB): an instance counts as gone when it does not answer \
             for three seconds"
        );
    }
    Ok(told)
}

fn channel(prefix: &str, instance: &str) -> String {
    format!("{prefix}:to:{instance}")
}

/// Makes the name unique for this run. A restarted instance has none of the handlers that waited before, so it must
/// have another name.
fn unique(name: &str) -> String {
    let mut suffix = [0; 8];
    getrandom::fill(&mut suffix).expect("the operating system provides randomness");
    let mut unique = format!("{name}-");
    for byte in suffix {
        // Writing to a string cannot fail.
        let _ = write!(unique, "{byte:02x}");
    }
    unique
}
