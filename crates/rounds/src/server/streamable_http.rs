//! [`Rounds::streamable_http`]: one server behind every HTTP request.

use std::sync::Arc;

use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};

use super::{
    http::{Sessions, with_own_origins},
    rounds::Rounds,
};

impl<H: ServerHandler> Rounds<H> {
    /// Makes an HTTP service of this server, to be mounted in axum, hyper or any tower stack.
    ///
    /// rmcp calls a factory for every legacy session and for every request of a modern client. The factory here clones
    /// the server, so every request uses the same keys, the same ledger and the same waiting handlers. All requests use
    /// the same handler too, unless the server was built with [`per_session`](crate::RoundsBuilder::per_session) or
    /// [`per_flow`](crate::RoundsBuilder::per_flow). Legacy sessions live longer than a flow: rmcp's default would end
    /// them while the user thinks.
    ///
    /// Requests of web pages are served if the page comes from one of the configuration's
    /// [`allowed_hosts`](StreamableHttpServerConfig::allowed_hosts), at the port that is named there or else at any
    /// port, or from one of its [`allowed_origins`](StreamableHttpServerConfig::allowed_origins). Other pages get a
    /// 403. With [`disable_allowed_hosts`](StreamableHttpServerConfig::disable_allowed_hosts) the server's own names
    /// are not known, and only listed origins are served. Requests without an `Origin` header are not affected; only
    /// browsers send it. To serve any origin, build rmcp's service by hand.
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
        // Without sessions rmcp would serve legacy clients too, each request on its own.
        config.legacy_session_mode |= self.core().modern_only;
        StreamableHttpService::new(move || Ok(server.clone()), Arc::new(self.sessions()), config)
    }

    /// The sessions of this server's legacy clients, for a service of rmcp that you build by hand:
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
    /// [The limits](crate::Limits::with_sessions) are those of the server: the sessions of the server and of all its
    /// clones count together.
    pub fn sessions(&self) -> Sessions {
        Sessions::of(self.core())
    }
}
