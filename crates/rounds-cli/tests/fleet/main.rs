//! `rounds serve --store`: several processes that form one server on Redis or Postgres, and their failures.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]
#![cfg(unix)]

/// Runs tests that take a fleet, on each store.
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod on_redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::Fleet::start().await).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::Fleet::start_on_postgres().await).await;
            })*
        }
    };
}

mod airline;
mod approvals;
mod call;
mod draining;
mod fleet;
mod idle;
mod instance;
mod kills;
mod nginx;
mod operator;
mod postgres_away;
mod promotion;
mod redis_away;
mod rolling;
mod rotation;
mod shapes;
mod start;
#[expect(dead_code, reason = "only `cargo xtask chaos` pauses a store, and uses SQLite")]
mod store;
mod task;
mod tasks;
mod usage;

use std::time::Duration;

use fleet::Fleet;
use instance::Keys;
use rounds_testkit::Redis;

/// Far longer than any step takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// How long a client waits before it retries.
const PAUSE: Duration = Duration::from_millis(50);

async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}
