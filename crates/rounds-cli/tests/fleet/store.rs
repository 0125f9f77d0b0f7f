//! What the instances of a fleet share, as the tests see it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use rounds_testkit::{Postgres, Redis};
use sqlx::{Connection as _, SqliteConnection};

const CHARGES: &str = "SELECT idempotency_key, attempts, flight FROM gallery_charges";

pub(crate) enum Store {
    Redis(Redis),
    Postgres(Postgres),
    /// A file in a folder of its own, for one host.
    Sqlite(Folder),
}

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The database of the fleet.
pub(crate) const DATABASE: &str = "postgres";

impl Store {
    pub(crate) fn sqlite() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sqlite-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self::Sqlite(Folder(folder))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(redis) => redis.url(),
            Self::Postgres(postgres) => postgres.url(DATABASE),
            Self::Sqlite(folder) => format!("sqlite:{}", folder.0.join("rounds.db").display()),
        }
    }

    pub(crate) fn stop(&mut self) {
        match self {
            Self::Redis(redis) => redis.stop(),
            Self::Postgres(postgres) => postgres.kill(),
            Self::Sqlite(_) => {}
        }
    }

    pub(crate) fn start_again(&mut self) {
        match self {
            Self::Redis(redis) => redis.start_again(),
            Self::Postgres(postgres) => postgres.start_again(),
            Self::Sqlite(_) => {}
        }
    }

    /// Stops it: it still accepts requests, but does not answer.
    pub(crate) fn pause(&self) {
        match self {
            Self::Redis(redis) => redis.pause(),
            Self::Postgres(postgres) => postgres.pause(),
            Self::Sqlite(_) => {}
        }
    }

    pub(crate) fn go_on(&self) {
        match self {
            Self::Redis(redis) => redis.go_on(),
            Self::Postgres(postgres) => postgres.go_on(),
            Self::Sqlite(_) => {}
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
            Self::Sqlite(_) => false,
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
            Self::Sqlite(_) => 0,
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
            Self::Sqlite(_) => {
                let mut file = SqliteConnection::connect(&self.url()).await.unwrap();
                let rows = sqlx::query_as::<_, (String, i64, String)>(CHARGES).fetch_all(&mut file).await.unwrap();
                rows.into_iter().map(|(key, attempts, flight)| (key, (flight, attempts.unsigned_abs()))).collect()
            }
            Self::Postgres(postgres) => {
                let rows = postgres.ask(&self.url(), CHARGES);
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
