//! Answers to the questions of a task: their keys, parts of them, and those that do not count.

use rounds::tasks::Tasks;
use serde_json::json;

use super::{Scene, accept, keys, text_of};

#[tokio::test]
async fn a_question_that_is_asked_again_has_a_new_key_and_the_old_one_is_ignored() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("linear").await;
    let first = keys(&scene.until(&id, "input_required").await).remove(0);
    scene.update(&id, json!({&first: accept(99)})).await;
    let second = scene.asked_again(&id, &first).await;
    scene.update(&id, json!({&first: accept(1)})).await;
    assert_eq!(keys(&scene.get(&id).await), std::slice::from_ref(&second), "its question was answered before");
    scene.update(&id, json!({second: accept(2)})).await;
    assert_eq!(text_of(&scene.until(&id, "completed").await), "size 2");
}

#[tokio::test]
async fn a_part_of_the_answers_leaves_the_other_questions_and_is_not_a_round() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("two").await;
    let asking = scene.until(&id, "input_required").await;
    let [a, b] = &keys(&asking)[..] else { panic!("{asking}") };
    assert_eq!(asking["_meta"]["rounds/order"], json!([b, a]), "they are shown in the order of asking");
    scene.update(&id, json!({b: accept(2), "nowhere": accept(9)})).await;
    assert_eq!(keys(&scene.get(&id).await), std::slice::from_ref(a));
    scene.update(&id, json!({b: accept(7)})).await;
    assert_eq!(keys(&scene.get(&id).await), std::slice::from_ref(a), "an answer counts once");
    scene.update(&id, json!({a: accept(1)})).await;
    assert_eq!(text_of(&scene.until(&id, "completed").await), "1 and 2");
}

#[tokio::test]
async fn an_update_that_is_sent_again_changes_nothing() {
    for shape in ["linear", "guard", "durable"] {
        let scene = Scene::new(Tasks::at_once()).await;
        let id = scene.begin(shape).await;
        let key = keys(&scene.until(&id, "input_required").await).remove(0);
        for size in [3, 3, 4] {
            scene.update(&id, json!({&key: accept(size)})).await;
        }
        assert_eq!(text_of(&scene.until(&id, "completed").await), "size 3");
        scene.update(&id, json!({key: accept(5)})).await;
        assert_eq!(text_of(&scene.until(&id, "completed").await), "size 3");
        assert_eq!(scene.effects(), 1, "{shape}");
    }
}

#[tokio::test]
async fn what_can_be_asked_is_what_the_call_declared_and_not_what_an_update_declares() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("linear").await;
    let first = keys(&scene.until(&id, "input_required").await).remove(0);
    let terse = scene.client.declaring(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let answers = json!({"taskId": id, "inputResponses": {&first: accept(99)}});
    let _ = terse.request("tasks/update", answers).await.result();
    scene.asked_again(&id, &first).await;
}
