//! The cost of a leg, counted by Postgres itself.

use rounds::{KeyRing, Rounds, ledger::Ledger as _, test::Client};
use rounds_sql::PostgresLedger;
use rounds_testkit::{Postgres, Tool, units};
use serde_json::json;

use crate::{bid, fresh, round};

#[tokio::test]
async fn a_claimed_leg_costs_two_round_trips() {
    let postgres = Postgres::with(&["log_statement=all", "fsync=off"]);
    let url = postgres.database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    let leg = async |flow| {
        let fence = fresh(&ledger, round(flow, 1), bid()).await;
        assert!(ledger.settle(round(flow, 1), fence, Some(vec![1]), None, vec![]).await.unwrap());
    };
    // The statements are prepared now.
    leg(1).await;
    let before = statements(&postgres).len();
    leg(2).await;
    assert_eq!(statements(&postgres).len() - before, 2, "{:#?}", &statements(&postgres)[before..]);
}

#[tokio::test]
async fn a_register_adds_no_round_trip_to_a_claimed_leg() {
    let postgres = Postgres::with(&["log_statement=all", "fsync=off"]);
    let url = postgres.database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    let keys = KeyRing::from_bytes([[1; 32]]).unwrap();
    let builder = Rounds::builder(Tool(units)).keys(keys).audience("costs").ledger(ledger).register();
    let client = Client::modern(builder.build().unwrap()).await;
    let ask = async || client.call("weather", json!({})).await.asked();
    let answered = |asked: &rounds::test::AskedRound| asked.accept("units", json!({"units": "metric"}));
    // The statements are prepared now, and the server watches the register.
    let first = ask().await;
    assert_eq!(answered(&first).send(&client).await.text(), "Metric");
    while !statements(&postgres).iter().any(|statement| statement.contains("LISTEN")) {
        tokio::task::yield_now().await;
    }
    let before = statements(&postgres).len();
    let asked = ask().await;
    assert_eq!(statements(&postgres).len() - before, 1, "{:#?}", &statements(&postgres)[before..]);
    assert_eq!(answered(&asked).send(&client).await.text(), "Metric");
    assert_eq!(statements(&postgres).len() - before, 3, "{:#?}", &statements(&postgres)[before..]);
}

/// The statements that Postgres has logged.
fn statements(postgres: &Postgres) -> Vec<String> {
    postgres.log().lines().filter(|line| line.contains("LOG:  ") && is_statement(line)).map(str::to_owned).collect()
}

fn is_statement(line: &str) -> bool {
    ["statement:", "execute "].iter().any(|word| line.contains(word))
}
