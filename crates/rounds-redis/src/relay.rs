//! The relay: messages between the instances of a fleet, each of which has a channel.

use std::{
    fmt,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rounds::{
    relay::{Inbox, Relay, RelayError},
    time::BoxFuture,
};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::{
    connect::{self, ConnectError},
    connection::{Away, Connection, Published},
    subscription::{Line, Standing, Subscription},
};

/// After how long a message that nobody heard is sent again: who has just lost its connection is back by then.
const MOMENT: Duration = Duration::from_millis(250);

/// How long the name of an instance may be.
const LONGEST: usize = 64;

/// Carries legs to the instance where their handler waits, by publish and subscribe.
///
/// Each instance has a channel, and a connection of its own for it. How many heard a message tells at once whether the
/// instance is still there. Messages are sealed by the server that this is for: see [`Relay`].
///
/// # When Redis is away
///
/// Each call ends within [the timeout](RedisRelayBuilder::timeout), or a few times that where it has to be found out who is there,
/// and the leg is told to try again. This instance subscribes again by itself, also when another Redis has taken the place of the
/// one where it had. For three times the timeout and half a second after that it does not take an instance for gone that is
/// not heard of yet: it may be on its way back as well. All instances have the same timeout.
///
/// In a cluster, or where something in between does not tell who listens, none of this can be known: there an instance that is
/// not heard of for three seconds is taken for gone.
///
/// It is dropped with the server that it was given to, and ends then.
pub struct RedisRelay {
    connection: Arc<Connection>,
    prefix: String,
    here: String,
    /// Whether "nobody heard it" is the whole truth. In a cluster only those count who listen to the same node, and something in
    /// between may not tell.
    counts: bool,
    standing: Standing,
    listening: Mutex<Listening>,
}

enum Listening {
    /// There is nobody to hand messages to yet.
    NotYet(Box<(Subscription, Line, Handle)>),
    Since(AbortHandle),
    /// Only within [`Relay::open`].
    Between,
}

impl RedisRelay {
    /// Connects with every default, to a server such as `redis://127.0.0.1/`. The name is that of this instance, for people
    /// who read logs; it is made unique for this run.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], as for [`RedisRelayBuilder::connect`].
    pub async fn connect(url: &str, name: &str) -> Result<Self, ConnectError> {
        Self::builder(url, name).connect().await
    }

    /// Connects with a configuration.
    pub fn builder(url: impl Into<String>, name: impl Into<String>) -> RedisRelayBuilder {
        RedisRelayBuilder {
            url: url.into(),
            name: name.into(),
            prefix: "rounds".to_owned(),
            timeout: Duration::from_secs(1),
        }
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
        // Another Redis may just have taken the place of this one, or this one that of another: then not even this instance
        // listens, or it is not a primary, and nobody is known to be gone.
        let own = channel(&self.prefix, &self.here);
        let tells = !broken
            && self.connection.listeners(&own).await? > 0
            && self.connection.is_primary().await?
            // At last: all of this was asked of the same one.
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

    fn open(&self, inbox: Inbox) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        *listening = match std::mem::replace(&mut *listening, Listening::Between) {
            Listening::NotYet(parts) => {
                let (subscription, line, runtime) = *parts;
                let sending = self.counts.then(|| self.connection.clone());
                let task = runtime.spawn(line.listen(subscription, inbox, self.standing.clone(), sending));
                Listening::Since(task.abort_handle())
            }
            // Another server would get the messages of the first.
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
    url: String,
    name: String,
    prefix: String,
    timeout: Duration,
}

impl RedisRelayBuilder {
    /// Puts this and a colon in front of every channel: `rounds` by default. All instances of a service have the same, and
    /// services that share a Redis have one each.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long Redis may take for one call, a reconnection included: a second by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects, and subscribes: from then on others find this instance.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the configuration is wrong, or Redis cannot be reached or is a replica.
    pub async fn connect(self) -> Result<RedisRelay, ConnectError> {
        let Self { url, name, prefix, timeout: time } = self;
        if name.is_empty() || name.len() > LONGEST {
            return Err(ConnectError::Name { longest: LONGEST });
        }
        let (client, connection) = connect::connection(url, &prefix, time)?;
        let cluster = connection.info("cluster").await.map_err(ConnectError::unreachable)?;
        let here = unique(&name);
        let line = Line { client, channel: channel(&prefix, &here), timeout: time };
        let subscribed = timeout(time, line.subscribe()).await;
        let subscription = subscribed
            .map_err(|_| Away::Silent { after: time })
            .and_then(|subscribed| subscribed.map_err(Away::Failed))
            .map_err(ConnectError::unreachable)?;
        // Those of a cluster pass messages on to each other.
        let standalone = connect::field(&cluster, "cluster_enabled") == Some("0");
        if standalone && !connection.is_primary().await.map_err(ConnectError::unreachable)? {
            return Err(ConnectError::Replica);
        }
        let counts =
            standalone && tells_who_listens(&connection, &line.channel).await.map_err(ConnectError::unreachable)?;
        Ok(RedisRelay {
            connection: Arc::new(connection),
            prefix,
            here,
            counts,
            standing: Standing::new(time),
            listening: Mutex::new(Listening::NotYet(Box::new((subscription, line, Handle::current())))),
        })
    }
}

impl fmt::Debug for RedisRelayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may have a password in it.
        f.debug_struct("RedisRelayBuilder")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Whether it can be told who is there, by this Redis and all that is in front of it.
async fn tells_who_listens(connection: &Connection, own: &str) -> Result<bool, Away> {
    let told = match connection.listeners(own).await {
        Ok(listeners) => listeners > 0,
        Err(away) if away.is_refusal() => false,
        Err(away) => return Err(away),
    };
    if !told {
        tracing::warn!(
            target: "rounds",
            "Redis does not tell who listens (PUBSUB NUMSUB): instances that are gone are known by their silence"
        );
    }
    Ok(told)
}

fn channel(prefix: &str, instance: &str) -> String {
    format!("{prefix}:to:{instance}")
}

/// Whoever runs here after a restart has none of the handlers that waited, and must not be taken for who had them.
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
