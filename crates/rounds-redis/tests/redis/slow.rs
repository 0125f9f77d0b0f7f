//! A Redis far away: round trips take most of the timeout.

use std::time::{Duration, Instant};

use rounds::{
    ledger::{Claimed, Ledger as _},
    relay::Relay as _,
};
use rounds_redis::{RedisLedger, RedisRelay};
use rounds_testkit::Cable;

use crate::{Redis, bid, fresh, in_time, round};

const TIMEOUT: Duration = Duration::from_millis(1500);

/// 80 % of the timeout.
const ROUND_TRIP: Duration = Duration::from_millis(1200);

async fn ledger(cable: &Cable) -> RedisLedger {
    in_time(RedisLedger::builder(cable.redis_url()).timeout(TIMEOUT).connect()).await.unwrap()
}

#[tokio::test]
async fn round_trips_of_four_fifths_of_the_timeout_are_served() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let ledger = ledger(&cable).await;
    let relays = ["a", "b"].map(|name| RedisRelay::builder(cable.redis_url(), name).timeout(TIMEOUT).connect());
    let [a, b] = relays.map(in_time);
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    cable.delay(ROUND_TRIP);
    let opened = cable.opened();
    for flow in 1..4 {
        let fence = fresh(&ledger, round(flow, 1), bid(0)).await;
        assert!(ledger.settle(round(flow, 1), fence, None, None, vec![]).await.unwrap());
        assert!(a.post(b.here(), vec![1]).await.unwrap());
    }
    assert_eq!(cable.opened(), opened, "the connection is kept");
}

/// Redis has no script then, and each script takes three round trips.
#[tokio::test]
async fn scripts_that_redis_has_lost_are_loaded_however_long_a_round_trip_takes() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let ledger = ledger(&cable).await;
    cable.delay(ROUND_TRIP);
    let _: String = redis.ask("SCRIPT FLUSH", &[]).await;
    fresh(&ledger, round(1, 1), bid(0)).await;
}

#[tokio::test]
async fn a_ledger_connects_at_half_a_second_a_round_trip() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    cable.delay(Duration::from_millis(500));
    let ledger = in_time(RedisLedger::connect(&cable.redis_url())).await.unwrap();
    fresh(&ledger, round(1, 1), bid(0)).await;
}

/// Calls that failed, until each of twenty callers was served.
async fn failures_until_all_are_served(ledger: &RedisLedger) -> usize {
    let callers = (0..20).map(|caller| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            let mut failures = 0;
            while !matches!(
                ledger.claim(round(caller, 1), bid(0)).await,
                Ok(Claimed::Fresh { .. } | Claimed::Running(_))
            ) {
                failures += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            failures
        })
    });
    let mut failures = 0;
    for caller in callers.collect::<Vec<_>>() {
        failures = failures.max(in_time(caller).await.unwrap());
    }
    failures
}

/// Connecting and a call together take longer than the timeout. If every call that fails began to connect again, none
/// would succeed.
#[tokio::test]
async fn a_timeout_is_followed_by_one_new_connection_and_not_by_more_timeouts() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let ledger = ledger(&cable).await;
    fresh(&ledger, round(100, 1), bid(0)).await;
    cable.delay(ROUND_TRIP);
    let opened = cable.opened();
    cable.stall();
    let began = Instant::now();
    let failures = failures_until_all_are_served(&ledger).await;
    assert!(failures <= 3, "{failures} failures of one caller in {:?}", began.elapsed());
    assert_eq!(cable.opened() - opened, 1, "connections that were opened");
}

#[tokio::test]
async fn a_connection_that_breaks_is_opened_once_however_long_that_takes() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let ledger = ledger(&cable).await;
    fresh(&ledger, round(100, 1), bid(0)).await;
    cable.delay(ROUND_TRIP);
    let opened = cable.opened();
    let _: i64 = redis.ask("CLIENT KILL TYPE normal SKIPME yes", &[]).await;
    let failures = failures_until_all_are_served(&ledger).await;
    assert!(failures <= 3, "{failures} failures of one caller");
    assert_eq!(cable.opened() - opened, 1, "connections that were opened");
}

#[tokio::test]
async fn a_connection_that_never_answers_is_given_up_when_connecting_has_taken_too_long() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let builder = RedisLedger::builder(cable.redis_url()).timeout(Duration::from_millis(300));
    let ledger = in_time(builder.connect_timeout(Duration::from_millis(900)).connect()).await.unwrap();
    cable.cut();
    assert!(ledger.claim(round(1, 1), bid(0)).await.is_err());
    // The connection that is opened now is accepted, and nothing comes back on it.
    assert!(ledger.claim(round(1, 1), bid(0)).await.is_err());
    cable.mend();
    in_time(async {
        while ledger.claim(round(1, 1), bid(0)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
