//! Deterministic simulation of a fleet: real servers with the real engine and seal, and a store, a relay, a network, a clock
//! and clients that follow from a seed. Everything runs in one thread, in simulated time. `cargo xtask simulate` runs more
//! seeds, or one of them with its history.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod check;
mod client;
mod fleet;
mod history;
mod plan;
mod relay;
mod rng;
mod shop;
mod store;
mod world;

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tokio::{runtime::Builder, task::JoinSet};

use crate::{
    check::check,
    client::Client,
    fleet::Fleet,
    history::Event,
    plan::Plan,
    rng::Rng,
    store::{SimulatedLedger, Store},
    world::{Gate, World},
};

/// How many seeds are simulated where the environment does not say.
const SEEDS: u64 = 1_000;

/// What a seed comes to.
fn simulate(seed: u64) -> (Plan, Vec<(u64, Event)>) {
    let mut rng = Rng::new(seed);
    let plan = Plan::of(&mut rng);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let history = runtime.block_on(async {
        let world = World::new(plan.clone(), rng.fork());
        let fleet = Fleet::start(&world, rng.fork());
        fleet.schedule();
        let mut clients = JoinSet::new();
        for flow in 0..plan.flows {
            clients.spawn(Client::new(&fleet, flow, rng.fork()).play());
        }
        while let Some(played) = clients.join_next().await {
            played.unwrap();
        }
        world.take_history()
    });
    (plan, history)
}

/// Simulates a seed, and returns what is broken.
fn failure(seed: u64) -> Option<String> {
    let (plan, history) = simulate(seed);
    let broken = check(&plan, &history);
    (!broken.is_empty()).then(|| {
        format!("seed {seed}: {}\nrepeat it with: cargo xtask simulate --seed {seed}\n", broken.join("\n  and "))
    })
}

#[test]
fn every_seed_keeps_every_promise() {
    let number = |name| env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    if let Some(seed) = number("SIMULATE_SEED") {
        let (plan, history) = simulate(seed);
        println!("{plan:#?}");
        history.iter().for_each(|(at, event)| println!("{at:>7} {event:?}"));
    }
    let seeds = match number("SIMULATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATE_SEEDS").unwrap_or(SEEDS),
    };
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return failures;
            }
            failures.extend(failure(seed));
        }
    };
    let failures: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let (count, all) = (failures.len(), seeds.end - seeds.start);
    assert!(count == 0, "{count} of {all} seeds fail:\n{}", failures.join("\n"));
}

#[test]
fn a_seed_gives_the_same_history_again() {
    for seed in 0..40 {
        let ((_, first), (_, second)) = (simulate(seed), simulate(seed));
        let differs = first.iter().zip(&second).find(|(first, second)| first != second);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulated_ledger_passes_the_suite() {
    let mut rng = Rng::new(1);
    let plan = Plan { loss: 0, ..Plan::of(&mut rng) };
    let (world, store) = (World::new(plan, rng), Store::new());
    let ledger =
        || async { SimulatedLedger::new(&world, &store, "a", &Gate::new(), &Arc::new(AtomicBool::new(false))) };
    rounds::ledger::suite::run(ledger).await;
}
