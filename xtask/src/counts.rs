//! Counts the instructions of the operations that every server pays for, with valgrind, and compares them with the
//! recorded counts. A time differs between machines and from minute to minute; a count does not.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::install::{self, starts};

/// The cases, and how often each is repeated. Twice as many repetitions are counted as well, and the difference
/// excludes the start-up.
const CASES: [(&str, u64); 8] = [
    ("seal", 200),
    ("open", 200),
    ("guard", 100),
    ("ask", 100),
    ("durable", 100),
    ("fast_plain", 100),
    ("fast_tasks", 100),
    ("fast_poll", 100),
];

/// Tolerated difference from the recorded count, in per cent.
///
/// Between runs on one machine a count varies by some 0.02 %, because hash tables have random seeds. Another compiler
/// or a new version of a dependency changes it by a few per cent, which must not raise an alarm. One copy too many in a
/// leg changes it by more than that.
const TOLERANCE: f64 = 5.0;

type Counts = BTreeMap<String, u64>;

/// Installs `valgrind` if it is missing.
pub(crate) fn install() -> Result<(), String> {
    let missing =
        "valgrind is missing: install it, so that `valgrind` is in the path (on Debian, `apt-get install valgrind`)";
    if !starts(Command::new("valgrind").arg("--version")) {
        install::install(&["valgrind"], missing)?;
    }
    match starts(Command::new("valgrind").arg("--version")) {
        true => Ok(()),
        false => Err(missing.to_owned()),
    }
}

/// Counts, and compares with the recorded counts or records them.
pub(crate) fn count(program: &Path, root: &Path, write: bool) -> Result<(), String> {
    if !comparable() {
        println!(
            "the recorded counts are for Linux on x86-64 with AVX2: this machine is different, so nothing is \
                  compared"
        );
        return Ok(());
    }
    let file = file(root);
    let mut counts = Counts::new();
    for (case, times) in CASES {
        let count = (instructions(program, case, 2 * times)? - instructions(program, case, times)?) / times;
        println!("{case}: {count} instructions");
        counts.insert(case.to_owned(), count);
    }
    if write {
        return fs::write(&file, print(&counts)).map_err(|error| format!("cannot write {}: {error}", file.display()));
    }
    let known = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    compare(&read(&known)?, &counts)
}

/// Simulates an hour with a ledger in memory. The program itself prints the result.
pub(crate) fn hour(program: &Path) -> Result<(), String> {
    let status = Command::new(program).arg("hour").status();
    match status.map_err(|error| format!("cannot start {}: {error}", program.display()))?.success() {
        true => Ok(()),
        false => Err("the simulated hour exceeded a limit: see above".to_owned()),
    }
}

/// Whether this machine executes the recorded instructions: ciphers choose theirs by the features of the CPU.
fn comparable() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    return false;
}

fn file(root: &Path) -> PathBuf {
    root.join("bench/counts.toml")
}

/// The number of instructions that the program executes for this many repetitions.
fn instructions(program: &Path, case: &str, times: u64) -> Result<u64, String> {
    // Without the simulation of caches, cachegrind only counts.
    let options = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];
    let output = Command::new("valgrind").args(options).arg(program).args([case, &times.to_string()]).output();
    let output = output.map_err(|error| format!("cannot start valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")));
    let counted = counted.and_then(|(_, count)| count.trim().replace(',', "").parse().ok());
    match counted {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(format!("valgrind did not count `{case}` ({}):\n{said}", output.status)),
    }
}

/// For each count that is out of bounds: by how much it differs, and what to do.
fn compare(known: &Counts, counts: &Counts) -> Result<(), String> {
    let mut problems = Vec::new();
    for (case, count) in counts {
        let Some(before) = known.get(case) else {
            problems.push(format!("`{case}` is not recorded yet"));
            continue;
        };
        let percent = (*count as f64 / *before as f64 - 1.0) * 100.0;
        if percent.abs() > TOLERANCE {
            let (how, what) = if percent > 0.0 { ("more", "find out why") } else { ("fewer", "well done") };
            problems.push(format!(
                "`{case}` takes {:.1} % {how} instructions than recorded: {count} instead of {before}; {what}",
                percent.abs()
            ));
        }
    }
    problems.extend(
        known
            .keys()
            .filter(|case| !counts.contains_key(*case))
            .map(|case| format!("`{case}` is recorded but no longer counted")),
    );
    if problems.is_empty() {
        return Ok(());
    }
    let problems = problems.join("\n");
    Err(format!("{problems}\nif the change is intended, record the new counts with `cargo xtask counts --write`"))
}

fn print(counts: &Counts) -> String {
    let mut text =
        "# Instructions, as counted by `cargo xtask counts --write`; see the guide `performance`.\n".to_owned();
    text.extend(counts.iter().map(|(case, count)| format!("{case} = {count}\n")));
    text
}

fn read(text: &str) -> Result<Counts, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let count = |line: &str| Some((line.split_once(" = ")?.0.to_owned(), line.split_once(" = ")?.1.parse().ok()?));
    lines
        .map(|line| count(line).ok_or_else(|| format!("bench/counts.toml has a line that is not a count: `{line}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(seal: u64, open: u64) -> Counts {
        Counts::from([("seal".to_owned(), seal), ("open".to_owned(), open)])
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        assert_eq!(read(&print(&counts(19_028, 18_456))), Ok(counts(19_028, 18_456)));
        assert!(read("seal: many").unwrap_err().contains("`seal: many`"));
    }

    #[test]
    fn a_count_within_the_tolerance_is_no_alarm() {
        assert_eq!(compare(&counts(1000, 1000), &counts(1049, 951)), Ok(()));
    }

    #[test]
    fn a_count_beyond_it_says_which_by_how_much_and_what_to_do() {
        let said = compare(&counts(1000, 1000), &counts(1100, 1000)).unwrap_err();
        assert!(
            said.starts_with("`seal` takes 10.0 % more instructions than recorded: 1100 instead of 1000"),
            "{said}"
        );
        assert!(said.contains("cargo xtask counts --write") && !said.contains("`open`"), "{said}");
        let said = compare(&counts(1000, 1000), &counts(1000, 500)).unwrap_err();
        assert!(said.starts_with("`open` takes 50.0 % fewer"), "{said}");
    }

    #[test]
    fn a_count_that_has_nothing_to_be_compared_with_is_an_alarm() {
        let one = Counts::from([("seal".to_owned(), 1000)]);
        assert!(compare(&one, &counts(1000, 1000)).unwrap_err().starts_with("`open` is not recorded yet"));
        assert!(
            compare(&counts(1000, 1000), &one).unwrap_err().starts_with("`open` is recorded but no longer counted")
        );
    }
}
