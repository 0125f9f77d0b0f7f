//! `cargo xtask bench`: measures what things cost.
//!
//! Absolute times mean nothing on a shared machine. Everything is measured side by side in one run, in turns, and
//! reported as a multiple of a reference of that run.

mod alone;
mod claims;
mod client;
mod clients;
mod command;
mod desk;
mod durable;
mod fleet;
mod flows;
mod instance;
mod observing;
mod parked;
mod progress;
mod register;
mod report;
mod sample;
mod seal;
mod stores;

use std::{error::Error, pin::Pin, process::ExitCode};

use crate::{alone::alone, command::Command, report::Section};

/// The sections, in the order of the report. A further section is a further line.
const SECTIONS: &[(&str, Measure)] = &[
    ("flows", |options| Box::pin(alone(move || flows::measure(options)))),
    ("clients", |options| Box::pin(alone(move || clients::measure(options)))),
    ("seal", |_| Box::pin(alone(seal::measure))),
    ("parked", |_| Box::pin(alone(parked::measure))),
    ("claims", |_| Box::pin(alone(claims::measure))),
    ("durable", |_| Box::pin(alone(durable::measure))),
    ("client", |_| Box::pin(alone(client::measure))),
    ("observing", |_| Box::pin(alone(observing::measure))),
    ("fleet", |_| Box::pin(fleet::measure())),
    ("instance", |_| Box::pin(alone(instance::measure))),
    ("stores", |_| Box::pin(alone(stores::measure))),
    ("register", |_| Box::pin(alone(register::measure))),
    ("desk", |_| Box::pin(alone(desk::measure))),
];

type Measure = fn(Options) -> Pin<Box<dyn Future<Output = Result<Section, Box<dyn Error>>>>>;

/// Options of the command for the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether servers of other projects are measured as well.
    pub(crate) peers: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(task) = parked::Task::of_this_process() {
        return task.run();
    }
    if let Some(stack) = flows::Stack::of_this_process() {
        return stack.run().await;
    }
    if std::env::var_os(clients::generator::LOAD).is_some() {
        return clients::rmcp_client::run().await;
    }
    let known: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
    let command = match Command::read(std::env::args().skip(1), &known) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("bench: {problem}");
            return ExitCode::from(2);
        }
    };
    match run(&command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: &Command) -> Result<(), Box<dyn Error>> {
    if cfg!(debug_assertions) {
        return Err("this build is not optimised: run `cargo xtask bench`".into());
    }
    for (name, measure) in SECTIONS.iter().filter(|(name, _)| command.wants(name)) {
        let section = measure(command.options).await.map_err(|error| format!("{name}: {error}"))?;
        println!("{section}");
        if command.write {
            section.write()?;
        }
    }
    Ok(())
}
