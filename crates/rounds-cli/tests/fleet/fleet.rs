//! Several instances that form one server, and a client that sends each leg to the next of them.

use std::{
    ops::Deref,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use rounds_testkit::{Postgres, Redis};
use serde_json::Value;

use crate::{
    PAUSE,
    call::{self, Call},
    in_time,
    instance::{Instance, Keys, Log, rounds},
    store::Store,
};

/// Three instances that share keys and a store.
pub(crate) struct Fleet {
    pub(crate) store: Store,
    serving: Instances,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        Self::sharing(Store::Redis(Redis::start())).await
    }

    pub(crate) async fn start_on_postgres() -> Self {
        Self::sharing(Store::Postgres(Postgres::with(&["fsync=off"]))).await
    }

    async fn sharing(store: Store) -> Self {
        let url = store.url();
        Self::on(store, Keys::new(&[1]), [&url; 3]).await
    }

    /// Each instance has its own connection to the store.
    pub(crate) async fn on(store: Store, keys: Keys, urls: [&str; 3]) -> Self {
        // A short lease, because tests that kill instances wait until it lapses.
        Self { store, serving: Instances::start(keys, &urls, &["--lease", "1s", "--tasks-after", "0s"]).await }
    }

    /// Kills an instance without a warning, and waits until the store has noticed.
    pub(crate) async fn kill(&self, at: usize) {
        self.end(at).await;
        let name = self.instances[at].lock().unwrap().name;
        in_time("the end of the subscription", async { while self.store.listens(name).await {} }).await;
    }
}

impl Deref for Fleet {
    type Target = Instances;

    fn deref(&self) -> &Instances {
        &self.serving
    }
}

/// Instances of one server, and a client that sends each leg to the next of them.
pub(crate) struct Instances {
    pub(crate) keys: Keys,
    /// Where each of them reaches the store.
    urls: Vec<String>,
    /// Of `rounds serve`.
    options: Vec<&'static str>,
    instances: Vec<Mutex<Instance>>,
    pub(crate) http: reqwest::Client,
    next: AtomicUsize,
}

impl Instances {
    /// Starts an instance for each of these URLs of the store.
    pub(crate) async fn start(keys: Keys, urls: &[&str], options: &[&'static str]) -> Self {
        let (http, next) = (rounds_testkit::http_client(), AtomicUsize::new(0));
        let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
        let mut all = Self { keys, urls, options: options.to_vec(), instances: vec![], http, next };
        for (at, name) in ["a", "b", "c"].into_iter().enumerate().take(all.urls.len()) {
            let instance = all.start_one(at, name).await;
            all.instances.push(Mutex::new(instance));
        }
        all
    }

    async fn start_one(&self, at: usize, name: &'static str) -> Instance {
        let command = rounds(&[&["serve"], &self.options[..]].concat());
        Instance::run(command, &self.urls[at], &self.keys, name).await
    }

    pub(crate) fn url(&self, at: usize) -> String {
        self.instances[at].lock().unwrap().url.clone()
    }

    pub(crate) fn log(&self, at: usize) -> Log {
        self.instances[at].lock().unwrap().log()
    }

    pub(crate) fn signal(&self, at: usize, name: &str) {
        self.instances[at].lock().unwrap().signal(name);
    }

    /// Kills an instance without a warning.
    pub(crate) async fn end(&self, at: usize) {
        self.instances[at].lock().unwrap().kill();
        self.log(at).ended().await;
    }

    /// Starts an instance in place of one that is gone.
    pub(crate) async fn replace(&self, at: usize) {
        let name = self.instances[at].lock().unwrap().name;
        let instance = self.start_one(at, name).await;
        *self.instances[at].lock().unwrap() = instance;
    }

    /// Number of instances.
    #[allow(dead_code, reason = "only the program that plays chaos needs it")]
    pub(crate) fn len(&self) -> usize {
        self.instances.len()
    }

    /// The instance for the next leg.
    pub(crate) fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.instances.len()
    }

    /// Sends a leg to one instance, without retries.
    pub(crate) async fn send_to(&self, at: usize, call: &Call) -> Result<Value, reqwest::Error> {
        call.send(&self.http, &self.url(at)).await
    }

    /// Sends a leg to the next instance. If the connection breaks or the leg ends with a retryable error, tries the one
    /// after it.
    pub(crate) async fn send(&self, call: &Call) -> Value {
        in_time("a leg", async {
            loop {
                match self.send_to(self.next(), call).await {
                    Ok(response) if !call::asks_for_a_retry(&response) => return response,
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
        })
        .await
    }
}
