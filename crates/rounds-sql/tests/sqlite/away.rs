//! A file that is locked, read-only, on a full disk, or not a database.

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rounds::{
    KeyRing, Rounds,
    ledger::{Claimed, Ledger as _, LedgerError},
    test::Client,
};
use rounds_sql::{OpenError, SqliteLedger, StoreError};
use rounds_testkit::{Tool, units};
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

use crate::{Folder, bid, fresh, round};

#[track_caller]
fn says(error: LedgerError, what: &str) {
    let LedgerError::Unavailable(cause) = error else { panic!("{error:?}") };
    assert!(cause.to_string().contains(what), "{cause}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_program_holds_costs_retries_and_nothing_else() {
    let folder = Folder::new();
    let ledger = SqliteLedger::builder(folder.file()).timeout(Duration::from_millis(200)).open().await.unwrap();
    let fence = fresh(&ledger, round(1, 1), bid()).await;
    let mut other = SqliteConnection::connect(&format!("sqlite:{}", folder.file().display())).await.unwrap();
    let held = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let began = Instant::now();
    says(ledger.claim(round(2, 1), bid()).await.unwrap_err(), "locked by another process: end the program");
    says(ledger.settle(round(1, 1), fence, None, None, vec![]).await.unwrap_err(), "locked");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let opening = SqliteLedger::builder(folder.file()).timeout(Duration::from_millis(200)).open().await;
    assert!(matches!(opening, Err(OpenError::Store(StoreError::Locked(_)))), "{opening:?}");
    held.rollback().await.unwrap();
    assert!(ledger.settle(round(1, 1), fence, Some(vec![7]), None, vec![]).await.unwrap());
    fresh(&ledger, round(2, 1), bid()).await;
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_left_alone() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "my diary, which is longer than the header of a database: ".repeat(100)).unwrap();
    let error = SqliteLedger::open(folder.file()).await.unwrap_err();
    assert!(matches!(error, OpenError::Store(StoreError::Damaged(_))), "{error:?}");
    assert!(std::fs::read_to_string(folder.file()).unwrap().starts_with("my diary"));
}

#[tokio::test]
async fn an_interrupted_migration_leaves_nothing_and_the_next_one_succeeds() {
    let folder = Folder::new();
    let url = format!("sqlite:{}?mode=rwc", folder.file().display());
    let mut other = SqliteConnection::connect(&url).await.unwrap();
    // The last statement of the migration fails, as if the process had ended there.
    sqlx::raw_sql("CREATE TABLE rounds_parts (x)").execute(&mut other).await.unwrap();
    assert!(SqliteLedger::open(folder.file()).await.is_err());
    let tables = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM sqlite_master WHERE name LIKE 'rounds%'");
    assert_eq!(tables.fetch_one(&mut other).await.unwrap(), 1, "only the table that was there");
    sqlx::raw_sql("DROP TABLE rounds_parts").execute(&mut other).await.unwrap();
    fresh(&folder.ledger().await, round(1, 1), bid()).await;
    sqlx::raw_sql("UPDATE rounds_schema SET version = 99").execute(&mut other).await.unwrap();
    let error = SqliteLedger::open(folder.file()).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error:?}");
}

#[test]
fn a_full_disk_costs_retries_and_nothing_that_was_acknowledged() {
    on_a_small_disk("away::a_full_disk_costs_retries_and_nothing_that_was_acknowledged", async |disk| {
        let ledger = SqliteLedger::open(disk.join("rounds.db")).await.unwrap();
        let mut settled = 0;
        let error = loop {
            let id = round((settled % 256) as u8, 1 + settled / 256);
            let fence = match ledger.claim(id, bid()).await {
                Ok(Claimed::Fresh { fence, .. }) => fence,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            };
            match ledger.settle(id, fence, Some(vec![7; 4096]), None, vec![]).await {
                Ok(settled) => assert!(settled),
                Err(error) => break error,
            }
            settled += 1;
        };
        says(error, "the disk of the database is full: free some space");
        assert!(settled > 10, "{settled}");
        for flow in 0..settled {
            let id = round((flow % 256) as u8, 1 + flow / 256);
            // A retry is a read: it needs no space.
            match ledger.claim(id, bid()).await {
                Ok(Claimed::Done(Some(reply))) => assert_eq!(reply, [7; 4096]),
                other => panic!("{flow} of {settled}: {other:?}"),
            }
        }
        mount(&["-o", "remount,size=64m"], disk);
        fresh(&ledger, round(255, 1000), bid()).await;
    });
}

#[test]
fn a_disk_that_becomes_read_only_is_reported_with_what_to_do() {
    on_a_small_disk("away::a_disk_that_becomes_read_only_is_reported_with_what_to_do", async |disk| {
        let file = disk.join("rounds.db");
        let ledger = SqliteLedger::open(&file).await.unwrap();
        let fence = fresh(&ledger, round(1, 1), bid()).await;
        assert!(ledger.settle(round(1, 1), fence, Some(vec![7]), None, vec![]).await.unwrap());
        drop(ledger);
        // Until its task has closed the file, the disk is busy.
        while !try_mount(&["-o", "remount,ro"], disk) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let error = SqliteLedger::open(&file).await.unwrap_err();
        assert!(matches!(error, OpenError::Store(StoreError::Inaccessible(_))), "{error:?}");
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains("may write to both; on a read-only disk a server cannot run"), "{said}");
        mount(&["-o", "remount,rw"], disk);
        let ledger = SqliteLedger::open(&file).await.unwrap();
        assert!(matches!(ledger.claim(round(1, 1), bid()).await, Ok(Claimed::Done(Some(_)))));
    });
}

#[test]
fn a_running_server_on_a_disk_that_becomes_read_only_answers_with_retryable_errors_and_then_goes_on() {
    let name = "away::a_running_server_on_a_disk_that_becomes_read_only_answers_with_retryable_errors_and_then_goes_on";
    on_a_small_disk(name, async |disk| {
        let file = disk.join("rounds.db");
        let ledger = SqliteLedger::builder(&file).timeout(Duration::from_millis(200)).open().await.unwrap();
        let keys = KeyRing::from_bytes([[7; 32]]).unwrap();
        let server = Rounds::builder(Tool(units)).keys(keys).audience("away").ledger(ledger.clone()).build().unwrap();
        let client = Client::modern(server).await;
        let answered = client.call("units", json!({})).await.asked().accept("units", json!({"units": "metric"}));
        let said = answered.clone().send(&client).await.text();
        let waiting = client.call("units", json!({})).await.asked().accept("units", json!({"units": "metric"}));
        // A disk on which a file is open for writing cannot be made read-only. The ledger closes the file after an error,
        // and opens it again for the next step.
        let mut other = SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        let held = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
        assert_eq!(waiting.clone().send(&client).await.error()["data"]["reason"], "retry");
        held.rollback().await.unwrap();
        other.close().await.unwrap();
        while !try_mount(&["-o", "remount,ro"], disk) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..2 {
            let leg = waiting.clone().send(&client).await;
            assert_eq!(leg.error()["data"]["reason"], "retry", "{}", leg.error());
        }
        says(ledger.claim(round(1, 1), bid()).await.unwrap_err(), "on a read-only disk a server cannot run");
        mount(&["-o", "remount,rw"], disk);
        assert_eq!(waiting.send(&client).await.text(), said);
        assert_eq!(answered.send(&client).await.text(), said, "what was acknowledged is kept");
    });
}

/// A process that exceeds the size that its files may have is killed by SIGXFSZ: here at each page of its migration.
#[tokio::test]
async fn a_process_that_is_killed_in_its_migration_leaves_nothing_or_a_whole_part() {
    const FILE: &str = "ROUNDS_MIGRATES";
    if let Some(file) = std::env::var_os(FILE) {
        SqliteLedger::open(file).await.unwrap();
        return;
    }
    let whole = Folder::new();
    drop(whole.ledger().await);
    let (tables, mut found) = (tables(&whole.file()).await, Vec::new());
    // In blocks of 512 bytes: the index of the log has 32 KiB, and the log of the whole migration less than 512.
    for blocks in (64..1024).step_by(24) {
        let folder = Folder::new();
        let status = Command::new("sh")
            .args(["-c", "ulimit -c 0; ulimit -f \"$1\"; shift; exec \"$@\"", "sh", &blocks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["away::a_process_that_is_killed_in_its_migration_leaves_nothing_or_a_whole_part", "--exact"])
            .env(FILE, folder.file())
            .output()
            .unwrap()
            .status;
        let killed = status.signal() == Some(25);
        assert!(killed || status.success(), "{status}");
        let count = self::tables(&folder.file()).await;
        assert!(killed || count == tables, "{blocks}: {count} of {tables}");
        found.push((killed, count));
        fresh(&folder.ledger().await, round(1, 1), bid()).await;
        assert_eq!(self::tables(&folder.file()).await, tables, "{blocks}: the next start completes it");
    }
    let killed: BTreeSet<_> = found.iter().filter(|(killed, _)| *killed).map(|(_, count)| *count).collect();
    // Nothing, the store without documents, and everything: no other number of tables.
    assert!(killed.len() <= 3 && killed.contains(&0), "{found:?}");
    assert!(found.iter().any(|(killed, _)| !killed), "{found:?}");
}

/// How many of our tables a file has.
async fn tables(file: &Path) -> i64 {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}?mode=rwc", file.display())).await.unwrap();
    let count = sqlx::query_scalar("SELECT count(*) FROM sqlite_master WHERE name LIKE 'rounds%'");
    count.fetch_one(&mut connection).await.unwrap()
}

/// Runs a test on a disk of one megabyte: in a process of its own, with a mount that only it sees.
fn on_a_small_disk(test: &str, run: impl AsyncFnOnce(&Path)) {
    const DISK: &str = "ROUNDS_SMALL_DISK";
    if let Some(disk) = std::env::var_os(DISK) {
        mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], Path::new(&disk));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(run(Path::new(&disk)));
    }
    let folder = Folder::new();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(DISK, &folder.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn mount(args: &[&str], disk: &Path) {
    assert!(try_mount(args, disk), "cannot mount {args:?}");
}

fn try_mount(args: &[&str], disk: &Path) -> bool {
    Command::new("mount").args(args).arg(disk).output().unwrap().status.success()
}
