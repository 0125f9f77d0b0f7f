//! The fuzz targets, on their corpus and on changes of it. `cargo xtask fuzz` runs them with libFuzzer.

use std::panic;

use rounds::test::fuzz::TARGETS;

/// How often each target runs.
const RUNS: u32 = 3_000;

#[test]
fn no_bytes_break_a_promise_of_what_reads_them() {
    assert_eq!(
        TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["token", "envelope", "journal", "record", "message", "answers", "client"]
    );
    for (name, target) in TARGETS {
        rounds_testkit::fuzz(name, *target, RUNS);
    }
}

#[test]
fn a_target_that_fails_is_named_with_its_input() {
    let failed = panic::catch_unwind(|| rounds_testkit::fuzz("token", |bytes| assert!(bytes.is_empty()), 1));
    let told = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(told.starts_with("the target `token` fails on b\"r1."), "{told}");
}
