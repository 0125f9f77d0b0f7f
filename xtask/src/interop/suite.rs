//! The conformance suite. Its exit code says nothing of warnings, and nothing of scenarios that it does not score: here
//! every check of every scenario counts.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::install::Npm;

/// What is run: all that a revision requires, and all that the suite has for a revision.
pub(super) const RUNS: [&str; 3] =
    ["--requirements 2026-07-28", "--suite all --spec-version 2026-07-28", "--suite all --spec-version 2025-11-25"];

pub(super) fn command(npm: &Npm, url: &str, args: &str, results: &Path) -> Command {
    // What an earlier run has left would be read as this one's.
    let _ = fs::remove_dir_all(results);
    let mut node = npm.node();
    node.arg(npm.module("@modelcontextprotocol/conformance").join("dist/index.js"));
    node.args(["server", "--url", url]).args(args.split(' ')).arg("-o").arg(results);
    node
}

/// The revision that a run is about: its last word.
pub(super) fn era(args: &'static str) -> &'static str {
    args.rsplit(' ').next().unwrap_or(args)
}

/// What came of all checks of all scenarios.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checks {
    passed: usize,
    skipped: Vec<String>,
    problems: Vec<String>,
}

/// Reads every `checks.json` there is.
pub(super) fn read(results: &Path) -> Result<Checks, String> {
    let cannot = |error| format!("cannot read {}: {error}", results.display());
    let mut checks = Checks::default();
    for scenario in fs::read_dir(results).map_err(cannot)? {
        let scenario = scenario.map_err(cannot)?;
        let file = scenario.path().join("checks.json");
        let json = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let json: Value = serde_json::from_slice(&json).map_err(|error| format!("{}: {error}", file.display()))?;
        checks.add(&scenario.file_name().to_string_lossy(), &json);
    }
    // A folder is read in any order, and the table is compared.
    checks.skipped.sort();
    Ok(checks)
}

impl Checks {
    fn add(&mut self, scenario: &str, checks: &Value) {
        for check in checks.as_array().into_iter().flatten() {
            let name = check["id"].as_str().unwrap_or("a check without a name");
            match check["status"].as_str() {
                Some("SUCCESS") => self.passed += 1,
                Some("INFO") => {}
                Some("SKIPPED") => self.skipped.push(name.to_owned()),
                other => {
                    let status = other.unwrap_or("no status");
                    self.problems.push(format!("{scenario}: {name}: {status}: {}", check["errorMessage"]));
                }
            }
        }
    }

    /// The result in words, if there were checks and none of them failed or warned.
    pub(super) fn passed(self) -> Result<String, String> {
        if !self.problems.is_empty() {
            return Err(self.problems.join("\n"));
        }
        if self.passed == 0 {
            return Err("the suite has checked nothing".to_owned());
        }
        let passed = format!("{} checks passed, no warning", self.passed);
        Ok(match &self.skipped[..] {
            [] => passed,
            skipped => format!("{passed}; the suite itself skips {}", skipped.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checks(statuses: &[&str]) -> Checks {
        let list: Vec<_> = statuses.iter().map(|status| json!({"id": "one", "status": status})).collect();
        let mut checks = Checks::default();
        checks.add("scenario", &list.into());
        checks
    }

    #[test]
    fn a_warning_is_as_bad_as_a_failure() {
        assert_eq!(checks(&["SUCCESS", "INFO"]).passed().as_deref(), Ok("1 checks passed, no warning"));
        for bad in ["WARNING", "FAILURE", "what is this?"] {
            let problem = checks(&["SUCCESS", bad]).passed().unwrap_err();
            assert_eq!(problem, format!("scenario: one: {bad}: null"));
        }
    }

    #[test]
    fn nothing_checked_is_not_passed_and_what_is_skipped_is_named() {
        assert!(checks(&["INFO", "SKIPPED"]).passed().is_err());
        let result = checks(&["SUCCESS", "SKIPPED"]).passed();
        assert_eq!(result.as_deref(), Ok("1 checks passed, no warning; the suite itself skips one"));
    }
}
