//! What the instances of a fleet share, as the tests see it.

use std::collections::HashMap;

use rounds_testkit::{Postgres, Redis};

pub(crate) enum Store {
    Redis(Redis),
    Postgres(Postgres),
}

/// The database of the fleet.
const DATABASE: &str = "postgres";

impl Store {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(redis) => redis.url(),
            Self::Postgres(postgres) => postgres.url(DATABASE),
        }
    }

    pub(crate) fn stop(&mut self) {
        match self {
            Self::Redis(redis) => redis.stop(),
            Self::Postgres(postgres) => postgres.kill(),
        }
    }

    pub(crate) fn start_again(&mut self) {
        match self {
            Self::Redis(redis) => redis.start_again(),
            Self::Postgres(postgres) => postgres.start_again(),
        }
    }

    /// Whether an instance of this name is connected and can be given legs.
    pub(crate) async fn listens(&self, name: &str) -> bool {
        match self {
            Self::Redis(redis) => {
                let channels: Vec<String> = redis.ask("PUBSUB CHANNELS", &[]).await;
                channels.iter().any(|channel| channel.starts_with(&format!("gallery:to:{name}-")))
            }
            Self::Postgres(postgres) => {
                tokio::time::sleep(crate::PAUSE).await;
                let sessions = postgres.ask(&self.url(), "SELECT application_name FROM pg_stat_activity");
                sessions.lines().any(|session| session.starts_with(&format!("rounds {name}-")))
            }
        }
    }

    /// Number of messages that were sent between instances.
    pub(crate) async fn published(&self) -> u64 {
        match self {
            Self::Redis(redis) => {
                let stats: String = redis.ask("INFO commandstats", &[]).await;
                let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
                line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
            }
            Self::Postgres(postgres) => {
                // The question blocks this thread: whatever else it does goes on now.
                tokio::time::sleep(crate::PAUSE).await;
                let last = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM rounds_messages_number_seq";
                postgres.ask(&self.url(), last).parse().unwrap()
            }
        }
    }

    /// The flights that the airline has charged, and how often each charge was attempted, by idempotency key.
    pub(crate) async fn charges(&self) -> HashMap<String, (String, u64)> {
        match self {
            Self::Redis(redis) => {
                let flights: HashMap<String, String> = redis.ask("HGETALL", &[b"gallery:{airline}:charges"]).await;
                let attempts: HashMap<String, u64> = redis.ask("HGETALL", &[b"gallery:{airline}:attempts"]).await;
                flights.into_iter().map(|(key, flight)| (key.clone(), (flight, attempts[&key]))).collect()
            }
            Self::Postgres(postgres) => {
                let rows = postgres.ask(&self.url(), "SELECT idempotency_key, attempts, flight FROM gallery_charges");
                let row = |line: &str| {
                    let mut columns = line.splitn(3, '|').map(str::to_owned);
                    let (key, attempts) = (columns.next().unwrap(), columns.next().unwrap().parse().unwrap());
                    (key, (columns.next().unwrap(), attempts))
                };
                rows.lines().map(row).collect()
            }
        }
    }
}
