//! The cost of a leg, counted in SQLite's own log.

use rounds::{KeyRing, Rounds, test::Client};
use rounds_testkit::{Tool, units};
use serde_json::json;

use crate::Folder;

#[tokio::test]
async fn a_claimed_leg_costs_two_commits_with_a_register_and_without() {
    for register in [false, true] {
        let folder = Folder::new();
        let keys = KeyRing::from_bytes([[1; 32]]).unwrap();
        let builder = Rounds::builder(Tool(units)).keys(keys).audience("costs").ledger(folder.ledger().await);
        let server = if register { builder.register() } else { builder }.build().unwrap();
        let client = Client::modern(server).await;
        let start = commits(&folder);
        let asked = client.call("weather", json!({})).await.asked();
        let begun = commits(&folder);
        assert_eq!(begun - start, usize::from(register), "a question alone is recorded only in a register");
        assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
        assert_eq!(commits(&folder) - begun, 2, "with a register: {register}");
    }
}

/// The number of transactions in the log. The last frame of a transaction has the size of the database in its header, and
/// the others have zero there.
fn commits(folder: &Folder) -> usize {
    let log = std::fs::read(folder.0.join("rounds.db-wal")).unwrap();
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    log[32..].chunks_exact(24 + page).filter(|frame| frame[4..8] != [0; 4]).count()
}
