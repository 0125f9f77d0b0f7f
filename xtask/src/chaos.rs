//! `cargo xtask chaos`: flows of every shape, while instances and their store fail.

use crate::step::Step;

const LINT: &str = "clippy --workspace --all-features --test chaos -- -D warnings";

/// Builds the program as the tests are built, so that nothing is compiled twice.
const RUN: &str = "test --quiet --workspace --exclude rounds-try --all-features --test chaos --";

/// Checks the lints of the program, which is not among the targets of the other step, and runs it.
pub(crate) fn steps(args: &[&str]) -> Vec<Step> {
    let run = [&[RUN], args].concat();
    vec![
        Step::cargo("check the lints of what plays flows while servers fail", LINT),
        Step::cargo("play flows while instances and their store fail", &run.join(" ")),
    ]
}
