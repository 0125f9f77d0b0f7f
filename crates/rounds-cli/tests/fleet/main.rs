//! `rounds serve --redis`: several processes that form one server, and their failures.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]
#![cfg(unix)]

mod airline;
mod cable;
mod call;
mod instance;
mod kills;
mod nginx;
mod redis_away;
mod rolling;
mod rotation;
mod shapes;
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
use rounds_testkit::Redis;
use serde_json::Value;

/// Far longer than any step takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// How long a client waits before it retries.
const PAUSE: Duration = Duration::from_millis(50);

async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Three instances that share keys and a Redis, and a client that sends each leg to the next of them.
struct Fleet {
    redis: Redis,
    keys: Keys,
    instances: Vec<Mutex<Instance>>,
    http: reqwest::Client,
    next: AtomicUsize,
}

impl Fleet {
    async fn start() -> Self {
        let (redis, keys) = (Redis::start(), Keys::new(&[1]));
        let url = redis.url();
        Self::on(redis, keys, [&url; 3]).await
    }

    /// Each instance has its own connection to Redis.
    async fn on(redis: Redis, keys: Keys, urls: [&str; 3]) -> Self {
        let mut instances = Vec::new();
        for (url, name) in urls.into_iter().zip(["a", "b", "c"]) {
            instances.push(Mutex::new(Instance::start(url, &keys, name).await));
        }
        Self { redis, keys, instances, http: rounds_testkit::http_client(), next: AtomicUsize::new(0) }
    }

    fn url(&self, at: usize) -> String {
        self.instances[at].lock().unwrap().url.clone()
    }

    /// Whether an instance of this name is connected and can be given legs.
    async fn listens(&self, name: &str) -> bool {
        let channels: Vec<String> = self.redis.ask("PUBSUB CHANNELS", &[]).await;
        channels.iter().any(|channel| channel.starts_with(&format!("gallery:to:{name}-")))
    }

    fn log(&self, at: usize) -> Log {
        self.instances[at].lock().unwrap().log()
    }

    fn signal(&self, at: usize, name: &str) {
        self.instances[at].lock().unwrap().signal(name);
    }

    /// Kills an instance without a warning, and waits until Redis has noticed.
    async fn kill(&self, at: usize) {
        let name = {
            let mut instance = self.instances[at].lock().unwrap();
            instance.kill();
            instance.name
        };
        self.log(at).ended().await;
        in_time("the end of the subscription", async { while self.listens(name).await {} }).await;
    }

    /// Starts an instance in place of one that is gone.
    async fn replace(&self, at: usize) {
        let name = self.instances[at].lock().unwrap().name;
        let instance = Instance::start(&self.redis.url(), &self.keys, name).await;
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
