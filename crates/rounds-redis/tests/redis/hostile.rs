//! An attacker who can write to Redis, and a server that is not a Redis.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    time::Duration,
};

use rounds::{
    ledger::{Claimed, Ledger as _},
    test::{Client, Events, Retry},
};
use rounds_redis::RedisLedger;
use serde_json::json;

use crate::{
    Redis, bid, fresh, in_time, round,
    shop::{Shop, builder},
    spill,
};

/// A shop in which one order was placed and answered, and an attacker with access to its Redis.
struct Intrusion {
    redis: Redis,
    shop: Shop,
    events: Events,
    client: Client,
}

impl Intrusion {
    async fn new() -> Self {
        let (redis, shop, events) = (Redis::start(), Shop::new(), Events::new());
        let server = builder(&shop, redis.ledger().await).spill().observe(events.clone()).build().unwrap();
        Self { client: Client::modern(server).await, redis, shop, events }
    }

    /// Places an order, and returns the retry with its answer, not sent yet.
    async fn placed(&self, item: &str) -> Retry {
        self.client.call("order", json!({"item": item})).await.asked().accept("size", json!({"size": "xl"}))
    }

    /// The keys that were created during an action.
    async fn keys_of(&self, happens: impl AsyncFnOnce()) -> Vec<String> {
        let before = self.redis.keys().await;
        happens().await;
        let mut after = self.redis.keys().await;
        after.retain(|key| !before.contains(key));
        after
    }

    async fn field(&self, key: &str, field: &str) -> Vec<u8> {
        self.redis.ask("HGET", &[key.as_bytes(), field.as_bytes()]).await
    }

    async fn set(&self, key: &str, field: &str, value: &[u8]) {
        let _: i64 = self.redis.ask("HSET", &[key.as_bytes(), field.as_bytes(), value]).await;
    }

    async fn delete(&self, key: &str) {
        let _: i64 = self.redis.ask("DEL", &[key.as_bytes()]).await;
    }
}

fn one<'a>(keys: &'a [String], of: &str) -> &'a str {
    keys.iter().find(|key| key.rsplit(':').next().unwrap().starts_with(of)).unwrap()
}

#[tokio::test]
async fn a_reply_of_another_flow_is_refused() {
    let stage = Intrusion::new().await;
    let mut orders = Vec::new();
    for item in ["tea", "gold"] {
        let mut retry = None;
        let keys = stage
            .keys_of(async || {
                let placed = stage.placed(item).await;
                placed.send(&stage.client).await.text();
                retry = Some(placed);
            })
            .await;
        orders.push((retry.unwrap(), one(&keys, "r1").to_owned()));
    }
    let gold = stage.field(&orders[1].1, "v").await;
    stage.set(&orders[0].1, "v", &gold).await;
    orders[0].0.send(&stage.client).await.frozen();
    // Copying the answers as well does not help.
    let answers = stage.field(&orders[1].1, "a").await;
    stage.set(&orders[0].1, "a", &answers).await;
    orders[0].0.send(&stage.client).await.frozen();
    for garbage in [&b""[..], b"garbage", &[0; 1000]] {
        stage.set(&orders[1].1, "v", garbage).await;
        orders[1].0.send(&stage.client).await.frozen();
    }
    assert_eq!(stage.shop.charges(), 2, "nothing ran again");
}

#[tokio::test]
async fn a_value_of_another_effect_is_refused_and_the_effect_is_not_had_again() {
    let stage = Intrusion::new().await;
    let tea = stage.placed("tea").await;
    let of_tea = stage.keys_of(async || drop(tea.send(&stage.client).await.text())).await;
    let gold = stage.placed("gold").await;
    let of_gold = stage.keys_of(async || drop(gold.send(&stage.client).await.text())).await;
    let value = stage.field(one(&of_gold, "e"), "v").await;
    stage.set(one(&of_tea, "e"), "v", &value).await;
    // The record of the round is deleted, so its handler runs again and reaches its effect.
    let mut round = one(&of_tea, "e").to_owned();
    round.truncate(round.find("}:").unwrap() + 2);
    stage.delete(&format!("{round}r1")).await;
    let leg = tea.send(&stage.client).await;
    let said = leg.error()["message"].as_str().unwrap();
    assert!(said.contains("the effect `canary-effect` may have run, and its value was not recorded"), "{said}");
    assert_eq!(stage.shop.charges(), 2, "{:?}", stage.events.stations());
}

#[tokio::test]
async fn what_is_no_claim_fails_and_is_not_taken_for_a_free_one() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let key = "rounds:{01010101010101010101010101010101}:r1";
    let _: String = redis.ask("SET", &[key.as_bytes(), b"not a hash"]).await;
    assert!(ledger.claim(round(1, 1), bid(0)).await.is_err());
    assert!(ledger.spill(spill(round(1, 1), bid(0).keep)).await.is_err());
    let _: i64 = redis.ask("DEL", &[key.as_bytes()]).await;
    for (field, value) in [("s", "Q"), ("s", ""), ("f", "NaN"), ("u", "x")] {
        let _: i64 = redis.ask("HSET", &[key.as_bytes(), field.as_bytes(), value.as_bytes()]).await;
        assert!(ledger.claim(round(1, 1), bid(0)).await.is_err(), "{field} = {value}");
        let _: i64 = redis.ask("DEL", &[key.as_bytes()]).await;
    }
    // Running, without the fields that belong to that state.
    let _: i64 = redis.ask("HSET", &[key.as_bytes(), b"s", b"R"]).await;
    assert!(ledger.claim(round(1, 1), bid(0)).await.is_err());
    let _: i64 = redis.ask("HSET", &[key.as_bytes(), b"s", b"D"]).await;
    assert!(matches!(ledger.claim(round(1, 1), bid(0)).await, Ok(Claimed::AnsweredOtherwise)));
}

#[tokio::test]
async fn a_fence_that_was_turned_back_lets_no_two_replies_out() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let key = "rounds:{01010101010101010101010101010101}:r1";
    let id = round(1, 1);
    let (first, second) = (fresh(&ledger, id, bid(0)).await, fresh(&ledger, id, bid(30)).await);
    let _: i64 = redis.ask("HSET", &[key.as_bytes(), b"f", first.to_string().as_bytes()]).await;
    let settled = [
        ledger.settle(id, first, Some(b"one".to_vec()), None, vec![]).await.unwrap(),
        ledger.settle(id, second, Some(b"two".to_vec()), None, vec![]).await.unwrap(),
    ];
    assert_eq!(settled, [true, false]);
}

/// Completes the handshake like a Redis, and then sends the same reply to every command.
fn parrot(says: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut asked = [0; 65536];
                while let Ok(read @ 1..) = stream.read(&mut asked) {
                    let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
                    let mut answer = b"+OK\r\n".repeat(asked.matches("SETINFO").count());
                    if asked.contains("INFO\r\n$6\r\nserver") {
                        answer.extend(b"$21\r\nredis_mode:standalone\r\n");
                    }
                    if asked.contains("INFO\r\n$6\r\nmemory") {
                        answer.extend(b"$27\r\nmaxmemory_policy:noeviction\r\n");
                    }
                    if asked.contains("INFO\r\n$11\r\nreplication") {
                        answer.extend(b"$11\r\nrole:master\r\n");
                    }
                    if asked.contains("EVALSHA") {
                        answer.extend(says);
                    }
                    if stream.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("redis://{address}/")
}

#[tokio::test]
async fn a_server_that_talks_nonsense_is_as_good_as_none() {
    const NONSENSE: [&[u8]; 11] = [
        b"+OK\r\n",
        b"$-1\r\n",
        b":7\r\n",
        b"*0\r\n",
        b"*1\r\n$5\r\nfresh\r\n",
        b"*2\r\n$5\r\nfresh\r\n:1\r\n",
        b"*3\r\n$5\r\nfresh\r\n:-1\r\n$-1\r\n",
        b"*3\r\n$5\r\nfresh\r\n:1\r\n:1\r\n",
        b"*3\r\n$7\r\nrefresh\r\n:1\r\n$-1\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\0\xff\0\xff\r\n",
    ];
    for says in NONSENSE {
        let connecting = RedisLedger::builder(parrot(says)).timeout(Duration::from_millis(300)).connect();
        // The steps that are taken at the start find it out.
        let connected = in_time(connecting).await;
        assert!(connected.is_err(), "{} made {connected:?}", says.escape_ascii());
    }
}
