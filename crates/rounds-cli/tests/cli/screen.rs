//! `rounds` on a pseudo-terminal, as a person has it: what they see, and what they type. Whatever is waited for is waited
//! for with a limit.

use std::process::Stdio;

use pty_process::{Command, Pty, Size};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Child,
    time::timeout,
};

use crate::process::{Ended, LIMIT, in_time};

/// A terminal of 80 columns. stdout is a pipe: what is on the screen is not the result.
pub(crate) struct Screen {
    pty: Pty,
    child: Child,
    /// What was shown and not yet looked at.
    shown: String,
    /// The end of what was read, if it is in the middle of a character.
    rest: Vec<u8>,
}

/// Runs the program as a shell does that a person has in a terminal: it is there before it and after it. The system takes back
/// what is shown and not yet read when the first program of a terminal ends, and so that one says when the other has ended, and
/// waits until that was seen.
const SHELL: &str = r#"trap : INT; "$0" "$@"; code=$?; printf '\036' >&2; read -r _; exit $code"#;

/// What it says then. No program shows it.
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

    /// Waits until this is shown, and gives all that was shown since the last time, up to and with it.
    pub(crate) async fn see(&mut self, text: &str) -> String {
        let found = timeout(LIMIT, self.find(text)).await;
        found.unwrap_or_else(|_| panic!("{text:?} is not shown, but {:?}", self.shown))
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

    /// Types this.
    pub(crate) async fn press(&mut self, keys: &str) {
        in_time("to type", self.pty.write_all(keys.as_bytes())).await.unwrap();
    }

    /// Agrees to what the program asks, and answers nothing that a server asks. All that was shown stands in for stderr.
    pub(crate) async fn left(mut self) -> Ended {
        let mut shown = String::new();
        while !self.shown.contains(ENDED) {
            if self.shown.ends_with("> ") {
                let asked = std::mem::take(&mut self.shown);
                self.press(if asked.contains("Go on?") { "yes\n" } else { "\u{4}" }).await;
                shown += &asked;
            }
            assert!(in_time("the end", self.read()).await, "it showed {shown:?}");
        }
        let ended = self.ended().await;
        Ended { stderr: shown + &ended.stderr, ..ended }
    }

    /// Waits for the end. What was shown since the last time stands in for stderr.
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

    /// Reads some more; whether there was some. A terminal that nobody writes to any more is an error on Linux.
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
