//! The servers of the comparison that are built here, each a process of its own: this program, started once more.

mod floor;
mod theirs;

use std::{env, error::Error, process::ExitCode};

use axum::{Router, serve::ListenerExt};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::{Rounds, ledger::MemoryLedger};
use rounds_http::Endpoint;
use tokio::net::TcpListener;

/// How many claims the ledger holds: more than the default of 100,000, which a closed loop fills within the lifetime of a
/// round. Nothing else is changed.
pub(crate) const CLAIMS: usize = 4_000_000;

/// Where a process finds what it was started for.
pub(super) const STACK: &str = "ROUNDS_BENCH_STACK";

/// What can be served. Another HTTP stack is another line of each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// A handler of axum that only parses and prints JSON: the floor.
    Axum,
    /// Bare rmcp, with its own codec for the state.
    Rmcp,
    /// The gallery, through the endpoint of `rounds-http`.
    Endpoint,
    /// The gallery, over rmcp's HTTP service.
    RoundsOverRmcp,
    /// What the gallery has not: a durable tool with no effect, through the endpoint.
    Durable,
}

impl Stack {
    const ALL: [Self; 5] = [Self::Axum, Self::Rmcp, Self::Endpoint, Self::RoundsOverRmcp, Self::Durable];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Axum => "axum",
            Self::Rmcp => "rmcp",
            Self::Endpoint => "endpoint",
            Self::RoundsOverRmcp => "rounds-over-rmcp",
            Self::Durable => "durable",
        }
    }

    /// What this process was started for, if it was started from here.
    pub(crate) fn of_this_process() -> Option<Self> {
        let name = env::var(STACK).ok()?;
        Self::ALL.into_iter().find(|stack| stack.name() == name)
    }

    /// Serves at a free port, until killed.
    pub(crate) async fn run(self) -> ExitCode {
        let Err(error) = self.serve().await else { return ExitCode::SUCCESS };
        eprintln!("bench: cannot serve {}: {error}", self.name());
        ExitCode::FAILURE
    }

    async fn serve(self) -> Result<(), Box<dyn Error>> {
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        let router = Router::new();
        let router = match self {
            Self::Axum => floor::route(router),
            Self::Rmcp => router.route_service("/mcp", theirs::service(config)?),
            Self::Endpoint => router.route_service("/mcp", Endpoint::new(&gallery()?, config)),
            Self::RoundsOverRmcp => router.route_service("/mcp", gallery()?.streamable_http(config)),
            Self::Durable => {
                let durable = Rounds::builder(counts::Weather::new()).ledger(ledger()).build()?;
                router.route_service("/mcp", Endpoint::new(&durable, config))
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}/mcp", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        Ok(axum::serve(listener, router).await?)
    }
}

fn gallery() -> Result<Rounds<gallery::Gallery>, Box<dyn Error>> {
    Ok(gallery::rounds().ledger(ledger()).build()?)
}

fn ledger() -> MemoryLedger {
    MemoryLedger::with_limits(CLAIMS, MemoryLedger::REPLY_BYTES)
}
