//! When a call becomes a task, and what a task says about time.

use std::{pin::pin, task::Poll, time::Duration};

use rounds::tasks::Tasks;
use serde_json::json;

use super::{Scene, accept, keys, text_of};

const TEN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_call_that_ends_in_time_is_answered_as_without_tasks_and_sets_no_timer() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    assert_eq!(scene.client.call("large", json!({})).await.text().len(), 100_000);
    let asked = scene.client.call("guard", json!({})).await.asked();
    let ended = asked.accept("size", json!({"size": 4})).send(&scene.client).await;
    assert_eq!(ended.text(), "size 4", "what it asks in time, it asks in rounds");
    assert_eq!(scene.clock.sleepers(), 0);
}

#[tokio::test]
async fn a_call_that_takes_longer_becomes_a_task_and_goes_on_undisturbed() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    let call = scene.client.start("tools/call", json!({"name": "slow", "arguments": {}})).await;
    scene.server.handler().begun.notified().await;
    scene.clock.until_asleep(1).await;
    scene.clock.advance(TEN);
    let answered = call.finish().await;
    let task = answered.result();
    assert_eq!(task["resultType"], "task");
    assert_eq!(task["status"], "working");
    assert_eq!(task["statusMessage"], "half way", "it was said before there was a task");
    let id = task["taskId"].as_str().unwrap();
    assert_eq!(scene.get(id).await["status"], "working");
    scene.server.handler().done.notify_one();
    assert_eq!(text_of(&scene.until(id, "completed").await), "done");
    assert_eq!(scene.effects(), 1);
}

#[tokio::test]
async fn a_leg_that_its_task_plays_without_a_request_is_one_of_the_caller() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    let shop = scene.server.handler();
    let call = scene.client.start("tools/call", json!({"name": "checked", "arguments": {}})).await;
    let mut call = pin!(call.finish());
    shop.begun.notified().await;
    for _ in ["until it may become a task", "while the effect runs"] {
        scene.clock.until_asleep(1).await;
        scene.clock.advance(TEN);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    let answered = call.as_mut().await;
    let id = answered.result()["taskId"].as_str().unwrap();
    *scene.caller.lock().unwrap() = Some("bob");
    shop.done.notify_one();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    *scene.caller.lock().unwrap() = Some("ann");
    let key = keys(&scene.until(id, "input_required").await).remove(0);
    scene.update(id, json!({key: accept(4)})).await;
    assert_eq!(text_of(&scene.until(id, "completed").await), "size 4");
    assert_eq!(scene.effects(), 1);
}

#[tokio::test]
async fn a_call_does_not_become_a_task_in_the_middle_of_an_effect() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    let shop = scene.server.handler();
    let call = scene.client.start("tools/call", json!({"name": "careful", "arguments": {}})).await;
    let mut call = pin!(call.finish());
    shop.begun.notified().await;
    scene.clock.until_asleep(1).await;
    scene.clock.advance(TEN);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "the effect runs, and is not recorded");
    assert_eq!(scene.effects(), 0);
    shop.done.notify_one();
    let answered = call.await;
    assert_eq!(answered.result()["resultType"], "task");
    assert_eq!(scene.effects(), 1, "the effect has ended");
    shop.done.notify_one();
    let id = answered.result()["taskId"].as_str().unwrap();
    assert_eq!(text_of(&scene.until(id, "completed").await), "done");
}

#[tokio::test]
async fn an_effect_that_takes_very_long_does_not_keep_the_client_from_its_handle() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    let call = scene.client.start("tools/call", json!({"name": "careful", "arguments": {}})).await;
    scene.server.handler().begun.notified().await;
    for _ in ["until it may become a task", "while the effect runs"] {
        scene.clock.until_asleep(1).await;
        scene.clock.advance(TEN);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(call.finish().await.result()["resultType"], "task");
    assert_eq!(scene.effects(), 0);
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_is_a_task_is_cancelled_as_ever() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    let call = scene.client.start("tools/call", json!({"name": "polite", "arguments": {}})).await;
    scene.server.handler().begun.notified().await;
    scene.clock.until_asleep(1).await;
    call.cancel().await;
    while scene.clock.sleepers() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_later_leg_that_is_sent_again_gets_the_same_task() {
    let scene = Scene::new(Tasks::at_once()).await;
    let plain = scene.client.declaring(json!({"elicitation": {"form": {}}}));
    let asked = plain.call("guard", json!({})).await.asked();
    let leg = asked.accept("size", json!({"size": 4}));
    let [one, other] = [leg.send(&scene.client).await, leg.send(&scene.client).await];
    assert_eq!(one.result()["resultType"], "task");
    assert_eq!(one.result()["taskId"], other.result()["taskId"]);
    let id = one.result()["taskId"].as_str().unwrap();
    assert_eq!(text_of(&scene.until(id, "completed").await), "size 4");
    assert_eq!(scene.effects(), 1);
}

#[tokio::test]
async fn a_leg_that_is_sent_again_while_its_task_works_or_after_its_end_gets_the_task() {
    let scene = Scene::new(Tasks::after(TEN)).await;
    let asked = scene.client.call("finally", json!({})).await.asked();
    let leg = asked.accept("size", json!({"size": 4}));
    let promoted = async || {
        let time_passes = async {
            loop {
                scene.clock.advance(Duration::from_secs(1));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            response = leg.send(&scene.client) => response.result()["taskId"].as_str().unwrap().to_owned(),
            () = time_passes => unreachable!("it goes on for ever"),
        }
    };
    let id = promoted().await;
    assert_eq!(promoted().await, id, "its leg is under way");
    scene.server.handler().done.notify_one();
    assert_eq!(text_of(&scene.until(&id, "completed").await), "size 4");
    let again = leg.send(&scene.client).await;
    assert_eq!(again.result()["taskId"], id.as_str(), "{:?}", again.result());
    assert_eq!(again.result()["status"], "completed");
    assert_eq!(scene.effects(), 1);
}

#[tokio::test]
async fn a_task_says_when_it_began_how_long_it_lives_and_how_often_to_poll() {
    let scene = Scene::new(Tasks::at_once()).await;
    let id = scene.begin("guard").await;
    let asking = scene.until(&id, "input_required").await;
    assert_eq!(asking["createdAt"], "2027-01-15T08:00:00.000Z");
    assert_eq!(asking["ttlMs"], 60 * 60 * 1000);
    assert_eq!(asking["pollIntervalMs"], 500);
    scene.clock.advance(Duration::from_secs(100));
    assert_eq!(scene.get(&id).await["pollIntervalMs"], 10_000, "a person takes time");
    scene.clock.advance(Duration::from_secs(400));
    assert_eq!(scene.get(&id).await["pollIntervalMs"], 30_000, "and is not forgotten");
    let key = keys(&asking).remove(0);
    scene.update(&id, json!({key: accept(1)})).await;
    let done = scene.until(&id, "completed").await;
    assert_eq!(done["lastUpdatedAt"], "2027-01-15T08:08:20.000Z");
    assert_eq!(done["pollIntervalMs"], json!(null));
}
