//! Processes of `rounds`, and what they leave behind. Every wait has a limit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::timeout,
};

/// Far longer than any step takes, also on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// How the line begins that says where the desk is. It is not a line of the log.
const DESK: &str = "open http://";

pub(crate) async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// `rounds` with these arguments.
pub(crate) fn rounds(args: &[&str]) -> Command {
    let mut command = plain(env!("CARGO_BIN_EXE_rounds"));
    command.args(args);
    command
}

/// A program in an environment that changes neither the logs nor the colours of `rounds`.
fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_remove("RUST_LOG").env_remove("NO_COLOR").env_remove("ROUNDS_BEARER").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Expects one sentence on stderr, nothing on stdout, and the exit code of a failure.
    #[track_caller]
    pub(crate) fn failed(&self, sentence: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(1), ""), "{self:?}");
        assert_eq!(self.stderr, format!("rounds: {sentence}\n"));
    }

    /// Expects success with nothing on stderr, and returns stdout.
    #[track_caller]
    pub(crate) fn printed(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }
}

/// Runs `rounds` to its end.
pub(crate) async fn run(args: &[&str]) -> Ended {
    run_with_stdin(args, "").await
}

pub(crate) async fn run_with_stdin(args: &[&str], stdin: &str) -> Ended {
    let mut child = rounds(args).stdin(Stdio::piped()).spawn().unwrap();
    // A command that does not read its stdin may have ended by now.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes()).await;
    let output = in_time("the command", child.wait_with_output()).await.unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server on a free port. It is killed when the test ends.
pub(crate) struct Server {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    pub(crate) url: String,
}

impl Server {
    pub(crate) async fn start(args: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", args).await
    }

    /// Starts a server with these further arguments and waits until it is ready.
    pub(crate) async fn start_on(address: &str, args: &[&str]) -> Self {
        let mut command = rounds(&["serve", "--http", address]);
        command.args(args);
        Self::spawn(command).await
    }

    /// A server with a limit on its open files, connections included.
    pub(crate) async fn start_with_files(limit: usize, args: &[&str]) -> Self {
        let serve = format!("ulimit -n {limit}; exec \"$0\" serve --http 127.0.0.1:0 \"$@\"");
        let mut command = plain("sh");
        command.args(["-c", &serve, env!("CARGO_BIN_EXE_rounds")]).args(args);
        Self::spawn(command).await
    }

    /// The next line of its log.
    pub(crate) async fn logged(&mut self) -> String {
        loop {
            let line = self.line().await;
            if !line.starts_with(DESK) {
                return line;
            }
        }
    }

    /// The next line on stderr.
    pub(crate) async fn line(&mut self) -> String {
        in_time("a line of the log", self.stderr.next_line()).await.unwrap().expect("one more line")
    }

    async fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = in_time("the start", stderr.next_line()).await.unwrap().expect("a server says that it is ready");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, stderr, url }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp")).unwrap()
    }

    /// Sends a signal by name.
    pub(crate) async fn signal(&self, name: &str) {
        signal(&self.child, name).await;
    }

    /// Waits until it has ended, and returns its log after it was ready.
    pub(crate) async fn ended(mut self) -> Ended {
        let mut stderr = String::new();
        let status = in_time("the end", async {
            while let Some(line) = self.stderr.next_line().await.unwrap() {
                if !line.starts_with(DESK) {
                    stderr.push_str(&line);
                    stderr.push('\n');
                }
            }
            self.child.wait().await.unwrap()
        });
        let code = status.await.code();
        Ended { code, stdout: String::new(), stderr }
    }

    /// Stops it as an operator would, and returns its log.
    pub(crate) async fn stop(self) -> String {
        self.signal("TERM").await;
        let ended = self.ended().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stderr
    }
}

/// An address on which no process listens, and which port 0 never yields: it is below the ephemeral ports.
pub(crate) fn unused_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ours = 20_000 + std::process::id() % 1_000 * 10;
    let ports = || ours + NEXT.fetch_add(1, Ordering::Relaxed) % 10;
    let mut free = std::iter::repeat_with(ports).take(10).map(|port| format!("127.0.0.1:{port}"));
    free.find(|address| std::net::TcpListener::bind(address).is_ok()).expect("a free port")
}

/// Sends a signal by name, with the shell, because the standard library cannot.
pub(crate) async fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id().expect("the process is running"));
    assert!(Command::new("sh").args(["-c", &kill]).status().await.unwrap().success());
}

/// A file that is removed when the test ends.
pub(crate) struct Written(PathBuf);

impl Written {
    pub(crate) fn new(text: &str) -> Self {
        let written = Self::nothing();
        fs::write(&written.0, text).unwrap();
        written
    }

    /// A path at which there is no file yet.
    pub(crate) fn nothing() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// A key file with one key, from `rounds keygen`.
    pub(crate) async fn key() -> Self {
        let written = Self::new(&run(&["keygen"]).await.printed());
        written.set_mode(0o600);
        written
    }

    /// Sets its permissions.
    pub(crate) fn set_mode(&self, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&self.0, mode).unwrap();
    }

    pub(crate) fn mode(&self) -> u32 {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&self.0).unwrap().permissions()) & 0o777
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn read(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }

    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
