//! Steps: commands that run in order, until one fails.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

/// A command to run. If it fails, the user can run it alone.
pub(crate) struct Step {
    doing: String,
    program: OsString,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    instead: Option<Instead>,
}

/// What runs instead of the command that is shown.
enum Instead {
    Run(PathBuf),
    Do(Box<dyn Fn() -> Result<(), String>>),
}

impl Step {
    /// A cargo command. Its arguments are separated by spaces.
    pub(crate) fn cargo(doing: impl Into<String>, args: &str) -> Self {
        Self {
            doing: doing.into(),
            program: cargo(),
            args: args.split(' ').map(str::to_owned).collect(),
            env: Vec::new(),
            instead: None,
        }
    }

    /// Sets an environment variable for this step.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Runs what an earlier step has built, instead of the command that would build it first.
    pub(crate) fn already_built(mut self, program: PathBuf) -> Self {
        self.instead = Some(Instead::Run(program));
        self
    }

    /// Calls this function instead of the command. A failure is a sentence.
    pub(crate) fn by(mut self, work: impl Fn() -> Result<(), String> + 'static) -> Self {
        self.instead = Some(Instead::Do(Box::new(work)));
        self
    }

    fn runs(&self) -> String {
        match &self.instead {
            Some(Instead::Run(built)) => built.display().to_string(),
            _ => self.to_string(),
        }
    }

    /// The exit status: zero if it passes.
    fn play(&self, root: &Path) -> u8 {
        let outcome = match &self.instead {
            None => self.run(Command::new(&self.program).args(&self.args), root),
            Some(Instead::Run(built)) => self.run(&mut Command::new(built), root),
            Some(Instead::Do(work)) => work().map(|()| 0),
        };
        outcome.unwrap_or_else(|problem| {
            println!("{problem}");
            1
        })
    }

    fn run(&self, command: &mut Command, root: &Path) -> Result<u8, String> {
        let env = self.env.iter().map(|(name, value)| (name, value));
        let status = command.envs(env).current_dir(root).status();
        let status = status.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()));
        // A process that was killed has no status.
        Ok(status?.code().and_then(|code| code.try_into().ok()).unwrap_or(1))
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

/// The cargo that runs this, which need not be the first in the path.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs the steps in order. The last lines report the result, and the status is that of the step that failed.
pub(crate) fn play(steps: &[Step], root: &Path) -> ExitCode {
    let began = Instant::now();
    for (passed, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}: {}", passed + 1, steps.len(), step.doing, step.runs());
        let status = step.play(root);
        if status != 0 {
            println!("\n{} elapsed\n{passed} passed, 1 failed", seconds(began.elapsed()));
            println!("failed to {}; to run it alone:\n  {step}", step.doing);
            return ExitCode::from(status);
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
        let two = Step { args: vec!["-c".to_owned(), "exit 2".to_owned()], ..step("sh") };
        assert_eq!(play(&[two], &root), ExitCode::from(2));
        assert_eq!(play(&[step("false").already_built("true".into())], &root), ExitCode::SUCCESS);
        assert_eq!(play(&[step("false").by(|| Ok(()))], &root), ExitCode::SUCCESS);
        assert_eq!(play(&[step("true").by(|| Err("no".to_owned()))], &root), ExitCode::FAILURE);
    }
}
