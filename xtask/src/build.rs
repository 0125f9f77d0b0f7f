//! `cargo xtask bench build`: the CPU time of the first build.
//!
//! It is printed as a ratio to the build of a small rmcp server, `bench/bare`, on the same machine, so that it is
//! comparable between machines. Then come the seconds that each feature of `rounds` adds to that server. CPU time
//! includes all processes that cargo starts. Other load on the machine changes it by a few per cent.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

use crate::{
    install::run,
    step::{Step, cargo},
};

/// Limit on the first build, as a multiple of the build of a bare server.
const GOAL: f64 = 1.9;

/// What `cargo run --release` builds: the binary of the default members.
const FIRST: &[&str] = &["--bins"];
const BARE: &[&str] = &["-p", "bare"];

/// A feature of rounds, with the features that the server without rounds needs for a fair comparison. The desk is a crate
/// of its own, and has `http` and `client` in it.
const FEATURES: &[(&str, Option<&str>)] = &[
    ("server", None),
    ("http", None),
    ("client", Some("rmcp-client")),
    ("otel", None),
    ("test", None),
    ("desk", Some("rmcp-client")),
];

/// Measures all builds, each in a folder that is removed first. This takes ten minutes on two cores.
pub(crate) fn steps(root: &Path, target: &Path) -> Vec<Step> {
    let (root, target) = (root.to_owned(), target.join("bench-build"));
    vec![Step::cargo("measure the first build", "xtask bench build").by(move || measure(&root, &target))]
}

fn measure(root: &Path, target: &Path) -> Result<(), String> {
    let builds = Builds { root: root.to_owned() };
    let (bare, first) = (target.join("bare"), target.join("first"));
    let reference = builds.fresh(&bare, BARE)?;
    let ours = builds.fresh(&first, FIRST)?;
    println!("{}", summary(reference, ours));
    println!("a feature of rounds, and the seconds of CPU time that it adds to a server with rmcp alone:");
    for (feature, without) in FEATURES {
        let added = builds.added(&bare, &target.join("feature"), feature, *without)?;
        println!("  {feature:8} {added:6.1} s");
    }
    Ok(())
}

fn summary(reference: f64, ours: f64) -> String {
    let ratio = ours / reference;
    let verdict = if ratio <= GOAL { "within the goal" } else { "above the goal" };
    format!(
        "first build: {ours:.0} s of CPU time, {ratio:.2} times the {reference:.0} s of a bare rmcp server \
         (at most {GOAL} is wanted: {verdict})"
    )
}

struct Builds {
    root: PathBuf,
}

impl Builds {
    /// The seconds of a build from scratch.
    fn fresh(&self, target: &Path, what: &[&str]) -> Result<f64, String> {
        remove(target)?;
        self.seconds(target, what)
    }

    /// The seconds that a feature adds to a server that is built already. The server itself is compiled again in both
    /// cases.
    fn added(&self, bare: &Path, target: &Path, feature: &str, without: Option<&str>) -> Result<f64, String> {
        remove(target)?;
        run(Command::new("cp").arg("-a").args([bare, target]))?;
        let reference = [BARE, &without.map_or(Vec::new(), |feature| vec!["--features", feature])].concat();
        self.seconds(target, &reference)?;
        run(Command::new("touch").arg(self.root.join("bench/bare/src/main.rs")))?;
        let server = self.seconds(target, &reference)?;
        let with = self.seconds(target, &[BARE, &["--features", feature]].concat())?;
        Ok(with - server)
    }

    /// The seconds of CPU time that cargo and its processes take for a build.
    fn seconds(&self, target: &Path, what: &[&str]) -> Result<f64, String> {
        let mut build = Command::new("sh");
        build.args(["-c", "\"$@\" && times", "sh"]).arg(cargo()).args(["build", "--quiet", "--release", "--locked"]);
        build.args(what).arg("--target-dir").arg(target).current_dir(&self.root).stderr(Stdio::inherit());
        let output = build.output().map_err(|error| format!("cannot start a shell: {error}"))?;
        if !output.status.success() {
            return Err(format!("cannot build {} ({})", what.join(" "), output.status));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        cpu_time(&said).ok_or_else(|| format!("the shell does not print the times of its children: {said}"))
    }
}

fn remove(folder: &Path) -> Result<(), String> {
    match folder.exists() {
        true => fs::remove_dir_all(folder).map_err(|error| format!("cannot remove {}: {error}", folder.display())),
        false => Ok(()),
    }
}

/// The seconds that a shell's children took, from the output of `times`: user and system time, its own in the first
/// line and those of its children in the second.
fn cpu_time(times: &str) -> Option<f64> {
    times.lines().nth(1)?.split_whitespace().map(seconds).sum()
}

/// The seconds of a text such as `1m23.450s`.
fn seconds(time: &str) -> Option<f64> {
    let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
    Some(f64::from_str(minutes).ok()? * 60.0 + f64::from_str(seconds).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_children_are_added_up() {
        assert_eq!(cpu_time("0m0.00s 0m0.01s\n2m3.50s 0m1.250000s\n"), Some(124.75));
        assert_eq!(cpu_time("no times"), None);
        assert_eq!(cpu_time("0m0.00s 0m0.01s\n1.5 2.5\n"), None);
    }

    #[test]
    fn the_summary_says_whether_it_is_too_much() {
        assert!(summary(200.0, 380.0).starts_with("first build: 380 s of CPU time, 1.90 times the 200 s"));
        assert!(
            summary(200.0, 380.0).ends_with("within the goal)") && summary(200.0, 540.0).ends_with("above the goal)")
        );
    }
}
