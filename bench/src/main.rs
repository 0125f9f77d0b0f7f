//! `cargo xtask bench`: what things cost.
//!
//! Absolute times mean nothing on machines that others use as well. Everything is measured side by side, in one run, taking
//! turns, and given as a multiple of a reference of that run.

mod fleet;
mod redis;
mod sample;

use std::{error::Error, process::ExitCode};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    if cfg!(debug_assertions) {
        return Err("this build is not optimised: run `cargo xtask bench`".into());
    }
    fleet::measure().await
}
