//! How tasks end: completed, failed, cancelled, and not in time.

use std::{sync::atomic::Ordering, time::Duration};

use rounds::tasks::Tasks;
use serde_json::json;

use super::{METHODS, Scene, accept, keys, text_of};

#[tokio::test]
async fn a_tool_error_completes_a_task_and_only_an_error_of_the_protocol_fails_it() {
    let scene = Scene::new(Tasks::at_once()).await;
    let refused = scene.begin("refuses").await;
    let completed = scene.until(&refused, "completed").await;
    assert_eq!(completed["result"]["isError"], true);
    assert_eq!(text_of(&completed), "sold out");
    let broken = scene.begin("breaks").await;
    let failed = scene.until(&broken, "failed").await;
    assert_eq!(failed["error"], json!({"code": -32602, "message": "no such shop"}));
    assert_eq!(failed["statusMessage"], "no such shop");
    assert_eq!(failed["result"], json!(null));
}

#[tokio::test]
async fn an_error_of_the_handlers_own_fails_the_task_however_much_it_looks_like_one_of_ours() {
    for (size, message) in [(1, "not now"), (2, "Invalid or expired requestState")] {
        let scene = Scene::new(Tasks::at_once()).await;
        let id = scene.begin("imitates").await;
        let key = keys(&scene.until(&id, "input_required").await).remove(0);
        scene.update(&id, json!({key: accept(size)})).await;
        let failed = scene.until(&id, "failed").await;
        assert_eq!(failed["error"]["message"], message);
        assert_eq!(scene.server.handler().effects.load(Ordering::Relaxed), 1, "{message}");
    }
}

#[tokio::test]
async fn a_task_that_asks_is_cancelled_at_once_and_its_handler_is_dropped() {
    for shape in ["linear", "guard", "durable"] {
        let scene = Scene::new(Tasks::at_once()).await;
        let id = scene.begin(shape).await;
        let key = keys(&scene.until(&id, "input_required").await).remove(0);
        scene.cancel(&id).await;
        assert_eq!(scene.get(&id).await["status"], "cancelled", "{shape}");
        scene.update(&id, json!({key: accept(1)})).await;
        scene.cancel(&id).await;
        assert_eq!(scene.get(&id).await["status"], "cancelled", "{shape}: for good");
        while scene.server.waiting_calls() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_handler_that_stops_when_told_is_cancelled() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("polite").await;
    scene.server.handler().begun.notified().await;
    scene.cancel(&id).await;
    scene.until(&id, "cancelled").await;
}

#[tokio::test]
async fn a_handler_that_does_not_stop_has_the_grace_period_and_may_still_complete() {
    let scene = Scene::new(Tasks::at_once()).await;
    let ended = scene.begin("slow").await;
    scene.server.handler().begun.notified().await;
    scene.cancel(&ended).await;
    assert_eq!(scene.get(&ended).await["status"], "working", "cancellation is a request");
    scene.server.handler().done.notify_one();
    scene.until(&ended, "completed").await;

    let dropped = scene.begin("slow").await;
    scene.server.handler().begun.notified().await;
    let before = scene.clock.sleepers();
    scene.cancel(&dropped).await;
    scene.clock.until_asleep(before + 1).await;
    scene.clock.advance(Duration::from_secs(5));
    scene.until(&dropped, "cancelled").await;
}

#[tokio::test]
async fn a_question_that_is_not_answered_in_time_fails_its_task_which_is_then_forgotten() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("guard").await;
    scene.until(&id, "input_required").await;
    scene.clock.advance(Duration::from_secs(10 * 60));
    let failed = scene.get(&id).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["statusMessage"], "the question was not answered in time: start the call again");
    scene.clock.advance(Duration::from_secs(60 * 60));
    for method in METHODS {
        assert_eq!(scene.refused(&scene.client, method, &id).await, -32602, "{method}");
    }
}

#[tokio::test]
async fn a_leg_that_is_longer_than_a_flow_may_be_fails_its_task() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("slow").await;
    scene.server.handler().begun.notified().await;
    scene.clock.advance(Duration::from_secs(60 * 60));
    let failed = scene.until(&id, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap().contains("flow_deadline"), "{failed}");
}
