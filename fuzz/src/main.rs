//! Every fuzz target with libFuzzer. The environment names the one to run: `cargo xtask fuzz` does.

#![no_main]

use std::{env, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var("FUZZ_TARGET").unwrap_or_default();
    let mut targets = rounds::test::fuzz::TARGETS.iter().chain(rounds_cli::fuzz::TARGETS);
    targets.find(|(target, _)| *target == name).expect("FUZZ_TARGET names a target").1
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
