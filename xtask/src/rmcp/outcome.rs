//! The results of the tests, and whether they are as expected.

use std::collections::BTreeSet;

use super::{
    LIST,
    list::{Http, SERVERS, TESTS, different},
};

/// The results that the tests have printed.
pub(super) struct Outcome<'a> {
    pub(super) tests: usize,
    pub(super) failed: BTreeSet<&'a str>,
    said: &'a str,
}

impl<'a> Outcome<'a> {
    /// Parses the output. Returns `None` if the tests did not finish.
    pub(super) fn read(said: &'a str) -> Option<Self> {
        let (mut passed, mut failed) = (0, BTreeSet::new());
        for line in said.lines().filter_map(|line| line.strip_prefix("test ")) {
            match line.rsplit_once(" ... ") {
                Some((_, "ok")) => passed += 1,
                Some((name, "FAILED")) => _ = failed.insert(name),
                _ => {}
            }
        }
        // The output of a test itself may hide its result.
        let counted = format!("{passed} passed; {} failed; 0 ignored; ", failed.len());
        let complete = said.lines().any(|line| line.starts_with("test result: ") && line.contains(&counted));
        complete.then_some(Self { tests: passed + failed.len(), failed, said })
    }

    /// Fails with every deviation from the expected results, and what to do about it.
    pub(super) fn judge(&self, http: Http, servers: usize) -> Result<(), String> {
        let expected: BTreeSet<&str> = different(http).map(|(name, _)| name).collect();
        let mut problems = Vec::new();
        for name in self.failed.difference(&expected) {
            problems.push(format!("{}`{name}` fails with every server wrapped", self.about(name)));
        }
        for name in expected.difference(&self.failed) {
            problems.push(format!("`{name}` no longer fails: remove it from {LIST}"));
        }
        if self.tests != TESTS {
            problems.push(format!("{} tests ran, and {LIST} says {TESTS}", self.tests));
        }
        if servers != SERVERS {
            problems.push(format!("{servers} servers were wrapped, and {LIST} says {SERVERS}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// The output of a test that failed.
    fn about(&self, name: &str) -> &'a str {
        let begin = self.said.find(&format!("---- {name} stdout ----"));
        let rest = begin.map_or("", |begin| &self.said[begin..]);
        let end = rest.find("\n\n---- ").or_else(|| rest.find("\n\nfailures:\n"));
        end.map_or(rest, |end| &rest[..end + 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: Http = Http::Endpoint;

    /// The output of an expected run, except for these failures.
    fn printed(failed: &[&str]) -> String {
        let failed: Vec<&str> = different(HTTP).map(|(name, _)| name).chain(failed.iter().copied()).collect();
        let passed = TESTS - failed.len();
        let mut said = format!("running {TESTS} tests\n");
        said.extend((0..passed).map(|number| format!("test passes::{number} ... ok\n")));
        said.extend(failed.iter().map(|name| format!("test {name} ... FAILED\n")));
        said.push_str("\nfailures:\n\n");
        said.extend(failed.iter().map(|name| format!("---- {name} stdout ----\nbecause of {name}\n\n")));
        said.push_str("\nfailures:\n    a list\n\n");
        said + &format!("test result: FAILED. {passed} passed; {} failed; 0 ignored; 0 measured\n", failed.len())
    }

    #[test]
    fn what_is_expected_to_fail_may_fail() {
        let said = printed(&[]);
        assert_eq!(Outcome::read(&said).unwrap().judge(HTTP, SERVERS), Ok(()));
    }

    #[test]
    fn another_failure_is_a_problem_and_says_what_happened() {
        let said = printed(&["new::failure"]);
        let problem = Outcome::read(&said).unwrap().judge(HTTP, SERVERS).unwrap_err();
        assert!(problem.contains("because of new::failure"), "{problem}");
        assert!(problem.ends_with("`new::failure` fails with every server wrapped"), "{problem}");
        assert!(different(HTTP).all(|(name, _)| !problem.contains(name)), "{problem}");
    }

    #[test]
    fn a_difference_that_is_gone_is_a_problem() {
        let (name, _) = different(HTTP).next().unwrap();
        let said = printed(&[]);
        let mut outcome = Outcome::read(&said).unwrap();
        outcome.failed.remove(name);
        assert!(outcome.judge(HTTP, SERVERS).unwrap_err().starts_with(&format!("`{name}` no longer fails")));
    }

    #[test]
    fn fewer_tests_and_fewer_servers_are_a_problem() {
        let said = printed(&[]);
        let outcome = Outcome::read(&said).unwrap();
        assert!(outcome.judge(HTTP, SERVERS - 1).unwrap_err().contains("servers were wrapped"));
        let outcome = Outcome { tests: TESTS - 1, ..outcome };
        assert!(outcome.judge(HTTP, SERVERS).unwrap_err().contains("tests ran"));
    }

    #[test]
    fn tests_that_do_not_end_or_are_not_all_seen_say_nothing() {
        let said = printed(&[]);
        assert!(Outcome::read(&said.replace("test passes::0 ... ok", "test passes::0 ... noise")).is_none());
        assert!(Outcome::read(&said.replace("test result:", "")).is_none());
    }
}
