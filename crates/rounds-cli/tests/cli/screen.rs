//! `rounds` on a pseudo-terminal: what the user sees and types. Every wait has a limit.

use std::process::Stdio;

use pty_process::{Command, Pty, Size};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Child,
    time::timeout,
};

use crate::process::{Ended, LIMIT, in_time};

/// A terminal of 80 columns. stdout is a pipe, so the screen does not show the result.
pub(crate) struct Screen {
    pty: Pty,
    child: Child,
    /// Output that no test step has read yet.
    shown: String,
    /// The last bytes read, if they are an incomplete character.
    rest: Vec<u8>,
}

/// Runs the program as an interactive shell does, which lives longer than the program. When the first program of a
/// terminal ends, the system discards output that has not been read. The shell therefore reports the end of the
/// program, and waits until the test has seen it.
const SHELL: &str = r#"trap : INT; "$0" "$@"; code=$?; printf '\036' >&2; read -r _; exit $code"#;

/// The shell's report. No program prints it.
const ENDED: &str = "\u{1e}";

impl Screen {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, |command| command.stdout(Stdio::piped()))
    }

    /// With stdout on the screen too.
    pub(crate) fn start_all(args: &[&str]) -> Self {
        Self::start_with(args, |command| command)
    }

    fn start_with(args: &[&str], adapt: impl FnOnce(Command) -> Command) -> Self {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(60, 80)).unwrap();
        let command =
            Command::new("sh").args(["-c", SHELL, env!("CARGO_BIN_EXE_rounds")]).args(args).kill_on_drop(true);
        let command =
            command.env_remove("RUST_LOG").env_remove("ROUNDS_BEARER").env("NO_COLOR", "1").env("TERM", "xterm");
        let child = adapt(command).spawn(pts).unwrap();
        Self { pty, child, shown: String::new(), rest: Vec::new() }
    }

    /// Waits until this is shown, and returns everything shown since the last call, up to and including it.
    pub(crate) async fn see(&mut self, text: &str) -> String {
        let found = timeout(LIMIT, self.find(text)).await;
        found.unwrap_or_else(|_| panic!("expected {text:?}, got {:?}", self.shown))
    }

    async fn find(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(self.read().await, "it ended without {text:?}; it showed {:?}", self.shown);
        }
    }

    /// Types a line.
    pub(crate) async fn say(&mut self, line: &str) {
        self.press(&format!("{line}\n")).await;
    }

    /// Types these keys.
    pub(crate) async fn press(&mut self, keys: &str) {
        in_time("to type", self.pty.write_all(keys.as_bytes())).await.unwrap();
    }

    /// Agrees to the program's own question, and does not answer a server's question. The whole screen is returned as
    /// stderr.
    pub(crate) async fn left(mut self) -> Ended {
        let mut shown = String::new();
        while !self.shown.contains(ENDED) {
            if self.shown.ends_with("> ") {
                let asked = std::mem::take(&mut self.shown);
                self.press(if asked.contains("Continue?") { "yes\n" } else { "\u{4}" }).await;
                shown += &asked;
            }
            assert!(in_time("the end", self.read()).await, "it showed {shown:?}");
        }
        let ended = self.ended().await;
        Ended { stderr: shown + &ended.stderr, ..ended }
    }

    /// Waits until it has ended. What was shown since the last call is returned as stderr.
    pub(crate) async fn ended(mut self) -> Ended {
        let shown = self.see(ENDED).await;
        self.press("\n").await;
        in_time("the end", async {
            let mut stdout = String::new();
            if let Some(mut pipe) = self.child.stdout.take() {
                pipe.read_to_string(&mut stdout).await.unwrap();
            }
            let code = self.child.wait().await.unwrap().code();
            Ended { code, stdout, stderr: shown.trim_end_matches(ENDED).to_owned() }
        })
        .await
    }

    /// Reads more output, and returns whether there was any. On Linux, a terminal without a writer returns an error.
    async fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let count = self.pty.read(&mut bytes).await.unwrap_or(0);
        self.rest.extend(&bytes[..count]);
        let whole = self.rest.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
        let rest = self.rest.split_off(whole);
        self.shown.push_str(&String::from_utf8(std::mem::replace(&mut self.rest, rest)).unwrap());
        count > 0
    }
}
