//! The conformance suite. Its exit code ignores warnings and scenarios that it does not score. Here every check of
//! every scenario counts.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::install::Npm;

/// The runs against a server: everything that a revision requires, and everything that the suite has for a revision.
pub(super) const SERVER_RUNS: [&str; 3] = ["--requirements 2026-07-28", ALL_MODERN, ALL_LEGACY];

/// The runs with a client, which include everything that is required of one: `--requirements` adds only extensions of
/// authorization, and the guide `interop` says why they are left out.
pub(super) const CLIENT_RUNS: [&str; 2] = [ALL_MODERN, ALL_LEGACY];

const ALL_MODERN: &str = "--suite all --spec-version 2026-07-28";
const ALL_LEGACY: &str = "--suite all --spec-version 2025-11-25";

/// Runs the suite against the server at this address.
pub(super) fn against(npm: &Npm, url: &str, args: &str, results: &Path) -> Command {
    let mut suite = command(npm, results);
    suite.args(["server", "--url", url]).args(args.split(' ')).arg("-o").arg(results);
    suite
}

/// Lets the suite run this client.
pub(super) fn with(npm: &Npm, client: &Path, args: &str, results: &Path) -> Command {
    let mut suite = command(npm, results);
    suite.args(["client", "--command"]).arg(client).args(args.split(' ')).arg("-o").arg(results);
    suite
}

fn command(npm: &Npm, results: &Path) -> Command {
    // The results of an earlier run would be read as results of this one.
    let _ = fs::remove_dir_all(results);
    let mut node = npm.node();
    node.arg(npm.module("@modelcontextprotocol/conformance").join("dist/index.js"));
    node
}

/// The revision of a run: its last word.
pub(super) fn era(args: &'static str) -> &'static str {
    args.rsplit(' ').next().unwrap_or(args)
}

/// The results of all checks of all scenarios.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Checks {
    passed: usize,
    skipped: Vec<String>,
    problems: Vec<String>,
}

/// Reads every `checks.json` in the folder.
pub(super) fn read(results: &Path) -> Result<Checks, String> {
    let mut checks = Checks::default();
    checks.read(results, results)?;
    // Sorted, because a folder is read in any order, and the table is compared.
    checks.skipped.sort();
    checks.skipped.dedup();
    Ok(checks)
}

impl Checks {
    /// Reads the scenarios in a folder. A scenario with a slash in its name is in a subfolder. A scenario without
    /// results is an error.
    fn read(&mut self, results: &Path, folder: &Path) -> Result<(), String> {
        let cannot = |error| format!("cannot read {}: {error}", folder.display());
        let mut within: Vec<_> = fs::read_dir(folder).map_err(cannot)?.collect::<Result<_, _>>().map_err(cannot)?;
        within.retain(|entry| entry.path().is_dir());
        let file = folder.join("checks.json");
        if folder == results || !within.is_empty() {
            return within.iter().try_for_each(|entry| self.read(results, &entry.path()));
        }
        let json = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let json: Value = serde_json::from_slice(&json).map_err(|error| format!("{}: {error}", file.display()))?;
        self.add(&folder.strip_prefix(results).unwrap_or(folder).to_string_lossy(), &json);
        Ok(())
    }

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

    /// The result as text, if there were checks and none of them failed or warned.
    pub(super) fn passed(self) -> Result<String, String> {
        if !self.problems.is_empty() {
            return Err(self.problems.join("\n"));
        }
        if self.passed == 0 {
            return Err("the suite has run no checks".to_owned());
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
    fn every_scenario_is_read_also_one_with_a_slash_in_its_name_and_none_may_have_nothing_to_say() {
        let results = std::env::temp_dir().join(format!("xtask-suite-{}", std::process::id()));
        for (scenario, status) in [("tools", "SUCCESS"), ("auth/scope", "SUCCESS"), ("auth/issuer", "WARNING")] {
            fs::create_dir_all(results.join(scenario)).unwrap();
            let checks = json!([{"id": "one", "status": status}, {"id": "other", "status": "SKIPPED"}]);
            fs::write(results.join(scenario).join("checks.json"), checks.to_string()).unwrap();
        }
        let (passed, skipped) = (2, vec!["other".to_owned()]);
        let problems = vec!["auth/issuer: one: WARNING: null".to_owned()];
        assert_eq!(read(&results), Ok(Checks { passed, skipped, problems }));
        fs::create_dir(results.join("silent")).unwrap();
        assert!(read(&results).unwrap_err().contains("silent"));
        fs::remove_dir_all(results).unwrap();
    }

    #[test]
    fn nothing_checked_is_not_passed_and_what_is_skipped_is_named() {
        assert!(checks(&["INFO", "SKIPPED"]).passed().is_err());
        let result = checks(&["SUCCESS", "SKIPPED"]).passed();
        assert_eq!(result.as_deref(), Ok("1 checks passed, no warning; the suite itself skips one"));
    }
}
