//! The examples: each is run as it was built, and its output is compared with `examples/output`.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::{
    interop::process::{Log, in_time},
    step::Step,
};

/// Each run: the example with its arguments, and the file with its output. A further run is a further entry.
///
/// `deploy_server` and `deploy_lowlevel` are started by `deploy_client`, and `http_axum` by a test of the package.
const RUNS: &[(&str, &str)] = &[
    ("basic", "basic"),
    ("basic_multiround", "basic_multiround"),
    ("refund_desk", "refund_desk"),
    ("approval", "approval"),
    ("approval_webhook", "approval_webhook"),
    ("client_dual_path", "client_dual_path"),
    ("client_modern_only", "client_modern_only"),
    ("client_manual", "client_manual"),
    ("durable_restart", "durable_restart"),
    ("unmodified", "unmodified"),
    ("task", "task"),
    ("deploy_client --stdio", "deploy_client"),
    ("deploy_client --http", "deploy_client"),
    ("deploy_client --stdio --server deploy_lowlevel", "deploy_client"),
    ("deploy_client --http --server deploy_lowlevel", "deploy_client"),
    ("weather naive", "weather_naive"),
    ("weather f", "weather_f"),
    ("weather h --era modern", "weather_h"),
    ("weather h --era legacy", "weather_h_legacy"),
    ("weather e --era legacy", "weather_e_legacy"),
    ("weather a --era legacy", "weather_a_legacy"),
    ("weather lowlevel --era legacy", "weather_lowlevel_legacy"),
    ("weather a", "weather_a"),
    ("weather b", "weather_b"),
    ("weather c", "weather_c"),
    ("weather d", "weather_d"),
    ("weather e", "weather_e"),
    ("weather g", "weather_g"),
    ("weather i", "weather_i"),
    ("weather asked", "weather_asked"),
    ("weather lowlevel", "weather_lowlevel"),
    ("weather b --era legacy", "weather_b_legacy"),
    ("weather c --era legacy", "weather_c_legacy"),
    ("weather d --era legacy", "weather_d_legacy"),
    ("weather f --era legacy", "weather_f_legacy"),
    ("weather g --era legacy", "weather_g_legacy"),
    ("weather i --era legacy", "weather_i_legacy"),
    ("weather asked --era legacy", "weather_asked_legacy"),
    ("weather naive --era legacy", "weather_naive_legacy"),
];

/// Far longer than an example takes, which is a second.
const LIMIT: Duration = Duration::from_secs(60);

/// A step for each run, with the programs that an earlier step has built.
pub(crate) fn steps(root: &Path, built: &Path) -> Vec<Step> {
    RUNS.iter().map(|(run, output)| step(root, built, run, output)).collect()
}

fn step(root: &Path, built: &Path, run: &'static str, output: &str) -> Step {
    let again = match run.split_once(' ') {
        Some((example, args)) => format!("run --quiet --example {example} -- {args}"),
        None => format!("run --quiet --example {run}"),
    };
    let expected = root.join(format!("examples/output/{output}.txt"));
    let built = built.to_owned();
    Step::cargo(format!("run the example {run}"), &again).by(move || compare(&built, run, &expected))
}

fn compare(built: &Path, run: &str, expected: &Path) -> Result<(), String> {
    let log = Log::new(&built.join("xtask-examples"), run.replace([' ', '-'], "_"))?;
    in_time(program(built, run), LIMIT, &log).map_err(|problem| log.alone(&problem))?;
    let wanted =
        fs::read_to_string(expected).map_err(|error| format!("cannot read {}: {error}", expected.display()))?;
    match log.read() {
        printed if printed == wanted => Ok(()),
        printed => Err(format!("{} differs from what the example printed:\n{printed}", expected.display())),
    }
}

/// The program of an example, with its arguments. Without `CARGO` it does not build the programs that it starts.
fn program(built: &Path, run: &str) -> Command {
    let mut words = run.split(' ');
    let mut program = Command::new(built.join("examples").join(words.next().unwrap_or_default()));
    program.args(words).env_remove("CARGO");
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(folder: &str, extension: &str) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(folder);
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn every_example_is_run_and_no_output_is_left_over() {
        let words: Vec<_> = RUNS.iter().flat_map(|(run, _)| run.split(' ')).collect();
        // The two servers are started by the client's first runs, and by a test.
        let started = ["deploy_server", "http_axum"];
        for example in listed("", "rs") {
            assert!(words.contains(&&*example) || started.contains(&&*example), "{example} is not run");
        }
        let mut outputs: Vec<_> = RUNS.iter().map(|(_, output)| *output).collect();
        outputs.sort();
        outputs.dedup();
        assert_eq!(listed("output", "txt"), outputs);
    }

    #[test]
    fn another_output_than_the_recorded_one_is_a_failure() {
        let built = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        fs::create_dir_all(built.join("examples")).unwrap();
        std::os::unix::fs::symlink("/bin/echo", built.join("examples/echo")).unwrap();
        let expected = built.join("echo.txt");
        fs::write(&expected, "a b\n").unwrap();
        assert_eq!(compare(&built, "echo a b", &expected), Ok(()));
        let differs = compare(&built, "echo a c", &expected).unwrap_err();
        assert!(differs.ends_with("differs from what the example printed:\na c\n"), "{differs}");
        fs::remove_dir_all(built).unwrap();
    }
}
