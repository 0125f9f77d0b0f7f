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
mod cable;
mod call;
mod instance;
mod kills;
mod nginx;
mod postgres_away;
mod redis_away;
mod rolling;
mod rotation;
mod shapes;
mod store;
mod task;
mod tasks;
mod usage;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use call::Call;
use instance::{Instance, Keys, Log};
use rounds_testkit::{Postgres, Redis};
use serde_json::Value;
use store::Store;

/// Far longer than any step takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// How long a client waits before it retries.
const PAUSE: Duration = Duration::from_millis(50);

async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Three instances that share keys and a store, and a client that sends each leg to the next of them.
struct Fleet {
    store: Store,
    keys: Keys,
    instances: Vec<Mutex<Instance>>,
    http: reqwest::Client,
    next: AtomicUsize,
}

impl Fleet {
    async fn start() -> Self {
        Self::sharing(Store::Redis(Redis::start())).await
    }

    async fn start_on_postgres() -> Self {
        Self::sharing(Store::Postgres(Postgres::with(&["fsync=off"]))).await
    }

    async fn sharing(store: Store) -> Self {
        let url = store.url();
        Self::on(store, Keys::new(&[1]), [&url; 3]).await
    }

    /// Each instance has its own connection to the store.
    async fn on(store: Store, keys: Keys, urls: [&str; 3]) -> Self {
        let mut instances = Vec::new();
        for (url, name) in urls.into_iter().zip(["a", "b", "c"]) {
            instances.push(Mutex::new(Instance::start(url, &keys, name).await));
        }
        Self { store, keys, instances, http: rounds_testkit::http_client(), next: AtomicUsize::new(0) }
    }

    fn url(&self, at: usize) -> String {
        self.instances[at].lock().unwrap().url.clone()
    }

    fn log(&self, at: usize) -> Log {
        self.instances[at].lock().unwrap().log()
    }

    fn signal(&self, at: usize, name: &str) {
        self.instances[at].lock().unwrap().signal(name);
    }

    /// Kills an instance without a warning, and waits until the store has noticed.
    async fn kill(&self, at: usize) {
        let name = {
            let mut instance = self.instances[at].lock().unwrap();
            instance.kill();
            instance.name
        };
        self.log(at).ended().await;
        in_time("the end of the subscription", async { while self.store.listens(name).await {} }).await;
    }

    /// Starts an instance in place of one that is gone.
    async fn replace(&self, at: usize) {
        let name = self.instances[at].lock().unwrap().name;
        let instance = Instance::start(&self.store.url(), &self.keys, name).await;
        *self.instances[at].lock().unwrap() = instance;
    }

    /// Sends a leg to one instance, without retries.
    async fn send_to(&self, at: usize, call: &Call) -> Result<Value, reqwest::Error> {
        call.send(&self.http, &self.url(at)).await
    }

    /// Sends a leg to the next instance. If the connection breaks or the leg ends with a retryable error, tries the one
    /// after it.
    async fn send(&self, call: &Call) -> Value {
        in_time("a leg", async {
            loop {
                let at = self.next.fetch_add(1, Ordering::Relaxed) % self.instances.len();
                match self.send_to(at, call).await {
                    Ok(response) if !call::asks_for_a_retry(&response) => return response,
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
        })
        .await
    }
}
