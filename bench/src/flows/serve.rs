//! The servers of the comparison that are built here, each a program of its own: `bench serve NAME`.

mod floor;
mod theirs;

use std::error::Error;

use axum::{Router, serve::ListenerExt};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rounds::ledger::MemoryLedger;
use tokio::net::TcpListener;

/// How many claims the ledger holds: more than the default of 100,000, which a closed loop fills within the lifetime of a
/// round. Nothing else is changed.
pub(crate) const CLAIMS: usize = 4_000_000;

/// What can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// A handler of axum that only parses and prints JSON: the floor.
    Axum,
    /// Bare rmcp, with its own codec for the state.
    Rmcp,
    /// The gallery, over rmcp's HTTP service.
    RoundsOverRmcp,
}

impl Stack {
    const ALL: [Self; 3] = [Self::Axum, Self::Rmcp, Self::RoundsOverRmcp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Axum => "axum",
            Self::Rmcp => "rmcp",
            Self::RoundsOverRmcp => "rounds-over-rmcp",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stack| stack.name() == name)
    }

    /// Serves at a free port, until killed.
    pub(crate) async fn serve(self) -> Result<(), Box<dyn Error>> {
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        let router = Router::new();
        let router = match self {
            Self::Axum => floor::route(router),
            Self::Rmcp => router.route_service("/mcp", theirs::service(config)?),
            Self::RoundsOverRmcp => router.route_service("/mcp", gallery()?.streamable_http(config)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}/mcp", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        Ok(axum::serve(listener, router).await?)
    }
}

fn gallery() -> Result<rounds::Rounds<gallery::Gallery>, Box<dyn Error>> {
    let ledger = MemoryLedger::with_limits(CLAIMS, MemoryLedger::REPLY_BYTES);
    Ok(gallery::rounds().ledger(ledger).build()?)
}
