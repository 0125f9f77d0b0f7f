//! The cost of a leg, counted by Redis itself.

use serde_json::json;

use crate::{
    Redis,
    shop::{Shop, client},
};

/// Number of scripts called so far, and of all commands that clients sent.
async fn counted(redis: &Redis) -> (usize, usize) {
    let scripts = redis.calls_of("evalsha").await;
    (scripts, scripts + redis.calls_of("eval").await + redis.calls_of("script|load").await)
}

#[tokio::test]
async fn a_first_leg_costs_nothing_a_claimed_one_two_calls_and_each_effect_two_of_which_one_is_waited_for() {
    let redis = Redis::start();
    let shop = Shop::new();
    let client = client(&shop, redis.ledger().await).await;
    // Scripts that are loaded once are loaded now.
    for tool in ["order", "wrap"] {
        let asked = client.call(tool, json!({"item": "tea"})).await.asked();
        asked.accept("size", json!({"size": "xl"})).send(&client).await.text();
    }

    let start = counted(&redis).await;
    let asked = client.call("wrap", json!({"item": "tea"})).await.asked();
    let opened = counted(&redis).await;
    assert_eq!((opened.0 - start.0, opened.1 - start.1), (0, 0), "a first leg records nothing");
    let retry = asked.accept("size", json!({"size": "xl"}));
    retry.send(&client).await.text();
    let answered = counted(&redis).await;
    assert_eq!((answered.0 - opened.0, answered.1 - opened.1), (2, 2), "claim and settle");
    retry.send(&client).await.text();
    let replayed = counted(&redis).await;
    assert_eq!(replayed.0 - answered.0, 1, "a retry makes one call");

    let asked = client.call("order", json!({"item": "tea"})).await.asked();
    let opened = counted(&redis).await;
    asked.accept("size", json!({"size": "xl"})).send(&client).await.text();
    let answered = counted(&redis).await;
    assert_eq!(answered.0 - opened.0, 4, "an effect is claimed and recorded, and recording runs beside the next step");
}
