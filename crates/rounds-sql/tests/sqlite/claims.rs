//! What the suite does not say: restarts, several processes, and shares.

use std::time::Duration;

use rounds::ledger::{Claimed, Ledger as _, LedgerError, OwnerLost, PrincipalShare};
use rounds_sql::SqliteLedger;

use crate::{Folder, bid, fresh, now, round};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let folder = Folder::new();
    rounds::ledger::suite::run(|| folder.ledger()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_with_one_ledger() {
    let folder = Folder::new();
    let ledger = folder.ledger().await;
    rounds::ledger::suite::run(|| async { ledger.clone() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_of_documents() {
    let folder = Folder::new();
    rounds::ledger::documents::suite::run(|| folder.ledger()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_of_registers() {
    let folder = Folder::new();
    let ledger = folder.ledger().await;
    rounds::register::suite::run(|| async { ledger.clone() }).await;
}

#[tokio::test]
async fn a_restart_forgets_nothing() {
    let folder = Folder::new();
    let ledger = folder.ledger().await;
    let running = fresh(&ledger, round(1, 1), bid()).await;
    let done = fresh(&ledger, round(2, 1), bid()).await;
    assert!(ledger.settle(round(2, 1), done, Some(b"reply".to_vec()), None, vec![]).await.unwrap());
    drop(ledger);
    let ledger = folder.ledger().await;
    assert!(matches!(ledger.claim(round(1, 1), bid()).await, Ok(Claimed::Running(_))));
    assert!(matches!(ledger.claim(round(2, 1), bid()).await, Ok(Claimed::Done(Some(reply))) if reply == b"reply"));
    assert!(ledger.settle(round(1, 1), running, None, None, vec![]).await.unwrap(), "the fence is the same");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let ledger = folder.ledger().await;
    fresh(&ledger, round(1, 1), bid()).await;
    for file in std::fs::read_dir(&folder.0).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_that_start_at_once_share_one_schema_and_one_claim() {
    for _ in 0..20 {
        let folder = Folder::new();
        let ledgers = [(); 3].map(|()| tokio::spawn(SqliteLedger::open(folder.file())));
        let mut fresh = 0;
        for ledger in ledgers {
            let claimed = ledger.await.unwrap().unwrap().claim(round(1, 1), bid()).await.unwrap();
            fresh += u32::from(matches!(claimed, Claimed::Fresh { .. }));
        }
        assert_eq!(fresh, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leg_that_waits_in_another_process_is_woken_and_keeps_the_round_running() {
    let folder = Folder::new();
    let (here, there) = (folder.ledger().await, folder.ledger().await);
    let fence = fresh(&here, round(1, 1), bid()).await;
    let Ok(Claimed::Running(waiting)) = there.claim(round(1, 1), bid()).await else { panic!("it runs") };
    assert!(here.release(round(1, 1), fence, OwnerLost::Free, true).await.unwrap(), "a leg waits elsewhere");
    let waiting = tokio::spawn(waiting);
    assert!(here.settle(round(1, 1), fence, Some(vec![1]), None, vec![]).await.unwrap());
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_caller_at_its_share_is_refused_new_rounds_and_keeps_its_old_ones() {
    let folder = Folder::new();
    let ledger = SqliteLedger::builder(folder.file()).principal_bytes(5000).open().await.unwrap();
    let mut mine = bid();
    mine.keep.share = PrincipalShare::Principal([1; 16]);
    fresh(&ledger, round(1, 1), mine).await;
    fresh(&ledger, round(2, 1), mine).await;
    let refused = ledger.claim(round(3, 1), mine).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Full { limit: 5000, .. }), "{refused:?}");
    assert!(matches!(ledger.claim(round(1, 1), mine).await, Ok(Claimed::Running(_))));
    let mut late = mine;
    late.keep.now = late.keep.now + crate::LEASE;
    fresh(&ledger, round(1, 1), late).await;
    fresh(&ledger, round(4, 1), bid()).await;
}

#[tokio::test]
async fn a_record_is_removed_after_it_has_expired_and_not_before() {
    let folder = Folder::new();
    let ledger = folder.ledger().await;
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
    let folder = Folder::new();
    let ledger = folder.ledger().await;
    for flow in 0..50 {
        // Polled once, so that the step is on its way.
        let mut claim = ledger.claim(round(flow, 1), bid());
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(claim.as_mut().poll(cx).is_ready())).await;
        assert!(!polled);
        drop(claim);
        // The step after it is taken when the claim is free again, or was never taken.
        loop {
            match ledger.claim(round(flow, 1), bid()).await.unwrap() {
                Claimed::Fresh { .. } => break,
                Claimed::Running(waiting) => tokio::time::timeout(crate::LEASE / 2, waiting).await.unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }
}
