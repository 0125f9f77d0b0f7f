//! The command line of rounds, as the repository's first command builds it: without the features that take long to compile. Its `README`
//! says `cargo run --release`, which takes the default features of this package, and of `rounds-cli` none.

use std::process::ExitCode;

fn main() -> ExitCode {
    rounds_cli::main()
}
