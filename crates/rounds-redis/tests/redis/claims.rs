//! The life of a claim, and how long it is kept.

use std::time::Duration;

use rounds::{
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger as _, LedgerError, OwnerLost, PrincipalShare, Retention,
        Spill,
    },
    time::Timestamp,
};

use crate::{LEASE, Redis, at, bid, digest, fresh, in_time, round, spill};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let redis = Redis::start();
    in_time(rounds::ledger::suite::run(|| redis.ledger())).await;
}

#[tokio::test]
async fn every_key_has_the_prefix_the_flow_as_its_hash_tag_and_an_end() {
    let redis = Redis::start();
    let ledger = redis.builder().prefix("weather").connect().await.unwrap();
    let Ok(Claimed::Fresh { fence, .. }) = ledger.claim(round(1, 1), bid(0)).await else { panic!() };
    let Ok(Claimed::Running(_)) = ledger.claim(round(1, 1), bid(0)).await else { panic!() };
    assert!(
        ledger.settle(round(1, 1), fence, Some(vec![1]), Some(spill(round(1, 2), bid(0).keep)), vec![]).await.unwrap()
    );
    ledger.spill(spill(round(2, 1), bid(0).keep)).await.unwrap();
    let keys = redis.keys().await;
    assert_eq!(keys.len(), 4, "{keys:?}");
    for key in keys {
        let flow = if key.contains("02") { "02" } else { "01" };
        assert!(key.starts_with(&format!("weather:{{{}}}:r", flow.repeat(16))), "{key}");
        let left: i64 = redis.ask("PTTL", &[key.as_bytes()]).await;
        assert!(left > 0, "{key} never expires");
    }
}

/// How much longer Redis keeps a claim.
async fn left(redis: &Redis, key: &str) -> Duration {
    Duration::from_millis(redis.ask("PTTL", &[key.as_bytes()]).await)
}

const FIRST: &str = "rounds:{01010101010101010101010101010101}:r1";

#[tokio::test]
async fn a_record_is_kept_until_the_time_it_was_given_whatever_the_clock_of_its_owner_says() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    // The owner's clock is half a century behind that of Redis, and then a century ahead.
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
    ledger.spill(spill(round(1, 1), bid(0).keep)).await.unwrap();
    // The claimant's clock is ahead: by that clock, half of the time has passed.
    let mut ahead = bid(300);
    ahead.keep.until = at(600);
    let fence = fresh(&ledger, round(1, 1), ahead).await;
    assert!(ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap());
    let left = left(&redis, FIRST).await;
    assert!(left > Duration::from_secs(590), "{left:?}");
}

#[tokio::test]
async fn an_effect_that_is_spent_goes_with_its_round_and_one_that_runs_is_left_to_its_owner() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let effect = |name| ClaimId { what: ClaimKind::Once(digest(name)), ..round(1, 1) };
    let key = |name: u8| format!("{}e{:?}", FIRST.strip_suffix("r1").unwrap(), digest(name));
    let mut hour = bid(0);
    hour.keep.until = at(3600);
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    let [done, running, needed] = [1, 2, 3];
    for name in [done, needed] {
        let fence = fresh(&ledger, effect(name), hour).await;
        assert!(ledger.settle(effect(name), fence, Some(vec![name]), None, vec![]).await.unwrap());
    }
    let owner = fresh(&ledger, effect(running), hour).await;
    let spent = [done, running, 4].map(effect).to_vec();
    let next = spill(round(1, 2), bid(0).keep);
    assert!(ledger.settle(round(1, 1), fence, None, Some(next), spent).await.unwrap());
    let (ten_minutes, of_round) = (Duration::from_secs(600), left(&redis, FIRST).await);
    assert!(of_round <= ten_minutes && left(&redis, &key(done)).await <= of_round);
    for name in [running, needed] {
        assert!(left(&redis, &key(name)).await > ten_minutes);
    }
    assert!(redis.keys().await.iter().all(|known| *known != key(4)), "an effect that never began has no record");
    assert!(ledger.renew(effect(running), owner, at(60)).await.unwrap());
    assert!(ledger.settle(effect(running), owner, None, None, vec![]).await.unwrap());
    assert!(matches!(ledger.claim(effect(done), hour).await, Ok(Claimed::Done(_))));
}

/// A clock that is ahead does not make an effect expire before its round.
#[tokio::test]
async fn a_spent_effect_is_kept_as_long_as_its_round_whatever_the_clock_of_its_owner_says() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let effect = ClaimId { what: ClaimKind::Once(digest(1)), ..round(1, 1) };
    let fence = fresh(&ledger, round(1, 1), bid(0)).await;
    let mut ahead = bid(500);
    ahead.keep.until = at(3600);
    let of_effect = fresh(&ledger, effect, ahead).await;
    assert!(ledger.settle(effect, of_effect, None, None, vec![]).await.unwrap());
    assert!(ledger.settle(round(1, 1), fence, None, None, vec![effect]).await.unwrap());
    let key = format!("{}e{:?}", FIRST.strip_suffix("r1").unwrap(), digest(1));
    let (of_round, of_effect) = (left(&redis, FIRST).await, left(&redis, &key).await);
    assert!(of_effect + Duration::from_secs(1) > of_round, "{of_effect:?} of {of_round:?}");
}

#[tokio::test]
async fn a_caller_at_its_share_is_told_to_wait_and_its_own_rounds_and_all_others_go_on() {
    let redis = Redis::start();
    let ledger = redis.builder().principal_bytes(5 << 10).anonymous_bytes(3 << 10).connect().await.unwrap();
    let of = |share| ClaimRequest { keep: Retention { share, ..bid(0).keep }, ..bid(0) };
    let (mine, yours) = (of(PrincipalShare::Principal([1; 16])), of(PrincipalShare::Principal([2; 16])));
    let fence = fresh(&ledger, round(1, 1), mine).await;
    fresh(&ledger, round(2, 1), mine).await;
    let full = ledger.claim(round(3, 1), mine).await;
    assert!(matches!(full, Err(LedgerError::Full { limit: 5120, .. })), "{full:?}");
    let large = Spill { state: vec![0; 2000], ..spill(round(4, 1), mine.keep) };
    assert!(matches!(ledger.spill(large.clone()).await, Err(LedgerError::Full { .. })));
    let settled = ledger.settle(round(1, 1), fence, None, Some(large), vec![]).await;
    assert!(matches!(settled, Err(LedgerError::Full { .. })), "{settled:?}");
    assert_eq!(redis.keys().await.len(), 2, "no record was written in part");

    assert!(
        matches!(ledger.claim(round(1, 1), mine).await, Ok(Claimed::Running(_))),
        "a round with a record is not limited"
    );
    let effect = ClaimId { what: ClaimKind::Once(digest(1)), ..round(1, 1) };
    fresh(&ledger, effect, mine).await;
    assert!(ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap());
    assert!(matches!(ledger.claim(round(1, 1), mine).await, Ok(Claimed::Done(None))));
    fresh(&ledger, round(5, 1), yours).await;
    fresh(&ledger, round(6, 1), of(PrincipalShare::Anonymous)).await;
    assert!(ledger.claim(round(7, 1), of(PrincipalShare::Anonymous)).await.is_err());
    fresh(&ledger, round(8, 1), of(PrincipalShare::Common)).await;
}

#[tokio::test]
async fn a_record_that_never_expires_is_taken_as_well() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let mut for_ever = bid(0);
    for_ever.keep.until = rounds::time::Timestamp::from_millis(u64::MAX);
    assert!(matches!(ledger.claim(round(1, 1), for_ever).await, Ok(Claimed::Fresh { .. })));
}

#[tokio::test]
async fn a_waiter_of_another_instance_keeps_a_run_going_and_gets_its_reply() {
    let redis = Redis::start();
    let (here, there) = (redis.ledger().await, redis.ledger().await);
    let id = round(1, 1);
    let fence = fresh(&here, id, bid(0)).await;
    let Ok(Claimed::Running(waiting)) = there.claim(id, bid(1)).await else { panic!() };
    assert!(here.release(id, fence, OwnerLost::Free, true).await.unwrap(), "a leg at another instance waits");
    let waiting = tokio::spawn(waiting);
    assert!(here.settle(id, fence, Some(b"the reply".to_vec()), None, vec![]).await.unwrap());
    in_time(waiting).await.unwrap();
    assert!(matches!(there.claim(id, bid(1)).await, Ok(Claimed::Done(Some(reply))) if reply == b"the reply"));
}

/// Redis has reported the round as running, and the waiting leg has not read the reply yet.
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
        ledger.release(id, fence, OwnerLost::Free, true),
        async { redis.go_on() },
    };
    assert!(matches!(claimed, Ok(Claimed::Running(_))));
    assert!(kept.unwrap(), "the leg counts as a waiter");
}

#[tokio::test]
async fn the_claims_that_are_kept_can_be_counted() {
    let redis = Redis::start();
    let (ledger, other) = (redis.ledger().await, redis.builder().prefix("round?").connect().await.unwrap());
    assert_eq!(ledger.claims().await.unwrap(), 0);
    for flow in 1..=20 {
        ledger.spill(spill(round(flow, 1), keep_from_now())).await.unwrap();
    }
    other.spill(spill(round(1, 1), keep_from_now())).await.unwrap();
    for _ in ["taken", "waited for"] {
        ledger.claim(round(1, 1), ClaimRequest { keep: keep_from_now(), ..bid(0) }).await.unwrap();
    }
    let _: String = redis.ask("SET", &[b"rounds:{airline}:quotes", b"1"]).await;
    assert_eq!((ledger.claims().await.unwrap(), other.claims().await.unwrap()), (20, 1));
    let name = ClaimId { flow: round(1, 1).flow, what: ClaimKind::Once(digest(1)) };
    ledger.claim(name, ClaimRequest { keep: keep_from_now(), ..bid(0) }).await.unwrap();
    assert_eq!(ledger.claims().await.unwrap(), 21, "an effect counts too");
}

fn keep_from_now() -> Retention {
    let now = Timestamp::from(std::time::SystemTime::now());
    Retention { now, until: now + LEASE, share: PrincipalShare::Common }
}
