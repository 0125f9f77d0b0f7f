//! The life of a claim, and how long it is remembered.

use std::time::Duration;

use rounds::{
    Timestamp,
    ledger::{Bid, ClaimId, Claimed, Keep, Ledger as _, Orphan, Spill, What},
};

use crate::{LEASE, Redis, at, bid, digest, fresh, in_time, round};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let redis = Redis::start();
    in_time(rounds::ledger::suite::run(|| redis.ledger())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_on_a_node_of_a_cluster() {
    // Such a node refuses a script whose keys need not be in one place.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let redis = Redis::with(&["--cluster-enabled", "yes", "--cluster-port", &free, "--bind", "127.0.0.1"]);
    let _: String = redis.ask("CLUSTER ADDSLOTSRANGE 0 16383", &[]).await;
    in_time(async {
        while !redis.ask::<String>("CLUSTER INFO", &[]).await.contains("cluster_state:ok") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rounds::ledger::suite::run(|| redis.ledger()).await;
    })
    .await;
}

#[tokio::test]
async fn every_key_has_the_prefix_the_flow_as_its_hash_tag_and_an_end() {
    let redis = Redis::start();
    let ledger = redis.builder().prefix("weather").connect().await.unwrap();
    let spill = Spill { id: round(1, 2), keep: bid(0).keep, state: vec![1] };
    let Ok(Claimed::Fresh { fence, .. }) = ledger.claim(round(1, 1), bid(0)).await else { panic!() };
    let Ok(Claimed::Running(_)) = ledger.claim(round(1, 1), bid(0)).await else { panic!() };
    assert!(ledger.settle(round(1, 1), fence, Some(vec![1]), Some(spill)).await.unwrap());
    ledger.admit(round(2, 1), bid(0).keep, None).await.unwrap();
    let keys = redis.keys().await;
    assert_eq!(keys.len(), 4, "{keys:?}");
    for key in keys {
        let flow = if key.contains("02") { "02" } else { "01" };
        assert!(key.starts_with(&format!("weather:{{{}}}:r", flow.repeat(16))), "{key}");
        let left: i64 = redis.ask("PTTL", &[key.as_bytes()]).await;
        assert!(left > 0, "{key} would stay for ever");
    }
}

/// How long Redis will keep a claim from now on.
async fn left(redis: &Redis, key: &str) -> Duration {
    Duration::from_millis(redis.ask("PTTL", &[key.as_bytes()]).await)
}

const FIRST: &str = "rounds:{01010101010101010101010101010101}:r1";

#[tokio::test]
async fn a_record_is_kept_until_the_time_it_was_given_whatever_the_clock_of_its_owner_says() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    // The clock of the owner is half a century behind that of Redis, and then a century ahead.
    for (flow, now) in [(1, 1_000), (2, 5_000_000_000)] {
        let key = FIRST.replace("01", &format!("{flow:02}"));
        assert!(matches!(ledger.claim(round(flow, 1), bid(now)).await, Ok(Claimed::Fresh { .. })));
        let left = left(&redis, &key).await;
        assert!(left > Duration::from_secs(590) && left <= Duration::from_secs(600), "{left:?}");
    }
}

#[tokio::test]
async fn a_claim_at_work_outlives_its_expiry_until_its_lease_has_lapsed() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let mut late = bid(100);
    late.keep.until = at(100);
    let fence = fresh(&ledger, round(1, 1), late).await;
    let first = left(&redis, FIRST).await;
    assert!(first > LEASE / 2 && first <= LEASE, "{first:?}");
    assert!(ledger.renew(round(1, 1), fence, at(100) + LEASE + LEASE).await.unwrap());
    let renewed = left(&redis, FIRST).await;
    assert!(renewed > LEASE && renewed <= LEASE + LEASE, "{renewed:?}");
}

#[tokio::test]
async fn nothing_that_is_said_later_makes_a_record_go_earlier() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    ledger.admit(round(1, 1), bid(0).keep, None).await.unwrap();
    // The clock of whoever claims is ahead: for them, half of the time is over.
    let mut ahead = bid(300);
    ahead.keep.until = at(600);
    let fence = fresh(&ledger, round(1, 1), ahead).await;
    assert!(ledger.settle(round(1, 1), fence, None, None).await.unwrap());
    let left = left(&redis, FIRST).await;
    assert!(left > Duration::from_secs(590), "{left:?}");
}

#[tokio::test]
async fn a_record_that_never_expires_is_taken_as_well() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let mut for_ever = bid(0);
    for_ever.keep.until = rounds::Timestamp::from_millis(u64::MAX);
    assert!(matches!(ledger.claim(round(1, 1), for_ever).await, Ok(Claimed::Fresh { .. })));
}

#[tokio::test]
async fn a_waiter_of_another_instance_keeps_a_run_going_and_gets_its_reply() {
    let redis = Redis::start();
    let (here, there) = (redis.ledger().await, redis.ledger().await);
    let id = round(1, 1);
    let fence = fresh(&here, id, bid(0)).await;
    let Ok(Claimed::Running(waiting)) = there.claim(id, bid(1)).await else { panic!() };
    assert!(here.release(id, fence, Orphan::Free, true).await.unwrap(), "somebody waits elsewhere");
    let waiting = tokio::spawn(waiting);
    assert!(here.settle(id, fence, Some(b"the reply".to_vec()), None).await.unwrap());
    in_time(waiting).await.unwrap();
    assert!(matches!(there.claim(id, bid(1)).await, Ok(Claimed::Done(Some(reply))) if reply == b"the reply"));
}

/// Redis has said that the round runs, and who asked has not read it yet.
#[tokio::test]
async fn who_is_about_to_wait_keeps_a_run_going() {
    let redis = Redis::start();
    let ledger = redis.builder().timeout(Duration::from_secs(20)).connect().await.unwrap();
    let id = round(1, 1);
    let fence = fresh(&ledger, id, bid(0)).await;
    redis.pause();
    let (claimed, kept, ()) = tokio::join! {
        biased;
        ledger.claim(id, bid(0)),
        ledger.release(id, fence, Orphan::Free, true),
        async { redis.go_on() },
    };
    assert!(matches!(claimed, Ok(Claimed::Running(_))));
    assert!(kept.unwrap(), "somebody waits");
}

#[tokio::test]
async fn the_claims_that_are_kept_can_be_counted() {
    let redis = Redis::start();
    let (ledger, other) = (redis.ledger().await, redis.builder().prefix("round?").connect().await.unwrap());
    assert_eq!(ledger.claims().await.unwrap(), 0);
    for flow in 1..=20 {
        ledger.admit(round(flow, 1), keep_from_now(), None).await.unwrap();
    }
    other.admit(round(1, 1), keep_from_now(), None).await.unwrap();
    for _ in ["taken", "waited for"] {
        ledger.claim(round(1, 1), Bid { keep: keep_from_now(), ..bid(0) }).await.unwrap();
    }
    let _: String = redis.ask("SET", &[b"rounds:{airline}:quotes", b"1"]).await;
    assert_eq!((ledger.claims().await.unwrap(), other.claims().await.unwrap()), (20, 1));
    let name = ClaimId { flow: round(1, 1).flow, what: What::Once(digest(1)) };
    ledger.claim(name, Bid { keep: keep_from_now(), ..bid(0) }).await.unwrap();
    assert_eq!(ledger.claims().await.unwrap(), 21, "and an effect");
}

fn keep_from_now() -> Keep {
    let now = Timestamp::from(std::time::SystemTime::now());
    Keep { now, until: now + LEASE }
}
