//! What an attacker can read in Redis.

use rounds::test::Client;
use serde_json::json;

use crate::{
    Redis,
    shop::{Shop, builder, client, keys},
};

#[tokio::test]
async fn a_full_dump_has_nothing_in_it_that_anybody_said() {
    // Redis would compress repeated bytes, and the search would miss them.
    let redis = Redis::with(&["--rdbcompression", "no"]);
    let shop = Shop::new();
    let server = builder(&shop, redis.ledger().await).spill().build().unwrap();
    let client = Client::modern(server).await;
    let said = json!({"size": "canary-answer"});

    let spilled = "canary-argument ".repeat(10);
    let asked = client.call("order", json!({"item": spilled})).await.asked();
    let open = redis.dump().await;
    let order = asked.accept("size", said.clone()).send(&client).await.text();
    assert!(order.contains("canary-result canary-answer, canary-value 0"), "{order}");

    let checkpoint = client.call("buy", json!({"item": "canary-argument"})).await.asked().retry();
    let asked = checkpoint.send(&client).await.asked();
    assert!(asked.message("size").contains("canary-question canary-value"));
    let bought = asked.accept("size", said.clone()).send(&client).await.text();
    assert_eq!(bought, "canary-result canary-answer, charge 1");

    let wrapped = client.call("wrap", json!({"item": "canary-argument"})).await.asked();
    assert_eq!(wrapped.accept("size", said).send(&client).await.text(), "wrapped canary-argument canary-answer");

    let keys = redis.keys().await;
    assert!(keys.len() >= 7, "rounds and effects of three flows: {keys:?}");
    for dump in [open, redis.dump().await] {
        assert!(contains(&dump, b"rounds:{"), "the dump can be searched");
        for word in ["canary", "order", "size", "Which"] {
            assert!(!contains(&dump, word.as_bytes()), "`{word}` is stored in Redis in plain text");
        }
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

#[tokio::test]
async fn the_name_of_a_flow_is_not_its_name_in_redis() {
    let redis = Redis::start();
    let shop = Shop::new();
    let client = client(&shop, redis.ledger().await).await;
    let asked = client.call("order", json!({"item": "tea"})).await.asked();
    let flow = rounds::keys::OpenedToken::open(&keys(&[1]), "shop", asked.state()).unwrap().flow.to_string();
    assert!(redis.keys().await.is_empty(), "nothing is stored until the answer arrives");
    asked.retry().send(&client).await.asked();
    let found = redis.keys().await;
    assert!(found.len() == 1 && !found[0].contains(&flow), "{flow} {found:?}");
}

#[tokio::test]
async fn what_an_older_key_sealed_is_read_and_what_a_retired_one_sealed_is_gone_and_not_run_again() {
    let redis = Redis::start();
    let shop = Shop::new();
    let server = builder(&shop, redis.ledger().await).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let retry = client.call("order", json!({"item": "tea"})).await.asked().accept("size", json!({"size": "xl"}));
    let done = retry.send(&client).await.text();
    server.set_keys(&keys(&[2, 1])).unwrap();
    assert_eq!(retry.send(&client).await.text(), done, "the old key still opens the token");
    server.set_keys(&keys(&[2])).unwrap();
    retry.send(&client).await.frozen();
    assert_eq!(shop.charges(), 1);
}
