//! Serving over streamable HTTP, with one `Rounds` behind every request.

pub(crate) mod sessions;

use std::{net::Ipv6Addr, sync::Arc};

use ::http::uri::Authority;
use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};

pub use self::sessions::{SessionTransport, Sessions};
use crate::server::Rounds;

impl<H: ServerHandler> Rounds<H> {
    /// This server as an HTTP service, to be mounted in axum, hyper or any tower stack.
    ///
    /// rmcp calls a factory for every legacy session and for every request of a modern client. The factory here clones, so that every request
    /// meets the same keys, the same ledger and the same waiting handlers. All requests meet the same handler too, unless the server was built with
    /// [`per_session`](crate::RoundsBuilder::per_session) or [`per_flow`](crate::RoundsBuilder::per_flow). Legacy sessions live longer than a flow:
    /// rmcp's default would end them while a person thinks.
    ///
    /// Web pages are served that come from one of the configuration's [`allowed_hosts`](StreamableHttpServerConfig::allowed_hosts), at the port that is named there or at
    /// any, and those of its [`allowed_origins`](StreamableHttpServerConfig::allowed_origins). Pages from elsewhere get a 403. With
    /// [`disable_allowed_hosts`](StreamableHttpServerConfig::disable_allowed_hosts) the server's own names are not known, and only listed origins are served. Requests
    /// without an `Origin`, which is every client but a browser, are not concerned. To serve any origin, build rmcp's service by hand.
    ///
    /// ```no_run
    /// # async fn serve(server: rounds::Rounds<impl rmcp::ServerHandler>) -> std::io::Result<()> {
    /// use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
    ///
    /// let mcp = server.streamable_http(StreamableHttpServerConfig::default());
    /// // axum: Router::new().nest_service("/mcp", mcp)
    /// # let _ = mcp; Ok(()) }
    /// ```
    pub fn streamable_http(&self, config: StreamableHttpServerConfig) -> StreamableHttpService<Self, Sessions> {
        let (server, mut config) = (self.clone(), with_own_origins(config));
        // Without sessions rmcp would serve legacy clients too, each request by itself.
        config.legacy_session_mode |= self.core().modern_only;
        StreamableHttpService::new(move || Ok(server.clone()), Arc::new(self.sessions()), config)
    }

    /// The sessions of this server's legacy clients, for a service of rmcp's that you build by hand:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
    /// # use rounds::Rounds;
    /// # struct Weather;
    /// # impl rmcp::ServerHandler for Weather {}
    /// let server = Rounds::new(Weather);
    /// let sessions = Arc::new(server.sessions());
    /// let factory = move || Ok(server.clone());
    /// let service = StreamableHttpService::new(factory, sessions, StreamableHttpServerConfig::default());
    /// # let _ = service;
    /// ```
    ///
    /// [The limits](crate::Limits::with_sessions) are those of the server: all that were made by it and by its clones count together.
    pub fn sessions(&self) -> Sessions {
        Sessions::of(self.core())
    }
}

/// Lets pages in that are from an allowed host. rmcp looks at the list alone, and lets everything in when it is empty.
fn with_own_origins(mut config: StreamableHttpServerConfig) -> StreamableHttpServerConfig {
    for host in &config.allowed_hosts {
        let host = host.trim();
        let is_ipv6 = host.parse::<Ipv6Addr>().is_ok();
        let host = if is_ipv6 { format!("[{host}]") } else { host.to_owned() };
        let port = match host.parse::<Authority>().map(|authority| authority.port_u16()) {
            Ok(Some(_)) => "",
            Ok(None) => ":*",
            // It is no host that a request could have.
            Err(_) => continue,
        };
        config.allowed_origins.extend(["http", "https"].map(|scheme| format!("{scheme}://{host}{port}")));
    }
    config.enforce_origin_validation()
}
