//! The faults, which the seed chooses one after the other, or two at a time.

use std::{
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    history::{Fault, History},
    seed::Seed,
    world::{StoreKind, World},
};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Kill,
    Pause,
    Restart,
    Cut,
    Slow,
    StorePause,
    StoreKill,
    Promote,
    Rotate,
}

use Kind::{Cut, Kill, Pause, Promote, Restart, Rotate, Slow, StoreKill, StorePause};

const ALL: [(Kind, &str); 9] = [
    (Kill, "kill"),
    (Pause, "pause"),
    (Restart, "restart"),
    (Cut, "cut"),
    (Slow, "slow"),
    (StorePause, "store-pause"),
    (StoreKill, "store-kill"),
    (Promote, "promote"),
    (Rotate, "rotate"),
];

/// Round trip to a store that is slow: less than half of the timeout of a call.
const SLOW: Duration = Duration::from_millis(400);

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Those that a store knows.
    pub(crate) fn of(store: StoreKind) -> Vec<Self> {
        let all = ALL.map(|(kind, _)| kind).into_iter();
        match store {
            StoreKind::Redis => all.collect(),
            StoreKind::Postgres => all.filter(|kind| *kind != Promote).collect(),
            // A file has no process and no connection.
            StoreKind::Sqlite => vec![Kill, Pause, Restart, Rotate],
        }
    }

    /// Whether it concerns one instance, and can happen together with one that concerns the store.
    fn is_of_instance(self) -> bool {
        matches!(self, Kill | Pause | Restart | Cut)
    }

    fn is_of_store(self) -> bool {
        matches!(self, StorePause | StoreKill | Slow)
    }

    fn lasts(self, seed: &mut Seed) -> Duration {
        match self {
            Kill => seed.millis(0..1000),
            Pause => seed.millis(300..6000),
            Cut => seed.millis(1000..4000),
            Slow => seed.millis(1500..3000),
            StorePause => seed.millis(300..3000),
            StoreKill => seed.millis(100..1500),
            Restart | Promote | Rotate => Duration::ZERO,
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind).ok_or(())
    }
}

/// Lets faults happen until a moment.
pub(crate) async fn happen(world: &mut World, history: &Arc<History>, kinds: &[Kind], seed: &Seed, until: Instant) {
    let (mut seed, mut keys) = (seed.part(1), Keys(vec![1]));
    let mut left = Vec::new();
    while Instant::now() < until {
        sleep(seed.millis(300..1000)).await;
        // Each kind has its turn before one comes again.
        if left.is_empty() {
            left = kinds.to_vec();
        }
        let first = left.swap_remove(seed.below(left.len()));
        let mut struck = vec![first];
        let second = left.iter().position(|second| {
            first.is_of_instance() && second.is_of_store() || first.is_of_store() && second.is_of_instance()
        });
        if let Some(second) = second
            && seed.percent(40)
        {
            struck.push(left.swap_remove(second));
        }
        // The store is mended first: an instance that starts needs it.
        struck.sort_by_key(|kind| kind.is_of_instance());
        let at = seed.below(world.instances.len());
        let lasts: Vec<_> = struck.iter().map(|kind| kind.lasts(&mut seed)).collect();
        strike_and_mend(world, history, &struck, at, &lasts, &mut keys).await;
    }
}

async fn strike_and_mend(
    world: &mut World,
    history: &Arc<History>,
    struck: &[Kind],
    at: usize,
    lasts: &[Duration],
    keys: &mut Keys,
) {
    let began = Instant::now();
    let mut records = Vec::new();
    for kind in struck {
        let concerns = kind.is_of_instance().then_some(at);
        records.push(history.begins(Fault { kind: *kind, at: concerns, from: history.now(), to: None }));
        world.strike(*kind, at, keys).await;
    }
    for ((kind, lasts), record) in struck.iter().zip(lasts).zip(records) {
        sleep(lasts.saturating_sub(began.elapsed())).await;
        world.mend(*kind, at).await;
        history.ends(record);
    }
}

/// The keys of the fleet, the newest one first. None is removed, because open flows may use it.
struct Keys(Vec<u8>);

impl World {
    async fn strike(&mut self, kind: Kind, at: usize, keys: &mut Keys) {
        match kind {
            Kill => self.instances.end(at).await,
            Pause => self.instances.signal(at, "STOP"),
            Restart => self.instances.signal(at, "TERM"),
            Cut => self.cables[at].cut(),
            Slow => self.cables.iter().for_each(|cable| cable.delay(SLOW)),
            StorePause => self.store.pause(),
            StoreKill => self.store.stop(),
            Promote => self.promote().await,
            Rotate => self.rotate(keys).await,
        }
    }

    async fn mend(&mut self, kind: Kind, at: usize) {
        match kind {
            Kill => self.instances.replace(at).await,
            Pause => self.instances.signal(at, "CONT"),
            Restart => {
                self.instances.log(at).ended().await;
                self.instances.replace(at).await;
            }
            Cut => self.cables[at].mend(),
            Slow => self.cables.iter().for_each(|cable| cable.delay(Duration::ZERO)),
            StorePause => self.store.go_on(),
            StoreKill => self.store.start_again(),
            Promote | Rotate => {}
        }
    }

    /// Gives all instances a new key, and then lets them seal with it. The old one can still be opened.
    async fn rotate(&self, keys: &mut Keys) {
        let Some(new) = keys.0[0].checked_add(1) else { return };
        let known = [&keys.0[..], &[new]].concat();
        keys.0.insert(0, new);
        for ring in [&known, &keys.0] {
            self.instances.keys.write(ring);
            for at in 0..self.instances.len() {
                let read = self.instances.log(at).count("read the keys again");
                self.instances.signal(at, "HUP");
                self.instances.log(at).says("read the keys again", read + 1).await;
            }
        }
    }
}
