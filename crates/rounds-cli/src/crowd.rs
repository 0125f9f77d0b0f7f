//! What slow clients, and many of them, may take of a port.

use std::time::Duration;

use clap::Args;
use rounds_http::Port;

use crate::duration;

/// How long clients may take, and how many there may be. `rounds_http::Port` says more about each.
#[derive(Debug, Args)]
#[command(next_help_heading = "Slow clients, with --http")]
pub(crate) struct CrowdOptions {
    /// How long the head of a request may take to arrive, on a new connection from the moment it is accepted
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    header_timeout: Duration,
    /// How long the body of a request may take to arrive, all of it
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    body_timeout: Duration,
    /// How long a client may read nothing of a response
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    write_stall: Duration,
    /// How long a connection may be idle between two requests
    #[arg(long, value_name = "DURATION", default_value = "75s", value_parser = duration::parse)]
    keep_alive: Duration,
    /// How many connections there may be [default: 10000, or what `ulimit -n` allows less a reserve]
    ///
    /// At the limit, the connection that has waited longest for a request is closed for a new one.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
}

impl CrowdOptions {
    pub(crate) fn set_up(&self, port: Port) -> Port {
        let port = port
            .with_header_timeout(self.header_timeout)
            .with_body_timeout(self.body_timeout)
            .with_write_stall(self.write_stall)
            .with_keep_alive(self.keep_alive);
        match self.connections {
            Some(connections) => port.with_connections(connections as usize),
            None => port,
        }
    }
}
