//! `cargo xtask bench`: what things cost.
//!
//! Absolute times mean nothing on machines that others use as well. Everything is measured side by side, in one run, taking
//! turns, and given as a multiple of a reference of that run.

mod fleet;
mod flows;
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
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", stack] => flows::Stack::named(stack).ok_or("no such server")?.serve().await,
        ["flows"] => flows::measure().await,
        _ => fleet::measure().await,
    }
}
