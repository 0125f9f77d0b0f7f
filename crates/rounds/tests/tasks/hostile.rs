//! Clients that mean harm, requests that race, and processes that stop at a bad time.

use std::time::Duration;

use rmcp::handler::server::router::tool::ToolRouter;
use rounds::{Limits, tasks::Tasks};
use serde_json::{Map, Value, json};

use super::{METHODS, Scene, Shop, accept, kept::Fleet, keys, text_of};

#[tokio::test]
async fn different_answers_that_reach_two_instances_at_once_are_one_answer() {
    for tool in ["declared", "steps"] {
        let fleet = Fleet::new().await;
        let id = fleet.here.begin(tool).await;
        let key = keys(&fleet.here.until(&id, "input_required").await).remove(0);
        let (here, there) = (json!({&key: accept(1)}), json!({&key: accept(2)}));
        tokio::join!(fleet.here.update(&id, here), fleet.there.update(&id, there));
        let done = fleet.there.until(&id, "completed").await;
        assert!(["size 1", "size 2"].contains(&text_of(&done)), "{tool}: {done}");
        assert_eq!(fleet.here.effects(), 1, "{tool}");
    }
}

#[tokio::test]
async fn an_update_whose_acknowledgement_is_lost_with_its_instance_can_be_sent_again() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("finally").await;
    let key = keys(&fleet.here.until(&id, "input_required").await).remove(0);
    fleet.here.update(&id, json!({&key: accept(4)})).await;
    fleet.here.server.handler().begun.notified().await;
    // The lease has not lapsed yet: the update is known, and is not taken a second time.
    fleet.there.update(&id, json!({&key: accept(5)})).await;
    fleet.lose();
    fleet.there.update(&id, json!({&key: accept(6)})).await;
    fleet.there.server.handler().done.notify_one();
    assert_eq!(text_of(&fleet.there.until(&id, "completed").await), "size 4");
    assert_eq!(fleet.here.effects(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_is_not_lost_to_an_update_that_comes_at_once() {
    for _ in 0..200 {
        let scene = Scene::new(Tasks::at_once()).await;
        let id = scene.begin("finally").await;
        let key = keys(&scene.until(&id, "input_required").await).remove(0);
        tokio::join!(scene.update(&id, json!({key: accept(4)})), scene.cancel(&id));
        let ended = async {
            while scene.get(&id).await["status"] != "cancelled" {
                scene.clock.advance(Duration::from_secs(6));
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("its work ends only when it is cancelled");
    }
}

#[tokio::test]
async fn what_comes_after_the_end_of_a_task_changes_nothing() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("durable").await;
    let key = keys(&fleet.here.until(&id, "input_required").await).remove(0);
    fleet.here.update(&id, json!({&key: accept(4)})).await;
    let done = fleet.here.until(&id, "completed").await;
    let writes = fleet.writes();
    for scene in [&fleet.here, &fleet.there] {
        scene.update(&id, json!({&key: accept(5)})).await;
        scene.cancel(&id).await;
        assert_eq!(scene.get(&id).await, done);
    }
    assert_eq!(fleet.writes(), writes);

    let cancelled = fleet.here.begin("durable").await;
    let key = keys(&fleet.here.until(&cancelled, "input_required").await).remove(0);
    fleet.there.cancel(&cancelled).await;
    fleet.here.update(&cancelled, json!({key: accept(4)})).await;
    assert_eq!(fleet.here.get(&cancelled).await["status"], "cancelled");
}

#[tokio::test]
async fn an_update_of_four_megabytes_that_answers_nothing_is_kept_nowhere() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("durable").await;
    let asked = fleet.here.until(&id, "input_required").await;
    let writes = fleet.writes();
    let many: Map<String, Value> = (0..40_000).map(|number| (format!("{number:0>90}"), json!({}))).collect();
    fleet.here.update(&id, many.into()).await;
    assert_eq!(fleet.writes(), writes);
    assert_eq!(fleet.here.get(&id).await, asked);

    // An empty answer is one that does not fit: the question is asked again, under another key.
    let key = keys(&asked).remove(0);
    let refused = json!({"taskId": id, "inputResponses": {&key: {}}});
    fleet.here.client.request("tasks/update", refused).await.result();
    let again = fleet.here.asked_again(&id, &key).await;
    fleet.here.update(&id, json!({again: accept(4)})).await;
    assert_eq!(text_of(&fleet.here.until(&id, "completed").await), "size 4");
}

#[tokio::test]
async fn a_stranger_who_polls_a_lost_task_does_not_take_it_over() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("slowly").await;
    fleet.here.server.handler().begun.notified().await;
    fleet.lose();
    *fleet.there.caller.lock().unwrap() = Some("eve");
    let writes = fleet.writes();
    for method in METHODS {
        assert_eq!(fleet.there.refused(&fleet.there.client, method, &id).await, -32602, "{method}");
    }
    assert_eq!(fleet.writes(), writes);
    *fleet.there.caller.lock().unwrap() = Some("ann");
    assert_eq!(fleet.there.get(&id).await["status"], "working");
    assert_eq!(fleet.writes(), writes + 1, "its owner does");
}

#[tokio::test]
async fn a_task_whose_tool_a_deploy_has_removed_fails_and_says_so() {
    let mut shop = Shop::new();
    shop.tool_router = ToolRouter::new();
    let fleet = Fleet::of(shop, Limits::default(), Limits::default()).await;
    let id = fleet.here.begin("durable").await;
    let key = keys(&fleet.there.until(&id, "input_required").await).remove(0);
    fleet.there.update(&id, json!({key: accept(4)})).await;
    let failed = fleet.there.until(&id, "failed").await;
    assert_eq!(failed["error"]["code"], -32602, "{failed}");
    assert_eq!(failed["statusMessage"], failed["error"]["message"]);
}

#[tokio::test]
async fn a_lost_task_that_cannot_be_written_does_not_hold_up_the_others() {
    let small = Limits::default().with_task_bytes(1 << 20, 6_000);
    let fleet = Fleet::of(Shop::new(), Limits::default(), small).await;
    let large = fleet.here.client.call("slowly", json!({"note": "x".repeat(10_000)})).await;
    assert_eq!(large.result()["resultType"], "task");
    fleet.here.server.handler().begun.notified().await;
    fleet.here.clock.advance(Duration::from_millis(1));
    let id = fleet.here.begin("slowly").await;
    fleet.here.server.handler().begun.notified().await;
    let other = fleet.there.begin("durable").await;
    fleet.there.until(&other, "input_required").await;
    fleet.lose();
    let begun = fleet.there.server.handler().begun.notified();
    tokio::time::timeout(Duration::from_secs(10), begun).await.expect("a sweep takes the small one over");
    fleet.there.server.handler().done.notify_one();
    fleet.there.until(&id, "input_required").await;
}

#[tokio::test]
async fn a_task_that_has_ended_no_longer_takes_what_its_call_has_brought() {
    let limits = Limits::default().with_task_bytes(1 << 20, 40_000);
    let scene = Scene::with(|builder| builder.tasks(Tasks::at_once()).limits(limits)).await;
    for _ in 0..5 {
        let called = scene.client.call("refuses", json!({"note": "x".repeat(8_000)})).await;
        let id = called.result()["taskId"].as_str().expect("there is room for a task").to_owned();
        scene.until(&id, "completed").await;
    }
}
