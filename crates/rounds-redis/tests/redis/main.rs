//! The ledger on a real Redis, which each test starts for itself.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

mod away;
mod causes;
mod claims;
mod costs;
mod hostile;
mod kinds;
mod processes;
mod relay;
mod sealed;
mod shop;
mod slow;
mod spill;

use std::time::Duration;

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger as _, OwnerLost, PrincipalShare, Retention, Spill,
    },
    time::Timestamp,
};
use rounds_redis::RedisLedger;
use rounds_testkit::Redis;

const LEASE: Duration = Duration::from_secs(30);

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn round(flow: u8, number: u32) -> ClaimId {
    ClaimId { flow: FlowId::from_bytes([flow; 16]), what: ClaimKind::Round(number) }
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 32])
}

/// A claim that is kept for ten minutes, at this second.
fn bid(now: u64) -> ClaimRequest {
    let keep = Retention { now: at(now), until: at(now + 600), share: PrincipalShare::Common };
    ClaimRequest { answers: digest(1), keep, lease: LEASE, orphan: OwnerLost::Free }
}

/// A spilled state: what the token of a round could not carry.
fn spill(id: ClaimId, keep: Retention) -> Spill {
    Spill { id, keep, state: vec![1] }
}

/// Takes a free claim.
async fn fresh(ledger: &RedisLedger, id: ClaimId, bid: ClaimRequest) -> Fence {
    match in_time(ledger.claim(id, bid)).await {
        Ok(Claimed::Fresh { fence, .. }) => fence,
        other => panic!("{other:?}"),
    }
}

/// Fails if the work takes longer than a minute.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("the call hangs")
}
