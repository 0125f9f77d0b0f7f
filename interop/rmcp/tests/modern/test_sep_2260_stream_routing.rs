// Appended to rmcp's test of the same name: its server, which elicits through `context.peer`, with a modern client in place
// of a legacy one.

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{ClientConfig, ElicitResult, ElicitationAction, ProtocolVersion},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};

#[derive(Clone)]
struct ElicitedClient(tokio::sync::mpsc::UnboundedSender<ElicitRequestParams>);

impl ClientHandler for ElicitedClient {
    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, McpError> {
        self.0.send(params).unwrap();
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    fn get_info(&self) -> ClientConfig {
        rmcp::declare_everything()
    }
}

#[tokio::test]
async fn a_modern_client_is_elicited() {
    let ct = CancellationToken::new();
    let config = StreamableHttpClientTransportConfig::with_uri(start_server(ct.clone()).await);
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let client = ElicitedClient(asked)
        .serve_with_lifecycle(
            StreamableHttpClientTransport::from_config(config),
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        )
        .await
        .unwrap();
    let result = client.call_tool(CallToolRequestParams::new("ask")).await.unwrap();
    assert_eq!(result.content[0].as_text().unwrap().text, "done");
    match (rmcp::asks_modern_clients(), asks.try_recv()) {
        (true, Ok(ElicitRequestParams::FormElicitationParams { message, .. })) => assert_eq!(message, "need input"),
        (false, Err(_)) => {}
        (expected, asked) => panic!("asked: {asked:?}, expected: {expected}"),
    }
    client.cancel().await.unwrap();
    ct.cancel();
}
