//! Why a step failed, told apart in the error that the log prints: in Redis's own words, or in those of the system.

use std::{error::Error, net::TcpListener, time::Duration};

use rounds::ledger::{Ledger as _, LedgerError};
use rounds_redis::RedisLedger;

use crate::{Redis, bid, in_time, round};

/// An error with all of its sources, as the log has it.
fn sentence(error: &(dyn Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The error of a step that cannot be taken, in capitals, as Redis writes the first word of an error.
async fn failed(ledger: &RedisLedger) -> String {
    let error = in_time(ledger.claim(round(1, 1), bid(0))).await.unwrap_err();
    assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}");
    sentence(&error).to_uppercase()
}

#[tokio::test]
async fn rights_that_were_taken_away_read_noperm() {
    let redis = Redis::start();
    let _: String = redis.ask("ACL SETUSER ann on >secret ~* &* +@all", &[]).await;
    let ledger = RedisLedger::connect(&format!("{}?user=ann&pass=secret", redis.url())).await.unwrap();
    let _: String = redis.ask("ACL SETUSER ann -evalsha -eval", &[]).await;
    let said = failed(&ledger).await;
    assert!(said.contains("NOPERM"), "{said}");
}

#[tokio::test]
async fn a_redis_without_memory_reads_oom() {
    let redis = Redis::start();
    let ledger = redis.ledger().await;
    let _: String = redis.ask("CONFIG SET maxmemory 1", &[]).await;
    let said = failed(&ledger).await;
    assert!(said.contains("OOM"), "{said}");
}

#[tokio::test]
async fn a_redis_that_does_not_answer_reads_as_a_timeout() {
    let redis = Redis::start();
    let ledger = redis.builder().timeout(Duration::from_millis(200)).connect().await.unwrap();
    redis.pause();
    let said = failed(&ledger).await;
    redis.go_on();
    assert!(said.contains("DID NOT ANSWER WITHIN 200MS"), "{said}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_reads_as_such() {
    let error = in_time(RedisLedger::connect("redis://no-such-host.invalid/")).await.unwrap_err();
    let said = sentence(&error);
    assert!(said.contains("lookup") || said.contains("resolve"), "{said}");
}

/// A Redis whose operator makes it a node of a cluster, in which another node has the slots.
#[tokio::test]
async fn a_node_whose_slots_have_moved_reads_moved() {
    let mut redis = Redis::start();
    let ledger = redis.ledger().await;
    redis.stop();
    let cluster = |bus: &str| {
        let settings = "--cluster-enabled yes --bind 127.0.0.1 --cluster-node-timeout 500 --cluster-port";
        settings.split(' ').map(str::to_owned).chain([bus.to_owned()]).collect::<Vec<_>>()
    };
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let (bus, other_bus) = (free(), free());
    redis.start_again_with(&cluster(&bus));
    let other = Redis::with(&cluster(&other_bus).iter().map(String::as_str).collect::<Vec<_>>());
    let _: String = other.ask("CLUSTER ADDSLOTSRANGE 0 16383", &[]).await;
    let _: String = redis.ask("CLUSTER MEET 127.0.0.1 1", &[other_bus.as_bytes()]).await;
    let said = in_time(async {
        loop {
            let said = failed(&ledger).await;
            // Until the nodes have met.
            if !said.contains("CLUSTERDOWN") {
                return said;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let said = said.await;
    assert!(said.contains("MOVED"), "{said}");
}
