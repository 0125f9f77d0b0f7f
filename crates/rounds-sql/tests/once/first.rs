//! Effects of a first leg with an idempotency key: killed or dropped before its reply, and sent again, it is one call.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rounds::{Limits, ledger::MemoryLedger, test::Client};
use rounds_testkit::Postgres;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{BEGAN, Bank, GO_ON, Server, TABLES, builder};

/// The moments at which a first leg is killed. Between the effect of a `once` and its record is the one window that a
/// `once` has: see the guide on internals.
const MOMENTS: [&str; 9] = [
    "claimed round",
    "claimed effect",
    "settled effect",
    "renewed round",
    "began the transaction",
    "took the money",
    "gave the money",
    "settling round",
    "settled round",
];

#[test]
fn a_first_leg_that_is_killed_and_sent_again_with_its_key_has_each_effect_once_on_sqlite() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("first-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    survive(&format!("sqlite:{}", folder.join("bank.db").display()));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_first_leg_that_is_killed_and_sent_again_with_its_key_has_each_effect_once_on_postgres() {
    survive(&Postgres::shared().database());
}

/// Kills a server at every moment of a first leg, and sends that leg again.
fn survive(database: &str) {
    let mut server = Server::start(database);
    for (moment, count) in MOMENTS.into_iter().zip(1..) {
        let first = prepaid(json!({}));
        server.killed_while("tools/call", &first, moment);
        server = Server::start(database);
        let asked = server.until_settled("tools/call", &first).asked();
        let again = server.until_settled("tools/call", &first).asked();
        assert_eq!(asked.state(), again.state(), "{moment}");
        let answer = asked.accept("confirm", json!({"confirm": true}));
        assert_eq!(server.persistently(&answer), format!("moved {count}"), "{moment}");
        assert_eq!(server.call("counts", json!({})).text(), format!("{count} moves, {count} stamps"), "{moment}");
    }
}

#[tokio::test]
async fn a_first_leg_that_is_dropped_in_its_transaction_and_sent_again_has_each_effect_once() {
    let pool = PgPool::connect(&Postgres::shared().database()).await.unwrap();
    rounds_sql::prepare(&pool).await.unwrap();
    sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
    let limits = Limits::default().with_grace(Duration::ZERO);
    let server = builder(Bank::on_postgres(pool), MemoryLedger::new()).limits(limits).build().unwrap();
    let client = Client::modern(server).await;
    let first = prepaid(json!({"waits": true}));
    let dropped = client.start("tools/call", first.clone()).await;
    BEGAN.notified().await;
    dropped.cancel().await;
    let again = client.start("tools/call", first).await;
    GO_ON.notify_one();
    let answer = again.finish().await.asked().accept("confirm", json!({"confirm": true}));
    assert_eq!(answer.send(&client).await.text(), "moved 1");
    assert_eq!(client.call("counts", json!({})).await.text(), "1 moves, 1 stamps");
}

/// A call with a key of its own.
fn prepaid(arguments: Value) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let key = format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed));
    json!({"name": "prepaid", "arguments": arguments, "_meta": {"rounds/idempotencyKey": key}})
}
