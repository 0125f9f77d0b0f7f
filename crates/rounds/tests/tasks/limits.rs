//! Limits: how many tasks there may be, and how much they take.

use std::time::Duration;

use rounds::{Limits, tasks::Tasks};
use serde_json::json;

use super::{Scene, accept, keys};

async fn limited(limits: Limits) -> Scene {
    Scene::with(|builder| builder.tasks(Tasks::at_once()).limits(limits)).await
}

#[tokio::test]
async fn a_call_for_which_there_is_no_place_is_not_a_task_and_is_served_all_the_same() {
    let scene = limited(Limits::default().with_tasks(2, 2)).await;
    let first = scene.begin("guard").await;
    let _ = scene.begin("guard").await;
    let asked = scene.client.call("guard", json!({})).await.asked();
    assert_eq!(asked.accept("size", json!({"size": 4})).send(&scene.client).await.text(), "size 4");
    scene.until(&first, "input_required").await;
    scene.clock.advance(Duration::from_secs(61 * 60));
    scene.begin("guard").await;
}

#[tokio::test]
async fn one_principal_cannot_take_all_tasks_and_callers_without_one_have_a_half() {
    let scene = limited(Limits::default().with_tasks(4, 1)).await;
    scene.begin("guard").await;
    let _ = scene.client.call("guard", json!({})).await.asked();
    *scene.caller.lock().unwrap() = Some("bob");
    scene.begin("guard").await;
    *scene.caller.lock().unwrap() = None;
    for _ in 0..2 {
        scene.begin("guard").await;
    }
    let _ = scene.client.call("guard", json!({})).await.asked();
}

#[tokio::test]
async fn what_a_task_keeps_is_limited_in_bytes() {
    let scene = limited(Limits::default().with_task_bytes(1 << 20, 20_000)).await;
    let id = scene.begin("guard").await;
    let key = keys(&scene.until(&id, "input_required").await).remove(0);
    let long = json!({"action": "accept", "content": {"size": 1, "note": "x".repeat(30_000)}});
    let answers = json!({"taskId": id, "inputResponses": {&key: long}});
    let refused = scene.client.request("tasks/update", answers).await;
    let words = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(words.contains("Limits::with_task_bytes"), "{words}");
    scene.update(&id, json!({key: accept(1)})).await;
    scene.until(&id, "completed").await;

    let large = scene.begin("large").await;
    let failed = scene.until(&large, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap().contains("Limits::with_task_bytes"), "{failed}");

    let arguments = json!({"note": "x".repeat(30_000)});
    assert_eq!(scene.client.call("refuses", arguments).await.text(), "sold out", "the call itself is too large");
}
