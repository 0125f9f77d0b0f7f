//! `cargo xtask simulate`: the deterministic simulation of a fleet, with more seeds than `cargo test` runs, or with one and
//! its history.

use crate::step::Step;

/// The step of `cargo xtask simulate [--seeds N] [--seed S]`. None if the arguments are not understood.
pub(crate) fn step(args: &[&str]) -> Option<Step> {
    let (name, number) = match *args {
        [] => ("SIMULATE_SEEDS", 10_000),
        ["--seeds", number] => ("SIMULATE_SEEDS", number.parse::<u64>().ok()?),
        ["--seed", number] => ("SIMULATE_SEED", number.parse().ok()?),
        _ => return None,
    };
    // Built as for the tests, so that nothing is compiled twice.
    let test = "test --workspace --exclude rounds-try --all-features --test simulation -- --nocapture every_seed";
    Some(Step::cargo("simulate a fleet", test).env(name, number.to_string()))
}
