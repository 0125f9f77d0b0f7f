//! The instructions of the few things that everybody pays for, counted by valgrind and compared with those that are written
//! down. A time would be different on every machine, and from one minute to the next; a count is not.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::install::{self, starts};

/// What is counted, and how often it is done. Twice as often is counted as well: the difference has no start-up in it.
const CASES: [(&str, u64); 5] = [("seal", 200), ("open", 200), ("guard", 100), ("ask", 100), ("durable", 100)];

/// How far a count may be from the one written down, in percent.
///
/// From run to run on one machine it differs by some 0.02 %, for the hash tables are seeded anew. Another compiler or a new
/// version of a dependency moves it by a few percent, and that is to be no alarm; a copy too many in a leg is more than that.
const TOLERANCE: f64 = 9.5;

type Counts = BTreeMap<String, u64>;

/// Sees to it that there is a `valgrind`.
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

/// Counts, and compares with what is written down, or writes it down.
pub(crate) fn count(program: &Path, root: &Path, write: bool) -> Result<(), String> {
    if !comparable() {
        println!("the counts are those of Linux on x86-64 with AVX2: there is nothing to compare with here");
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

/// Plays an hour against a ledger in memory. What it took is said by the program itself.
pub(crate) fn hour(program: &Path) -> Result<(), String> {
    let status = Command::new(program).arg("hour").status();
    match status.map_err(|error| format!("cannot start {}: {error}", program.display()))?.success() {
        true => Ok(()),
        false => Err("the hour was not as it should be: see above".to_owned()),
    }
}

/// Whether this machine executes the instructions that are written down: ciphers choose theirs by what there is.
fn comparable() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    return false;
}

fn file(root: &Path) -> PathBuf {
    root.join("bench/counts.toml")
}

/// How many instructions the program executes to do this so often.
fn instructions(program: &Path, case: &str, times: u64) -> Result<u64, String> {
    // Without its caches, cachegrind does nothing but count.
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

/// Says of each count that is out of bounds which it is, by how much, and what to do.
fn compare(known: &Counts, counts: &Counts) -> Result<(), String> {
    let mut problems = Vec::new();
    for (case, count) in counts {
        let Some(before) = known.get(case) else {
            problems.push(format!("`{case}` is not written down yet"));
            continue;
        };
        let percent = (*count as f64 / *before as f64 - 1.0) * 100.0;
        if percent.abs() > TOLERANCE {
            let (how, what) = if percent > 0.0 { ("more", "find out why") } else { ("fewer", "well done") };
            problems.push(format!(
                "`{case}` takes {:.1} % {how} instructions than it did: {count} instead of {before}; {what}",
                percent.abs()
            ));
        }
    }
    problems.extend(known.keys().filter(|case| !counts.contains_key(*case)).map(|case| format!("`{case}` is gone")));
    if problems.is_empty() {
        return Ok(());
    }
    let problems = problems.join("\n");
    Err(format!("{problems}\nif it is to stay like this, `cargo xtask counts --write` writes the counts down"))
}

fn print(counts: &Counts) -> String {
    let mut text =
        "# Instructions, as `cargo xtask counts --write` has counted them; see the guide `performance`.\n".to_owned();
    text.extend(counts.iter().map(|(case, count)| format!("{case} = {count}\n")));
    text
}

fn read(text: &str) -> Result<Counts, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let count = |line: &str| Some((line.split_once(" = ")?.0.to_owned(), line.split_once(" = ")?.1.parse().ok()?));
    lines
        .map(|line| count(line).ok_or_else(|| format!("bench/counts.toml has a line that is no count: `{line}`")))
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
        assert!(said.starts_with("`seal` takes 10.0 % more instructions than it did: 1100 instead of 1000"), "{said}");
        assert!(said.contains("cargo xtask counts --write") && !said.contains("`open`"), "{said}");
        let said = compare(&counts(1000, 1000), &counts(1000, 500)).unwrap_err();
        assert!(said.starts_with("`open` takes 50.0 % fewer"), "{said}");
    }

    #[test]
    fn a_count_that_has_nothing_to_be_compared_with_is_an_alarm() {
        let one = Counts::from([("seal".to_owned(), 1000)]);
        assert!(compare(&one, &counts(1000, 1000)).unwrap_err().starts_with("`open` is not written down yet"));
        assert!(compare(&counts(1000, 1000), &one).unwrap_err().starts_with("`open` is gone"));
    }
}
