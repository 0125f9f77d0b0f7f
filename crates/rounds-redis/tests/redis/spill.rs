//! States that are too large for a token.

use rounds::{
    Limits,
    observe::{Refusal, Station},
    test::{Client, Events},
};
use serde_json::json;

use crate::{
    Redis,
    shop::{Shop, builder, keys},
};

#[tokio::test]
async fn a_state_too_large_for_its_token_goes_on_at_any_instance() {
    let redis = Redis::start();
    let shop = Shop::new();
    let here = Client::modern(builder(&shop, redis.ledger().await).spill().build().unwrap()).await;
    let there = Client::modern(builder(&shop, redis.ledger().await).spill().build().unwrap()).await;
    let asked = here.call("order", json!({"item": "x".repeat(100)})).await.asked();
    assert!(asked.state().len() < 400, "the token is small: {}", asked.state().len());
    let retry = asked.accept("size", json!({"size": "xl"}));
    let done = retry.send(&there).await.text();
    assert_eq!(done, "canary-result xl, canary-value 0, 100000 kept");
    assert_eq!(retry.send(&here).await.text(), done);
    assert_eq!(shop.charges(), 1);
    let round = redis.keys().await.into_iter().find(|key| key.ends_with(":r1")).unwrap();
    let kept: bool = redis.ask("HEXISTS", &[round.as_bytes(), b"p"]).await;
    assert!(!kept, "the state of a finished round is deleted");
}

#[tokio::test]
async fn a_durable_flow_that_outgrows_its_token_goes_on_as_well() {
    let redis = Redis::start();
    let shop = Shop::new();
    let limits = || Limits::default().with_token_bytes(400).with_effects(64, 400);
    let instance = async || {
        let server = builder(&shop, redis.ledger().await).spill().limits(limits()).build();
        Client::modern(server.unwrap()).await
    };
    let checkpoint = instance().await.call("buy", json!({"item": "tea ".repeat(50)})).await.asked().retry();
    let asked = checkpoint.send(&instance().await).await.asked();
    assert!(asked.state().len() <= 400);
    assert!(rounds::keys::OpenedToken::open(&keys(&[1]), "shop", asked.state()).unwrap().spilled);
    let done = asked.accept("size", json!({"size": "xl"})).send(&instance().await).await.text();
    assert_eq!(done, "canary-result xl, charge 0");
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn one_that_is_gone_or_was_changed_is_the_frozen_error() {
    let redis = Redis::start();
    let (shop, events) = (Shop::new(), Events::new());
    let server = builder(&shop, redis.ledger().await).spill().observe(events.clone()).build().unwrap();
    let client = Client::modern(server).await;
    let mut placed = Vec::new();
    for item in ["x", "y"] {
        let before = redis.keys().await;
        let asked = client.call("order", json!({"item": item.repeat(100)})).await.asked();
        let mut after = redis.keys().await;
        after.retain(|key| !before.contains(key));
        assert_eq!(after.len(), 1, "{after:?}");
        placed.push((asked.accept("size", json!({"size": "xl"})), after.remove(0)));
    }
    let other: Vec<u8> = redis.ask("HGET", &[placed[1].1.as_bytes(), b"p"]).await;
    let own: Vec<u8> = redis.ask("HGET", &[placed[0].1.as_bytes(), b"p"]).await;
    for forged in [&other[..], b"", b"garbage"] {
        let _: i64 = redis.ask("HSET", &[placed[0].1.as_bytes(), b"p", forged]).await;
        placed[0].0.send(&client).await.frozen();
    }
    let _: i64 = redis.ask("DEL", &[placed[1].1.as_bytes()]).await;
    placed[1].0.send(&client).await.frozen();
    assert_eq!(shop.charges(), 0);
    let gone = events.stations().into_iter().filter(|station| *station == Station::Refused(Refusal::SpillGone));
    assert_eq!(gone.count(), 4);

    let _: i64 = redis.ask("HSET", &[placed[0].1.as_bytes(), b"p", &own]).await;
    assert!(
        placed[0].0.send(&client).await.text().contains("100000 kept"),
        "a state that was put back works as before"
    );
}
