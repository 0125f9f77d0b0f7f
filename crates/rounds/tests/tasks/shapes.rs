//! Every shape as a task, with no change to its handler.

use rounds::tasks::Tasks;
use serde_json::json;

use super::{Scene, accept, keys, text_of};

const SHAPES: [&str; 6] = ["linear", "guard", "durable", "declared", "steps", "peer"];

#[tokio::test]
async fn every_shape_asks_through_its_task_and_ends_as_in_rounds_with_its_effect_once() {
    for shape in SHAPES {
        let scene = Scene::new(Tasks::at_once()).await;
        let id = scene.begin(shape).await;
        let asking = scene.until(&id, "input_required").await;
        let [key] = &keys(&asking)[..] else { panic!("{shape}: {asking}") };
        assert_eq!(asking["inputRequests"][key]["params"]["message"], "Which size?", "{shape}");
        assert_eq!(asking["requestState"], json!(null), "{shape}: the state stays with the server");
        scene.update(&id, json!({key: accept(42)})).await;
        let done = scene.until(&id, "completed").await;
        assert_eq!(text_of(&done), "size 42", "{shape}");
        assert_eq!(scene.effects(), 1, "{shape}");

        let plain = scene.client.declaring(json!({"elicitation": {"form": {}}}));
        let asked = plain.call(shape, json!({})).await.asked();
        let ended = asked.accept("size", json!({"size": 42})).send(&plain).await;
        assert_eq!(ended.text(), text_of(&done), "{shape}: a client without the extension is served in rounds");
        assert_eq!(scene.effects(), 2, "{shape}");
    }
}

#[tokio::test]
async fn a_plain_tool_that_takes_long_is_a_task_and_says_how_far_it_is() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("slow").await;
    scene.server.handler().begun.notified().await;
    let working = scene.get(&id).await;
    assert_eq!(working["status"], "working");
    assert_eq!(working["statusMessage"], "half way");
    scene.server.handler().done.notify_one();
    assert_eq!(text_of(&scene.until(&id, "completed").await), "done");
    assert!(scene.client.notifications().is_empty(), "progress of a task is not notified");
}

#[tokio::test]
async fn a_declined_question_ends_a_task_as_it_ends_a_call() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("linear").await;
    let key = keys(&scene.until(&id, "input_required").await).remove(0);
    scene.update(&id, json!({key: {"action": "decline"}})).await;
    let done = scene.until(&id, "completed").await;
    assert_eq!(done["result"]["isError"], true);
    assert_eq!(text_of(&done), "The user declined: Which size?");
}
