//! Limits on slow clients and on the number of clients.

use std::time::Duration;

use clap::Args;
use rmcp::{ServerHandler, transport::streamable_http_server::StreamableHttpServerConfig};
use rounds::Rounds;
use rounds_http::{Endpoint, Port};

use crate::duration;

/// How long clients may take, how many may be connected, and how much they may send. `rounds_http::Port` and
/// `rounds_http::Endpoint` document each option.
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
    /// Bytes of requests that have not arrived completely, on all connections together [default: 268435456]
    #[arg(long, value_name = "BYTES")]
    unfinished_bytes: Option<usize>,
    /// Bytes of the body of a request [default: 4194304]
    #[arg(long, value_name = "BYTES")]
    body_bytes: Option<usize>,
    /// JSON values in the body of a request [default: 50000]
    #[arg(long, value_name = "NUMBER")]
    json_values: Option<usize>,
}

impl CrowdOptions {
    pub(crate) fn set_up(&self, port: Port) -> Port {
        let port = port
            .with_header_timeout(self.header_timeout)
            .with_body_timeout(self.body_timeout)
            .with_write_stall(self.write_stall)
            .with_keep_alive(self.keep_alive);
        let port = match self.unfinished_bytes {
            Some(bytes) => port.with_unfinished_bytes(bytes),
            None => port,
        };
        match self.connections {
            Some(connections) => port.with_connections(connections as usize),
            None => port,
        }
    }

    pub(crate) fn configure(&self, mut config: StreamableHttpServerConfig) -> StreamableHttpServerConfig {
        if let Some(bytes) = self.body_bytes {
            config.max_request_body_bytes = bytes;
        }
        config
    }

    pub(crate) fn limit<H: ServerHandler>(&self, endpoint: Endpoint<Rounds<H>>) -> Endpoint<Rounds<H>> {
        match self.json_values {
            Some(values) => endpoint.with_json_values(values),
            None => endpoint,
        }
    }
}
