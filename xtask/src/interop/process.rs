//! Processes that may hang, and their output. Every wait has a limit, and every process is stopped at the end.

use std::{
    fmt::Display,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

/// A server on a free port. It is stopped when this is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) url: String,
    log: Option<JoinHandle<String>>,
}

/// Far longer than a server takes to start, which is a second or two.
const START: Duration = Duration::from_secs(30);

impl Server {
    /// Starts it, and waits until it prints its address.
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        let name = command.get_program().display().to_string();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut server = Self { url: String::new(), log: None, child };
        let Some(stderr) = server.child.stderr.take() else {
            return Err("the server has no stderr".to_owned());
        };
        let (tell, told) = mpsc::channel();
        server.log = Some(thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            // The receiver may have given up.
            let _ = tell.send(read_url(&mut stderr));
            // The output must be read on, or the server would block on a full pipe in the middle of a request.
            read_rest(stderr)
        }));
        let said = told.recv_timeout(START);
        server.url = said.map_err(|_| format!("{name} does not print its address"))??;
        Ok(server)
    }

    /// Stops it, and returns its log.
    fn stop(mut self) -> String {
        self.end();
        self.log.take().and_then(|log| log.join().ok()).unwrap_or_default()
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads up to the line with the address.
fn read_url(stderr: &mut impl BufRead) -> Result<String, String> {
    let mut said = String::new();
    loop {
        let start = said.len();
        match stderr.read_line(&mut said) {
            Ok(0) => return Err(format!("the server ended before it was ready: {said}")),
            Ok(_) => {}
            Err(error) => return Err(format!("cannot read the output of the server: {error}")),
        }
        if let Some(url) = said[start..].strip_prefix("listening on ") {
            return Ok(url.trim_end().to_owned());
        }
    }
}

fn read_rest(mut stderr: BufReader<ChildStderr>) -> String {
    let mut log = Vec::new();
    // What could be read before an error is better than nothing.
    let _ = stderr.read_to_end(&mut log);
    String::from_utf8_lossy(&log).into_owned()
}

/// The output of a peer. It goes to a file, so that no thread has to read it while the peer runs.
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn new(folder: &Path, name: impl Display) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self(folder.join(format!("{name}.log"))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The line in which a script of ours reports what it exercised.
    pub(super) fn exercised(&self) -> Result<String, String> {
        let said = self.read();
        let line = said.lines().rev().find_map(|line| line.strip_prefix("exercised: "));
        line.map(str::to_owned).ok_or_else(|| self.alone("the peer does not report what it exercised"))
    }

    /// A problem, with the output of the peer and the log of the server.
    pub(super) fn with(&self, problem: &str, server: Server) -> String {
        format!("{}\nwhat the server logged:\n{}", self.alone(problem), server.stop())
    }

    pub(crate) fn alone(&self, problem: &str) -> String {
        format!("{}\n{problem}", self.read())
    }

    pub(crate) fn read(&self) -> String {
        fs::read(&self.0).map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default()
    }

    /// The file for both streams of a peer, in the order in which it writes to them.
    fn streams(&self) -> io::Result<(File, File)> {
        let file = File::create(&self.0)?;
        let other = file.try_clone()?;
        Ok((file, other))
    }
}

/// Runs a peer, which may hang, for example while it waits for a question that never comes.
pub(crate) fn in_time(mut command: Command, limit: Duration, log: &Log) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let (stdout, stderr) = log.streams().map_err(|error| format!("cannot write {}: {error}", log.0.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the peer failed ({status})")),
            Ok(None) if began.elapsed() < limit => sleep(Duration::from_millis(20)),
            waiting => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match waiting {
                    Err(error) => format!("cannot wait for {name}: {error}"),
                    _ => format!("the peer still runs after {} s", limit.as_secs_f64()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_the_one_that_the_server_says() {
        let said = "a warning\nlistening on http://127.0.0.1:4711/mcp\nmore\n";
        assert_eq!(read_url(&mut said.as_bytes()).as_deref(), Ok("http://127.0.0.1:4711/mcp"));
        let ended = read_url(&mut &b"no port is free\n"[..]);
        assert_eq!(ended.unwrap_err(), "the server ended before it was ready: no port is free\n");
    }

    #[test]
    fn a_peer_that_waits_for_what_never_comes_is_stopped() {
        let log = Log::new(&std::env::temp_dir(), std::process::id() as usize).unwrap();
        let run = |script: &str, limit| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            in_time(shell, limit, &log)
        };
        let limit = Duration::from_secs(60);
        assert_eq!(run("exec sleep 60", Duration::from_millis(50)).unwrap_err(), "the peer still runs after 0.05 s");
        assert!(run("echo so far; false", limit).unwrap_err().starts_with("the peer failed"));
        assert!(log.exercised().unwrap_err().contains("so far"));
        assert_eq!(run("echo exercised: it all; echo bye", limit), Ok(()));
        assert_eq!(log.exercised().as_deref(), Ok("it all"));
        fs::remove_file(log.path()).unwrap();
    }
}
