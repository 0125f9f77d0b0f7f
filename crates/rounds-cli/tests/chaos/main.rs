//! Flows of every shape over the instances of one server, while instances and their store fail. What happened is recorded,
//! and checked when everything is over: one effect per flow, no lost or foreign reply, nothing past its deadline.
//! `cargo xtask chaos` runs this.

#![expect(clippy::unwrap_used, reason = "a run that cannot go on says where")]
#![cfg(unix)]

#[path = "../fleet/call.rs"]
#[expect(dead_code, reason = "the tests of fleets use more of it")]
mod call;
mod faults;
#[path = "../fleet/fleet.rs"]
#[expect(dead_code, reason = "the tests of fleets use more of it")]
mod fleet;
mod flows;
mod history;
#[path = "../fleet/instance.rs"]
mod instance;
mod options;
mod seed;
#[path = "../fleet/store.rs"]
#[expect(dead_code, reason = "the tests of fleets use more of it")]
mod store;
#[path = "../fleet/task.rs"]
mod task;
mod world;

use std::{
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use call::Call;
use faults::Kind;
use flows::Crowd;
use history::{Books, History, Shape};
use options::Options;
use seed::Seed;
use serde_json::json;
use tokio::task::JoinSet;
use world::{StoreKind, World};

/// Far longer than any step takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a client waits before it retries.
const PAUSE: Duration = Duration::from_millis(50);

/// How many clients play at the same time.
const CLIENTS: u64 = 16;

async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    history::try_check();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut is_kept = true;
    for store in &options.stores {
        is_kept &= runtime.block_on(run(*store, &options));
    }
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays flows on a store, and returns whether every promise was kept.
async fn run(store: StoreKind, options: &Options) -> bool {
    let known = Kind::of(store);
    let mut kinds: Vec<_> = options.faults.iter().copied().filter(|kind| known.contains(kind)).collect();
    if options.faults.is_empty() {
        kinds = known;
    }
    println!("{}, seed {}: {:.0} s", store.name(), options.seed, options.time.as_secs_f64());
    let (seed, history) = (Seed::new(options.seed), Arc::new(History::new()));
    let mut world = World::start(store).await;
    let began = Instant::now();
    let until = began + options.time;
    let crowd = Arc::new(Crowd {
        instances: world.instances.clone(),
        history: history.clone(),
        shapes: shapes(store, options.tasks),
        until,
        late_until: began + options.time / 3,
        next: AtomicUsize::new(1),
    });
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(crowd.clone().play(seed.part(100 + client)));
    }
    if !kinds.is_empty() {
        faults::happen(&mut world, &history, &kinds, &seed, until).await;
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let books = books(&world, store).await;
    told(store, options.seed, &history, &books)
}

/// The shapes of flows. Only a database moves money in a transaction of its own.
fn shapes(store: StoreKind, tasks: bool) -> Vec<Shape> {
    let mut shapes = vec![
        Shape::Guard,
        Shape::GuardWithEffect,
        Shape::Steps,
        Shape::Linear,
        Shape::Linear,
        Shape::Durable,
        Shape::Declared,
        Shape::Booking,
        Shape::Booking,
    ];
    if tasks {
        shapes.push(Shape::TaskBooking);
    }
    if store != StoreKind::Redis {
        shapes.push(Shape::Transfer);
    }
    shapes
}

async fn books(world: &World, store: StoreKind) -> Books {
    let charges = world.store.charges().await;
    let charges = charges.into_iter().map(|(key, (flight, _attempts))| (key, flight)).collect();
    let mut received = None;
    if store != StoreKind::Redis {
        let balances = world.instances.send(&Call::tool("balances", &json!({}))).await;
        let bob = balances["result"]["structuredContent"]["bob"].as_i64();
        received = bob.map(|balance| balance - 1_000_000);
    }
    Books { charges, received }
}

/// Prints what happened, and writes the history to a file.
fn told(store: StoreKind, seed: u64, history: &History, books: &Books) -> bool {
    let violations = history.check(books);
    println!("{}", history.summary());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}-{seed}.txt", store.name()));
    match std::fs::write(&file, history.lines()) {
        Ok(()) => println!("history: {}", file.display()),
        Err(error) => println!("the history cannot be written to {}: {error}", file.display()),
    }
    for violation in violations.iter().take(10) {
        match violation.flow {
            Some(number) => println!("VIOLATION: flow {number}: {}\n{}", violation.what, history.show(number)),
            None => println!("VIOLATION: {}", violation.what),
        }
    }
    match violations.len() {
        0 => println!("every promise was kept\n"),
        number => {
            println!("{number} violations; to run it again: cargo xtask chaos --store {} --seed {seed}\n", store.name())
        }
    }
    violations.is_empty()
}
