//! The ledger on a real SQLite file.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

mod away;
mod claims;
mod costs;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger as _, OwnerLost, PrincipalShare, Retention},
    time::Timestamp,
};
use rounds_sql::SqliteLedger;

const LEASE: Duration = Duration::from_secs(30);

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sqlite-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("rounds.db")
    }

    async fn ledger(&self) -> SqliteLedger {
        SqliteLedger::open(self.file()).await.unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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
async fn fresh(ledger: &SqliteLedger, id: ClaimId, bid: ClaimRequest) -> Fence {
    match ledger.claim(id, bid).await {
        Ok(Claimed::Fresh { fence, .. }) => fence,
        other => panic!("{other:?}"),
    }
}
