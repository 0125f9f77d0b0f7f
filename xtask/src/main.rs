//! `cargo xtask test`: everything that CI runs, in order, up to the first failure.

mod build;
mod chaos;
mod chromium;
mod counts;
mod examples;
mod fuzz;
mod install;
mod interop;
mod nginx;
mod package;
mod peers;
mod phrases;
mod postgres;
mod prose;
mod redis;
mod rmcp;
mod rooms;
mod rust;
mod simulate;
mod step;
mod upgrade;

use std::{
    env, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use step::{Step, play};

const USAGE: &str = "\
Usage: cargo xtask TASK

Tasks:
  test              Check the formatting and the lints, run every test, build the documentation, run the examples and
                    the tour, run rmcp's own tests, and run what was built with programs of other projects
  interop           Only the last of these: install the peers if they are missing, pair each with what was built, and
                    compare the table of pairings with the one in guide/interop.md
  interop --write   The same, but record the table
  bench             Measure what things cost, side by side, and print it as ratios to a reference of the same run
  bench SECTION...  Only these: flows, clients, seal, parked, claims, durable, client, observing, fleet,
                    instance, stores, register, desk. With --peers, servers that others wrote
                    are measured as well; with --write, the findings go into guide/performance.md
  bench build       The CPU time of the first build, as a ratio to that of a bare rmcp server, and what each feature adds
  examples          Only build and run the examples, and compare their output with examples/output
  chaos             Play flows of every shape while instances and their store fail, and check that none was lost, run twice
                    or late; with --store redis|postgres|sqlite, --faults NAME,..., --minutes N, --seed S
  counts            Count the instructions of a seal, an open and a leg, and compare them with those in bench/counts.toml
  counts --write    The same, but record the counts
  hour              Simulate an hour of 2,000 calls per second with a ledger in memory, and check its memory
  simulate          Simulate 10,000 seeds of a fleet with faults, and check each history; --seeds N for another number
  simulate --seed S Only this seed, with its history
  fuzz              Run every fuzz target with libFuzzer for a minute
  fuzz TARGET       Only this target; with --seconds N, for another time
  rmcp              Run rmcp's own tests with every server wrapped, and compare the failures with the expected ones
  upgrade           Build the previous release from the history, and let both releases serve the same flows
  package           Pack what is published, and run the unit tests of the packages outside of this repository
  phrases           Find phrases that make the prose hard to read, and print what to write instead
  rooms             Find a cycle between the folders of the library
  redis             Only install Redis if it is missing, for the tests that start it
  postgres          Only install Postgres if it is missing, for the tests that start it
  nginx             Only install nginx if it is missing, for the tests that start it
  chromium          Only install Chromium, its driver and axe-core if they are missing, for the tests of the desk";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let steps = match args[..] {
        ["test"] => test(),
        ["interop"] => interop(false),
        ["interop", "--write"] => interop(true),
        ["bench", ref args @ ..] => bench(args),
        ["chaos", ref args @ ..] => Ok([redis(), postgres()].into_iter().chain(chaos::steps(args)).collect()),
        ["counts"] => counts(false),
        ["counts", "--write"] => counts(true),
        ["examples"] => examples(),
        ["hour"] => hour(),
        ["simulate", ref args @ ..] => simulate(args),
        ["fuzz", ref args @ ..] => fuzz(args),
        ["rmcp"] => rmcp(),
        ["upgrade"] => upgrade().map(|steps| [redis()].into_iter().chain(steps).collect()),
        ["package"] => package(),
        ["phrases"] => Ok(vec![phrases()]),
        ["rooms"] => Ok(vec![rooms()]),
        ["redis"] => Ok(vec![redis()]),
        ["postgres"] => Ok(vec![postgres()]),
        ["nginx"] => Ok(vec![nginx()]),
        ["chromium"] => Ok(vec![chromium()]),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match steps {
        Ok(steps) => play(&steps, &root()),
        Err(error) => {
            eprintln!("xtask: cannot list the steps: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The steps of `cargo xtask test`. A further step is a further entry.
///
/// Everything is built with the features of the whole workspace and of its tests, so that nothing is compiled twice.
/// For the same reason the documentation is built with that of the examples, which have the features of tests, and
/// examples and the tour run as `cargo test` has built them: `cargo run` would build their dependencies again, with
/// fewer features.
fn test() -> io::Result<Vec<Step>> {
    let mut steps = vec![
        Step::cargo("check the formatting", "fmt --all --check"),
        phrases(),
        rooms(),
        Step::cargo("check the lints", "clippy --workspace --all-targets --all-features -- -D warnings"),
        redis(),
        postgres(),
        nginx(),
        chromium(),
        Step::cargo(
            "run every test, of units, of crates and in the documentation",
            "test --workspace --exclude rounds-try --all-features --no-fail-fast",
        ),
        Step::cargo("build the documentation", "doc --workspace --no-deps --all-features --lib --examples")
            .env("RUSTDOCFLAGS", "-D warnings"),
    ];
    let built = built()?;
    steps.extend(examples::steps(&root(), &built));
    let exact =
        "test --quiet -p rounds --all-features --features serde_json/arbitrary_precision --lib --test precision";
    steps.push(
        Step::cargo("run the tests of numbers where another crate has serde_json keep them as written", exact)
            .env("EXPECT_EXACT_NUMBERS", "1"),
    );
    steps.push(Step::cargo("take the tour", "run --quiet -p rounds-cli").already_built(built.join("rounds")));
    steps.extend(counts(false)?);
    steps.extend(hour()?);
    if upgrade::has_history(&root()) {
        steps.extend(upgrade()?);
    } else {
        eprintln!("the history does not reach back to the previous release: `cargo xtask upgrade` is left out");
    }
    steps.extend(rmcp()?);
    steps.extend(interop::steps(&root(), &built, false));
    Ok(steps)
}

/// The steps of `cargo xtask examples`. They are built as for the tests, so that nothing is compiled twice.
fn examples() -> io::Result<Vec<Step>> {
    let mut steps = vec![Step::cargo("build the examples", "build --quiet -p examples --examples --all-features")];
    steps.extend(examples::steps(&root(), &built()?));
    Ok(steps)
}

/// The steps of `cargo xtask counts`. Only an optimised build gives useful counts, so this is built separately, with as
/// little as it needs.
fn counts(write: bool) -> io::Result<Vec<Step>> {
    let program = counting()?;
    let again = if write { "xtask counts --write" } else { "xtask counts" };
    Ok(vec![
        Step::cargo("find valgrind, or install it", "xtask counts").by(counts::install),
        build_counting(),
        Step::cargo("count the instructions of a seal, an open, a leg", again)
            .by(move || counts::count(&program, &root(), write)),
    ])
}

/// The steps of `cargo xtask hour`, with the same program. An hour of 7.2 million calls takes half a minute in an
/// optimised build, and ten times as long in another one.
fn hour() -> io::Result<Vec<Step>> {
    let program = counting()?;
    let live =
        Step::cargo("simulate an hour of 2,000 calls per second", "xtask hour").by(move || counts::hour(&program));
    Ok(vec![build_counting(), live])
}

fn build_counting() -> Step {
    Step::cargo("build what is counted, optimised", "build --quiet --release -p counts")
}

/// The path of that program.
fn counting() -> io::Result<PathBuf> {
    Ok(target()?.join("release/counts"))
}

/// The steps of `cargo xtask package`.
fn package() -> io::Result<Vec<Step>> {
    Ok(package::steps(&root(), &target()?))
}

/// The steps of `cargo xtask bench`. The program knows its sections itself.
fn bench(args: &[&str]) -> io::Result<Vec<Step>> {
    if let ["build"] = args {
        return Ok(build::steps(&root(), &target()?));
    }
    let mut steps = vec![redis(), postgres()];
    if args.contains(&"--peers") {
        steps.extend(peers::steps(&root(), &built()?)?);
    }
    let run = [&["run", "--quiet", "--release", "-p", "bench", "--"], args].concat();
    steps.push(Step::cargo("measure", &run.join(" ")));
    Ok(steps)
}

/// The step of `cargo xtask simulate`.
fn simulate(args: &[&str]) -> io::Result<Vec<Step>> {
    simulate::step(args).map(|step| vec![step]).ok_or_else(unknown)
}

/// The steps of `cargo xtask fuzz`.
fn fuzz(args: &[&str]) -> io::Result<Vec<Step>> {
    fuzz::steps(&root(), &target()?, args).ok_or_else(unknown)
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "unknown arguments; `cargo xtask` lists what there is")
}

/// The steps of `cargo xtask rmcp`.
fn rmcp() -> io::Result<Vec<Step>> {
    Ok(rmcp::steps(&root(), &built()?))
}

/// The step of `cargo xtask phrases`.
fn phrases() -> Step {
    Step::cargo("look for phrases that are hard to read", "xtask phrases").by(|| phrases::check(&root()))
}

/// The step of `cargo xtask rooms`.
fn rooms() -> Step {
    Step::cargo("look for a cycle between the folders of the library", "xtask rooms").by(|| rooms::check(&root()))
}

/// The steps of `cargo xtask upgrade`.
fn upgrade() -> io::Result<Vec<Step>> {
    Ok(upgrade::steps(&root(), &target()?))
}

/// The step of `cargo xtask redis`.
fn redis() -> Step {
    Step::cargo("find Redis, or install it", "xtask redis").by(redis::install)
}

/// The step of `cargo xtask postgres`.
fn postgres() -> Step {
    Step::cargo("find Postgres, or install it", "xtask postgres").by(postgres::install)
}

/// The step of `cargo xtask nginx`.
fn nginx() -> Step {
    Step::cargo("find nginx, or install it", "xtask nginx").by(nginx::install)
}

/// The step of `cargo xtask chromium`.
fn chromium() -> Step {
    Step::cargo("find Chromium and axe-core, or install them", "xtask chromium").by(|| chromium::install(&root()))
}

/// The steps of `cargo xtask interop`. The programs are built as for their tests, for the same reason.
fn interop(write: bool) -> io::Result<Vec<Step>> {
    let build = "test --quiet --workspace --exclude rounds-try --all-features --no-run --test cli --test server --example deploy_lowlevel";
    let mut steps = vec![Step::cargo("build what is paired", build)];
    steps.extend(interop::steps(&root(), &built()?, write));
    Ok(steps)
}

/// The folder with cargo's build output: this program is in it, wherever the target directory is.
fn built() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    program.parent().map(Path::to_owned).ok_or_else(|| io::Error::other("the path of this program has no folder"))
}

/// The target directory.
fn target() -> io::Result<PathBuf> {
    let built = built()?;
    Ok(built.parent().unwrap_or(&built).to_owned())
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
