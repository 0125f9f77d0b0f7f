//! Steps: commands that are run one after the other, until one fails.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

/// Something to run, and to be run alone by whoever it failed for.
pub(crate) struct Step {
    doing: String,
    program: OsString,
    args: Vec<String>,
    env: Vec<(&'static str, &'static str)>,
    built: Option<PathBuf>,
}

impl Step {
    /// A cargo command. Its arguments are separated by spaces.
    pub(crate) fn cargo(doing: impl Into<String>, args: &str) -> Self {
        Self {
            doing: doing.into(),
            // The one that runs this, which need not be the first in the path.
            program: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            args: args.split(' ').map(str::to_owned).collect(),
            env: Vec::new(),
            built: None,
        }
    }

    /// Sets a variable for this step.
    pub(crate) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    /// Runs what an earlier step has built, in place of the command that would build it first.
    pub(crate) fn already_built(mut self, program: PathBuf) -> Self {
        self.built = Some(program);
        self
    }

    fn runs(&self) -> String {
        self.built.as_ref().map_or_else(|| self.to_string(), |built| built.display().to_string())
    }

    fn passes(&self, root: &Path) -> bool {
        let mut command = match &self.built {
            Some(built) => Command::new(built),
            None => Command::new(&self.program),
        };
        if self.built.is_none() {
            command.args(&self.args);
        }
        match command.envs(self.env.iter().copied()).current_dir(root).status() {
            Ok(status) => status.success(),
            Err(error) => {
                println!("cannot start {}: {error}", command.get_program().display());
                false
            }
        }
    }
}

/// The command to type.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}='{value}' ")?;
        }
        let program = Path::new(&self.program).file_stem().unwrap_or(&self.program);
        write!(f, "{} {}", program.display(), self.args.join(" "))
    }
}

/// Plays the steps in order. The last lines say how it went.
pub(crate) fn play(steps: &[Step], root: &Path) -> ExitCode {
    let began = Instant::now();
    for (passed, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}: {}", passed + 1, steps.len(), step.doing, step.runs());
        if !step.passes(root) {
            println!("\n{} elapsed\n{passed} passed, 1 failed", seconds(began.elapsed()));
            println!("failed to {}; to run it alone:\n  {step}", step.doing);
            return ExitCode::FAILURE;
        }
    }
    println!("\n{} elapsed\n{} passed, 0 failed", seconds(began.elapsed()), steps.len());
    ExitCode::SUCCESS
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(program: &str) -> Step {
        Step { program: program.into(), args: Vec::new(), ..Step::cargo("try it", "") }
    }

    #[test]
    fn the_command_to_type_has_its_variables_and_no_path() {
        let step = Step { program: "/opt/rust/bin/cargo".into(), ..Step::cargo("document", "doc --no-deps") };
        assert_eq!(
            step.env("RUSTDOCFLAGS", "-D warnings").to_string(),
            "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps"
        );
    }

    #[test]
    fn the_first_failure_is_the_last_step() {
        let root = env::temp_dir();
        let trace = root.join(format!("xtask-{}", std::process::id()));
        let touch = Step { args: vec![trace.display().to_string()], ..step("touch") };
        assert_eq!(play(&[step("false"), touch], &root), ExitCode::FAILURE);
        assert!(!trace.exists());
        assert_eq!(play(&[step("true"), step("true")], &root), ExitCode::SUCCESS);
        assert_eq!(play(&[step("no-such-program")], &root), ExitCode::FAILURE);
        assert_eq!(play(&[step("false").already_built("true".into())], &root), ExitCode::SUCCESS);
    }
}
