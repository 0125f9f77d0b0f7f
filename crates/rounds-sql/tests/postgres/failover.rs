//! A failover: an asynchronous replica loses what was committed in the last moments, a synchronous one nothing that was
//! acknowledged.

use std::{sync::Arc, time::Duration};

use rounds::ledger::{ClaimId, Claimed, Ledger as _, LedgerError};
use rounds_sql::PostgresLedger;
use rounds_testkit::{Postgres, PostgresAddress};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{bid, fresh, round};

/// A primary, its replica, the address that leads to the primary, and a ledger there.
struct Pair {
    primary: Postgres,
    replica: Postgres,
    address: PostgresAddress,
    ledger: Arc<PostgresLedger>,
}

impl Pair {
    async fn start(timeout: Duration) -> Self {
        let primary = Postgres::with(&["fsync=off"]);
        let database = primary.database();
        let address = PostgresAddress::of(&primary);
        let ledger = PostgresLedger::builder(address.url(&database)).timeout(timeout).connect().await.unwrap();
        let replica = primary.replica();
        Self { primary, replica, address, ledger: Arc::new(ledger) }
    }

    /// From now on a commit is acknowledged when the replica has it.
    fn wait_for_replica_at_commit(&self) {
        let url = self.primary.url("postgres");
        self.primary.ask(&url, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (replica)'");
        self.primary.ask(&url, "SELECT pg_reload_conf()");
        let waits = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'";
        while self.primary.ask(&url, waits) != "1" {}
    }

    /// The primary is lost, and the replica takes its place.
    fn fail_over(&mut self) {
        self.primary.kill();
        self.replica.promote();
        self.address.lead_to(&self.replica);
    }
}

async fn settle(ledger: &PostgresLedger, id: ClaimId, reply: u8) -> Result<(), LedgerError> {
    let Claimed::Fresh { fence, .. } = ledger.claim(id, bid()).await? else { panic!("{id:?} is free") };
    assert!(ledger.settle(id, fence, Some(vec![reply]), None, vec![]).await?);
    Ok(())
}

#[tokio::test]
async fn an_asynchronous_replica_loses_what_it_was_not_sent_and_the_token_can_be_used_once_more() {
    let mut pair = Pair::start(Duration::from_secs(10)).await;
    settle(&pair.ledger, round(1, 1), 1).await.unwrap();
    pair.primary.wait_for_replica();
    pair.primary.stall_replication();
    settle(&pair.ledger, round(2, 1), 2).await.unwrap();
    pair.fail_over();
    assert!(matches!(pair.ledger.claim(round(1, 1), bid()).await, Ok(Claimed::Done(Some(reply))) if reply == [1]));
    fresh(&pair.ledger, round(2, 1), bid()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_replica_has_everything_that_was_acknowledged() {
    let mut pair = Pair::start(Duration::from_secs(10)).await;
    pair.wait_for_replica_at_commit();
    let (acknowledge, mut acknowledged) = mpsc::unbounded_channel();
    let mut legs = JoinSet::new();
    for flow in 0..8 {
        let (ledger, acknowledge) = (pair.ledger.clone(), acknowledge.clone());
        legs.spawn(async move {
            for number in 1.. {
                match settle(&ledger, round(flow, number), flow).await {
                    Ok(()) => acknowledge.send((flow, number)).unwrap(),
                    Err(error) => return assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}"),
                }
            }
        });
    }
    drop(acknowledge);
    let mut all = Vec::new();
    while all.len() < 300 {
        all.push(acknowledged.recv().await.unwrap());
    }
    pair.fail_over();
    legs.join_all().await;
    while let Some(last) = acknowledged.recv().await {
        all.push(last);
    }
    for (flow, number) in all {
        match pair.ledger.claim(round(flow, number), bid()).await {
            Ok(Claimed::Done(Some(reply))) => assert_eq!(reply, [flow]),
            other => panic!("round {number} of flow {flow} was acknowledged and is lost: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_step_that_no_synchronous_replica_has_is_not_acknowledged() {
    let mut pair = Pair::start(Duration::from_millis(500)).await;
    pair.wait_for_replica_at_commit();
    pair.primary.stall_replication();
    let error = pair.ledger.claim(round(1, 1), bid()).await.unwrap_err();
    let LedgerError::Unavailable(cause) = error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("did not answer within 500ms"), "{cause}");
    pair.fail_over();
    fresh(&pair.ledger, round(1, 1), bid()).await;
}
