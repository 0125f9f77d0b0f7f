//! Redis away: stopped, started again, or connected and silent.

use std::time::{Duration, Instant};

use rounds::{
    FlowId,
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger as _, LedgerError, OwnerLost},
    relay::Relay as _,
    test::Leg,
};
use rounds_redis::{ConnectError, RedisLedger, RedisRelay};
use rounds_testkit::Cable;
use serde_json::json;

use crate::{
    Redis, bid, fresh, in_time, round,
    shop::{Shop, client},
    spill,
};

#[track_caller]
fn asks_for_a_retry(leg: &Leg) {
    let error = leg.error();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32603), &json!("retry")), "{error}");
}

#[tokio::test]
async fn stopped_legs_are_told_to_try_again_nothing_is_run_and_service_resumes_by_itself() {
    let mut redis = Redis::start();
    let shop = Shop::new();
    let client = client(&shop, redis.ledger().await).await;
    let order = client.call("order", json!({"item": "tea"})).await.asked();
    let wrap = client.call("wrap", json!({"item": "tea"})).await.asked();
    let (order, wrap) = (order.accept("size", json!({"size": "xl"})), wrap.accept("size", json!({"size": "xl"})));

    redis.stop();
    for _ in 0..3 {
        asks_for_a_retry(&in_time(order.send(&client)).await);
        asks_for_a_retry(&in_time(wrap.send(&client)).await);
        // The token carries the question, so asking needs no Redis.
        in_time(client.call("order", json!({"item": "tea"}))).await.asked();
    }
    assert_eq!(shop.charges(), 0, "an effect that could not be claimed did not run");

    redis.start_again();
    let done = in_time(order.send(&client)).await.text();
    assert_eq!(done, "canary-result xl, canary-value 0, 3000 kept");
    assert_eq!(in_time(order.send(&client)).await.text(), done);
    assert_eq!(in_time(wrap.send(&client)).await.text(), "wrapped tea xl", "its handler was still waiting");
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn silent_it_holds_nobody_up_for_long_and_what_it_did_for_nobody_is_undone() {
    let redis = Redis::start();
    let shop = Shop::new();
    let timeout = Duration::from_millis(300);
    let client = client(&shop, redis.builder().timeout(timeout).connect().await.unwrap()).await;
    // Redis has loaded all scripts from now on, so it can run them after the clients have given up.
    let first = client.call("wrap", json!({"item": "tea"})).await.asked();
    first.accept("size", json!({"size": "xl"})).send(&client).await.text();
    let order = client.call("order", json!({"item": "tea"})).await.asked().accept("size", json!({"size": "xl"}));
    let wrap = client.call("wrap", json!({"item": "tea"})).await.asked().accept("size", json!({"size": "xl"}));

    redis.pause();
    let began = Instant::now();
    asks_for_a_retry(&in_time(order.send(&client)).await);
    asks_for_a_retry(&in_time(wrap.send(&client)).await);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(shop.charges(), 0);

    redis.go_on();
    // Redis has now taken the claims of both rounds for legs that are gone. Their leases would lapse only after thirty
    // seconds, and the flow with a waiting handler would be dead then.
    let began = Instant::now();
    assert_eq!(in_time(order.send(&client)).await.text(), "canary-result xl, canary-value 0, 3000 kept");
    assert_eq!(in_time(wrap.send(&client)).await.text(), "wrapped tea xl");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// Each claim is of a handler that waits in memory: if its lease lapses, the flow is lost.
#[tokio::test(flavor = "multi_thread")]
async fn three_thousand_claims_that_a_paused_redis_took_for_nobody_are_free_again_soon() {
    let redis = Redis::start();
    let ledger = redis.builder().timeout(Duration::from_millis(300)).connect().await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap();
    let ids = (0..3000u16).map(|number| {
        let [a, b] = number.to_be_bytes();
        ClaimId { flow: FlowId::from_bytes([a; 16].map(|a| a ^ b)), what: ClaimKind::Round(u32::from(number) + 2) }
    });

    redis.pause();
    let claims: Vec<_> = ids
        .clone()
        .map(|id| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.claim(id, ClaimRequest { orphan: OwnerLost::Dead, ..bid(0) }).await })
        })
        .collect();
    for claim in claims {
        assert!(in_time(claim).await.unwrap().is_err());
    }
    redis.go_on();
    let began = Instant::now();
    let again = ids.map(|id| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            // By a clock that has not moved, so that no lease lapses.
            while let Ok(Claimed::Running(running)) = ledger.claim(id, bid(0)).await {
                running.await;
            }
        })
    });
    for claim in again.collect::<Vec<_>>() {
        in_time(claim).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_connection_that_broke_between_two_calls_is_not_noticed() {
    let mut redis = Redis::start();
    let ledger = redis.ledger().await;
    for flow in 1..5 {
        let fence = fresh(&ledger, round(flow, 1), bid(0)).await;
        let _: i64 = redis.ask("CLIENT KILL TYPE normal SKIPME yes", &[]).await;
        assert!(ledger.settle(round(flow, 1), fence, None, None, vec![]).await.unwrap(), "{flow}");
        redis.stop();
        redis.start_again();
    }
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_back_is_replaced() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let connecting = RedisLedger::builder(cable.redis_url()).timeout(Duration::from_millis(300)).connect();
    let ledger = in_time(connecting).await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    for _ in 0..2 {
        cable.stall();
        assert!(in_time(ledger.renew(round(1, 1), fence, bid(9).keep.until)).await.is_err());
        assert!(in_time(ledger.renew(round(1, 1), fence, bid(9).keep.until)).await.unwrap());
    }
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_the_same_call_when_it_is_made_again() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let ledger = in_time(RedisLedger::connect(&cable.redis_url())).await.unwrap();
    // Redis has loaded the scripts from now on.
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    assert!(ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap());

    cable.lose_the_next_reply();
    let fence = fresh(&ledger, round(2, 1), bid(0)).await;
    cable.lose_the_next_reply();
    assert!(in_time(ledger.renew(round(2, 1), fence, bid(9).keep.until)).await.unwrap());
    cable.lose_the_next_reply();
    assert!(in_time(ledger.settle(round(2, 1), fence, Some(b"the reply".to_vec()), None, vec![])).await.unwrap());
    cable.lose_the_next_reply();
    assert!(matches!(in_time(ledger.claim(round(2, 1), bid(0))).await, Ok(Claimed::Done(Some(_)))));
    assert!(!cable.will_lose_a_reply());
    assert!(
        !ledger.settle(round(2, 1), fence, None, None, vec![]).await.unwrap(),
        "a call that is not a repetition is rejected"
    );
}

#[tokio::test]
async fn a_claim_that_could_not_be_given_up_is_given_up_later() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let connecting = RedisLedger::builder(cable.redis_url()).timeout(Duration::from_millis(300)).connect();
    let ledger = in_time(connecting).await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    let other = redis.ledger().await;
    let Ok(Claimed::Running(waiting)) = other.claim(round(1, 1), bid(0)).await else { panic!() };
    cable.stall();
    assert!(in_time(ledger.release(round(1, 1), fence, OwnerLost::Free, false)).await.is_err());
    in_time(waiting).await;
    assert_eq!(fresh(&other, round(1, 1), bid(0)).await, fence + 1);
}

/// The Redis that held the claim is gone, and another owner takes the claim at the Redis that has its address now.
#[tokio::test]
async fn what_is_given_up_later_is_nobody_elses_claim() {
    let (old, new) = (Redis::start(), Redis::start());
    let cable = Cable::to(old.socket()).await;
    let connecting = RedisLedger::builder(cable.redis_url()).timeout(Duration::from_millis(300)).connect();
    let (ledger, other) = (in_time(connecting).await.unwrap(), new.ledger().await);
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    cable.lead_to(new.socket());
    cable.stall();
    let theirs = fresh(&other, round(1, 1), bid(0)).await;
    let _: String = new.ask("CONFIG RESETSTAT", &[]).await;
    assert!(in_time(ledger.release(round(1, 1), fence, OwnerLost::Free, false)).await.is_err());
    in_time(async {
        while !new.ask::<String>("INFO commandstats", &[]).await.contains("cmdstat_hmget") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(other.renew(round(1, 1), theirs, bid(9).keep.until).await.unwrap());
}

#[tokio::test]
async fn a_primary_that_is_one_no_more_is_left_for_the_one_that_has_its_name() {
    let (old, new) = (Redis::start(), Redis::start());
    let cable = Cable::to(old.socket()).await;
    let ledger = in_time(RedisLedger::connect(&cable.redis_url())).await.unwrap();
    assert!(matches!(ledger.claim(round(1, 1), bid(0)).await, Ok(Claimed::Fresh { .. })));
    let _: String = old.ask("REPLICAOF 127.0.0.1 1", &[]).await;
    cable.lead_to(new.socket());
    assert!(in_time(ledger.claim(round(2, 1), bid(0))).await.is_err(), "a replica rejects claims");
    fresh(&ledger, round(2, 1), bid(0)).await;
    assert_eq!(new.keys().await.len(), 1);
}

#[tokio::test]
async fn a_primary_without_its_replicas_is_left_for_the_one_that_has_its_name() {
    let (old, new) = (Redis::start(), Redis::start());
    let cable = Cable::to(old.socket()).await;
    let ledger = in_time(RedisLedger::connect(&cable.redis_url())).await.unwrap();
    fresh(&ledger, round(1, 1), bid(0)).await;
    let _: String = old.ask("CONFIG SET min-replicas-to-write 1", &[]).await;
    cable.lead_to(new.socket());
    assert!(in_time(ledger.claim(round(2, 1), bid(0))).await.is_err(), "it rejects claims without its replicas");
    fresh(&ledger, round(2, 1), bid(0)).await;
    assert_eq!(new.keys().await.len(), 1);
}

#[tokio::test]
async fn a_user_who_was_turned_away_and_is_let_in_again_goes_on() {
    let redis = Redis::start();
    let _: String = redis.ask("ACL SETUSER app on >secret ~* &* +@all", &[]).await;
    let url = format!("{}?user=app&pass=secret", redis.url());
    let ledger = in_time(RedisLedger::connect(&url)).await.unwrap();
    let relay = in_time(RedisRelay::connect(&url, "a")).await.unwrap();
    let other = in_time(RedisRelay::connect(&redis.url(), "b")).await.unwrap();
    fresh(&ledger, round(1, 1), bid(0)).await;
    assert!(in_time(relay.post(other.here(), b"hello".to_vec())).await.unwrap());

    let _: String = redis.ask("ACL SETUSER app off", &[]).await;
    let _: i64 = redis.ask("CLIENT KILL USER app", &[]).await;
    assert!(in_time(ledger.claim(round(2, 1), bid(0))).await.is_err(), "its commands are rejected");
    assert!(in_time(relay.post(other.here(), b"hello".to_vec())).await.is_err());

    let _: String = redis.ask("ACL SETUSER app on", &[]).await;
    fresh(&ledger, round(2, 1), bid(0)).await;
    assert!(in_time(relay.post(other.here(), b"hello".to_vec())).await.unwrap());
}

#[tokio::test]
async fn every_call_is_bounded() {
    let redis = Redis::start();
    let ledger = redis.builder().timeout(Duration::from_millis(200)).connect().await.unwrap();
    redis.pause();
    let began = Instant::now();
    let id = round(1, 1);
    let silent = [
        ledger.spill(spill(id, bid(0).keep)).await.err(),
        ledger.claim(id, bid(0)).await.err(),
        ledger.renew(id, 1, bid(0).keep.until).await.err(),
        ledger.settle(id, 1, None, None, vec![]).await.err(),
        ledger.release(id, 1, OwnerLost::Free, true).await.err(),
    ];
    for error in silent {
        let error = error.expect("the call did not fail");
        assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_waiter_learns_that_redis_is_gone() {
    let mut redis = Redis::start();
    let ledger = redis.builder().timeout(Duration::from_millis(200)).connect().await.unwrap();
    assert!(matches!(ledger.claim(round(1, 1), bid(0)).await, Ok(Claimed::Fresh { .. })));
    let Ok(Claimed::Running(waiting)) = ledger.claim(round(1, 1), bid(0)).await else { panic!() };
    redis.stop();
    in_time(waiting).await;
    assert!(ledger.claim(round(1, 1), bid(0)).await.is_err());
}

#[tokio::test]
async fn there_is_no_ledger_without_redis() {
    let mut redis = Redis::start();
    redis.stop();
    let error = in_time(RedisLedger::connect(&redis.url())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
    assert!(matches!(RedisLedger::connect("http://x").await, Err(ConnectError::Url(_))));
    let braces = redis.builder().prefix("a{b").connect().await;
    assert!(matches!(braces, Err(ConnectError::Prefix { .. })));
    assert!(matches!(redis.builder().timeout(Duration::ZERO).connect().await, Err(ConnectError::NoTime)));
}

#[tokio::test]
async fn a_redis_that_evicts_is_not_trusted_with_claims() {
    let evicting = Redis::with(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = RedisLedger::connect(&evicting.url()).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Evicts { policy } if policy == "allkeys-lru"), "{error:?}");
}

#[tokio::test]
async fn a_full_redis_refuses_new_records_and_forgets_none() {
    let redis = Redis::with(&["--maxmemory", "50mb", "--maxmemory-policy", "noeviction"]);
    let ledger = redis.ledger().await;
    fresh(&ledger, round(1, 1), bid(0)).await;
    let _: String = redis.ask("CONFIG SET maxmemory 1", &[]).await;
    assert!(matches!(ledger.spill(spill(round(2, 1), bid(0).keep)).await, Err(LedgerError::Unavailable(_))));
    assert!(ledger.claim(round(3, 1), bid(0)).await.is_err());
    let _: String = redis.ask("CONFIG SET maxmemory 50mb", &[]).await;
    assert!(matches!(ledger.claim(round(1, 1), bid(0)).await, Ok(Claimed::Running(_))));
    assert_eq!(
        redis.keys().await.iter().filter(|key| !key.ends_with(":w")).count(),
        1,
        "no record was written in part"
    );
}
