//! The ledger and the relay on a real Postgres, which the tests start.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

mod away;
mod claims;
mod costs;
mod failover;
mod relay;

use std::time::Duration;

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger as _, OwnerLost, PrincipalShare, Retention},
    time::Timestamp,
};
use rounds_sql::PostgresLedger;

const LEASE: Duration = Duration::from_secs(30);

fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

fn round(flow: u8, number: u32) -> ClaimId {
    ClaimId { flow: FlowId::from_bytes([flow; 16]), what: ClaimKind::Round(number) }
}

/// A claim that is kept for ten minutes.
fn bid() -> ClaimRequest {
    let keep = Retention { now: now(), until: now() + Duration::from_secs(600), share: PrincipalShare::Common };
    ClaimRequest { answers: Digest::from_bytes([1; 32]), keep, lease: LEASE, orphan: OwnerLost::Free }
}

/// Takes a free claim.
async fn fresh(ledger: &PostgresLedger, id: ClaimId, bid: ClaimRequest) -> Fence {
    match ledger.claim(id, bid).await {
        Ok(Claimed::Fresh { fence, .. }) => fence,
        other => panic!("{other:?}"),
    }
}
