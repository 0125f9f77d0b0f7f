//! `cargo xtask fuzz`: the fuzz targets with libFuzzer, which looks for inputs that reach new code.
//!
//! The compiler's coverage pass is an option of every toolchain, so a nightly one is not needed. It needs LLVM, a C++
//! compiler for libFuzzer itself, and Linux or macOS.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::step::{Step, cargo};

/// How long each target runs by default.
const SECONDS: u64 = 60;

/// The largest input, in bytes.
const LARGEST: u32 = 4096;

/// What the compiler is told: to count which edges of the program an input takes.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// The steps of `cargo xtask fuzz [TARGET] [--seconds N]`. None if the arguments are not understood.
pub(crate) fn steps(root: &Path, target: &Path, args: &[&str]) -> Option<Vec<Step>> {
    let (only, seconds) = parse(args)?;
    let names = names(root);
    let chosen: Vec<_> = names.iter().filter(|name| only.is_none_or(|only| only == *name)).cloned().collect();
    if chosen.is_empty() {
        eprintln!("xtask: there is no such fuzz target; there are: {}", names.join(", "));
        return None;
    }
    let (root, build) = (root.to_owned(), target.join("fuzz"));
    let built = build.join(format!("{}/release/fuzz", host()));
    let mut steps = vec![
        Step::cargo("find a C++ compiler for libFuzzer", "xtask fuzz").by(find_compiler),
        Step::cargo(
            "build the fuzz targets with coverage",
            &format!(
                "build --quiet --release --manifest-path fuzz/Cargo.toml --target {} --target-dir {}",
                host(),
                build.display()
            ),
        )
        .env("RUSTFLAGS", COVERAGE),
    ];
    for name in chosen {
        let (program, root, found) = (built.clone(), root.clone(), build.join("corpus").join(&name));
        let step =
            Step::cargo(format!("fuzz {name} for {seconds} s"), &format!("xtask fuzz {name} --seconds {seconds}"));
        steps.push(step.by(move || fuzz(&program, &root, &found, &name, seconds)));
    }
    Some(steps)
}

fn parse<'a>(args: &[&'a str]) -> Option<(Option<&'a str>, u64)> {
    match *args {
        [] => Some((None, SECONDS)),
        ["--seconds", seconds] => Some((None, seconds.parse().ok()?)),
        [name] if !name.starts_with('-') => Some((Some(name), SECONDS)),
        [name, "--seconds", seconds] if !name.starts_with('-') => Some((Some(name), seconds.parse().ok()?)),
        _ => None,
    }
}

/// The targets: each has a folder in the corpus.
fn names(root: &Path) -> Vec<String> {
    let folders = fs::read_dir(root.join("fuzz/corpus")).into_iter().flatten().flatten();
    let mut names: Vec<_> = folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Runs a target. What libFuzzer finds stays in the target directory; what is worth keeping is copied into the corpus by
/// hand.
fn fuzz(program: &Path, root: &Path, found: &Path, name: &str, seconds: u64) -> Result<(), String> {
    fs::create_dir_all(found).map_err(|error| format!("cannot create {}: {error}", found.display()))?;
    let crashes = format!("-artifact_prefix={}/crash-in-{name}-", found.parent().unwrap_or(found).display());
    let status = Command::new(program)
        .args([format!("-max_total_time={seconds}"), format!("-max_len={LARGEST}"), crashes])
        .args(["-timeout=10", "-print_final_stats=1", "-verbosity=0"])
        .arg(found)
        .arg(root.join("fuzz/corpus").join(name))
        .env("FUZZ_TARGET", name)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!(
            "the target `{name}` failed. The input is named above: mend what it shows, and add the input to \
             fuzz/corpus/{name}, which `cargo test` replays"
        )),
        Err(error) => Err(format!("cannot start {}: {error}", program.display())),
    }
}

fn find_compiler() -> Result<(), String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let found = Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!(
            "`{compiler}` does not start: libFuzzer is built from C++, so install a compiler (on Debian, `apt-get \
             install g++`). `cargo test` runs the same targets on their corpus without it"
        )),
    }
}

/// The platform of the compiler. With it as an explicit target, build scripts are not compiled for coverage.
fn host() -> String {
    let rustc = cargo().to_string_lossy().replace("cargo", "rustc");
    let version = Command::new(rustc).arg("-vV").output().or_else(|_| Command::new("rustc").arg("-vV").output());
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.unwrap_or("x86_64-unknown-linux-gnu").to_owned()
}
