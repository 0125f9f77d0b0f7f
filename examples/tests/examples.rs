//! The promises of the folder: a program is short, and the guide lists it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{fs, path::Path};

fn programs() -> Vec<(String, String)> {
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn every_program_is_shorter_than_a_hundred_lines_and_says_how_to_run_it() {
    for (name, program) in programs() {
        assert!(program.lines().count() < 100, "{name} has {} lines", program.lines().count());
        let head: Vec<_> = program.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(head.join(" ").contains("cargo run --example "), "{name} does not say how to run it");
    }
}

#[test]
fn the_guide_and_the_manifest_list_every_program() {
    let guide = include_str!("../../crates/rounds/src/guide/examples.md");
    let (readme, manifest) = (include_str!("../../README.md"), include_str!("../Cargo.toml"));
    for (name, _) in programs() {
        let in_row = [format!("\n| `{name}` |"), format!("\n| `{name} -")];
        assert!(in_row.iter().any(|row| guide.contains(row)), "the guide does not list {name}");
        assert!(readme.contains(&format!("`{name}`")), "the README does not name {name}");
        assert!(manifest.contains(&format!("\nname = \"{name}\"\n")), "the manifest does not list {name}");
    }
}
