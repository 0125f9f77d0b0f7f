//! Legs that are carried to another instance over Postgres.

use std::time::Duration;

use rounds::{
    Ask, FlowError, KeyRing, Rounds,
    observe::Station,
    relay::Relay as _,
    test::{Client, Events, Leg, Retry},
};
use rounds_sql::{OpenError, PostgresLedger, PostgresRelay};
use rounds_testkit::{Postgres, Tool, Units, in_time};
use serde_json::json;

async fn weather(ask: Ask) -> Result<String, FlowError> {
    let units: Units = ask.form("Which units?").key("units").await?;
    Ok(format!("{units:?}"))
}

/// One instance of a fleet, and a client that is connected to it.
struct Instance {
    client: Client,
    events: Events,
    /// The name by which the other instances know it.
    here: String,
}

impl Instance {
    async fn new(url: &str, name: &str) -> Self {
        let relay = PostgresRelay::connect(url, name).await.unwrap();
        let (events, here) = (Events::new(), relay.here().to_owned());
        let server = Rounds::builder(Tool(weather))
            .keys(KeyRing::from_bytes([[7; 32]]).unwrap())
            .audience("fleet")
            .ledger(PostgresLedger::connect(url).await.unwrap())
            .relay(relay)
            .observe(events.clone());
        Self { client: Client::modern(server.build().unwrap()).await, events, here }
    }

    /// Begins a linear flow here, and returns the retry with the user's answer.
    async fn begun(&self) -> Retry {
        self.client.call("weather", json!({})).await.asked().accept("units", json!({"units": "metric"}))
    }

    fn was_routed_to(&self, other: &Self) -> bool {
        self.events.stations().contains(&Station::Routed { to: other.here.clone() })
    }
}

const METRIC: &str = "Metric";

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

/// Ends the lines of this database: other tests have theirs on the same server.
const END_LINES: &str =
    "SELECT count(pg_terminate_backend(pid)) FROM pg_locks JOIN pg_database ON database = pg_database.oid
    WHERE locktype = 'advisory' AND datname = current_database()";

#[tokio::test]
async fn a_linear_flow_goes_on_from_any_instance_and_no_message_is_left() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let (a, b) = (Instance::new(&url, "a").await, Instance::new(&url, "b").await);
    for (owner, other) in [(&a, &b), (&b, &a)] {
        let answered = owner.begun().await;
        for client in [&other.client, &owner.client, &other.client] {
            assert_eq!(in_time(answered.send(client)).await.text(), METRIC);
        }
        assert_eq!(owner.events.runs("weather"), 1);
        assert!(other.was_routed_to(owner));
    }
    assert_eq!(postgres.ask(&url, "SELECT count(*) FROM rounds_messages"), "0");
}

#[tokio::test]
async fn an_instance_that_is_gone_is_known_to_be_at_once() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let a = PostgresRelay::connect(&url, "a").await.unwrap();
    let gone = PostgresRelay::connect(&url, "gone").await.unwrap();
    let name = gone.here().to_owned();
    assert!(in_time(a.post(&name, b"to an instance".to_vec())).await.unwrap());
    for never in ["never-there", "never-0123456789abcdef"] {
        assert!(!a.post(never, b"unreceived".to_vec()).await.unwrap());
    }
    drop(gone);
    // A session ends a moment after its connection.
    in_time(async { while !matches!(a.post(&name, b"unreceived".to_vec()).await, Ok(false)) {} }).await;
}

#[tokio::test]
async fn the_same_instance_after_a_restart_is_another() {
    let url = Postgres::shared().database();
    let (one, two) =
        (PostgresRelay::connect(&url, "a").await.unwrap(), PostgresRelay::connect(&url, "a").await.unwrap());
    assert_ne!(one.here(), two.here());
    assert!(one.here().starts_with("a-") && two.here().starts_with("a-"));
}

#[tokio::test]
async fn lines_that_were_ended_are_restored_and_cost_no_flow() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let (a, b) = (Instance::new(&url, "a").await, Instance::new(&url, "b").await);
    for _ in 0..3 {
        let answered = a.begun().await;
        assert_ne!(postgres.ask(&url, END_LINES), "0");
        assert_eq!(persistently(&answered, &b.client).await.text(), METRIC);
    }
    assert_eq!(a.events.runs("weather"), 3);
}

#[tokio::test]
async fn a_postgres_that_is_killed_and_started_costs_retries_and_no_flow() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let (a, b) = (Instance::new(&url, "a").await, Instance::new(&url, "b").await);
    let answered = a.begun().await;
    postgres.kill();
    for instance in [&a, &b] {
        assert!(asks_for_a_retry(&in_time(answered.send(&instance.client)).await));
    }
    postgres.start_again();
    assert_eq!(persistently(&answered, &b.client).await.text(), METRIC);
    assert_eq!(a.events.runs("weather"), 1);
    assert!(b.was_routed_to(&a));
}

#[tokio::test]
async fn there_is_no_relay_without_a_name() {
    let url = Postgres::shared().database();
    for name in [String::new(), "x".repeat(65)] {
        assert!(matches!(PostgresRelay::connect(&url, &name).await, Err(OpenError::Name { .. })));
    }
}
