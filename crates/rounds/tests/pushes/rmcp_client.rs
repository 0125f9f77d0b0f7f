//! rmcp's own client of 2026-07-28, which answers rounds with the methods that used to answer requests.

#![expect(deprecated, reason = "servers that exist sample and ask for roots")]

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient, RoleServer,
    model::{
        CallToolRequestParams, ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
        ElicitRequestParams, ElicitResult, ElicitationAction, Implementation, ListRootsResult, ProtocolVersion, Root,
        SamplingMessage,
    },
    service::RequestContext,
};
use rounds::Rounds;
use rounds_testkit::in_time;
use serde_json::json;

use crate::{Old, Sure};

struct Modern;

impl ClientHandler for Modern {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().enable_sampling().enable_roots().build();
        ClientConfig::new(capabilities, Implementation::from_build_env())
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let mut result = ElicitResult::new(ElicitationAction::Accept);
        result.content = Some(json!({"sure": true}));
        Ok(result)
    }

    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("yes"), "m1".to_owned()))
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///a")]))
    }
}

#[tokio::test]
async fn rmcps_own_modern_client_answers_elicitation_sampling_and_roots() {
    let server = Rounds::builder(Old(async |context: RequestContext<RoleServer>| {
        let sure = context.peer.elicit::<Sure>("Sure?").await.unwrap().unwrap().sure;
        let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text("Say hi")], 10);
        let (said, roots) = tokio::join!(context.peer.create_message(params), context.peer.list_roots());
        Ok(format!("{sure} {} {}", said.unwrap().model, roots.unwrap().roots[0].uri))
    }));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let server = server.pushes().build().unwrap();
    tokio::spawn(async move { rmcp::ServiceExt::serve(server, theirs).await.unwrap().waiting().await });
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let client = in_time(Modern.serve_with_lifecycle(ours, lifecycle)).await.unwrap();
    let result = in_time(client.call_tool(CallToolRequestParams::new("all"))).await.unwrap();
    assert_eq!(result.content[0].as_text().unwrap().text, "true m1 file:///a");
}
