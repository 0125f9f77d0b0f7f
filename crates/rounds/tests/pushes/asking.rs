//! What is asked, of whom, and how often.

use rmcp::{
    ErrorData, RoleServer,
    model::ElicitationAction,
    service::{ElicitationError, RequestContext, ServiceError},
};
use rounds::{Era, Rounds, confirm::Confirm, test::Client};
use rounds_testkit::in_time;
use serde_json::json;

use crate::{Old, Sure, delete_all, stage, stage_with, without};

#[tokio::test]
async fn a_request_through_the_peer_is_a_question_of_a_round() {
    let stage = stage(delete_all);
    let client = stage.modern().await;
    let asked = client.call("delete_all", json!({})).await.asked();
    assert_eq!(asked.keys(), ["sure"]);
    assert_eq!(
        asked.question("sure").raw(),
        &json!({"method": "elicitation/create", "params": {
            "mode": "form", "message": "Delete everything?",
            "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"],
                "$schema": asked.schema("sure")["$schema"], "title": "Sure"},
        }}),
        "and nothing of what rmcp adds to a request"
    );
    let why = asked.accept("sure", json!({"sure": true})).send(&client).await.asked();
    assert_eq!(why.message("why"), "Why?");
    let done = why.accept("why", json!({"why": "space"})).send(&client).await;
    assert_eq!(done.text(), "deleted, because space");
    assert_eq!(stage.events.runs("delete_all"), 1);
    assert_eq!(stage.server.waiting_calls(), 0);
    assert!(!client.was_pushed(), "a modern client never gets a request");
}

#[tokio::test]
async fn a_decline_and_a_cancel_reach_the_handler_as_rmcp_has_them() {
    let client = stage(delete_all).modern().await;
    for answer in ["decline", "cancel"] {
        let asked = client.call("delete_all", json!({})).await.asked();
        let hostile = json!({"action": answer, "content": {"sure": true}});
        assert_eq!(asked.retry().respond("sure", hostile).send(&client).await.text(), "kept");
    }
    let asked = client.call("delete_all", json!({})).await.asked();
    assert_eq!(asked.accept("sure", json!({"sure": false})).send(&client).await.text(), "kept");
}

#[tokio::test]
async fn the_same_handler_asks_a_legacy_client_over_its_connection() {
    let client = stage(delete_all).legacy().await;
    let call = client.start("tools/call", json!({"name": "delete_all"})).await;
    let pushed = client.pushed().await.unwrap();
    assert_eq!(pushed.params()["message"], "Delete everything?");
    pushed.answer(json!({"action": "accept", "content": {"sure": true}})).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"why": "space"}})).await;
    assert_eq!(call.finish().await.text(), "deleted, because space");
}

#[tokio::test]
async fn prompts_and_resources_ask_too() {
    let client = stage(delete_all).modern().await;
    for first in [client.prompt("delete_all", json!({})).await, client.read("files://all").await] {
        let why = first.asked().accept("sure", json!({"sure": true})).send(&client).await.asked();
        let done = why.accept("why", json!({"why": "space"})).send(&client).await;
        assert_eq!(done.text(), "deleted, because space");
    }
}

#[tokio::test]
async fn without_the_setting_rmcp_fails_as_ever() {
    let client = Client::modern(without(delete_all)).await;
    let failed = client.call("delete_all", json!({})).await;
    assert!(failed.error()["message"].as_str().unwrap().contains("capability not declared"), "{failed:?}");
}

#[tokio::test]
async fn the_setting_can_be_for_one_target() {
    let server = Rounds::builder(Old(delete_all)).pushes_for("delete_all");
    let client = Client::modern(server.build().unwrap()).await;
    let _ = client.call("delete_all", json!({})).await.asked();
    let failed = client.call("another", json!({})).await;
    assert!(failed.error()["message"].as_str().unwrap().contains("capability not declared"), "{failed:?}");
}

/// Says what it can ask, and what comes of asking anyway.
async fn tries(context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let elicited = context.peer.elicit::<Sure>("?").await;
    let elicited = matches!(elicited, Err(ElicitationError::CapabilityNotSupported));
    let url = context.peer.elicit_url("?", url("https://example.com"), "1").await;
    let url = matches!(url, Err(ElicitationError::CapabilityNotSupported));
    #[expect(deprecated, reason = "servers that exist ask for roots")]
    let Err(ServiceError::McpError(roots)) = context.peer.list_roots().await else { panic!("they were not declared") };
    let modes = context.peer.supported_elicitation_modes().len();
    Ok(format!("{elicited} {url} {modes} {}", roots.code.0))
}

fn url(text: &str) -> url::Url {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_client_that_declares_nothing_is_asked_nothing() {
    let stage = stage(tries);
    let client = Client::connect(stage.server.clone(), Era::Modern, json!({})).await;
    assert_eq!(in_time(client.call("tries", json!({}))).await.text(), "true true 0 -32600");
    assert_eq!(stage.asks(), 0);
}

#[tokio::test]
async fn a_later_leg_that_declares_less_is_not_asked() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let _ = context.peer.elicit::<Sure>("Sure?").await;
        let modes = context.peer.supported_elicitation_modes().len();
        let again = context.peer.elicit::<Sure>("Really?").await;
        Ok(format!("{modes} {}", matches!(again, Err(ElicitationError::CapabilityNotSupported))))
    });
    let client = stage.modern().await;
    let asked = client.call("sure", json!({})).await.asked();
    let less = client.declaring(json!({"elicitation": {"url": {}}}));
    assert_eq!(asked.accept("sure", json!({"sure": true})).send(&less).await.text(), "1 true");
}

#[tokio::test]
async fn a_page_a_model_and_roots_are_asked_for() {
    #[expect(deprecated, reason = "servers that exist ask for these")]
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let peer = &context.peer;
        let page = peer.elicit_url("Sign in", url("https://example.com/in"), "id-1").await.unwrap();
        let messages = vec![rmcp::model::SamplingMessage::user_text("Say hi")];
        let params = rmcp::model::CreateMessageRequestParams::new(messages, 10);
        let said = peer.create_message(params).await.unwrap();
        let roots = peer.list_roots().await.unwrap();
        Ok(format!("{} {} {}", page == ElicitationAction::Accept, said.model, roots.roots[0].uri))
    });
    let client = stage.modern().await;
    let page = client.call("all", json!({})).await.asked();
    assert_eq!(
        page.question("url")["params"],
        json!({"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "id-1"})
    );
    let model = page.retry().respond("url", json!({"action": "accept"})).send(&client).await.asked();
    assert_eq!(model.question("sample")["params"]["maxTokens"], 10);
    assert_eq!(model.question("sample")["params"].get("_meta"), None);
    let said = json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m1"});
    let roots = model.retry().respond("sample", said).send(&client).await.asked();
    assert_eq!(roots.question("roots").raw(), &json!({"method": "roots/list"}));
    let listed = json!({"roots": [{"uri": "file:///a"}]});
    assert_eq!(roots.retry().respond("roots", listed).send(&client).await.text(), "true m1 file:///a");
}

#[tokio::test]
async fn the_context_tells_the_clients_own_version_and_name() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let version = context.protocol_version().unwrap();
        let info = context.peer.peer_info().unwrap();
        Ok(format!("{version} {}", info.client_info.name))
    });
    let client = stage.modern().await;
    assert_eq!(client.call("who", json!({})).await.text(), "2026-07-28 rounds-test");
}

#[tokio::test]
async fn a_gate_is_asked_first_and_the_handler_asks_through_its_peer_after_it() {
    let stage = stage_with(delete_all, |builder| builder.confirm(Confirm::unless_read_only()));
    let client = stage.modern().await;
    let gate = client.call("delete_all", json!({})).await.asked();
    assert_eq!(gate.keys(), ["confirm_call"]);
    let sure = gate.accept("confirm_call", json!({"confirm_call": true})).send(&client).await.asked();
    let why = sure.accept("sure", json!({"sure": true})).send(&client).await.asked();
    assert_eq!(why.accept("why", json!({"why": "space"})).send(&client).await.text(), "deleted, because space");

    let gate = client.call("delete_all", json!({})).await.asked();
    let refused = gate.decline("confirm_call").send(&client).await;
    assert_eq!(refused.result()["isError"], json!(true), "and the handler is not called");
}
