//! Servers that are a service of rmcp's and not a handler.

use std::sync::Arc;

use rmcp::{RoleServer, ServiceExt, handler::server::router::Router, service::DynService};
use rounds::{Rounds, RoundsBuilder, service::AnyService, test::Client};
use serde_json::json;

use crate::{Old, delete_all};

fn builder(service: AnyService) -> RoundsBuilder<AnyService> {
    Rounds::builder(service).pushes()
}

#[tokio::test]
async fn a_router_and_a_service_behind_a_pointer_ask_clients_of_both_eras() {
    let boxed: Box<dyn DynService<RoleServer>> = Old(delete_all).into_dyn();
    let shared: Arc<dyn DynService<RoleServer>> = Arc::new(Old(delete_all));
    for service in [AnyService::new(Router::new(Old(delete_all))), AnyService::new(boxed), AnyService::from(shared)] {
        let server = builder(service).build().unwrap();
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
