//! Real concurrency: processes that share nothing but Redis.

use std::process::{Command, Stdio};

use rounds::ledger::{Claimed, Ledger as _};
use rounds_redis::RedisLedger;

use crate::{Redis, bid, in_time, round};

const URL: &str = "ROUNDS_TEST_REDIS";
const CLAIMS: usize = 50;

#[test]
fn of_fifty_claims_of_one_round_from_each_of_four_processes_one_is_fresh() {
    let redis = Redis::start();
    let processes: Vec<_> = (0..4)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["processes::the_claimant", "--exact", "--nocapture"])
                .env(URL, redis.url())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut said = String::new();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        said += &String::from_utf8(output.stdout).unwrap();
    }
    let count = |word: &str| said.lines().filter(|line| *line == word).count();
    assert_eq!((count("fresh"), count("replayed")), (1, 4 * CLAIMS - 1), "{said}");
}

/// The program that the test above starts four times, and not a test itself. Without an address it does nothing.
#[test]
fn the_claimant() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(in_time(async {
        let ledger = RedisLedger::connect(&url).await.unwrap();
        let legs: Vec<_> = (0..CLAIMS).map(|_| tokio::spawn(leg(ledger.clone()))).collect();
        println!();
        for leg in legs {
            println!("{}", leg.await.unwrap());
        }
    }));
}

async fn leg(ledger: RedisLedger) -> &'static str {
    loop {
        match ledger.claim(round(7, 1), bid(0)).await.unwrap() {
            Claimed::Fresh { fence, .. } => {
                assert!(ledger.settle(round(7, 1), fence, Some(b"the reply".to_vec()), None, vec![]).await.unwrap());
                return "fresh";
            }
            Claimed::Running(waiting) => waiting.await,
            Claimed::Done(Some(reply)) if reply == b"the reply" => return "replayed",
            other => panic!("equal legs run, wait or get the reply, got {other:?}"),
        }
    }
}
