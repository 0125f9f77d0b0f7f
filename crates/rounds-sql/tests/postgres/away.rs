//! A Postgres that is killed, silent, or a replica.

use std::time::{Duration, Instant};

use rounds::ledger::{Claimed, Ledger as _, LedgerError, OwnerLost};
use rounds_sql::{OpenError, PostgresLedger};
use rounds_testkit::Postgres;

use crate::{bid, fresh, round};

#[tokio::test]
async fn what_was_acknowledged_survives_that_postgres_is_killed() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    for flow in 0..3 {
        let running = fresh(&ledger, round(flow, 1), bid()).await;
        let done = fresh(&ledger, round(flow, 2), bid()).await;
        assert!(ledger.settle(round(flow, 2), done, Some(vec![flow]), None, vec![]).await.unwrap());
        postgres.kill();
        let error = ledger.claim(round(flow, 3), bid()).await.unwrap_err();
        assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}");
        postgres.start_again();
        assert!(matches!(ledger.claim(round(flow, 1), bid()).await, Ok(Claimed::Running(_))));
        assert!(matches!(ledger.claim(round(flow, 2), bid()).await, Ok(Claimed::Done(Some(reply))) if reply == [flow]));
        assert!(ledger.settle(round(flow, 1), running, None, None, vec![]).await.unwrap());
        fresh(&ledger, round(flow, 3), bid()).await;
    }
}

#[tokio::test]
async fn connections_that_were_closed_meanwhile_are_replaced_without_an_error() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid()).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    postgres.ask(&url, end);
    assert!(ledger.settle(round(1, 1), fence, Some(vec![1]), None, vec![]).await.unwrap());
    postgres.ask(&url, end);
    fresh(&ledger, round(2, 1), bid()).await;
}

#[tokio::test]
async fn a_release_that_failed_happens_when_postgres_is_back() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid()).await;
    postgres.kill();
    assert!(ledger.release(round(1, 1), fence, OwnerLost::Free, false).await.is_err());
    postgres.start_again();
    let freed = async {
        loop {
            match ledger.claim(round(1, 1), bid()).await {
                Ok(Claimed::Fresh { .. }) => return,
                Ok(Claimed::Running(waiting)) => waiting.await,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), freed).await.unwrap();
}

#[tokio::test]
async fn every_call_is_bounded() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let ledger = PostgresLedger::builder(url.clone()).timeout(Duration::from_millis(300)).connect().await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid()).await;
    // Another session holds the row: the step waits for it.
    let holding = {
        let url = url.clone();
        let hold = "BEGIN; SELECT 1 FROM rounds_claims FOR UPDATE; SELECT pg_sleep(3); COMMIT";
        tokio::task::spawn_blocking(move || postgres.ask(&url, hold))
    };
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    while postgres.ask(&url, asleep) == "0" {}
    let began = Instant::now();
    let held = ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    holding.await.unwrap();
    let LedgerError::Unavailable(cause) = held else { panic!("{held:?}") };
    assert!(cause.to_string().contains("did not answer within 300ms"), "{cause}");
}

#[tokio::test]
async fn a_database_that_may_only_be_read_is_refused_with_what_to_do() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    fresh(&ledger, round(1, 1), bid()).await;
    postgres.ask(
        &url,
        "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END$$;
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    let error = PostgresLedger::connect(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::Replica) && error.to_string().ends_with("connect to the primary"), "{error:?}");
    let LedgerError::Unavailable(cause) = ledger.claim(round(2, 1), bid()).await.unwrap_err() else { panic!() };
    assert!(cause.to_string().starts_with("the database is read-only"), "{cause}");
    // The operator repairs it.
    postgres.ask(
        &url,
        "SET TRANSACTION READ WRITE;
         DO $$BEGIN EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END$$",
    );
    fresh(&ledger, round(2, 1), bid()).await;
}
