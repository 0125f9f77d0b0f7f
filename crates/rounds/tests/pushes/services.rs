//! Servers that are a service of rmcp's and not a handler.

use std::sync::Arc;

use rmcp::{
    RoleServer, ServerHandler, ServiceExt,
    handler::server::{
        router::{Router, tool::ToolRoute},
        tool::ToolCallContext,
    },
    model::{CallToolResult, ContentBlock, Tool},
    service::DynService,
};
use rounds::{Rounds, service::AnyService, test::Client};
use serde_json::json;

use crate::{Old, delete_all};

/// A handler without tools, to which a router adds one.
struct Bare;

impl ServerHandler for Bare {}

fn router() -> Router<Bare> {
    let tool = Tool::new("delete_all", "Deletes everything", rmcp::object!({"type": "object"}));
    Router::new(Bare).with_tool(ToolRoute::new_dyn(tool, |context: ToolCallContext<'_, Bare>| {
        Box::pin(async move {
            let text = delete_all(context.request_context).await?;
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
        })
    }))
}

#[tokio::test]
async fn a_router_and_a_service_behind_a_pointer_ask_clients_of_both_eras() {
    let boxed: Box<dyn DynService<RoleServer>> = Old(delete_all).into_dyn();
    let shared: Arc<dyn DynService<RoleServer>> = Arc::new(Old(delete_all));
    for service in [AnyService::new(router()), AnyService::new(boxed), AnyService::from(shared)] {
        let server = Rounds::builder(service).pushes().build().unwrap();
        let client = Client::modern(server.clone()).await;
        let why = client.call("delete_all", json!({})).await.asked();
        let why = why.accept("sure", json!({"sure": true})).send(&client).await.asked();
        assert_eq!(why.accept("why", json!({"why": "space"})).send(&client).await.text(), "deleted, because space");
        let failed = client.request("tools/list", json!({})).await;
        assert!(failed.response().get("result").is_some(), "{failed:?}");

        let client = Client::legacy(server).await;
        let call = client.start("tools/call", json!({"name": "delete_all"})).await;
        client.pushed().await.unwrap().answer(json!({"action": "decline"})).await;
        assert_eq!(call.finish().await.text(), "kept");
    }
}
