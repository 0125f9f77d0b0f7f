//! The cost of a leg, counted by Postgres itself.

use rounds::ledger::Ledger as _;
use rounds_sql::PostgresLedger;
use rounds_testkit::Postgres;

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
    let before = postgres.log().lines().count();
    leg(2).await;
    let log = postgres.log();
    let statements: Vec<_> = log.lines().skip(before).filter(|line| line.contains("LOG:")).collect();
    assert_eq!(statements.len(), 2, "{statements:#?}");
}
