// Appended to rmcp's test of the same name: its server, which asks for sampling through `context.peer`, with a modern
// client that declares sampling.

#[derive(Clone)]
struct DeclaringClient;

impl ClientHandler for DeclaringClient {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, rmcp::ErrorData> {
        assert_eq!(params.messages, [SamplingMessage::user_text("Should we proceed?")]);
        AnsweringClient.create_message(params, context).await
    }

    fn get_info(&self) -> rmcp::model::ClientConfig {
        rmcp::declare_everything()
    }
}

#[tokio::test]
async fn a_modern_client_over_http_is_asked_for_sampling() {
    let ct = CancellationToken::new();
    let config = StreamableHttpClientTransportConfig::with_uri(spawn_server(&ct).await);
    let client = DeclaringClient
        .serve_with_lifecycle(
            StreamableHttpClientTransport::from_config(config),
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        )
        .await
        .unwrap();
    let result = client.call_tool(CallToolRequestParams::new("ask")).await;
    match rmcp::asks_modern_clients() {
        true => assert_eq!(result.unwrap().content[0].as_text().unwrap().text, "done"),
        false => assert!(result.unwrap_err().to_string().contains("InputRequiredResult")),
    }
    client.cancel().await.unwrap();
    ct.cancel();
}
