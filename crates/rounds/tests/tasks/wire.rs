//! What is declared, and which requests about tasks are refused.

use rmcp::{ErrorData, RoleServer, ServerHandler, model::*, service::RequestContext};
use rounds::{Era, Rounds, tasks::Tasks, test::Client};
use serde_json::{Value, json};

use super::{METHODS, Scene, declared};

#[tokio::test]
async fn the_extension_is_declared_where_calls_may_become_tasks_and_nowhere_else() {
    let extension =
        |discovered: &Value| discovered["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].clone();
    for (tasks, expected) in [(Tasks::at_once(), json!({})), (Tasks::never(), json!(null))] {
        let scene = Scene::new(tasks).await;
        let discovered = scene.client.request("server/discover", json!({})).await;
        assert_eq!(extension(discovered.result()), expected, "{tasks:?}");
    }
    let one_tool = Scene::with(|builder| builder.tasks_for("linear", Tasks::at_once())).await;
    let discovered = one_tool.client.request("server/discover", json!({})).await;
    assert_eq!(extension(discovered.result()), json!({}));
    one_tool.begin("linear").await;
    let _ = one_tool.client.call("guard", json!({})).await.asked();
}

#[tokio::test]
async fn a_request_that_does_not_declare_the_extension_gets_no_task_and_may_not_ask_for_one() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("guard").await;
    let plain = scene.client.declaring(json!({"elicitation": {"form": {}}}));
    let _ = plain.call("guard", json!({})).await.asked();
    for method in METHODS {
        let refused = plain.request(method, json!({"taskId": id, "inputResponses": {}})).await;
        assert_eq!(refused.error()["code"], -32021, "{method}");
        let required = &refused.error()["data"]["requiredCapabilities"]["extensions"];
        assert_eq!(required["io.modelcontextprotocol/tasks"], json!({}), "{method}");
    }
    let malformed = plain.request("tasks/get", json!({"taskId": 7})).await;
    assert_eq!(malformed.error()["code"], -32021);
}

#[tokio::test]
async fn a_legacy_client_gets_no_task_whatever_it_said_at_initialize() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("refuses").await;
    let legacy = Client::connect(scene.server.clone(), Era::Legacy, declared()).await;
    assert_eq!(legacy.call("refuses", json!({})).await.text(), "sold out");
    for method in METHODS {
        assert_eq!(scene.refused(&legacy, method, &id).await, -32021, "{method}");
    }
}

#[tokio::test]
async fn ids_that_are_unknown_and_ids_of_other_callers_are_refused_alike() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("guard").await;
    scene.until(&id, "input_required").await;
    let get = |id: String| scene.client.request("tasks/get", json!({"taskId": id}));
    *scene.caller.lock().unwrap() = Some("bob");
    for method in METHODS {
        assert_eq!(scene.refused(&scene.client, method, &id).await, -32602, "{method}");
    }
    let foreign = get(id.clone()).await.error().clone();
    let unknown = get(format!("{}x", &id[..id.len() - 1])).await.error().clone();
    assert_eq!(foreign, unknown);
    assert_eq!(get("other".to_owned()).await.error(), &unknown);
    *scene.caller.lock().unwrap() = Some("ann");
    assert_eq!(scene.get(&id).await["status"], "input_required", "the other caller has changed nothing");
}

#[tokio::test]
async fn ids_are_long_and_no_two_are_alike() {
    let scene = Scene::new(Tasks::at_once()).await;
    let ids = [scene.begin("refuses").await, scene.begin("refuses").await];
    assert_ne!(ids[0], ids[1]);
    assert!(ids.iter().all(|id| id.strip_prefix("rounds.").is_some_and(|random| random.len() == 43)), "{ids:?}");
}

#[tokio::test]
async fn a_request_about_a_task_with_the_wrong_types_is_refused() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("guard").await;
    for (method, params) in [
        ("tasks/get", json!({"taskId": 7})),
        ("tasks/get", json!({})),
        ("tasks/update", json!({"taskId": id, "inputResponses": [1]})),
        ("tasks/update", json!({"taskId": id})),
        ("tasks/cancel", json!({"taskId": null})),
    ] {
        let refused = scene.client.request(method, params.clone()).await;
        assert_eq!(refused.error()["code"], -32602, "{method} {params}");
    }
}

/// A server that has one task of its own.
struct Own;

impl ServerHandler for Own {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let task = Task::new(request.task_id, TaskStatus::Working, "then", "now");
        Ok(GetTaskResult::new(DetailedTask::new(task, TaskPayload::Working)))
    }
}

#[tokio::test]
async fn ids_that_are_not_ours_go_to_the_wrapped_server_if_it_has_tasks() {
    let server = Rounds::builder(Own).tasks(Tasks::at_once()).build().unwrap();
    let client = Client::modern(server).await.declaring(declared());
    let theirs = client.request("tasks/get", json!({"taskId": "their own"})).await;
    assert_eq!(theirs.result()["createdAt"], "then");
    let ours = client.request("tasks/get", json!({"taskId": "rounds.unknown"})).await;
    assert_eq!(ours.error()["code"], -32602);
}
