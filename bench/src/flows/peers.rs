//! The servers of other projects, as listed in `bench/peers/peers.json`. `cargo xtask bench --peers` has built them.

use std::{env, path::PathBuf, process::Command};

use serde::Deserialize;

use crate::alone::Failure;

const LIST: &str = include_str!("../../peers/peers.json");

/// Placeholder for cargo's target directory in a command.
const TARGET: &str = "{target}";

#[derive(Deserialize)]
pub(crate) struct Peer {
    name: String,
    version: String,
    run: Vec<String>,
}

pub(crate) fn all() -> Result<Vec<Peer>, Failure> {
    Ok(serde_json::from_str(LIST)?)
}

impl Peer {
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// How it is started, from the root of the repository.
    pub(crate) fn command(&self) -> Command {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut words = self.run.iter().map(|word| word.replace(TARGET, &target()));
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(root.join(program));
        command.args(words).current_dir(root);
        command
    }
}

/// Cargo's target directory: this program is two levels below it.
fn target() -> String {
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).map(|target| target.display().to_string());
    target.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_of_the_list_can_be_started() {
        for peer in all().expect("the list can be read") {
            assert!(!peer.run.is_empty(), "{}", peer.name);
            let program = peer.command().get_program().to_string_lossy().into_owned();
            assert!(!program.contains(TARGET), "{program}");
        }
    }
}
