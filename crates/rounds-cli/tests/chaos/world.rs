//! The instances, their store, and the connections between them.

use std::{path::Path, str::FromStr, sync::Arc};

use rounds_testkit::{Cable, Postgres, Redis};

use crate::{fleet::Instances, instance::Keys, store::Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Redis,
    Postgres,
    Sqlite,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }
}

impl FromStr for StoreKind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Redis, Self::Postgres, Self::Sqlite].into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

pub(crate) struct World {
    pub(crate) instances: Arc<Instances>,
    pub(crate) store: Store,
    /// The replica of a Redis.
    replica: Option<Redis>,
    /// The connection of each instance to the store. A file has none.
    pub(crate) cables: Vec<Cable>,
}

/// Options of every instance. The times are short, so that a run of seconds reaches them.
const OPTIONS: [&str; 10] =
    ["--lease", "4s", "--wait", "6s", "--round-lifetime", "8s", "--drain", "8s", "--tasks-after", "0s"];

impl World {
    pub(crate) async fn start(kind: StoreKind) -> Self {
        let keys = Keys::new(&[1]);
        match kind {
            StoreKind::Redis => {
                // What was acknowledged survives a kill.
                let [primary, replica] = Redis::with_replica(&["--appendonly", "yes", "--appendfsync", "always"]).await;
                let cables = cables(&primary.socket()).await;
                let urls: Vec<_> = cables.iter().map(Cable::redis_url).collect();
                Self::with(Store::Redis(primary), Some(replica), cables, keys, &urls).await
            }
            StoreKind::Postgres => {
                // The operating system lives on, so nothing is lost without `fsync`.
                let postgres = Postgres::with(&["fsync=off"]);
                let cables = cables(&postgres.socket()).await;
                let urls: Vec<_> =
                    cables.iter().map(|cable| Postgres::url_at(cable.address(), crate::store::DATABASE)).collect();
                Self::with(Store::Postgres(postgres), None, cables, keys, &urls).await
            }
            StoreKind::Sqlite => {
                let store = Store::sqlite();
                let url = store.url();
                Self::with(store, None, vec![], keys, &[url]).await
            }
        }
    }

    async fn with(store: Store, replica: Option<Redis>, cables: Vec<Cable>, keys: Keys, urls: &[String]) -> Self {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let instances = Arc::new(Instances::start(keys, &urls, &OPTIONS).await);
        Self { instances, store, replica, cables }
    }

    /// Makes the replica the primary. Connections to the old primary stay open.
    pub(crate) async fn promote(&mut self) {
        let (Store::Redis(primary), Some(replica)) = (&mut self.store, &mut self.replica) else { return };
        for cable in &self.cables {
            cable.lead_to(replica.socket());
        }
        primary.fail_over(replica).await;
        std::mem::swap(primary, replica);
    }
}

async fn cables(socket: &Path) -> Vec<Cable> {
    let mut cables = Vec::new();
    for _ in 0..3 {
        cables.push(Cable::to(socket.to_owned()).await);
    }
    cables
}
