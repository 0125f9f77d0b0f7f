//! What to do to which store, and for how long.

use std::{str::FromStr, time::Duration};

use crate::{faults::Kind, world::StoreKind};

pub(crate) const USAGE: &str = "\
Usage: cargo xtask chaos [--store redis|postgres|sqlite] [--faults NAME,...] [--minutes N] [--seed S]
                         [--tasks yes]

Without --store, every store has its turn. With --tasks yes, flights are booked as tasks too. Faults:
  kill         an instance is killed, and another takes its place
  pause        an instance stops, and continues
  restart      an instance drains, ends, and another takes its place
  cut          an instance is cut off from the store
  slow         round trips to the store take 400 ms
  store-pause  the store stops, and continues
  store-kill   the store is killed, and starts with what it has on its disk
  promote      a replica becomes the primary (Redis)
  rotate       a key takes the place of another";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) stores: Vec<StoreKind>,
    /// All that the store knows, if none is named.
    pub(crate) faults: Vec<Kind>,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// Whether flights are booked as tasks too.
    pub(crate) tasks: bool,
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let stores = vec![StoreKind::Redis, StoreKind::Postgres, StoreKind::Sqlite];
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::from(clock.subsec_nanos()) ^ clock.as_secs();
        let mut options = Self { stores, faults: vec![], time: Duration::from_secs(60), seed, tasks: false };
        let mut args = args;
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value\n\n{USAGE}"))?;
            match name.as_str() {
                "--store" => options.stores = vec![parsed(&name, &value)?],
                "--faults" => {
                    options.faults = value.split(',').map(|fault| parsed(&name, fault)).collect::<Result<_, _>>()?;
                }
                "--minutes" => {
                    let minutes = parsed::<f64>(&name, &value)?;
                    let time = Duration::try_from_secs_f64(minutes * 60.0);
                    options.time = time.map_err(|error| format!("--minutes {value}: {error}"))?;
                }
                "--tasks" => options.tasks = value == "yes",
                "--seed" => options.seed = parsed(&name, &value)?,
                _ => return Err(format!("{name} is not an option\n\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

fn parsed<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} cannot be {value:?}\n\n{USAGE}"))
}
