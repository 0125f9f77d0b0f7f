//! `cargo xtask upgrade`: an instance of the previous release, built from the repository's history, and an instance of this release
//! serve the same flows.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::step::{Step, cargo};

/// The last commit of the previous format. When the current format becomes the previous one, the last commit before that change goes here.
const BEFORE: &str = "a44a93e130a3e883d421fd148bd12cf33ca46d62";

/// The command that runs all steps again.
const AGAIN: &str = "xtask upgrade";

/// Name of the older program. Under its own name it would overwrite this release's program in the target directory.
const PROGRAM: &str = "rounds-before";

/// Builds the program, because cargo builds the programs of a package for its integration tests. The features are those of the whole
/// workspace and its tests. This workspace is built with the same ones, so that most dependencies are not built again.
const BUILD: [&str; 7] = ["test", "--quiet", "--workspace", "--all-features", "--no-run", "--test", NOTHING];

/// The only integration test of the older command line.
const NOTHING: &str = "nothing";

const LINT: &str = "clippy --workspace --all-features --test upgrade -- -D warnings";
const TEST: &str = "test --workspace --exclude rounds-try --all-features --test upgrade";

/// Whether the history reaches back to the previous release. A copy without a history, or with a part of it, does not.
pub(crate) fn has_history(root: &Path) -> bool {
    let before = Before { root: root.to_owned(), target: PathBuf::new(), source: PathBuf::new() };
    before.look_for_history().is_ok()
}

/// Unpacks the older release, builds it, and runs the test with both.
pub(crate) fn steps(root: &Path, target: &Path) -> Vec<Step> {
    let source = target.join("upgrade").join(BEFORE);
    let before = Before { root: root.to_owned(), target: target.to_owned(), source };
    let program = target.join("debug").join(PROGRAM);
    let building = before.clone();
    vec![
        Step::cargo("unpack the previous release", AGAIN).by(move || before.unpack()),
        Step::cargo("build the previous release", AGAIN).by(move || building.build()),
        Step::cargo("check the lints of the test of both releases", LINT),
        Step::cargo("let both releases serve the same flows", TEST).env("ROUNDS_BEFORE", program.display().to_string()),
    ]
}

/// The older release, and where its source is put.
#[derive(Clone)]
struct Before {
    root: PathBuf,
    target: PathBuf,
    source: PathBuf,
}

impl Before {
    /// Unpacks the source. A source that exists is not written again, so that cargo does not compile it again.
    fn unpack(&self) -> Result<(), String> {
        if self.source.exists() {
            return Ok(());
        }
        self.look_for_history()?;
        let unfinished = self.source.with_extension("unfinished");
        // An interrupted run may have left it.
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished).map_err(|error| format!("cannot create {}: {error}", unfinished.display()))?;
        let archive = self.git(&["archive", BEFORE]).stdout(Stdio::piped()).spawn();
        let mut archive = archive.map_err(|error| format!("cannot start git: {error}"))?;
        let packed = archive.stdout.take().ok_or("git has no output")?;
        run(Command::new("tar").arg("x").current_dir(&unfinished).stdin(packed))?;
        let archived = archive.wait().map_err(|error| format!("git archive: {error}"))?;
        if !archived.success() {
            return Err(format!("git archive {BEFORE}: {archived}"));
        }
        set_apart(&unfinished)?;
        fs::rename(&unfinished, &self.source)
            .map_err(|error| format!("cannot rename {}: {error}", unfinished.display()))
    }

    fn look_for_history(&self) -> Result<(), String> {
        let commit = format!("{BEFORE}^{{commit}}");
        let known = self.git(&["cat-file", "-e", &commit]).stderr(Stdio::null()).status();
        match known {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!(
                "commit {BEFORE} is not in this repository, and the test of rolling upgrades builds it. In a shallow clone, run \
                 `git fetch --unshallow`; in CI, clone with the whole history. Without a history, as in an unpacked archive, this test cannot run"
            )),
            Err(error) => Err(format!("cannot start git, which has the source of the older release: {error}")),
        }
    }

    fn git(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(args).current_dir(&self.root);
        command
    }

    fn build(&self) -> Result<(), String> {
        let mut command = Command::new(cargo());
        run(command.args(BUILD).env("CARGO_TARGET_DIR", &self.target).current_dir(&self.source))
    }
}

/// Keeps the older release apart from this one in the target directory that they share: its program has another name, and its packages
/// another version, by which cargo tells them from ours. Its command line gets an integration test, for which cargo builds the program.
fn set_apart(source: &Path) -> Result<(), String> {
    replace(&source.join("Cargo.toml"), "\nversion = \"0.1.0\"", "\nversion = \"0.1.0-before\"")?;
    let package = source.join("crates/rounds-cli");
    replace(&package.join("Cargo.toml"), "\nname = \"rounds\"", &format!("\nname = \"{PROGRAM}\""))?;
    let tests = package.join("tests");
    fs::remove_dir_all(&tests)
        .and_then(|()| fs::create_dir(&tests))
        .and_then(|()| fs::write(tests.join(NOTHING).with_extension("rs"), "//! Nothing.\n"))
        .map_err(|error| format!("cannot change {}: {error}", tests.display()))
}

fn replace(file: &Path, old: &str, new: &str) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if !text.contains(old) {
        return Err(format!("{} does not say {old:?}", file.display()));
    }
    fs::write(file, text.replacen(old, new, 1)).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_that_does_not_reach_back_is_told_with_what_to_do() {
        let empty = std::env::temp_dir().join(format!("xtask-upgrade-{}", std::process::id()));
        fs::create_dir_all(&empty).unwrap();
        assert!(Command::new("git").args(["init", "--quiet"]).current_dir(&empty).status().unwrap().success());
        let before = Before { root: empty.clone(), target: empty.join("target"), source: empty.join("source") };
        let told = before.unpack().unwrap_err();
        assert!(told.contains(BEFORE) && told.contains("git fetch --unshallow"), "{told}");
        assert!(!before.source.exists());
        fs::remove_dir_all(empty).unwrap();
    }
}
