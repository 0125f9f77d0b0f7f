//! A process of `rounds serve --redis`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    sync::Notify,
};

use crate::in_time;

/// `rounds` with these arguments, in an environment that changes neither its logs nor its colours.
pub(crate) fn rounds(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rounds"));
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
    /// Starts one, and waits for it to say that it is ready.
    pub(crate) async fn start(redis: &str, keys: &Keys, name: &'static str) -> Self {
        // A lease that lapses soon, as tests of instances that are killed wait for it.
        let args = ["serve", "--http", "127.0.0.1:0", "--redis", redis, "--instance", name, "--lease", "2s"];
        let mut child = rounds(&args).args(["--key-file", keys.path()]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = in_time("the start", lines.next_line()).await.unwrap().expect("an instance says that it is ready");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        let log = Log::default();
        tokio::spawn(log.clone().keep(lines));
        Self { name, url, child, log }
    }

    /// Kills it, and gives the wait for its end.
    pub(crate) fn kill(&mut self) -> impl Future<Output = ()> + use<> {
        self.child.start_kill().unwrap();
        self.log.clone().ended()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().expect("it is running").to_string();
        assert!(std::process::Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// What it logs.
    pub(crate) fn log(&self) -> Log {
        self.log.clone()
    }
}

/// What an instance has logged. It is read all the time, so that no instance waits for its reader.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<(Mutex<(Vec<String>, bool)>, Notify)>);

impl Log {
    async fn keep(self, mut lines: Lines<BufReader<ChildStderr>>) {
        while let Ok(Some(line)) = lines.next_line().await {
            self.0.0.lock().unwrap().0.push(line);
            self.0.1.notify_waiters();
        }
        self.0.0.lock().unwrap().1 = true;
        self.0.1.notify_waiters();
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(self) {
        self.until("the end", |_, ended| ended).await;
    }

    /// Waits until it has said something this often.
    pub(crate) async fn says(&self, what: &str, times: usize) {
        self.until(what, |lines, _| lines.iter().filter(|line| line.contains(what)).count() >= times).await;
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[String], bool) -> bool) {
        let (log, changed) = &*self.0;
        in_time(what, async {
            loop {
                let change = changed.notified();
                tokio::pin!(change);
                change.as_mut().enable();
                let so = {
                    let log = log.lock().unwrap();
                    is_so(&log.0, log.1)
                };
                if so {
                    return;
                }
                change.await;
            }
        })
        .await;
    }
}

/// A key file that is gone when the test is over.
pub(crate) struct Keys(PathBuf);

impl Keys {
    pub(crate) fn new(keys: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fleet-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let written = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        written.write(keys);
        written
    }

    /// Each key is one byte, again and again.
    pub(crate) fn write(&self, keys: &[u8]) {
        let lines: String = keys.iter().map(|byte| format!("{byte:02x}").repeat(32) + "\n").collect();
        fs::write(&self.0, lines).unwrap();
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
