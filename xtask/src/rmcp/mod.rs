//! rmcp's own tests, with every server inside a `Rounds`: a wrapped server has to behave as it did before.
//!
//! The tests come with rmcp's source in cargo's registry. They are copied from there to the target directory, changed
//! as [`list`] says, and compiled as modules of one test of `interop/rmcp`. That package takes the place of `rmcp` for
//! them: it re-exports the crate, and shadows everything that starts a server.

mod list;
mod outcome;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use self::{
    list::{EDITS, Edit, Http, LEFT_OUT, different},
    outcome::Outcome,
};
use crate::{
    interop::process::{Log, in_time},
    step::{self, Step},
};

/// The command that repeats all steps.
const AGAIN: &str = "xtask rmcp";
const MANIFEST: &str = "interop/rmcp/Cargo.toml";
const BUILD: &str = "test --quiet --no-run --manifest-path interop/rmcp/Cargo.toml";

/// The file to review when rmcp has changed.
const LIST: &str = "xtask/src/rmcp/list.rs";

/// Far longer than the tests take, which is half a minute.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Copies the tests, builds them, and runs them.
pub(crate) fn steps(root: &Path, built: &Path) -> Vec<Step> {
    let target = built.parent().unwrap_or(built).to_owned();
    let place = Place { root: root.to_owned(), copy: target.join("rmcp"), target };
    let copying = place.clone();
    let copy = Step::cargo("copy rmcp's own tests", AGAIN).by(move || copying.copy());
    let build = Step::cargo("build them, with every server inside a `Rounds`", BUILD);
    let build = place.env().into_iter().fold(build, |build, (name, value)| build.env(name, value));
    let again = place.clone();
    let with_pushes = place.clone();
    let run = Step::cargo("run them", AGAIN).by(move || place.run(Http::Rmcp));
    let run_again = Step::cargo("run them again, with rounds-http in place of rmcp's HTTP", AGAIN)
        .by(move || again.run(Http::Endpoint));
    let run_pushes = Step::cargo("run them again, with `.pushes()`", AGAIN).by(move || with_pushes.run(Http::Pushes));
    vec![copy, build, run, run_again, run_pushes]
}

/// The folders of the tests.
#[derive(Clone)]
struct Place {
    root: PathBuf,
    target: PathBuf,
    copy: PathBuf,
}

impl Place {
    /// The environment variables of the build.
    fn env(&self) -> [(&'static str, String); 2] {
        [
            ("CARGO_TARGET_DIR", self.target.display().to_string()),
            ("RMCP_TESTS", self.copy.join("tests.rs").display().to_string()),
        ]
    }

    /// Writes the tests, and a list of their modules. A file that is unchanged is not written, and so not compiled
    /// again.
    fn copy(&self) -> Result<(), String> {
        let source = self.source()?.join("tests");
        let mut modules = String::new();
        let mut unused: BTreeSet<&str> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
        for path in files(&source)? {
            let inside = path.strip_prefix(&source).unwrap_or(&path);
            let copy = self.copy.join("tests").join(inside);
            let content = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let Some(name) = test_name(inside) else {
                write(&copy, &content)?;
                continue;
            };
            if unused.remove(name) {
                continue;
            }
            let text = String::from_utf8(content).map_err(|error| format!("{}: {error}", path.display()))?;
            write(&copy, (edited(name, text)? + &self.modern(name)).as_bytes())?;
            modules.push_str(&format!("#[path = {:?}]\nmod {name};\n", copy.display().to_string()));
        }
        if let Some(name) = unused.first() {
            return Err(format!("rmcp no longer has the test `{name}`: remove it from {LIST}"));
        }
        write(&self.copy.join("tests.rs"), modules.as_bytes())
    }

    /// What is appended to a test: the same server with a modern client, if `interop/rmcp/tests/modern` has it.
    fn modern(&self, name: &str) -> String {
        let tests = self.root.join(format!("interop/rmcp/tests/modern/{name}.rs"));
        if tests.exists() { format!("\ninclude!({:?});\n", tests.display().to_string()) } else { String::new() }
    }

    /// The folder of rmcp's source, as cargo has unpacked it.
    fn source(&self) -> Result<PathBuf, String> {
        let version = stdout(Command::new(step::cargo()).arg("-vV"))?;
        let host =
            version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("cargo does not print its host")?;
        // Packages for other systems may be missing.
        let metadata = ["metadata", "--format-version", "1", "--manifest-path", MANIFEST, "--filter-platform", host];
        let metadata = stdout(Command::new(step::cargo()).args(metadata).current_dir(&self.root))?;
        let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let manifest =
            packages.find(|package| package["name"] == "rmcp").and_then(|package| package["manifest_path"].as_str());
        let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
        folder.map(Path::to_owned).ok_or_else(|| format!("{MANIFEST} does not depend on rmcp"))
    }

    /// Runs the tests, and compares the results with [`list`].
    fn run(&self, http: Http) -> Result<(), String> {
        let wrapped = self.copy.join("wrapped");
        write(&wrapped, b"")?;
        let mut command = Command::new(self.program()?);
        // The tests wait far more than they compute, so more of them than there are cores can run at the same time.
        command.args(["--test-threads", "8"]).current_dir(&self.copy).env("RMCP_WRAPPED", &wrapped);
        command.envs([("RUST_BACKTRACE", "0"), ("RUST_LOG", "off")]);
        let log = match http {
            Http::Rmcp => Log::new(&self.copy, "rmcp")?,
            Http::Endpoint => {
                command.env("RMCP_ENDPOINT", "1");
                Log::new(&self.copy, "endpoint")?
            }
            Http::Pushes => {
                command.env("RMCP_PUSHES", "1");
                Log::new(&self.copy, "pushes")?
            }
        };
        let ended = in_time(command, LIMIT, &log);
        let said = log.read();
        let Some(outcome) = Outcome::read(&said) else {
            return Err(log.alone(&ended.err().unwrap_or_else(|| "the tests print no result".to_owned())));
        };
        let servers = fs::read(&wrapped).map_or(0, |bytes| bytes.len());
        println!("{} tests ran, {} failed; {servers} servers were wrapped", outcome.tests, outcome.failed.len());
        for (name, why) in different(http) {
            println!("expected to fail: {name}: {why}");
        }
        outcome.judge(http, servers)
    }

    /// The test program that was built.
    fn program(&self) -> Result<PathBuf, String> {
        let mut build = Command::new(step::cargo());
        build.args(BUILD.split(' ')).arg("--message-format=json").envs(self.env()).current_dir(&self.root);
        let said = stdout(&mut build)?;
        let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut programs = messages.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        programs.next().ok_or_else(|| "cargo does not name the program that it has built".to_owned())
    }
}

/// The name of a test's file, which is the name of its module; `None` for files that tests read or share.
fn test_name(inside: &Path) -> Option<&str> {
    inside.to_str()?.strip_suffix(".rs").filter(|name| !name.contains('/'))
}

/// The text of a test, changed as the list says.
fn edited(name: &str, mut text: String) -> Result<String, String> {
    for Edit { times, from, to, .. } in EDITS.iter().filter(|edit| edit.file == name) {
        let found = text.matches(from).count();
        if found != *times {
            return Err(format!(
                "{LIST} replaces {from:?} {times} times in rmcp's test `{name}`, which has it {found} times"
            ));
        }
        text = text.replace(from, to);
    }
    Ok(text)
}

/// All files in a folder and its subfolders, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error| format!("cannot read {}: {error}", folder.display());
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(cannot)?;
    let mut found = Vec::new();
    for path in entries.into_iter().map(|entry| entry.path()) {
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file, unless it has this content already.
fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, content));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The standard output of a command. Its standard error is passed through.
fn stdout(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{name} failed ({})", output.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_cannot_be_replaced_is_an_error() {
        let edit = EDITS.last().unwrap();
        let text = format!("first\n{}last\n", edit.from.repeat(edit.times));
        assert_eq!(edited(edit.file, text.clone()).map(|text| text.contains(edit.from)), Ok(false));
        for text in [String::new(), text.repeat(2)] {
            let problem = edited(edit.file, text).unwrap_err();
            assert!(problem.contains(edit.file) && problem.contains(LIST), "{problem}");
        }
        assert_eq!(edited("another", text.clone()), Ok(text));
    }

    #[test]
    fn only_a_file_beside_the_folders_is_a_test() {
        assert_eq!(test_name(Path::new("test_task.rs")), Some("test_task"));
        assert_eq!(test_name(Path::new("common/mod.rs")), None);
        assert_eq!(test_name(Path::new("test_with_js/client.js")), None);
    }

    #[test]
    fn the_versions_are_those_of_the_workspace() {
        let root = crate::root();
        let versions = |lock: &str| -> BTreeSet<(String, String)> {
            let text = fs::read_to_string(root.join(lock)).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let named = lines.windows(2).filter_map(|pair| {
                Some((pair[0].strip_prefix("name = ")?.to_owned(), pair[1].strip_prefix("version = ")?.to_owned()))
            });
            named.collect()
        };
        let (ours, theirs) = (versions("Cargo.lock"), versions("interop/rmcp/Cargo.lock"));
        let here: BTreeSet<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
        let other: Vec<_> = theirs.difference(&ours).filter(|(name, _)| here.contains(name.as_str())).collect();
        assert!(
            other.is_empty(),
            "interop/rmcp/Cargo.lock has other versions: copy Cargo.lock there, and let cargo remove the packages \
             that it does not need: {other:?}"
        );
    }
}
