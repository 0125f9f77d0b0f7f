//! Serving over streamable HTTP, with one `Rounds` behind every request.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

use crate::Rounds;

/// How much longer than a flow a legacy session lives when nobody says anything.
const GRACE: Duration = Duration::from_secs(60);

impl<H: ServerHandler> Rounds<H> {
    /// This server as an HTTP service, to be mounted in axum, hyper or any tower stack.
    ///
    /// rmcp calls a factory for every legacy session and for every request of a modern client. The factory here clones, so that every request
    /// meets the same keys, the same ledger and the same waiting handlers. All requests meet the same handler too, unless the server was built with
    /// [`per_session`](crate::RoundsBuilder::per_session) or [`per_flow`](crate::RoundsBuilder::per_flow). Legacy sessions live longer than a flow:
    /// rmcp's default would end them while a person thinks.
    ///
    /// ```no_run
    /// # async fn serve(server: rounds::Rounds<impl rmcp::ServerHandler>) -> std::io::Result<()> {
    /// use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
    ///
    /// let mcp = server.streamable_http(StreamableHttpServerConfig::default());
    /// // axum: Router::new().nest_service("/mcp", mcp)
    /// # let _ = mcp; Ok(()) }
    /// ```
    pub fn streamable_http(
        &self,
        config: StreamableHttpServerConfig,
    ) -> StreamableHttpService<Self, LocalSessionManager> {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(self.flow_deadline().saturating_add(GRACE));
        let server = self.clone();
        StreamableHttpService::new(move || Ok(server.clone()), Arc::new(sessions), config)
    }
}
