//! The register on a real Redis, which each test starts for itself.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

use std::time::{Duration, Instant};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Durable, FlowError, KeyRing, Rounds, durable,
    ledger::Ledger as _,
    register::{FlowQuery, FlowStatus, Flows, FlowsError},
    test::Client,
};
use rounds_testkit::{Redis, in_time};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
struct Order {
    item: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Size {
    size: String,
}

#[derive(Clone)]
struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Shop {
    #[tool(description = "Wraps")]
    async fn wrap(&self, Parameters(order): Parameters<Order>, ask: Ask) -> Result<String, FlowError> {
        let Size { size } = ask.form("Which canary-question?").key("size").await?;
        Ok(format!("canary-result {} {size}", order.item))
    }
}

async fn buy(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    let Size { size } = flow.form("Which canary-question?").key("size").await?;
    Ok(format!("canary-result {} {size}", order.item))
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

fn keys() -> KeyRing {
    KeyRing::from_bytes([[1; 32]]).unwrap()
}

async fn instance(redis: &Redis) -> Rounds<Shop> {
    let shop = Shop { tool_router: Shop::tool_router().with_route(durable("buy", "Buys", buy)) };
    Rounds::builder(shop).keys(keys()).audience("shop").ledger(redis.ledger().await).register().build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let redis = Redis::start();
    in_time(rounds::register::suite::run(|| redis.ledger())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_of_documents() {
    let redis = Redis::start();
    in_time(rounds::ledger::documents::suite::run(|| redis.ledger())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_is_listed_opened_and_cancelled_from_another_instance() {
    let redis = Redis::start();
    let (one, other) = (instance(&redis).await, instance(&redis).await);
    let client = Client::modern(one.clone()).await;
    let asked = client.call("wrap", json!({"item": "tea"})).await.asked();
    let waiting = other.flows().list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap().flows;
    assert_eq!((waiting.len(), &*waiting[0].target), (1, "wrap"));
    let record = other.flows().get(waiting[0].id).await.unwrap().unwrap();
    assert_eq!(other.flows().details(&record).unwrap().arguments, Some(json!({"item": "tea"})));
    // The first instance watches from its first record on; the subscription may still be under way.
    in_time(async {
        loop {
            let (_, subscribers): (String, i64) = redis.ask("PUBSUB NUMSUB rounds:flows:watch", &[]).await;
            if subscribers > 0 {
                break;
            }
        }
    })
    .await;
    assert_eq!(other.flows().cancel(waiting[0].id, "").await.unwrap(), Some(FlowStatus::Waiting));
    in_time(async {
        while one.waiting_calls() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    asked.accept("size", json!({"size": "xl"})).send(&client).await.frozen();
}

#[tokio::test]
async fn a_dump_has_nothing_in_it_that_anybody_said() {
    // Redis would compress repeated bytes, and the search would miss them.
    let redis = Redis::with(&["--rdbcompression", "no"]);
    let server = instance(&redis).await;
    let client = Client::modern(server.clone()).await;
    let asked = client.call("buy", json!({"item": "canary-argument"})).await.asked();
    let open = redis.dump().await;
    let bought = asked.accept("size", json!({"size": "canary-answer"})).send(&client).await.text();
    assert_eq!(bought, "canary-result canary-argument canary-answer");
    for dump in [open, redis.dump().await] {
        let contains = |word: &str| dump.windows(word.len()).any(|window| window == word.as_bytes());
        assert!(contains("rounds:flows:all") && contains("buy"), "the dump can be searched");
        assert!(!contains("canary"), "something that was said is stored in plain text");
    }
}

#[tokio::test]
async fn a_part_that_was_copied_from_another_flow_does_not_open() {
    let redis = Redis::start();
    let server = instance(&redis).await;
    let client = Client::modern(server.clone()).await;
    for item in ["tea", "coffee"] {
        client.call("buy", json!({"item": item})).await.asked();
    }
    let flows = server.flows().list(FlowQuery::new()).await.unwrap().flows;
    let key = |at: usize| format!("rounds:{{{}}}:f", flows[at].id);
    let part: Vec<u8> = redis.ask("HGET", &[key(0).as_bytes(), b"p0"]).await;
    let _: i64 = redis.ask("HSET", &[key(1).as_bytes(), b"p0", &part]).await;
    let record = server.flows().get(flows[1].id).await.unwrap().unwrap();
    assert!(matches!(server.flows().details(&record), Err(FlowsError::Unreadable { .. })));
}

#[tokio::test]
async fn a_register_that_is_off_writes_nothing() {
    let redis = Redis::start();
    let shop = Shop { tool_router: Shop::tool_router().with_route(durable("buy", "Buys", buy)) };
    let server = Rounds::builder(shop).keys(keys()).audience("shop").ledger(redis.ledger().await).build().unwrap();
    let client = Client::modern(server).await;
    let asked = client.call("buy", json!({"item": "tea"})).await.asked();
    assert!(redis.keys().await.is_empty());
    asked.accept("size", json!({"size": "xl"})).send(&client).await.text();
    assert_eq!(redis.keys().await.len(), 1, "only the claim of the round");
}

#[tokio::test]
async fn a_register_adds_no_call_to_a_claimed_leg() {
    let redis = Redis::start();
    let client = Client::modern(instance(&redis).await).await;
    let ask = async || client.call("buy", json!({"item": "tea"})).await.asked();
    // Scripts that are loaded once are loaded now.
    ask().await.accept("size", json!({"size": "xl"})).send(&client).await.text();
    let start = redis.calls_of("evalsha").await;
    let asked = ask().await;
    assert_eq!(redis.calls_of("evalsha").await - start, 1, "a first leg records that it waits");
    asked.accept("size", json!({"size": "xl"})).send(&client).await.text();
    assert_eq!(redis.calls_of("evalsha").await - start, 3, "claim and settle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_many_records_is_read_in_one_call() {
    let redis = Redis::start();
    let server = instance(&redis).await;
    let client = Client::modern(server.clone()).await;
    for number in 0..300 {
        client.call("buy", json!({"item": number.to_string()})).await.asked();
    }
    let flows = Flows::open(redis.ledger().await, &keys(), Some("shop")).unwrap();
    let begun = Instant::now();
    let page = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap();
    assert_eq!((page.flows.len(), page.next.is_some()), (100, true));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(redis.ledger().await.register().is_some());
}
