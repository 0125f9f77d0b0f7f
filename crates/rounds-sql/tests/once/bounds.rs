//! What bounds an effect in a transaction: its time, what its errors mean for the client, and how long its row is kept.

use std::time::{Duration, Instant};

use rmcp::{
    ServerHandler,
    handler::server::router::tool::ToolRouter,
    model::{ServerCapabilities, ServerConfig},
    schemars, tool_handler,
};
use rounds::{
    Durable, FlowError, Limits, durable,
    ledger::MemoryLedger,
    register::{FlowQuery, FlowStatus},
    test::Client,
};
use rounds_sql::{EffectError, OnceIn as _, PoolOf as _, SqliteLedger};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::SqlitePool;
use tokio::sync::Notify;

use crate::{builder, stores::Folder};

#[derive(Deserialize, schemars::JsonSchema)]
struct What {
    does: String,
}

/// A shop with one table on SQLite.
struct Shop {
    tool_router: ToolRouter<Self>,
    pool: SqlitePool,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

impl Shop {
    async fn new(folder: &Folder) -> Self {
        let pool = folder.pool().await;
        let tool_router = ToolRouter::new().with_route(durable("do", "Does something in a transaction", act));
        Self { tool_router, pool }
    }
}

/// A handler that asks first has come to its effect.
static ANSWERED: Notify = Notify::const_new();
static CANCELLED: Notify = Notify::const_new();

async fn act(flow: Durable<Shop>, what: What) -> Result<String, FlowError> {
    let pool = flow.pool(|shop| &shop.pool);
    if what.does == "ask" {
        flow.confirm("Go on?").await?;
        flow.once("wait", async |_: &Shop, _: &str| {
            ANSWERED.notify_one();
            CANCELLED.notified().await;
        })
        .await?;
    }
    let done = flow.once_in(&pool, "do", async |tx, _key| {
        sqlx::query("INSERT INTO moves SELECT coalesce(max(number), 0) + 1 FROM moves").execute(&mut *tx).await?;
        match &*what.does {
            "hang" => std::future::pending().await,
            "violate" => sqlx::query("INSERT INTO moves VALUES (1), (1)").execute(&mut *tx).await?,
            "mistake" => sqlx::query("INSERT INTO nothing VALUES (1)").execute(&mut *tx).await?,
            "lose" => return Err(EffectError::Database(sqlx::Error::PoolTimedOut)),
            _ => Default::default(),
        };
        Ok(())
    });
    match done.await {
        Err(FlowError::Retry(source)) if what.does == "hang" => Ok(source.to_string()),
        outcome => outcome.map(|()| "done".to_owned()),
    }
}

async fn moves(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM moves").fetch_one(pool).await.unwrap()
}

async fn call(client: &Client, does: &str) -> rounds::test::Leg {
    client.call("do", json!({"does": does})).await
}

#[tokio::test]
async fn a_transaction_that_would_keep_the_ledger_from_writing_is_rolled_back_well_before_a_lease_lapses() {
    let folder = Folder::new("hang");
    let shop = Shop::new(&folder).await;
    let pool = shop.pool.clone();
    // In the same file as the effects.
    let ledger = SqliteLedger::open(folder.0.join("bank.db")).await.unwrap();
    let limits = Limits::default().with_lease(Duration::from_secs(3));
    let client = Client::modern(builder(shop, ledger).limits(limits).build().unwrap()).await;
    let began = Instant::now();
    let said = call(&client, "hang").await.text();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(said.contains("open for more than 500ms and was rolled back: make the effect shorter"), "{said}");
    assert!(said.contains("keep the ledger in another file") && said.contains("once_in_within"), "{said}");
    assert_eq!(moves(&pool).await, 0);
    assert_eq!(call(&client, "succeed").await.text(), "done", "the file can be written again");
}

#[tokio::test]
async fn only_what_may_pass_is_told_to_the_client_as_a_retry() {
    let folder = Folder::new("errors");
    let shop = Shop::new(&folder).await;
    let pool = shop.pool.clone();
    let client = Client::modern(builder(shop, MemoryLedger::new()).build().unwrap()).await;
    for does in ["violate", "mistake"] {
        let leg = call(&client, does).await;
        let error = leg.error();
        assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32603), &Value::Null), "{error}");
        assert!(error["message"].as_str().unwrap().contains("sending the call again does not help"), "{error}");
    }
    assert_eq!(call(&client, "lose").await.error()["data"]["reason"], "retry");
    let held = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(call(&client, "succeed").await.error()["data"]["reason"], "retry");
    held.rollback().await.unwrap();
    assert_eq!(moves(&pool).await, 0);
    sqlx::raw_sql("DROP TABLE rounds_effects").execute(&pool).await.unwrap();
    assert_eq!(call(&client, "succeed").await.error()["data"]["reason"], Value::Null, "it was not prepared");
}

#[tokio::test]
async fn a_row_is_kept_for_as_long_as_its_flow_may_take_and_removed_by_a_later_effect() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let folder = Folder::new("kept");
    let shop = Shop::new(&folder).await;
    let pool = shop.pool.clone();
    let server = builder(shop, MemoryLedger::new()).flow_deadline(Duration::from_secs(60 * 24 * 60 * 60));
    let client = Client::modern(server.build().unwrap()).await;
    assert_eq!(call(&client, "succeed").await.text(), "done");
    let kept: i64 =
        sqlx::query_scalar("SELECT kept_until - created FROM rounds_effects").fetch_one(&pool).await.unwrap();
    assert!(kept > 60 * DAY && kept < 62 * DAY, "{kept}");
    let aged = "UPDATE rounds_effects SET created = created - 50 * 24 * 60 * 60 * 1000";
    sqlx::raw_sql(aged).execute(&pool).await.unwrap();
    sqlx::raw_sql("INSERT INTO rounds_effects VALUES ('over', '1', 1, 2)").execute(&pool).await.unwrap();
    let over = async || {
        let over = "SELECT count(*) FROM rounds_effects WHERE effect = 'over'";
        sqlx::query_scalar::<_, i64>(over).fetch_one(&pool).await.unwrap()
    };
    let mut effects = 1;
    // One effect in sixteen removes rows.
    while over().await == 1 {
        assert!(effects < 600);
        assert_eq!(call(&client, "succeed").await.text(), "done");
        effects += 1;
    }
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM rounds_effects").fetch_one(&pool).await.unwrap();
    assert_eq!(rows, effects, "each row of a flow that may continue");
    sqlx::raw_sql("INSERT INTO rounds_effects VALUES ('over', '1', 1, 2)").execute(&pool).await.unwrap();
    rounds_sql::prepare(&pool).await.unwrap();
    assert_eq!(over().await, 0, "and at start");
}

#[tokio::test]
async fn an_effect_does_not_begin_in_a_flow_that_was_cancelled() {
    let folder = Folder::new("cancelled");
    let shop = Shop::new(&folder).await;
    let pool = shop.pool.clone();
    let ledger = async || SqliteLedger::open(folder.0.join("ledger.db")).await.unwrap();
    let here = builder(shop, ledger().await).register().build().unwrap();
    // With a store of its own on the same file, it tells the other server nothing, as another process.
    let there = builder(Shop::new(&folder).await, ledger().await).register().build().unwrap();
    let client = Client::modern(here).await;
    let answer = call(&client, "ask").await.asked().accept("confirm", json!({"confirm": true}));
    let (method, params) = answer.into_parts();
    let leg = client.start(&method, params).await;
    ANSWERED.notified().await;
    let flows = there.flows().list(FlowQuery::new().status(FlowStatus::Working)).await.unwrap().flows;
    there.flows().cancel(flows[0].id, "the test says so").await.unwrap();
    CANCELLED.notify_one();
    leg.finish().await.error();
    assert_eq!(moves(&pool).await, 0);
}
