//! An instance that starts while its store is away: it waits, and says so.

use rounds_testkit::{Postgres, Redis};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    in_time,
    instance::{Keys, rounds},
    store::Store,
};

async fn is_waited_for(mut store: Store) {
    let keys = Keys::new(&[1]);
    store.stop();
    let args =
        ["serve", "--http", "127.0.0.1:0", "--instance", "a", "--store", &store.url(), "--key-file", keys.path()];
    let mut child = rounds(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = in_time("the first line", lines.next_line()).await.unwrap().unwrap();
    assert!(said.contains("waiting for the store"), "{said}");
    store.start_again();
    in_time("the start", async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.starts_with("listening on ") {
                return;
            }
        }
        panic!("it ended");
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_is_away_is_waited_for() {
    is_waited_for(Store::Redis(Redis::start())).await;
}

#[tokio::test]
async fn a_postgres_that_is_away_is_waited_for() {
    is_waited_for(Store::Postgres(Postgres::with(&["fsync=off"]))).await;
}
