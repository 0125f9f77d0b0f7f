//! The cost of a store: a claimed leg on each of them, with a register and without, compared with two bare commits to the
//! same store.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use counts::{Server, Weather, answered, asked};
use redis::aio::MultiplexedConnection;
use rmcp::model::CallToolRequestParams;
use rounds::{
    KeyRing, Rounds,
    ledger::{Ledger, MemoryLedger},
};
use rounds_redis::RedisLedger;
use rounds_sql::{PostgresLedger, SqliteLedger};
use rounds_testkit::{Postgres, Redis};
use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use crate::{
    alone::Failure,
    progress::Progress,
    report::{Bars, Section, Table, figure},
    sample::Sample,
};

/// How often each is measured, in turns.
const TURNS: usize = 1000;

pub(crate) async fn measure() -> Result<Section, Failure> {
    measured(TURNS).await
}

/// As many turns are not counted first: schemas are built, statements prepared, pages touched.
fn warm_up(turns: usize) -> usize {
    turns / 10
}

async fn measured(turns: usize) -> Result<Section, Failure> {
    let mut progress = Progress::new("stores", 2);
    progress.step("start a Postgres and a Redis, and open a file");
    let (folder, postgres, redis) = (Folder::new("stores")?, Postgres::start(), Redis::start());
    let mut stores = all(&folder, &postgres, &redis).await?;
    progress.step("a claimed leg on each, in turns");
    for turn in 0..warm_up(turns) + turns {
        for store in &mut stores {
            if turn == warm_up(turns) {
                store.forget();
            }
            store.turn().await?;
        }
    }
    Ok(section(turns, &stores))
}

async fn all(folder: &Folder, postgres: &Postgres, redis: &Redis) -> Result<Vec<Store>, Failure> {
    let file = folder.0.join("rounds.db");
    let sqlite = SqliteLedger::open(&file).await?;
    let url = postgres.database();
    let on_postgres = PostgresLedger::connect(&url).await?;
    let on_redis = RedisLedger::connect(&redis.url()).await?;
    let memory = MemoryLedger::new();
    Ok(vec![
        Store::new("memory", [memory.clone(), memory], Bare::None)?,
        Store::new("SQLite", [sqlite.clone(), sqlite], Bare::sqlite(&file).await?)?,
        Store::new("Postgres", [on_postgres.clone(), on_postgres], Bare::postgres(&url).await?)?,
        Store::new("Redis", [on_redis.clone(), on_redis], Bare::redis(&redis.url()).await?)?,
    ])
}

/// A folder that is removed when the measurement ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("rounds-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store, and two servers on it.
struct Store {
    name: &'static str,
    plain: Server,
    registered: Server,
    bare: Bare,
    bare_commits: Sample,
    plain_leg: Sample,
    registered_leg: Sample,
}

impl Store {
    fn new<L: Ledger>(name: &'static str, [plain, registered]: [L; 2], bare: Bare) -> Result<Self, Failure> {
        let [bare_commits, plain_leg, registered_leg] = [(); 3].map(|()| Sample::new(name));
        let (plain, registered) = (server(plain, false)?, server(registered, true)?);
        Ok(Self { name, plain, registered, bare, bare_commits, plain_leg, registered_leg })
    }

    fn forget(&mut self) {
        [self.bare_commits, self.plain_leg, self.registered_leg] = [(); 3].map(|()| Sample::new(self.name));
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        let bare = &mut self.bare;
        self.bare_commits.time(async { bare.two_commits().await }).await?;
        claimed_leg(&self.plain, &mut self.plain_leg).await;
        claimed_leg(&self.registered, &mut self.registered_leg).await;
        Ok(())
    }
}

/// The weather on a ledger, with a register or without.
pub(crate) fn server(ledger: impl Ledger, register: bool) -> Result<Server, Failure> {
    let keys = KeyRing::from_bytes([[7; 32]])?;
    let builder = Rounds::builder(Weather::new()).keys(keys).audience("bench").ledger(ledger);
    Ok(Server::start(if register { builder.register() } else { builder }.build()?))
}

/// Plays a call of two legs, and measures the second one.
pub(crate) async fn claimed_leg(server: &Server, sample: &mut Sample) {
    let request = CallToolRequestParams::new("guard").with_arguments(rmcp::object!({"location": "Tokyo"}));
    let state = asked(server.call(request.clone()).await);
    let answer = answered(request, state);
    sample.time(server.call(answer)).await;
}

/// A connection for commits without anything around them.
enum Bare {
    None,
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    Redis(MultiplexedConnection),
}

/// A value of about as many bytes as a claim with its reply. Each is another one: SQLite writes nothing, and does not wait
/// for the disk, if a row stays as it is.
fn value() -> [u8; 256] {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut value = [7; 256];
    value[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    value
}

const TABLE: &str = "CREATE TABLE bare (name INTEGER PRIMARY KEY, value";

impl Bare {
    async fn sqlite(file: &std::path::Path) -> Result<Self, Failure> {
        let options = SqliteConnectOptions::new().filename(file);
        let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let mut connection = options.connect().await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{TABLE} BLOB)"))).execute(&mut connection).await?;
        Ok(Self::Sqlite(connection))
    }

    async fn postgres(url: &str) -> Result<Self, Failure> {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{TABLE} bytea)"))).execute(&mut connection).await?;
        Ok(Self::Postgres(connection))
    }

    async fn redis(url: &str) -> Result<Self, Failure> {
        Ok(Self::Redis(redis::Client::open(url)?.get_multiplexed_async_connection().await?))
    }

    async fn two_commits(&mut self) -> Result<(), Failure> {
        const WRITE: &str = "INSERT INTO bare VALUES (1, $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        for _ in 0..2 {
            let value = value();
            match self {
                Self::None => {}
                Self::Sqlite(connection) => {
                    sqlx::query(WRITE).bind(&value[..]).execute(connection).await?;
                }
                Self::Postgres(connection) => {
                    sqlx::query(WRITE).bind(&value[..]).execute(connection).await?;
                }
                Self::Redis(connection) => {
                    redis::cmd("SET").arg("bare").arg(&value).exec_async(connection).await?;
                }
            }
        }
        Ok(())
    }
}

fn section(turns: usize, stores: &[Store]) -> Section {
    let mut table = Table::new([
        "store",
        "two bare commits",
        "a claimed leg, of these",
        "with a register, of these",
        "with a register, of the leg without",
    ]);
    let mut bars = Bars::new("A claimed leg with a register", "multiples of the same leg without").mark(1.5, "goal");
    for store in stores {
        let micros = store.bare_commits.median().as_secs_f64() * 1e6;
        let added = store.registered_leg.ratio_to(&store.plain_leg);
        let of_bare = |leg: &Sample| match store.bare {
            Bare::None => "–".to_owned(),
            _ => figure(leg.ratio_to(&store.bare_commits)),
        };
        let bare = if matches!(store.bare, Bare::None) { "–".to_owned() } else { format!("{} µs", figure(micros)) };
        let cells = [bare, of_bare(&store.plain_leg), of_bare(&store.registered_leg), figure(added)];
        table.push([store.name.to_owned()].into_iter().chain(cells));
        bars = bars.group(store.name, [added]);
    }
    Section {
        name: "stores",
        title: "A claimed leg on a store",
        text: format!(
            "The second leg of a guard-first weather call, without a transport, {turns} on each store, in turns; medians. \
             A bare commit writes 256 bytes to one row, or under one key, of the same store, over a connection of its own: \
             in SQLite with `synchronous` at FULL, in Postgres with its default settings on the same host, in Redis \
             without a file."
        ),
        table,
        plots: vec![bars.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_store_has_a_row() {
        let section = measured(3).await.unwrap().to_string();
        for store in ["memory", "SQLite", "Postgres", "Redis"] {
            assert!(section.contains(&format!("| {store} |")), "{section}");
        }
    }
}
