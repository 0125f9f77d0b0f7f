//! Which requests form one round. It does not depend on how fast rmcp's loop runs.

use std::{future::poll_fn, task::Poll};

use futures::future::join_all;
use rmcp::{RoleServer, service::RequestContext};
use rounds_testkit::in_time;
use serde_json::json;

use crate::{Sure, Why, stage};

/// How often a race gets its chance.
const TIMES: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_that_are_pending_together_are_one_round() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let (sure, why, again) = tokio::join!(
            context.peer.elicit::<Sure>("Sure?"),
            context.peer.elicit::<Why>("Why?"),
            context.peer.elicit::<Why>("Really?")
        );
        Ok(format!("{} {} {}", sure.unwrap().unwrap().sure, why.unwrap().unwrap().why, again.unwrap().unwrap().why))
    });
    let client = stage.modern().await;
    for _ in 0..TIMES {
        let asked = client.call("both", json!({})).await.asked();
        assert_eq!(asked.keys(), ["sure", "why", "why_2"]);
        assert_eq!(asked.message("why"), "Why?");
        let answered = asked.accept("sure", json!({"sure": true})).accept("why", json!({"why": "a"}));
        assert_eq!(answered.accept("why_2", json!({"why": "b"})).send(&client).await.text(), "true a b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_asked_after_another_await_is_in_the_next_round() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let logged = async {
            context.peer.notify_resource_list_changed().await.unwrap();
            context.peer.elicit::<Why>("Why?").await.unwrap().unwrap().why
        };
        let (sure, why) = tokio::join!(context.peer.elicit::<Sure>("Sure?"), logged);
        Ok(format!("{} {why}", sure.unwrap().unwrap().sure))
    });
    let client = stage.modern().await;
    for _ in 0..TIMES {
        let asked = client.call("two", json!({})).await.asked();
        assert_eq!(asked.keys(), ["sure"]);
        assert_eq!(asked.message("sure"), "Sure?");
        let second = asked.accept("sure", json!({"sure": true})).send(&client).await.asked();
        assert_eq!(second.message(second.keys()[0]), "Why?");
        let key = second.keys()[0].to_owned();
        assert_eq!(second.accept(&key, json!({"why": "a"})).send(&client).await.text(), "true a");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_reaches_the_handler_before_the_other_question_is_asked_again() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let chain = async {
            context.peer.elicit::<Sure>("Sure?").await.unwrap();
            context.peer.elicit::<Sure>("Really?").await.unwrap().unwrap().sure
        };
        let (why, sure) = tokio::join!(context.peer.elicit::<Why>("Why?"), chain);
        Ok(format!("{} {sure}", why.unwrap().unwrap().why))
    });
    let client = stage.modern().await;
    for _ in 0..TIMES {
        let asked = client.call("chain", json!({})).await.asked();
        assert_eq!(asked.keys(), ["why", "sure"]);
        // Only the second is answered. What follows from it is asked together with the first.
        let again = asked.accept("sure", json!({"sure": true})).send(&client).await.asked();
        assert_eq!(again.keys(), ["why", "sure"]);
        assert_eq!((again.message("why"), again.message("sure")), ("Why?", "Really?"));
        let answered = again.accept("why", json!({"why": "a"})).accept("sure", json!({"sure": true}));
        assert_eq!(answered.send(&client).await.text(), "a true");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_wakes_itself_between_two_requests_is_asked_in_two_rounds() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let later = async {
            let mut yielded = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            context.peer.elicit::<Why>("Why?").await.unwrap().unwrap().why
        };
        let (sure, why) = tokio::join!(context.peer.elicit::<Sure>("Sure?"), later);
        Ok(format!("{} {why}", sure.unwrap().unwrap().sure))
    });
    let client = stage.modern().await;
    for _ in 0..TIMES {
        let asked = client.call("two", json!({})).await.asked();
        assert_eq!(asked.keys(), ["sure"]);
        // What it has asked between the legs is asked with the next.
        let second = asked.retry().send(&client).await.asked();
        assert_eq!(second.keys(), ["sure", "why"]);
        let answered = second.accept("sure", json!({"sure": true})).accept("why", json!({"why": "a"}));
        assert_eq!(answered.send(&client).await.text(), "true a");
    }
}

#[tokio::test]
async fn more_requests_than_tokio_lets_a_task_make_at_once_are_one_round() {
    let limits = rounds::Limits::default().with_questions(300);
    let stage = crate::stage_with(
        async |context: RequestContext<RoleServer>| {
            let asks = (0..300).map(|_| context.peer.elicit::<Sure>("Sure?"));
            let sure = join_all(asks).await.into_iter().filter(|sure| sure.as_ref().is_ok_and(|sure| sure.is_some()));
            Ok(sure.count().to_string())
        },
        |builder| builder.limits(limits),
    );
    let client = stage.modern().await;
    let asked = in_time(client.call("many", json!({}))).await.asked();
    let asked_at_once = asked.keys().len();
    let keys: Vec<_> = asked.keys().into_iter().map(str::to_owned).collect();
    let answered = keys.iter().fold(asked.retry(), |retry, key| retry.accept(key, json!({"sure": true})));
    assert_eq!(asked_at_once, 300);
    assert_eq!(in_time(answered.send(&client)).await.text(), "300");
}
