//! Effects in the author's database, whichever store holds the ledger.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rmcp::ServerHandler;
use rounds::{
    ledger::{Ledger, MemoryLedger},
    test::Client,
};
use rounds_sql::{PostgresLedger, SqliteLedger, TransactionDatabase};
use rounds_testkit::{Postgres, Redis};
use serde_json::json;
use sqlx::{PgPool, SqlitePool, sqlite::SqliteConnectOptions};

use crate::{Bank, TABLES, builder};

#[tokio::test]
async fn with_the_ledger_in_memory_an_effect_runs_once_though_the_ledger_is_lost() {
    let folder = Folder::new("memory");
    runs_once(async || MemoryLedger::new(), async || Bank::on_sqlite(folder.pool().await)).await;
    let database = Postgres::shared().database();
    runs_once(async || MemoryLedger::new(), async || Bank::on_postgres(pool(&database).await)).await;
}

#[tokio::test]
async fn with_the_ledger_in_redis_an_effect_runs_once_though_the_ledger_is_lost() {
    let (folder, redis) = (Folder::new("redis"), Redis::start());
    let emptied = async || {
        let _: String = redis.ask("FLUSHALL", &[]).await;
        redis.ledger().await
    };
    runs_once(&emptied, async || Bank::on_sqlite(folder.pool().await)).await;
    let database = Postgres::shared().database();
    runs_once(&emptied, async || Bank::on_postgres(pool(&database).await)).await;
}

#[tokio::test]
async fn with_the_ledger_in_another_sqlite_file_an_effect_runs_once_though_the_ledger_is_lost() {
    let folder = Folder::new("files");
    let emptied = async || {
        let others = ["ledger.db", "ledger.db-wal", "ledger.db-shm"].map(|name| folder.0.join(name));
        others.iter().for_each(|file| drop(std::fs::remove_file(file)));
        SqliteLedger::open(&others[0]).await.unwrap()
    };
    runs_once(&emptied, async || Bank::on_sqlite(folder.pool().await)).await;
    let database = Postgres::shared().database();
    runs_once(&emptied, async || Bank::on_postgres(pool(&database).await)).await;
}

#[tokio::test]
async fn with_the_ledger_in_postgres_an_effect_in_sqlite_runs_once_though_the_ledger_is_lost() {
    let folder = Folder::new("postgres");
    let new = async || PostgresLedger::connect(&Postgres::shared().database()).await.unwrap();
    runs_once(new, async || Bank::on_sqlite(folder.pool().await)).await;
}

/// Moves money in every shape, and sends each answer again: to the same server, and to one with a ledger that is empty.
async fn runs_once<L: Ledger, DB: TransactionDatabase>(ledger: impl AsyncFn() -> L, bank: impl AsyncFn() -> Bank<DB>)
where
    Bank<DB>: ServerHandler,
{
    let server = async || {
        let server = builder(bank().await, ledger().await).build().unwrap();
        Client::modern(server).await
    };
    for (tool, count) in ["transfer", "transfer_guarded", "transfer_stepped"].into_iter().zip(1..) {
        let client = server().await;
        let answer = client.call(tool, json!({})).await.asked().accept("confirm", json!({"confirm": true}));
        let moved = format!("moved {count}");
        for _ in 0..2 {
            assert_eq!(answer.clone().send(&client).await.text(), moved, "{tool}");
        }
        let restarted = server().await;
        assert_eq!(answer.send(&restarted).await.text(), moved, "{tool}: the row has the value");
        assert_eq!(restarted.call("counts", json!({})).await.text(), format!("{count} moves, 0 stamps"));
        assert_eq!(restarted.call("sum", json!({})).await.text(), "0");
    }
}

async fn pool(database: &str) -> PgPool {
    let pool = PgPool::connect(database).await.unwrap();
    rounds_sql::prepare(&pool).await.unwrap();
    sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
    pool
}

/// A folder that is removed when the test ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("once-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A pool on the author's file, with its tables.
    pub(crate) async fn pool(&self) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(self.0.join("bank.db")).create_if_missing(true);
        let options = options.busy_timeout(Duration::from_millis(500));
        let pool = SqlitePool::connect_with(options).await.unwrap();
        rounds_sql::prepare(&pool).await.unwrap();
        sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
        pool
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
