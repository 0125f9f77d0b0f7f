//! A server in a separate process, and the CPU time that the system has charged to it.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use crate::alone::Failure;

/// What a server prints once it can be reached.
const SAYS: &str = "http://";

pub(crate) struct Server {
    process: Child,
    account: ClockId,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a program that prints the URL at which it listens, and waits until it has printed it.
    pub(crate) fn start(mut command: Command) -> Result<Self, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let address = process.stdout.take().and_then(|stdout| announced(BufReader::new(stdout)));
        let Some(address) = address else {
            let _ = process.kill();
            let _ = process.wait();
            return Err(format!("{program} ended before it printed its address").into());
        };
        let account = clock_getcpuclockid(Pid::from_raw(process.id().try_into()?))?;
        Ok(Self { process, account, address })
    }

    /// The CPU time of the process so far: of all its threads, in user and kernel mode.
    pub(crate) fn cpu(&self) -> nix::Result<Duration> {
        Ok(self.account.now()?.into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address in the first line that has one.
fn announced(output: impl BufRead) -> Option<SocketAddr> {
    output.lines().map_while(Result::ok).find_map(|line| {
        let (_, url) = line.split_once(SAYS)?;
        url.split('/').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_where_it_says() {
        let output = "starting\nlistening on http://127.0.0.1:8000/mcp, until killed\n";
        assert_eq!(announced(output.as_bytes()), Some(SocketAddr::from(([127, 0, 0, 1], 8000))));
        assert_eq!(announced("sorry\n".as_bytes()), None);
    }
}
