//! Hostile handlers, and peers that are kept for too long.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use rmcp::{Peer, RoleServer, service::RequestContext};
use rounds::{Ask, Limits};
use rounds_testkit::in_time;
use serde_json::json;

use crate::{Sure, delete_all, stage, stage_with};

#[tokio::test]
async fn a_flood_of_requests_is_bounded_by_the_questions_of_a_round() {
    let stage = stage_with(
        async |context: RequestContext<RoleServer>| {
            let asks = (0..5_000).map(|_| context.peer.elicit::<Sure>("Sure?"));
            let answers = join_all(asks).await;
            let failed = answers.iter().filter_map(|answer| answer.as_ref().err()).map(ToString::to_string);
            let failed: Vec<_> = failed.collect();
            Ok(format!("{} {}", failed.len(), failed[0]))
        },
        |builder| builder.limits(Limits::default().with_questions(4)),
    );
    let client = stage.modern().await;
    let mut leg = in_time(client.call("flood", json!({}))).await;
    let mut rounds = 0;
    while leg.response()["result"]["resultType"] == "input_required" {
        let asked = leg.asked();
        let keys: Vec<_> = asked.keys().into_iter().map(str::to_owned).collect();
        assert!(keys.len() <= 4, "{keys:?}");
        let answered = keys.iter().fold(asked.retry(), |retry, key| retry.accept(key, json!({"sure": true})));
        (leg, rounds) = (in_time(answered.send(&client)).await, rounds + 1);
    }
    assert!((1..=10).contains(&rounds), "{rounds}");
    let failed: usize = leg.text().split(' ').next().unwrap().parse().unwrap();
    assert!(failed >= 5_000 - 4 * rounds, "{failed} failed");
    assert!(leg.text().contains("exceed the limit of 4"), "{leg:?}");
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn a_peer_that_is_kept_after_the_flow_is_closed() {
    let kept = Arc::new(Mutex::new(None::<Peer<RoleServer>>));
    let keep = kept.clone();
    let stage = stage(move |context: RequestContext<RoleServer>| {
        let keep = keep.clone();
        async move {
            *keep.lock().unwrap() = Some(context.peer.clone());
            delete_all(context).await
        }
    });
    let client = stage.modern().await;
    let asked = client.call("delete_all", json!({})).await.asked();
    let peer = kept.lock().unwrap().clone().unwrap();
    assert!(!peer.is_transport_closed(), "the flow waits");
    let waits = tokio::spawn(async move { peer.elicit::<Sure>("From outside?").await });
    assert_eq!(asked.decline("sure").send(&client).await.text(), "kept");
    assert!(in_time(waits).await.unwrap().is_err(), "its question has no client any more");
    let peer = kept.lock().unwrap().clone().unwrap();
    let late = in_time(peer.elicit::<Sure>("Late?")).await;
    assert!(late.is_err(), "{late:?}");
    assert!(in_time(peer.notify_tool_list_changed()).await.is_err());
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawned_task_asks_through_a_clone() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let peer = context.peer.clone();
        let sure = tokio::spawn(async move { peer.elicit::<Sure>("Sure?").await }).await.unwrap();
        Ok(sure.unwrap().unwrap().sure.to_string())
    });
    let client = stage.modern().await;
    for _ in 0..100 {
        let asked = in_time(client.call("sure", json!({}))).await.asked();
        let done = in_time(asked.accept("sure", json!({"sure": true})).send(&client)).await;
        assert_eq!(done.text(), "true");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_and_a_request_through_the_peer_are_one_round() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let ask = Ask::from_context(&context)?;
        let (sure, name) =
            tokio::join!(context.peer.elicit::<Sure>("Sure?"), async { ask.form::<String>("Name?").await });
        Ok(format!("{} {}", sure.unwrap().unwrap().sure, name?))
    });
    let client = stage.modern().await;
    for _ in 0..100 {
        let asked = in_time(client.call("both", json!({}))).await.asked();
        assert_eq!(asked.keys(), ["answer", "sure"]);
        let answered = asked.accept("sure", json!({"sure": true})).accept("answer", json!({"answer": "Ada"}));
        assert_eq!(in_time(answered.send(&client)).await.text(), "true Ada");
    }
}

#[tokio::test]
async fn a_handler_that_ends_with_its_question_open_ends_its_call() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let ask = context.peer.elicit::<Sure>("Sure?");
        tokio::select! {
            biased;
            _ = ask => unreachable!("it has no answer yet"),
            () = tokio::task::yield_now() => Ok("not asked".to_owned()),
        }
    });
    let client = stage.modern().await;
    // Its question was pending when it yielded, and so it was asked. Its end is the reply to the next leg.
    let asked = in_time(client.call("sure", json!({}))).await.asked();
    assert_eq!(in_time(asked.accept("sure", json!({"sure": true})).send(&client)).await.text(), "not asked");
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_handler_with_it() {
    let dropped = Arc::new(());
    let held = dropped.clone();
    let stage = stage_with(
        move |context: RequestContext<RoleServer>| {
            let held = held.clone();
            async move {
                let _held = held.clone();
                context.peer.elicit::<Sure>("Sure?").await.unwrap();
                context.ct.cancelled().await;
                std::future::pending::<()>().await;
                Ok(String::new())
            }
        },
        |builder| builder.limits(Limits::default().with_grace(std::time::Duration::ZERO)),
    );
    let client = stage.modern().await;
    let asked = client.call("sure", json!({})).await.asked();
    let leg = asked.accept("sure", json!({"sure": true})).start(&client).await;
    leg.cancel().await;
    in_time(async {
        while Arc::strong_count(&dropped) > 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_gets_an_error() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let asked = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(context.peer.elicit::<Sure>("Sure?"))
        });
        Ok(asked.unwrap_err().to_string())
    });
    let client = stage.modern().await;
    let call = client.start("tools/call", json!({"name": "sure"})).await;
    stage.clock.until_asleep(1).await;
    stage.clock.advance(std::time::Duration::from_secs(30));
    let told = in_time(call.finish()).await.text();
    assert!(told.contains("awaited in a blocking call"), "{told}");
    assert_eq!(stage.asks(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_another_thread_may_block() {
    let stage = stage(async |context: RequestContext<RoleServer>| {
        let (peer, runtime) = (context.peer.clone(), tokio::runtime::Handle::current());
        let asked = tokio::task::spawn_blocking(move || runtime.block_on(peer.elicit::<Sure>("Sure?"))).await.unwrap();
        Ok(asked.unwrap().unwrap().sure.to_string())
    });
    let client = stage.modern().await;
    let asked = in_time(client.call("sure", json!({}))).await.asked();
    assert_eq!(in_time(asked.accept("sure", json!({"sure": true})).send(&client)).await.text(), "true");
}
