// Appended to rmcp's test of the same name: its server, which asks for sampling through `context.peer`, with a modern
// client that declares sampling. A ping cannot be asked in a round.

#[derive(Clone)]
struct DeclaringClient;

impl ClientHandler for DeclaringClient {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, rmcp::ErrorData> {
        assert_eq!(params.messages, [SamplingMessage::user_text("nested")]);
        SamplingClient.create_message(params, context).await
    }

    fn get_info(&self) -> ClientConfig {
        let mut info = rmcp::declare_everything();
        info.protocol_version = ProtocolVersion::V_2026_07_28;
        info
    }
}

#[tokio::test]
async fn a_modern_client_is_asked_for_sampling_in_both_ways_of_sending_it() -> anyhow::Result<()> {
    let (server_transport, client_transport) = tokio::io::duplex(4096);
    let mut server_info = SamplingServer.get_info();
    server_info.protocol_version = ProtocolVersion::V_2026_07_28;
    let (server_info, client_info) = (Some(server_info.into()), Some(DeclaringClient.get_info()));
    let _server = serve_directly::<RoleServer, _, _, _, _>(SamplingServer, server_transport, client_info);
    let client = serve_directly::<RoleClient, _, _, _, _>(DeclaringClient, client_transport, server_info);
    let sampled = if rmcp::asks_modern_clients() { "sent" } else { "rejected" };
    for (tool, outcome) in [("sample", sampled), ("sample_generic", sampled), ("ping", "rejected")] {
        let result = client.call_tool(CallToolRequestParams::new(tool)).await?;
        assert_eq!(result.content[0].as_text().unwrap().text, outcome, "{tool}");
    }
    client.cancel().await?;
    Ok(())
}
