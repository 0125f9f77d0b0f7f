//! A thousand flights as tasks, while an instance is killed every half second.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Fleet,
    airline::{FLIGHTS, check_the_books, until},
    call::{Call, text},
    fleet::Instances,
    in_time, task,
};

/// How many people book at the same time.
const AT_ONCE: usize = 40;
const BETWEEN_KILLS: Duration = Duration::from_millis(500);

on_every_store!(
    a_thousand_tasks_with_kills_are_charged_once_each_and_none_is_lost,
    a_task_whose_instance_is_killed_goes_on_at_another_unless_its_handler_lived_there
);

async fn a_thousand_tasks_with_kills_are_charged_once_each_and_none_is_lost(fleet: Fleet) {
    let fleet = Arc::new(fleet);
    let (next, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(watch::Sender::new(0)));
    let mut people = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (fleet, next, ended) = (fleet.clone(), next.clone(), ended.clone());
        people.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= FLIGHTS {
                    return;
                }
                task::book(number, &*fleet).await;
                ended.send_modify(|flights| *flights += 1);
            }
        });
    }
    let killing = async {
        for kill in 0.. {
            tokio::time::sleep(BETWEEN_KILLS).await;
            fleet.kill(kill % 3).await;
            fleet.replace(kill % 3).await;
        }
    };
    tokio::select! {
        () = killing => {}
        () = until_all(&ended) => {}
    }
    while let Some(person) = people.join_next().await {
        person.unwrap();
    }
    check_the_books(&fleet).await;
}

impl task::Airline for Fleet {
    async fn send(&self, call: Call) -> Value {
        Instances::send(self, &call).await
    }
}

/// Waits as long as flights are booked.
async fn until_all(ended: &watch::Sender<usize>) {
    for wanted in (50..=FLIGHTS).step_by(50) {
        until(ended, wanted).await;
    }
}

async fn a_task_whose_instance_is_killed_goes_on_at_another_unless_its_handler_lived_there(fleet: Fleet) {
    let begin = async |tool: &str| {
        let created = fleet.send_to(0, &Call::weather(tool).with_tasks()).await.unwrap();
        created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
    };
    let get = async |at, id: &str| fleet.send_to(at, &Call::of_task("tasks/get", id)).await.unwrap()["result"].clone();
    let answer = async |at, id: &str| {
        let asked = in_time("the question", async {
            loop {
                let task = get(at, id).await;
                match task["status"].as_str() {
                    Some("working") => tokio::time::sleep(crate::PAUSE).await,
                    _ => break task,
                }
            }
        });
        let key = asked.await["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let metric = json!({key: {"action": "accept", "content": {"units": "metric"}}});
        fleet.send_to(at, &Call::of_task("tasks/update", id).answering(metric)).await.unwrap();
    };
    let ended = async |at, id: &str| {
        in_time("the end", async {
            loop {
                let task = get(at, id).await;
                match task["status"].as_str() {
                    Some("working" | "input_required") => tokio::time::sleep(crate::PAUSE).await,
                    _ => return task,
                }
            }
        })
        .await
    };
    let (durable, linear, reached) = (begin("weather_i").await, begin("weather_h").await, begin("weather_h").await);
    // A relay leads to the handler that waits in another instance.
    answer(1, &reached).await;
    assert_eq!(text(&ended(2, &reached).await), crate::call::METRIC);
    for id in [&durable, &linear] {
        while get(1, id).await["status"] != "input_required" {}
    }
    fleet.kill(0).await;
    answer(1, &durable).await;
    assert_eq!(text(&ended(2, &durable).await), crate::call::METRIC);
    answer(2, &linear).await;
    let lost = ended(1, &linear).await;
    assert_eq!(lost["status"], "failed");
    assert!(lost["statusMessage"].as_str().unwrap().contains("has stopped"), "{lost}");
}
