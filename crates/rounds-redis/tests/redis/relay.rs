//! Legs that are carried to another instance over Redis.

use std::{
    future::poll_fn,
    time::{Duration, Instant, SystemTime},
};

use futures_core::Stream as _;
use rounds::{
    Rounds, RoundsBuilder,
    observe::{Refusal, Station},
    relay::Relay as _,
    test::{Client, Events, Leg, Retry},
    time::{BoxFuture, Clock},
};
use rounds_redis::{ConnectError, RedisLedger, RedisRelay};
use rounds_testkit::Cable;
use serde_json::json;

use crate::{
    Redis, in_time,
    shop::{Shop, builder},
};

/// One instance of a fleet, and a client that is connected to it.
struct Instance {
    client: Client,
    events: Events,
    /// The name by which the other instances know it.
    here: String,
}

impl Instance {
    async fn new(redis: &Redis, name: &str) -> Self {
        let relay = RedisRelay::connect(&redis.url(), name).await.unwrap();
        Self::with(redis, relay, |builder| builder).await
    }

    async fn with(
        redis: &Redis,
        relay: RedisRelay,
        set: impl FnOnce(RoundsBuilder<Shop>) -> RoundsBuilder<Shop>,
    ) -> Self {
        let (events, here) = (Events::new(), relay.here().to_owned());
        let builder = builder(&Shop::new(), redis.ledger().await).relay(relay).observe(events.clone());
        let server: Rounds<Shop> = set(builder).build().unwrap();
        Self { client: Client::modern(server).await, events, here }
    }

    /// Begins a linear flow here, and returns the retry with the user's answer.
    async fn begun(&self) -> Retry {
        let asked = self.client.call("wrap", json!({"item": "tea"})).await.asked();
        asked.accept("size", json!({"size": "canary-size"}))
    }

    fn was_routed_to(&self, other: &Self) -> bool {
        self.events.stations().contains(&Station::Routed { to: other.here.clone() })
    }
}

const WRAPPED: &str = "wrapped tea canary-size";

fn asks_for_a_retry(leg: &Leg) -> bool {
    leg.response()["error"]["data"]["reason"] == "retry"
}

/// Sends a leg again as long as it ends with a retryable error, as any client would.
async fn persistently(retry: &Retry, client: &Client) -> Leg {
    in_time(async {
        loop {
            let leg = retry.send(client).await;
            if !asks_for_a_retry(&leg) {
                return leg;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

/// Number of subscribers of an instance's channel.
async fn listeners(redis: &Redis, here: &str) -> u64 {
    let channel = format!("rounds:to:{here}");
    let (_, count): (String, u64) = redis.ask("PUBSUB NUMSUB", &[channel.as_bytes()]).await;
    count
}

async fn until_listeners(redis: &Redis, here: &str, wanted: u64) {
    in_time(async {
        while listeners(redis, here).await != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_linear_flow_goes_on_from_any_instance() {
    let redis = Redis::start();
    let (a, b) = (Instance::new(&redis, "a").await, Instance::new(&redis, "b").await);
    for (owner, other) in [(&a, &b), (&b, &a)] {
        let answered = owner.begun().await;
        for client in [&other.client, &owner.client, &other.client] {
            assert_eq!(in_time(answered.send(client)).await.text(), WRAPPED);
        }
        assert_eq!(owner.events.runs("wrap"), 1);
        assert!(other.was_routed_to(owner));
    }
}

#[tokio::test]
async fn a_routed_leg_costs_four_calls() {
    let redis = Redis::start();
    let (a, b) = (Instance::new(&redis, "a").await, Instance::new(&redis, "b").await);
    // Scripts that are loaded once are loaded now.
    a.begun().await.send(&b.client).await.text();
    let answered = a.begun().await;
    let _: String = redis.ask("CONFIG RESETSTAT", &[]).await;
    assert_eq!(answered.send(&b.client).await.text(), WRAPPED);
    let stats: String = redis.ask("INFO commandstats", &[]).await;
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    assert_eq!((calls("publish"), calls("evalsha"), calls("eval")), (2, 2, 0), "{stats}");
}

#[tokio::test]
async fn whoever_is_gone_is_known_to_be_at_once() {
    let redis = Redis::start();
    let (a, b) = (RedisRelay::connect(&redis.url(), "a").await.unwrap(), Instance::new(&redis, "b").await);
    assert!(a.post(&b.here, b"to b".to_vec()).await.unwrap());
    assert!(!a.post("never-there", b"unreceived".to_vec()).await.unwrap());
    let gone = RedisRelay::connect(&redis.url(), "gone").await.unwrap();
    let name = gone.here().to_owned();
    assert!(a.post(&name, b"to an instance".to_vec()).await.unwrap());
    drop(gone);
    until_listeners(&redis, &name, 0).await;
    assert!(!a.post(&name, b"unreceived".to_vec()).await.unwrap());
}

#[tokio::test]
async fn the_same_instance_after_a_restart_is_another() {
    let redis = Redis::start();
    let (one, two) =
        (RedisRelay::connect(&redis.url(), "a").await.unwrap(), RedisRelay::connect(&redis.url(), "a").await.unwrap());
    assert_ne!(one.here(), two.here());
    assert!(one.here().starts_with("a-") && two.here().starts_with("a-"));
}

#[tokio::test]
async fn a_redis_that_is_stopped_and_started_costs_retries_and_no_flow() {
    let mut redis = Redis::start();
    let (a, b) = (Instance::new(&redis, "a").await, Instance::new(&redis, "b").await);
    let answered = a.begun().await;
    redis.stop();
    for instance in [&a, &b] {
        assert!(asks_for_a_retry(&in_time(answered.send(&instance.client)).await));
    }
    redis.start_again();
    assert_eq!(persistently(&answered, &b.client).await.text(), WRAPPED);
    assert_eq!(a.events.runs("wrap"), 1);
    assert!(b.was_routed_to(&a));
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_any_more_is_given_up() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let relay = RedisRelay::builder(cable.redis_url(), "a").timeout(Duration::from_millis(300)).connect();
    let a = Instance::with(&redis, in_time(relay).await.unwrap(), |builder| builder).await;
    let b = Instance::new(&redis, "b").await;
    let answered = a.begun().await;
    cable.stall();
    // Redis does not know that the first one hears nothing.
    until_listeners(&redis, &a.here, 2).await;
    assert_eq!(in_time(answered.send(&b.client)).await.text(), WRAPPED);
}

/// Redis counts the message as received, but the receiving connection is dead.
#[tokio::test]
async fn an_errand_that_a_dead_connection_swallows_is_sent_again() {
    let redis = Redis::start();
    let cable = Cable::to(redis.socket()).await;
    let relay = RedisRelay::builder(cable.redis_url(), "a").timeout(Duration::from_millis(500)).connect();
    let a = Instance::with(&redis, in_time(relay).await.unwrap(), |builder| builder).await;
    let b = Instance::new(&redis, "b").await;
    let answered = a.begun().await;
    cable.stall();
    assert_eq!(in_time(answered.send(&b.client)).await.text(), WRAPPED);
}

/// A fleet of two that connects to its Redis through the cable; its claims are in another Redis. The first instance
/// subscribes first.
async fn fleet(cable: &Cable, claims: &Redis) -> [Instance; 2] {
    let relay = |name| RedisRelay::builder(cable.redis_url(), name).timeout(Duration::from_millis(500)).connect();
    let (a, b) = (in_time(relay("a")).await.unwrap(), in_time(relay("b")).await.unwrap());
    [Instance::with(claims, a, |builder| builder).await, Instance::with(claims, b, |builder| builder).await]
}

/// Ends the oldest subscription.
async fn end_first_subscription(redis: &Redis) {
    let subscribed: String = redis.ask("CLIENT LIST TYPE pubsub", &[]).await;
    let ids = subscribed.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok());
    let _: i64 = redis.ask("CLIENT KILL ID", &[ids.min().unwrap().to_string().as_bytes()]).await;
}

/// The address leads to a new Redis. Connections to the old one stay open in part, or are cut off silently.
async fn another_redis_takes_over(cuts_off: impl AsyncFnOnce(&Redis, &Cable)) {
    let (claims, old, new) = (Redis::start(), Redis::start(), Redis::start());
    let cable = Cable::to(old.socket()).await;
    let [a, b] = fleet(&cable, &claims).await;
    let answered = a.begun().await;
    cable.lead_to(new.socket());
    let _: String = old.ask("REPLICAOF 127.0.0.1 1", &[]).await;
    cuts_off(&old, &cable).await;
    assert_eq!(persistently(&answered, &b.client).await.text(), WRAPPED);
    assert!(b.was_routed_to(&a));
    assert_eq!(a.events.runs("wrap"), 1);
    // From now on all instances have reconnected.
    for instance in [&a, &b] {
        until_listeners(&new, &instance.here, 1).await;
    }
    assert_eq!(persistently(&a.begun().await, &b.client).await.text(), WRAPPED);
}

#[tokio::test]
async fn a_primary_that_became_a_replica_and_keeps_its_connections_costs_no_flow() {
    another_redis_takes_over(async |_, _| {}).await;
}

#[tokio::test]
async fn a_primary_that_became_a_replica_and_ends_connections_costs_no_flow() {
    another_redis_takes_over(async |old, _| {
        let _: i64 = old.ask("CLIENT KILL TYPE normal SKIPME yes", &[]).await;
    })
    .await;
}

#[tokio::test]
async fn a_primary_that_became_a_replica_and_ends_subscriptions_costs_no_flow() {
    another_redis_takes_over(async |old, _| {
        let _: i64 = old.ask("CLIENT KILL TYPE pubsub", &[]).await;
    })
    .await;
}

#[tokio::test]
async fn a_primary_that_is_not_heard_of_any_more_costs_no_flow() {
    another_redis_takes_over(async |_, cable| cable.stall()).await;
}

/// Only the owner has moved so far: an instance that has not moved finds no subscriber.
#[tokio::test]
async fn nobody_who_listens_at_a_replica_takes_others_for_gone() {
    let (claims, old, new) = (Redis::start(), Redis::start(), Redis::start());
    let cable = Cable::to(old.socket()).await;
    let [a, b] = fleet(&cable, &claims).await;
    let answered = a.begun().await;
    cable.lead_to(new.socket());
    end_first_subscription(&old).await;
    let _: String = old.ask("REPLICAOF 127.0.0.1 1", &[]).await;
    until_listeners(&new, &a.here, 1).await;
    assert_eq!(persistently(&answered, &b.client).await.text(), WRAPPED);
}

#[tokio::test]
async fn an_owner_that_has_just_lost_its_connection_is_not_gone() {
    let (claims, redis) = (Redis::start(), Redis::start());
    let cable = Cable::to(redis.socket()).await;
    let [a, b] = fleet(&cable, &claims).await;
    let answered = a.begun().await;
    end_first_subscription(&redis).await;
    assert_eq!(in_time(answered.send(&b.client)).await.text(), WRAPPED);
}

#[tokio::test]
async fn the_longest_timeout_is_as_good_as_any() {
    let redis = Redis::start();
    let relay = RedisRelay::builder(redis.url(), "a").timeout(Duration::MAX).connect();
    let a = Instance::with(&redis, in_time(relay).await.unwrap(), |builder| builder).await;
    let b = Instance::new(&redis, "b").await;
    assert_eq!(in_time(a.begun().await.send(&b.client)).await.text(), WRAPPED);
    assert_eq!(in_time(b.begun().await.send(&a.client)).await.text(), WRAPPED);
}

#[tokio::test]
async fn a_redis_that_does_not_tell_who_listens_carries_messages_all_the_same() {
    let redis = Redis::start();
    let _: String = redis.ask("ACL SETUSER default -pubsub", &[]).await;
    let (a, b) = (Instance::new(&redis, "a").await, Instance::new(&redis, "b").await);
    assert_eq!(in_time(a.begun().await.send(&b.client)).await.text(), WRAPPED);
    let relay = RedisRelay::connect(&redis.url(), "c").await.unwrap();
    assert!(
        relay.post("never-there", b"unreceived".to_vec()).await.unwrap(),
        "it is not known whether the instance is gone"
    );
}

#[tokio::test]
async fn there_is_neither_a_relay_nor_a_ledger_at_a_replica() {
    let redis = Redis::start();
    let _: String = redis.ask("REPLICAOF 127.0.0.1 1", &[]).await;
    assert!(matches!(RedisRelay::connect(&redis.url(), "a").await, Err(ConnectError::Replica)));
    assert!(matches!(RedisLedger::connect(&redis.url()).await, Err(ConnectError::Replica)));
}

#[tokio::test]
async fn a_silent_redis_holds_nobody_up_for_long() {
    let redis = Redis::start();
    let timeout = Duration::from_millis(300);
    let relay = RedisRelay::builder(redis.url(), "a").timeout(timeout).connect().await.unwrap();
    redis.pause();
    let began = Instant::now();
    assert!(relay.post("b", b"anything".to_vec()).await.is_err());
    let connecting = RedisRelay::builder(redis.url(), "b").timeout(timeout).connect_timeout(timeout).connect();
    assert!(matches!(in_time(connecting).await, Err(ConnectError::Unreachable(_))));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn there_is_no_relay_without_a_name_or_a_redis() {
    let mut redis = Redis::start();
    for name in [String::new(), "x".repeat(65)] {
        assert!(matches!(RedisRelay::connect(&redis.url(), &name).await, Err(ConnectError::Name { .. })));
    }
    let braces = RedisRelay::builder(redis.url(), "a").prefix("a{b").connect().await;
    assert!(matches!(braces, Err(ConnectError::Prefix { .. })));
    redis.stop();
    let error = in_time(RedisRelay::connect(&redis.url(), "a")).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn who_has_the_password_reads_nothing_and_forges_nothing() {
    let redis = Redis::start();
    let (a, b) = (Instance::new(&redis, "a").await, Instance::new(&redis, "b").await);
    let client = redis::Client::open(redis.url()).unwrap();
    let (mut sink, mut overheard) = client.get_async_pubsub().await.unwrap().split();
    sink.psubscribe("*").await.unwrap();

    let answered = a.begun().await;
    assert_eq!(answered.send(&b.client).await.text(), WRAPPED);
    let mut messages = Vec::new();
    for _ in ["the errand", "the report"] {
        let message = in_time(poll_fn(|cx| std::pin::Pin::new(&mut overheard).poll_next(cx))).await.unwrap();
        let payload = message.get_payload_bytes().to_vec();
        assert!(!payload.windows(6).any(|window| window == b"canary"), "the message is sealed");
        messages.push((message.get_channel_name().to_owned(), payload));
    }

    // Publishes everything again to every instance, and garbage; also after the record of the round was deleted.
    for _ in ["as it is", "with the claims deleted"] {
        for (_, payload) in &messages {
            for instance in [&a, &b] {
                let channel = format!("rounds:to:{}", instance.here);
                for message in [&payload[..], &payload[..payload.len() / 2], b"", b"garbage", &[0; 10_000]] {
                    let _: u64 = redis.ask("PUBLISH", &[channel.as_bytes(), message]).await;
                }
            }
        }
        let _: String = redis.ask("FLUSHALL", &[]).await;
    }
    // The errand was handled twice more: once with the recorded reply, once without effect.
    a.events.until(3, |station| *station == Station::Opened).await;
    a.events.until(1, |station| *station == Station::Refused(Refusal::FrameGone)).await;
    assert_eq!(a.events.runs("wrap"), 1);
    assert_eq!(b.events.runs("wrap"), 0);
    let next = b.begun().await;
    assert_eq!(in_time(next.send(&a.client)).await.text(), WRAPPED, "the fleet still works");
}

#[tokio::test]
async fn an_instance_without_a_relay_refuses_what_waits_elsewhere_and_leaves_it_to_those_who_have_one() {
    let redis = Redis::start();
    let (a, b) = (Instance::new(&redis, "a").await, Instance::new(&redis, "b").await);
    let alone = Client::modern(builder(&Shop::new(), redis.ledger().await).build().unwrap()).await;
    let answered = a.begun().await;
    answered.send(&alone).await.frozen();
    assert_eq!(in_time(answered.send(&b.client)).await.text(), WRAPPED);
}

/// A clock that is wrong by a fixed offset.
struct Off {
    seconds: u64,
    ahead: bool,
}

impl Clock for Off {
    fn now(&self) -> SystemTime {
        let by = Duration::from_secs(self.seconds);
        if self.ahead { SystemTime::now() + by } else { SystemTime::now() - by }
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[tokio::test]
async fn clocks_that_are_half_a_minute_apart_lose_no_flow() {
    let redis = Redis::start();
    let right = Instance::new(&redis, "right").await;
    for ahead in [true, false] {
        let relay = RedisRelay::connect(&redis.url(), "off").await.unwrap();
        let off = Instance::with(&redis, relay, |builder| builder.clock(Off { seconds: 30, ahead })).await;
        for (owner, other) in [(&right, &off), (&off, &right)] {
            let answered = owner.begun().await;
            assert_eq!(in_time(answered.send(&other.client)).await.text(), WRAPPED);
            assert_eq!(in_time(answered.send(&owner.client)).await.text(), WRAPPED);
            let asked = owner.client.call("buy", json!({"item": "tea"})).await;
            // It begins with a checkpoint, which is a round without a question.
            let asked = asked.asked().retry().send(&other.client).await.asked();
            let bought = asked.accept("size", json!({"size": "xl"})).send(&owner.client).await.text();
            assert!(bought.starts_with("canary-result xl"), "{bought}");
        }
    }
}
