//! The suite that every store of documents has to pass.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! rounds::ledger::documents::suite::run(|| async { rounds::ledger::MemoryLedger::new() }).await;
//! # });
//! ```

use std::{sync::Arc, time::Duration};

use super::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version};
use crate::{
    server::{
        ledger::{
            Ledger, PrincipalShare, Retention,
            register::{Changed, FlowStatus},
        },
        seal::{Digest, FlowId},
    },
    shared::clock::{Clock as _, SystemClock, Timestamp},
};

/// Runs every check, each with a ledger of its own (or with the same one: no two checks share a document).
///
/// # Panics
///
/// If the ledger keeps no documents, or breaks a promise; the message names it.
pub async fn run<L: Ledger, F: Future<Output = L>>(ledger: impl Fn() -> F) {
    a_document_is_read_as_it_was_written(&Store(ledger().await)).await;
    a_writer_that_has_not_seen_the_newest_version_changes_nothing(&Store(ledger().await)).await;
    kinds_do_not_share_documents(&Store(ledger().await)).await;
    a_document_is_due_when_its_time_has_come_the_longest_overdue_first(&Store(ledger().await)).await;
    pages_of_due_documents_have_each_of_them_once_and_in_order(&Store(ledger().await)).await;
    a_document_whose_time_is_over_is_as_good_as_none(&Store(ledger().await)).await;
    a_removed_document_is_neither_read_nor_due(&Store(ledger().await)).await;
    a_write_is_told_to_the_watchers(&Store(ledger().await)).await;
    of_many_writers_at_once_one_succeeds(Arc::new(Store(ledger().await))).await;
}

const MINUTE: Duration = Duration::from_secs(60);

/// The ledger under test.
struct Store<L>(L);

impl<L: Ledger> Store<L> {
    fn documents(&self) -> &dyn Documents {
        self.0.documents().expect("the ledger keeps documents")
    }

    async fn read(&self, id: DocumentId) -> Option<Document> {
        self.documents().read(id, now()).await.expect("the ledger is there")
    }

    async fn write(&self, id: DocumentId, before: Option<Version>, change: DocumentChange) -> Option<Version> {
        self.documents().write(id, before, change).await.expect("the ledger is there, and has space")
    }

    async fn due(&self, now: Timestamp) -> Vec<DocumentId> {
        let due = self.due_after(DocumentKind::Task, now, None, 1000).await;
        due.into_iter().map(|due| due.id).collect()
    }

    async fn due_after(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> Vec<DueDocument> {
        self.documents().due(kind, now, after, most).await.expect("the ledger is there")
    }
}

fn now() -> Timestamp {
    SystemClock.now().into()
}

/// An id that no other check uses.
fn id(kind: DocumentKind) -> DocumentId {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the operating system provides randomness");
    DocumentId { kind, key: Digest::from_bytes(key) }
}

fn task() -> DocumentId {
    id(DocumentKind::Task)
}

fn change(sealed: &[u8]) -> DocumentChange {
    let keep = Retention { now: now(), until: now() + MINUTE, share: PrincipalShare::Common };
    DocumentChange { sealed: sealed.to_vec(), due: None, keep, tell: None }
}

async fn a_document_is_read_as_it_was_written(store: &Store<impl Ledger>) {
    let id = task();
    assert_eq!(store.read(id).await, None, "there is none");
    let due = Some(now() + MINUTE / 2);
    let first = store.write(id, None, DocumentChange { due, ..change(b"\0one\xff") }).await.expect("it is new");
    let document = store.read(id).await.expect("it was written");
    assert_eq!((&document.sealed[..], document.due), (&b"\0one\xff"[..], due));
    assert_eq!((document.version, first.bytes), (first, 5), "the version that was written is read");
    let second = store.write(id, Some(first), change(b"")).await.expect("nothing was written since");
    let document = store.read(id).await.expect("it was written");
    assert_eq!((&document.sealed[..], document.due, document.version), (&b""[..], None, second));
    assert_ne!(first.number, second.number);
}

async fn a_writer_that_has_not_seen_the_newest_version_changes_nothing(store: &Store<impl Ledger>) {
    let id = task();
    let first = store.write(id, None, change(b"one")).await.expect("it is new");
    assert_eq!(store.write(id, None, change(b"other")).await, None, "there is one");
    let second = store.write(id, Some(first), change(b"two")).await.expect("it is the newest");
    assert_eq!(store.write(id, Some(first), change(b"late")).await, None, "another writer was first");
    let later = Version { number: second.number + 1, ..second };
    assert_eq!(store.write(id, Some(later), change(b"early")).await, None, "there is no such version");
    assert_eq!(store.write(task(), Some(first), change(b"none")).await, None, "there is no such document");
    assert_eq!(store.read(id).await.expect("it is there").sealed, b"two");
}

async fn kinds_do_not_share_documents(store: &Store<impl Ledger>) {
    let one = task();
    let other = DocumentId { kind: DocumentKind::Decision, ..one };
    let due = Some(now());
    store.write(one, None, DocumentChange { due, ..change(b"task") }).await.expect("it is new");
    assert_eq!(store.read(other).await, None);
    store.write(other, None, DocumentChange { due, ..change(b"decision") }).await.expect("it is new");
    assert_eq!(store.read(one).await.expect("it is there").sealed, b"task");
    let of_tasks = store.due(now() + MINUTE / 2).await;
    assert!(of_tasks.contains(&one) && !of_tasks.contains(&other));
    let of_decisions = store.due_after(DocumentKind::Decision, now() + MINUTE / 2, None, 1000).await;
    assert!(of_decisions.iter().any(|due| due.id == other));
}

async fn a_document_is_due_when_its_time_has_come_the_longest_overdue_first(store: &Store<impl Ledger>) {
    let at = now();
    let ids = [task(), task(), task(), task()];
    let mut versions = Vec::new();
    for (id, due) in ids.iter().zip([Some(30), Some(10), None, Some(20)]) {
        let due = due.map(|seconds| at + Duration::from_secs(seconds));
        versions.push(store.write(*id, None, DocumentChange { due, ..change(b"due") }).await);
    }
    let due = async |seconds| {
        let mut due = store.due(at + Duration::from_secs(seconds)).await;
        due.retain(|id| ids.contains(id));
        due
    };
    assert_eq!(due(9).await, []);
    assert_eq!(due(20).await, [ids[1], ids[3]], "the longest overdue first");
    let later = DocumentChange { due: Some(at + Duration::from_secs(25)), ..change(b"renewed") };
    store.write(ids[1], versions[1], later).await.expect("nothing was written since");
    assert_eq!(due(20).await, [ids[3]], "a lease that was renewed is not due");
    assert_eq!(due(30).await, [ids[3], ids[1], ids[0]]);
    store.write(ids[3], versions[3], change(b"ended")).await.expect("nothing was written since");
    assert_eq!(due(30).await, [ids[1], ids[0]], "what has ended is not due");
    let one = store.due_after(DocumentKind::Task, at + MINUTE / 2, None, 1).await;
    assert_eq!(one.len(), 1, "no more than were asked for");
}

async fn pages_of_due_documents_have_each_of_them_once_and_in_order(store: &Store<impl Ledger>) {
    let at = now();
    let mut wanted = Vec::new();
    for seconds in [2, 1, 2, 2, 1, 2, 3] {
        let due = DueDocument { at: at + Duration::from_secs(seconds), id: task() };
        store.write(due.id, None, DocumentChange { due: Some(due.at), ..change(b"due") }).await.expect("it is new");
        wanted.push(due);
    }
    wanted.sort();
    let (mut read, mut last) = (Vec::new(), None);
    loop {
        let page = store.due_after(DocumentKind::Task, at + MINUTE / 2, last, 2).await;
        read.extend(page.iter().copied().filter(|due| wanted.contains(due)));
        // A page goes on behind the last document of the one before, even if that is gone.
        match page.last() {
            Some(due) if wanted.contains(due) => {
                last = Some(*due);
                store.documents().remove(due.id).await.expect("the ledger is there");
            }
            Some(due) => last = Some(*due),
            None => break,
        }
    }
    assert_eq!(read, wanted);
}

async fn a_document_whose_time_is_over_is_as_good_as_none(store: &Store<impl Ledger>) {
    let (id, at) = (task(), now());
    let short = |content| {
        let keep = Retention { now: at, until: at + Duration::from_secs(30), share: PrincipalShare::Common };
        DocumentChange { keep, due: Some(at), ..change(content) }
    };
    let first = store.write(id, None, short(b"one")).await.expect("it is new");
    let read = async |seconds| {
        store.documents().read(id, at + Duration::from_secs(seconds)).await.expect("the ledger is there")
    };
    assert!(read(29).await.is_some() && read(30).await.is_none());
    assert!(!store.due(at + MINUTE).await.contains(&id), "it is not due either");
    let late = |before| {
        let keep = Retention { now: at + MINUTE, until: at + MINUTE * 2, share: PrincipalShare::Common };
        store.write(id, before, DocumentChange { keep, ..change(b"late") })
    };
    assert_eq!(late(Some(first)).await, None, "it is over");
    assert!(late(None).await.is_some(), "its place is free");
    store.documents().sweep(at + MINUTE, 1000).await.expect("the ledger is there");
    assert!(read(90).await.is_some(), "a sweep removes only what is over");
    let removed = store.documents().sweep(at + MINUTE * 2, 1000).await.expect("the ledger is there");
    assert!(removed == 0 || read(119).await.is_none(), "and does remove that, unless the store does so by itself");
}

async fn a_removed_document_is_neither_read_nor_due(store: &Store<impl Ledger>) {
    let (id, at) = (task(), now());
    let written = DocumentChange { due: Some(at), ..change(b"one") };
    let first = store.write(id, None, written).await.expect("it is new");
    assert!(store.documents().remove(id).await.expect("the ledger is there"));
    assert!(!store.documents().remove(id).await.expect("the ledger is there"), "it was removed");
    assert_eq!(store.read(id).await, None);
    assert!(!store.due(at + MINUTE / 2).await.contains(&id));
    assert_eq!(store.write(id, Some(first), change(b"two")).await, None, "a write does not bring it back");
}

async fn a_write_is_told_to_the_watchers(store: &Store<impl Ledger>) {
    let Some(register) = store.0.register() else { return };
    let mut watch = register.watch().await.expect("the ledger is there");
    let mut flow = [0; 16];
    flow.copy_from_slice(&task().key.as_bytes()[..16]);
    let told = Changed { id: FlowId::from_bytes(flow), status: FlowStatus::Waiting };
    let (id, tells) = (id(DocumentKind::Decision), |content| DocumentChange { tell: Some(told), ..change(content) });
    let first = store.write(id, None, tells(b"one")).await.expect("it is new");
    assert_eq!(store.write(id, None, tells(b"other")).await, None);
    store.write(id, Some(first), tells(b"two")).await.expect("it is the newest");
    let told_of = async {
        let mut times = 0;
        while times < 2 {
            times += u32::from(watch.next().await.expect("the watch goes on") == told);
        }
    };
    tokio::time::timeout(MINUTE / 4, told_of).await.expect("both writes are told");
}

async fn of_many_writers_at_once_one_succeeds<L: Ledger>(store: Arc<Store<L>>) {
    let id = task();
    let mut newest = None;
    for round in 0..20_u8 {
        let writers: Vec<_> = (0..8_u8)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move { store.write(id, newest, change(&[round, writer])).await })
            })
            .collect();
        let mut succeeded = Vec::new();
        for (number, writer) in (0..).zip(writers) {
            let version = writer.await.expect("no writer panics");
            succeeded.extend(version.map(|version| (version, vec![round, number])));
        }
        let [(version, content)] = &succeeded[..] else { panic!("{} writers succeeded", succeeded.len()) };
        newest = Some(*version);
        assert_eq!(&store.read(id).await.expect("it is there").sealed, content);
    }
}
