//! `rounds`: the command line with the default features, as `cargo install` builds it.

use std::process::ExitCode;

fn main() -> ExitCode {
    rounds_cli::main()
}
