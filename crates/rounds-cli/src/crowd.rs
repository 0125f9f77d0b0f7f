//! Limits on slow clients and on the number of clients.

use std::time::Duration;

use clap::Args;
use rounds_http::Port;

use crate::duration;

/// How long clients may take, and how many may be connected. `rounds_http::Port` documents each option.
#[derive(Debug, Args)]
#[command(next_help_heading = "Slow clients, with --http")]
pub(crate) struct CrowdOptions {
    /// How long the head of a request may take to arrive; on a new connection, counted from its acceptance
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    header_timeout: Duration,
    /// How long the whole body of a request may take to arrive
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    body_timeout: Duration,
    /// How long a client may read nothing of a response
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    write_stall: Duration,
    /// How long a connection may be idle between two requests
    #[arg(long, value_name = "DURATION", default_value = "75s", value_parser = duration::parse)]
    keep_alive: Duration,
    /// How many clients may be connected [default: 10000, or what `ulimit -n` allows minus a reserve]
    ///
    /// At the limit, the connection that has waited longest for a request is closed to admit a new one.
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
