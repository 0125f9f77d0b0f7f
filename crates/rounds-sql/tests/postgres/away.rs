//! A Postgres that is killed, silent, or a replica.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

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
async fn a_process_that_is_killed_in_its_migration_leaves_nothing_and_the_next_one_succeeds() {
    const DATABASE: &str = "ROUNDS_MIGRATES";
    if let Ok(database) = std::env::var(DATABASE) {
        PostgresLedger::connect(&database).await.unwrap();
        return;
    }
    let mut postgres = Postgres::with(&["fsync=off"]);
    for killed in ["the process", "Postgres"] {
        let url = postgres.database();
        // The migration stops when it has created half of its tables, until this session ends.
        postgres.ask(&url, STOPS);
        let mut holding = postgres.hold(&url, "SELECT pg_advisory_lock(1)");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "away::a_process_that_is_killed_in_its_migration_leaves_nothing_and_the_next_one_succeeds",
                "--exact",
            ])
            .env(DATABASE, &url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stopped = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while postgres.ask(&url, stopped) == "0" {
            assert!(process.try_wait().unwrap().is_none(), "{}", postgres.log());
        }
        if killed == "Postgres" {
            postgres.kill();
            postgres.start_again();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        drop(holding.stdin.take());
        holding.wait().unwrap();
        let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rounds'";
        while postgres.ask(&url, others) != "0" {}
        let tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rounds%'";
        assert_eq!(postgres.ask(&url, tables), "0", "{killed}");
        postgres.ask(&url, "DROP EVENT TRIGGER stops");
        let ledger = PostgresLedger::connect(&url).await.unwrap();
        fresh(&ledger, round(1, 1), bid()).await;
    }
}

/// Waits for a lock when the last table of the store is created.
const STOPS: &str = "
    CREATE FUNCTION stop() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF to_regclass('rounds_parts') IS NOT NULL THEN PERFORM pg_advisory_lock(1); END IF;
    END $$;
    CREATE EVENT TRIGGER stops ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION stop()";

#[test]
fn a_full_disk_of_postgres_costs_retries_and_nothing_that_was_acknowledged() {
    const DISK: &str = "ROUNDS_SMALL_DISK";
    if let Some(disk) = std::env::var_os(DISK) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(on_a_full_disk(Path::new(&disk)));
    }
    let disk = std::env::temp_dir().join(format!("rounds-pg-disk-{}", std::process::id()));
    std::fs::create_dir_all(&disk).unwrap();
    // Postgres refuses to run as root, so another user than the one who mounts has to start it.
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let (outer, inner) = match is_root {
        true => ("", ""),
        false => ("--user --map-root-user", "unshare --user --map-user=1000"),
    };
    let script = format!(
        "exec unshare {outer} --mount sh -c 'mount -t tmpfs -o size=24m,mode=1777 tmpfs \"$0\" && exec {inner} \"$@\"' \"$@\""
    );
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(&disk)
        .arg(std::env::current_exe().unwrap())
        .args([
            "away::a_full_disk_of_postgres_costs_retries_and_nothing_that_was_acknowledged",
            "--exact",
            "--nocapture",
        ])
        .env(DISK, &disk)
        .output()
        .unwrap();
    std::fs::remove_dir_all(disk).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// The database lies on the small disk, together with a file that can be removed.
async fn on_a_full_disk(disk: &Path) {
    let postgres = Postgres::with(&["fsync=off"]);
    let (admin, space) = (postgres.url("postgres"), disk.join("space"));
    postgres.ask(&admin, &format!("COPY (SELECT 1) TO PROGRAM 'mkdir {}'", space.display()));
    postgres.ask(&admin, &format!("CREATE TABLESPACE small LOCATION '{}'", space.display()));
    postgres.ask(&admin, "CREATE DATABASE full_disk TABLESPACE small");
    std::fs::write(disk.join("filler"), vec![1; 4 << 20]).unwrap();
    let ledger = PostgresLedger::connect(&postgres.url("full_disk")).await.unwrap();
    let id = |flow: u32| round((flow % 256) as u8, 1 + flow / 256);
    let mut settled = 0;
    let error = loop {
        let fence = match ledger.claim(id(settled), bid()).await {
            Ok(Claimed::Fresh { fence, .. }) => fence,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        };
        match ledger.settle(id(settled), fence, Some(reply(settled)), None, vec![]).await {
            Ok(is_settled) => assert!(is_settled),
            Err(error) => break error,
        }
        settled += 1;
    };
    let LedgerError::Unavailable(cause) = error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("the disk of the database is full: free some space"), "{cause}");
    assert!(settled > 10, "{settled}");
    // Even a read may have to write a page of another table to the disk first.
    std::fs::remove_file(disk.join("filler")).unwrap();
    for flow in 0..settled {
        match ledger.claim(id(flow), bid()).await {
            Ok(Claimed::Done(Some(kept))) => assert_eq!(kept, reply(flow)),
            other => panic!("{flow} of {settled}: {other:?}"),
        }
    }
    fresh(&ledger, id(settled + 1000), bid()).await;
}

/// A reply that cannot be compressed.
fn reply(flow: u32) -> Vec<u8> {
    let mut state = flow.wrapping_mul(2_654_435_761) | 1;
    let next = |state: &mut u32| {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        (*state >> 8) as u8
    };
    (0..64 << 10).map(|_| next(&mut state)).collect()
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
