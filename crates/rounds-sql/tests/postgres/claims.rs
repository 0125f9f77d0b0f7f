//! What the suite does not say: several instances, migrations, rights and shares.

use std::time::Duration;

use rounds::ledger::{Claimed, Ledger as _, LedgerError, OwnerLost, PrincipalShare};
use rounds_sql::{OpenError, PostgresLedger};
use rounds_testkit::Postgres;

use crate::{LEASE, bid, fresh, now, round};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let url = Postgres::shared().database();
    rounds::ledger::suite::run(async || PostgresLedger::connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_of_registers() {
    let url = Postgres::shared().database();
    rounds::register::suite::run(async || PostgresLedger::connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_of_documents() {
    let url = Postgres::shared().database();
    rounds::ledger::documents::suite::run(async || PostgresLedger::connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_where_transactions_are_serializable_by_default() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    postgres.ask(&url, "ALTER ROLE rounds SET default_transaction_isolation = 'serializable'");
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    rounds::ledger::suite::run(|| async { ledger.clone() }).await;
    postgres.ask(&url, "ALTER ROLE rounds RESET default_transaction_isolation");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_that_start_at_once_share_one_schema_and_one_claim() {
    for _ in 0..5 {
        let url = Postgres::shared().database();
        let ledgers = [(); 3].map(|()| {
            let url = url.clone();
            tokio::spawn(async move { PostgresLedger::connect(&url).await })
        });
        let mut fresh = 0;
        for ledger in ledgers {
            let claimed = ledger.await.unwrap().unwrap().claim(round(1, 1), bid()).await.unwrap();
            fresh += u32::from(matches!(claimed, Claimed::Fresh { .. }));
        }
        assert_eq!(fresh, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leg_that_waits_in_another_instance_is_woken_and_keeps_the_round_running() {
    let url = Postgres::shared().database();
    let here = PostgresLedger::connect(&url).await.unwrap();
    let there = PostgresLedger::connect(&url).await.unwrap();
    let fence = fresh(&here, round(1, 1), bid()).await;
    let Ok(Claimed::Running(waiting)) = there.claim(round(1, 1), bid()).await else { panic!("it runs") };
    assert!(here.release(round(1, 1), fence, OwnerLost::Free, true).await.unwrap(), "a leg waits elsewhere");
    let waiting = tokio::spawn(waiting);
    assert!(here.settle(round(1, 1), fence, Some(vec![1]), None, vec![]).await.unwrap());
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_left_alone() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    drop(PostgresLedger::connect(&url).await.unwrap());
    postgres.ask(&url, "UPDATE rounds_schema SET version = 99");
    let error = PostgresLedger::connect(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error:?}");
    assert!(error.to_string().ends_with("update the program"), "{error}");
}

#[tokio::test]
async fn an_interrupted_migration_leaves_nothing_and_the_next_one_succeeds() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    // The last statement of the migration fails, as if the process had ended there.
    postgres
        .ask(&url, "CREATE FUNCTION rounds_take_messages(own_lock bigint) RETURNS text LANGUAGE sql AS $$SELECT ''$$");
    assert!(PostgresLedger::connect(&url).await.is_err());
    assert_eq!(
        postgres.ask(&url, "SELECT to_regclass('rounds_claims') IS NULL AND to_regclass('rounds_schema') IS NULL"),
        "t"
    );
    postgres.ask(&url, "DROP FUNCTION rounds_take_messages");
    fresh(&PostgresLedger::connect(&url).await.unwrap(), round(1, 1), bid()).await;
}

#[tokio::test]
async fn a_user_who_may_not_create_tables_uses_those_that_exist() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    postgres.ask(&url, "CREATE ROLE app LOGIN");
    let app = url.replace("rounds@", "app@");
    let error = PostgresLedger::connect(&app).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("lacks a right"), "{cause}");
    drop(PostgresLedger::connect(&url).await.unwrap());
    postgres.ask(&url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app");
    fresh(&PostgresLedger::connect(&app).await.unwrap(), round(1, 1), bid()).await;
}

#[tokio::test]
async fn a_database_that_is_configured_not_to_wait_for_the_disk_waits_for_claims() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    postgres.ask(
        &url,
        "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END$$",
    );
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    postgres.ask(
        &url,
        "CREATE TABLE seen (level text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END$$;
         CREATE TRIGGER see BEFORE INSERT ON rounds_claims FOR EACH ROW EXECUTE FUNCTION see()",
    );
    fresh(&ledger, round(1, 1), bid()).await;
    assert_eq!(postgres.ask(&url, "SELECT level FROM seen"), "on");
}

#[tokio::test]
async fn a_caller_at_its_share_is_refused_new_rounds_and_keeps_its_old_ones() {
    let url = Postgres::shared().database();
    let ledger = PostgresLedger::builder(url).principal_bytes(5000).connect().await.unwrap();
    let mut mine = bid();
    mine.keep.share = PrincipalShare::Principal([1; 16]);
    fresh(&ledger, round(1, 1), mine).await;
    fresh(&ledger, round(2, 1), mine).await;
    let refused = ledger.claim(round(3, 1), mine).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Full { limit: 5000, .. }), "{refused:?}");
    assert!(matches!(ledger.claim(round(1, 1), mine).await, Ok(Claimed::Running(_))));
    let mut late = mine;
    late.keep.now = late.keep.now + LEASE;
    fresh(&ledger, round(1, 1), late).await;
    fresh(&ledger, round(4, 1), bid()).await;
}

#[tokio::test]
async fn a_record_is_removed_after_it_has_expired_and_not_before() {
    let url = Postgres::shared().database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    let mut brief = bid();
    brief.lease = Duration::from_millis(1);
    brief.keep.until = now();
    let fence = fresh(&ledger, round(1, 1), brief).await;
    assert!(ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap());
    let long = fresh(&ledger, round(2, 1), bid()).await;
    assert!(ledger.settle(round(2, 1), long, None, None, vec![]).await.unwrap());
    tokio::time::sleep(Duration::from_millis(5)).await;
    ledger.sweep().await;
    fresh(&ledger, round(1, 1), bid()).await;
    assert!(matches!(ledger.claim(round(2, 1), bid()).await, Ok(Claimed::Done(None))));
}

#[tokio::test]
async fn a_claim_whose_caller_has_gone_is_free() {
    let url = Postgres::shared().database();
    let ledger = PostgresLedger::connect(&url).await.unwrap();
    fresh(&ledger, round(0, 1), bid()).await;
    for flow in 1..20 {
        // It is dropped when the call is on its way: at some of these times Postgres has it.
        let patience = Duration::from_micros(u64::from(flow) * 100);
        if tokio::time::timeout(patience, ledger.claim(round(flow, 1), bid())).await.is_ok() {
            continue;
        }
        loop {
            match ledger.claim(round(flow, 1), bid()).await.unwrap() {
                Claimed::Fresh { .. } => break,
                Claimed::Running(waiting) => tokio::time::timeout(LEASE / 2, waiting).await.unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }
}
