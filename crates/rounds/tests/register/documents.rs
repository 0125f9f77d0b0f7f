//! The documents of a ledger in memory.

use std::time::Duration;

use rounds::{
    keys::Digest,
    ledger::{
        Ledger as _, LedgerError, MemoryLedger, PrincipalShare, Retention,
        documents::{DocumentChange, DocumentId, DocumentKind, Documents, suite},
    },
    time::Timestamp,
};

fn id(number: u8) -> DocumentId {
    DocumentId { kind: DocumentKind::Task, key: Digest::from_bytes([number; 32]) }
}

fn change(bytes: usize, share: PrincipalShare) -> DocumentChange {
    let now = Timestamp::from_millis(1000);
    let keep = Retention { now, until: now + Duration::from_secs(60), share };
    DocumentChange { sealed: vec![7; bytes], due: None, keep, tell: None }
}

fn of(ledger: &MemoryLedger) -> &dyn Documents {
    ledger.documents().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_in_memory_passes_the_suite() {
    suite::run(|| async { MemoryLedger::new() }).await;
}

#[tokio::test]
async fn a_document_counts_with_its_size_and_one_that_does_not_fit_changes_nothing() {
    let ledger = MemoryLedger::new().with_document_bytes(2 * DocumentChange::OVERHEAD + 100);
    let (documents, common) = (of(&ledger), |bytes| change(bytes, PrincipalShare::Common));
    let now = Timestamp::from_millis(1000);
    let first = documents.write(id(1), None, common(60)).await.unwrap();
    let refused = documents.write(id(2), None, common(60)).await;
    assert!(matches!(refused, Err(LedgerError::Full { .. })), "{refused:?}");
    assert_eq!(documents.read(id(2), now).await.unwrap(), None);
    let second = documents.write(id(1), first, common(30)).await.unwrap();
    documents.write(id(2), None, common(60)).await.unwrap().expect("there is room now");
    let refused = documents.write(id(1), second, common(50)).await;
    assert!(matches!(refused, Err(LedgerError::Full { .. })), "{refused:?}");
    assert_eq!(documents.read(id(1), now).await.unwrap().unwrap().sealed, [7; 30]);
    assert!(documents.remove(id(2)).await.unwrap());
    documents.write(id(1), second, common(90)).await.unwrap().expect("there is room again");
    assert_eq!(ledger.document_bytes(), DocumentChange::OVERHEAD + 90);
}

#[tokio::test]
async fn one_principal_takes_a_tenth_at_most() {
    let ledger = MemoryLedger::new().with_document_bytes(10_000);
    let mine = |bytes| change(bytes, PrincipalShare::Principal([1; 16]));
    of(&ledger).write(id(1), None, mine(700)).await.unwrap().unwrap();
    assert!(of(&ledger).write(id(2), None, mine(100)).await.is_err());
    of(&ledger).write(id(2), None, change(700, PrincipalShare::Principal([2; 16]))).await.unwrap().unwrap();
}
