//! A process of `rounds serve --store`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    sync::watch,
};

use crate::in_time;

/// `rounds` with these arguments, in an environment that changes neither its logs nor its colours.
pub(crate) fn rounds(args: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_rounds"), args)
}

/// The same of another release.
pub(crate) fn program(path: &str, args: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(args).env_remove("RUST_LOG").env_remove("NO_COLOR").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

pub(crate) struct Instance {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    child: Child,
    log: Log,
}

impl Instance {
    /// Starts this command as one, and waits for it to say that it is ready.
    pub(crate) async fn run(mut command: Command, store: &str, keys: &Keys, name: &'static str) -> Self {
        // The other name of `--store`, which the previous release knows too.
        command.args(["--http", "127.0.0.1:0", "--redis", store, "--instance", name, "--key-file", keys.path()]);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = in_time("the start", lines.next_line()).await.unwrap().expect("an instance says that it is ready");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        let log = Log::default();
        tokio::spawn(log.clone().keep(lines));
        Self { name, url, child, log }
    }

    pub(crate) fn kill(&mut self) {
        self.child.start_kill().unwrap();
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().expect("the instance is running").to_string();
        assert!(std::process::Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// What it logs.
    pub(crate) fn log(&self) -> Log {
        self.log.clone()
    }
}

/// The log of an instance. It is read all the time, so that the instance never blocks on a full pipe.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<watch::Sender<Said>>);

#[derive(Default)]
struct Said {
    lines: Vec<String>,
    ended: bool,
}

impl Said {
    fn count(&self, what: &str) -> usize {
        self.lines.iter().filter(|line| line.contains(what)).count()
    }
}

impl Log {
    async fn keep(self, mut lines: Lines<BufReader<ChildStderr>>) {
        while let Ok(Some(line)) = lines.next_line().await {
            self.0.send_modify(|said| said.lines.push(line));
        }
        self.0.send_modify(|said| said.ended = true);
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        self.until("the end", |said| said.ended).await;
    }

    /// Waits until it has logged a line this often.
    pub(crate) async fn says(&self, what: &str, times: usize) {
        self.until(what, |said| said.count(what) >= times).await;
    }

    /// How often it has logged a line so far.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.borrow().count(what)
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().lines.clone()
    }

    async fn until(&self, what: &str, is_so: impl FnMut(&Said) -> bool) {
        in_time(what, self.0.subscribe().wait_for(is_so)).await.unwrap();
    }
}

/// A key file that is removed when the test ends.
pub(crate) struct Keys(PathBuf);

impl Keys {
    pub(crate) fn new(keys: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fleet-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let written = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        written.write(keys);
        written
    }

    /// Each key is one byte, repeated.
    pub(crate) fn write(&self, keys: &[u8]) {
        let lines: String = keys.iter().map(|byte| format!("{byte:02x}").repeat(32) + "\n").collect();
        fs::write(&self.0, lines).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&self.0, mode).unwrap();
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
