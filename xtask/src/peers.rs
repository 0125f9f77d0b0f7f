//! The servers that the benchmark compares with: they are built or installed before it starts them.

use std::{fs, io, path::Path};

use serde_json::Value;

use crate::{
    interop::install::{Npm, Venv},
    step::Step,
};

/// The command that repeats all steps.
const AGAIN: &str = "xtask bench --peers";

/// Prepares every server of `bench/peers/peers.json`. Those in Rust are built into a separate folder beside `built`,
/// because their features differ from those of the workspace.
pub(crate) fn steps(root: &Path, built: &Path) -> io::Result<Vec<Step>> {
    let target = built.parent().unwrap_or(built).join("peers").display().to_string();
    let mut steps = Vec::new();
    for peer in listed(root)? {
        if let Some(args) = peer["build"].as_array() {
            let args: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
            let doing = format!("build the peer {}", peer["name"].as_str().unwrap_or_default());
            steps.push(Step::cargo(doing, &args.join(" ")).env("CARGO_TARGET_DIR", target.clone()));
        }
    }
    let interop = root.join("interop");
    let npm = Npm::of(&interop);
    steps.push(Step::cargo("install the peers from npm", AGAIN).by(move || npm.install()));
    for requirements in ["requirements.txt", "requirements-fastmcp.txt"] {
        let venv = Venv::of(&interop, requirements);
        let doing = format!("install the peer of {}", venv.requirements());
        steps.push(Step::cargo(doing, AGAIN).by(move || venv.install()));
    }
    Ok(steps)
}

fn listed(root: &Path) -> io::Result<Vec<Value>> {
    Ok(serde_json::from_slice(&fs::read(root.join("bench/peers/peers.json"))?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_that_are_pinned() {
        let root = crate::root();
        let interop = root.join("interop");
        let lock = fs::read_to_string(root.join("bench/peers/Cargo.lock")).unwrap();
        for peer in listed(&root).unwrap() {
            let (name, version) = (peer["name"].as_str().unwrap(), peer["version"].as_str().unwrap());
            match name {
                "the TypeScript SDK" => {
                    assert_eq!(Npm::of(&interop).version("@modelcontextprotocol/server").as_deref(), Ok(version));
                }
                "the Python SDK" => {
                    assert_eq!(Venv::of(&interop, "requirements.txt").version("mcp").as_deref(), Ok(version));
                }
                _ => assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")), "{name}"),
            }
        }
    }

    #[test]
    fn what_is_built_is_what_is_run() {
        for peer in listed(&crate::root()).unwrap() {
            if let Some(package) = peer["build"].as_array().and_then(|args| args.last()) {
                assert_eq!(peer["run"][0], format!("{{target}}/peers/release/{}", package.as_str().unwrap()));
            }
        }
    }
}
