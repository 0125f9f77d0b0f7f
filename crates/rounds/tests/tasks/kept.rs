//! Tasks on a ledger that outlives the process: every instance finds them, and continues those whose instance is lost.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{RoleServer, object, service::RequestContext};
use rounds::{
    KeyRing, Limits, Principal, Rounds,
    client::{Call, Sent},
    keys::Digest,
    ledger::{
        ClaimId, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, PrincipalShare, Retention,
        Spill,
        documents::{Document, DocumentChange, DocumentId, DocumentKind, Documents, DueDocument, Version},
    },
    tasks::Tasks,
    test::{Client, Clock},
    time::{BoxFuture, Timestamp},
};
use serde_json::json;

use super::{Scene, Shop, accept, declared, keys, text_of};

/// A connection to a ledger that several instances share. It can be cut.
#[derive(Clone)]
struct Shared {
    kept: MemoryLedger,
    cut: Arc<AtomicBool>,
    /// Everything that was written into documents, and how often documents were read.
    written: Arc<Mutex<Vec<Vec<u8>>>>,
    reads: Arc<Mutex<usize>>,
    /// Every step that was asked of the store.
    steps: Arc<Mutex<usize>>,
}

type Step<'a, T> = BoxFuture<'a, Result<T, LedgerError>>;

impl Shared {
    fn new() -> Self {
        let (kept, cut, written) = (MemoryLedger::new(), Arc::default(), Arc::default());
        Self { kept, cut, written, reads: Arc::default(), steps: Arc::default() }
    }

    fn elsewhere(&self) -> Self {
        Self { cut: Arc::default(), ..self.clone() }
    }

    /// Takes a step, as a store over a network does: other requests take theirs meanwhile.
    fn pass<'a, T: Send + 'a>(&'a self, step: impl FnOnce(&'a MemoryLedger) -> Step<'a, T> + Send + 'a) -> Step<'a, T> {
        *self.steps.lock().unwrap() += 1;
        Box::pin(async move {
            tokio::task::yield_now().await;
            match self.cut.load(Ordering::Relaxed) {
                true => Err(LedgerError::Unavailable("cut".into())),
                false => step(&self.kept).await,
            }
        })
    }
}

impl Ledger for Shared {
    fn spill(&self, spill: Spill) -> Step<'_, ()> {
        self.pass(move |kept| kept.spill(spill))
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> Step<'_, Claimed> {
        self.pass(move |kept| kept.claim(id, request))
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> Step<'_, bool> {
        self.pass(move |kept| kept.renew(id, fence, lease_until))
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> Step<'_, bool> {
        self.pass(move |kept| kept.settle(id, fence, reply, spill, spent))
    }

    fn release(&self, id: ClaimId, fence: Fence, orphan: OwnerLost, unless_awaited: bool) -> Step<'_, bool> {
        self.pass(move |kept| kept.release(id, fence, orphan, unless_awaited))
    }

    fn documents(&self) -> Option<&dyn Documents> {
        Some(self)
    }
}

impl Documents for Shared {
    fn read(&self, id: DocumentId, now: Timestamp) -> Step<'_, Option<Document>> {
        *self.reads.lock().unwrap() += 1;
        self.pass(move |kept| Documents::read(kept, id, now))
    }

    fn write(&self, id: DocumentId, before: Option<Version>, change: DocumentChange) -> Step<'_, Option<Version>> {
        self.written.lock().unwrap().push(change.sealed.clone());
        self.pass(move |kept| Documents::write(kept, id, before, change))
    }

    fn due(
        &self,
        kind: DocumentKind,
        now: Timestamp,
        after: Option<DueDocument>,
        most: usize,
    ) -> Step<'_, Vec<DueDocument>> {
        self.pass(move |kept| kept.due(kind, now, after, most))
    }

    fn remove(&self, id: DocumentId) -> Step<'_, bool> {
        self.pass(move |kept| Documents::remove(kept, id))
    }

    fn sweep(&self, now: Timestamp, most: usize) -> Step<'_, u64> {
        self.pass(move |kept| Documents::sweep(kept, now, most))
    }
}

/// Two instances that share a clock, a ledger, and what their effects count.
pub(super) struct Fleet {
    pub(super) here: Scene,
    pub(super) there: Scene,
    /// The connection of the first instance.
    ledger: Shared,
}

impl Fleet {
    pub(super) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        Self::of(Shop::new(), limits.clone(), limits).await
    }

    /// A fleet whose second instance has another shop and other limits, as after a deploy.
    pub(super) async fn of(mut shop: Shop, limits: Limits, deployed: Limits) -> Self {
        let (clock, ledger) = (Clock::new(), Shared::new());
        let here = instance(Shop::new(), &clock, ledger.clone(), limits).await;
        shop.effects = here.server.handler().effects.clone();
        let there = instance(shop, &clock, ledger.elsewhere(), deployed).await;
        Self { here, there, ledger }
    }

    /// How many documents were written so far.
    pub(super) fn writes(&self) -> usize {
        self.ledger.written.lock().unwrap().len()
    }

    /// The first instance loses its store, and its leases lapse.
    pub(super) fn lose(&self) {
        self.ledger.cut.store(true, Ordering::Relaxed);
        self.here.clock.advance(Duration::from_secs(31));
    }
}

async fn instance(shop: Shop, clock: &Clock, ledger: Shared, limits: Limits) -> Scene {
    instance_with_key([7; 32], shop, clock, ledger, limits).await
}

async fn instance_with_key(key: [u8; 32], shop: Shop, clock: &Clock, ledger: Shared, limits: Limits) -> Scene {
    let caller = Arc::new(Mutex::new(Some("ann")));
    let who = caller.clone();
    let identify = move |_: &RequestContext<RoleServer>| who.lock().unwrap().map(Principal::new);
    let server = Rounds::builder(shop)
        .clock(clock.clone())
        .principal(identify)
        .keys(KeyRing::from_bytes([key]).unwrap())
        .audience("shop")
        .ledger(ledger)
        .limits(limits)
        .tasks(Tasks::at_once())
        .build()
        .unwrap();
    let client = Client::modern(server.clone()).await.declaring(declared());
    Scene { server, clock: clock.clone(), caller, client }
}

const RESUMED: [&str; 4] = ["durable", "guard", "steps", "declared"];

#[tokio::test]
async fn a_task_is_found_answered_and_ended_on_any_instance_with_effects_once() {
    for (tool, number) in RESUMED.into_iter().zip(1..) {
        let fleet = Fleet::new().await;
        let id = fleet.here.begin(tool).await;
        let key = keys(&fleet.there.until(&id, "input_required").await).remove(0);
        fleet.there.update(&id, json!({key: accept(4)})).await;
        assert_eq!(text_of(&fleet.here.until(&id, "completed").await), "size 4", "{tool} {number}");
        assert_eq!(text_of(&fleet.there.get(&id).await), "size 4");
        assert_eq!(fleet.here.effects(), 1, "{tool}");
    }
}

#[tokio::test]
async fn what_is_asked_in_part_here_is_answered_in_the_rest_there() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("together").await;
    let keys = keys(&fleet.there.until(&id, "input_required").await);
    fleet.there.update(&id, json!({&keys[0]: accept(1)})).await;
    fleet.there.update(&id, json!({&keys[0]: accept(9)})).await;
    assert_eq!(fleet.here.get(&id).await["inputRequests"].as_object().unwrap().len(), 1);
    fleet.here.update(&id, json!({&keys[1]: accept(2)})).await;
    assert_eq!(text_of(&fleet.there.until(&id, "completed").await), "1 and 2");
}

#[tokio::test]
async fn a_poll_is_one_read_and_no_other_step_of_the_store() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("durable").await;
    fleet.there.until(&id, "input_required").await;
    for scene in [&fleet.there, &fleet.here] {
        let before = (*fleet.ledger.reads.lock().unwrap(), *fleet.ledger.steps.lock().unwrap());
        scene.get(&id).await;
        let after = (*fleet.ledger.reads.lock().unwrap(), *fleet.ledger.steps.lock().unwrap());
        assert_eq!(after, (before.0 + 1, before.1 + 1), "a read, and no other step");
    }
}

#[tokio::test]
async fn a_first_leg_whose_instance_is_lost_goes_on_elsewhere_with_its_effects_once() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("slowly").await;
    fleet.here.server.handler().begun.notified().await;
    assert_eq!(fleet.there.get(&id).await["status"], "working");
    fleet.lose();
    assert_eq!(fleet.there.get(&id).await["status"], "working", "it goes on with this request");
    fleet.there.server.handler().done.notify_one();
    let key = keys(&fleet.there.until(&id, "input_required").await).remove(0);
    fleet.there.update(&id, json!({key: accept(4)})).await;
    assert_eq!(text_of(&fleet.there.until(&id, "completed").await), "size 4");
    assert_eq!(fleet.here.effects(), 1);
}

#[tokio::test]
async fn a_sweep_finds_what_no_client_polls() {
    let fleet = Fleet::new().await;
    let other = fleet.there.begin("durable").await;
    let id = fleet.here.begin("slowly").await;
    fleet.here.server.handler().begun.notified().await;
    fleet.lose();
    fleet.there.server.handler().begun.notified().await;
    fleet.there.server.handler().done.notify_one();
    fleet.there.until(&id, "input_required").await;
    assert_eq!(fleet.here.effects(), 2, "one for each task");
    fleet.there.until(&other, "input_required").await;
}

/// Two services may share a store, and neither can open the tasks of the other.
#[tokio::test]
async fn tasks_of_another_service_do_not_hide_those_that_a_sweep_looks_for() {
    let fleet = Fleet::new().await;
    let now = Timestamp::from(rounds::time::Clock::now(&fleet.here.clock));
    for number in 0..250_u16 {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        let id = DocumentId { kind: DocumentKind::Task, key: Digest::from_bytes(key) };
        let keep = Retention { now, until: now + Duration::from_secs(3600), share: PrincipalShare::Common };
        let change = DocumentChange { sealed: b"of another service".to_vec(), due: Some(now), keep, tell: None };
        Documents::write(&fleet.ledger.kept, id, None, change).await.unwrap().unwrap();
    }
    fleet.there.begin("durable").await;
    let id = fleet.here.begin("slowly").await;
    fleet.here.server.handler().begun.notified().await;
    fleet.lose();
    fleet.there.server.handler().begun.notified().await;
    fleet.there.server.handler().done.notify_one();
    fleet.there.until(&id, "input_required").await;
}

#[tokio::test]
async fn a_leg_with_answers_whose_instance_is_lost_goes_on_elsewhere() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("finally").await;
    let key = keys(&fleet.here.until(&id, "input_required").await).remove(0);
    fleet.here.update(&id, json!({key: accept(4)})).await;
    fleet.here.server.handler().begun.notified().await;
    fleet.lose();
    assert_eq!(fleet.there.get(&id).await["status"], "working");
    fleet.there.server.handler().done.notify_one();
    assert_eq!(text_of(&fleet.there.until(&id, "completed").await), "size 4");
    assert_eq!(fleet.here.effects(), 1);
}

#[tokio::test]
async fn a_handler_that_lives_in_its_process_is_never_run_again() {
    for tool in ["slow", "polite"] {
        let fleet = Fleet::new().await;
        let id = fleet.here.begin(tool).await;
        fleet.here.server.handler().begun.notified().await;
        fleet.lose();
        let failed = fleet.there.get(&id).await;
        assert_eq!(failed["status"], "failed", "{tool}: {failed}");
        let words = failed["statusMessage"].as_str().unwrap();
        assert!(words.contains("has stopped") && words.contains("was not run again"), "{words}");
        assert_eq!(fleet.here.effects(), 0);
    }
}

#[tokio::test]
async fn a_linear_task_that_waited_in_a_process_that_is_gone_says_so() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("linear").await;
    let key = keys(&fleet.there.until(&id, "input_required").await).remove(0);
    // No relay leads to the first instance.
    fleet.there.update(&id, json!({key: accept(4)})).await;
    let failed = fleet.there.until(&id, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap().contains("has stopped"), "{failed}");
    assert_eq!(fleet.here.effects(), 1);
}

#[tokio::test]
async fn a_cancellation_reaches_the_run_on_another_instance() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("polite").await;
    fleet.here.server.handler().begun.notified().await;
    fleet.there.cancel(&id).await;
    fleet.here.clock.advance(Duration::from_secs(6));
    fleet.there.until(&id, "cancelled").await;

    let id = fleet.here.begin("durable").await;
    fleet.here.until(&id, "input_required").await;
    fleet.there.cancel(&id).await;
    assert_eq!(fleet.here.get(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn the_status_message_is_seen_everywhere() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("slow").await;
    fleet.here.server.handler().begun.notified().await;
    fleet.here.clock.advance(Duration::from_secs(6));
    let seen = async {
        while fleet.there.get(&id).await["statusMessage"] != "half way" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("it is written with the lease");
}

#[tokio::test]
async fn another_caller_learns_nothing_and_the_store_reads_nothing() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("durable").await;
    let key = keys(&fleet.here.until(&id, "input_required").await).remove(0);
    *fleet.there.caller.lock().unwrap() = Some("bob");
    for method in super::METHODS {
        assert_eq!(fleet.there.refused(&fleet.there.client, method, &id).await, -32602, "{method}");
    }
    fleet.here.update(&id, json!({key: accept(37)})).await;
    fleet.here.until(&id, "completed").await;
    let written = fleet.ledger.written.lock().unwrap().concat();
    for secret in ["Which size", "size 37", "durable", "ann", &id] {
        let found = written.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
        assert!(!found, "{secret}");
    }
}

#[tokio::test]
async fn a_later_leg_that_is_sent_again_elsewhere_gets_the_same_task() {
    let fleet = Fleet::new().await;
    let plain = fleet.here.client.declaring(json!({"elicitation": {"form": {}}}));
    let asked = plain.call("guard", json!({})).await.asked();
    let leg = asked.accept("size", json!({"size": 4}));
    let [one, other] = [leg.send(&fleet.here.client).await, leg.send(&fleet.there.client).await];
    assert_eq!(one.result()["taskId"], other.result()["taskId"]);
    let id = one.result()["taskId"].as_str().unwrap();
    assert_eq!(text_of(&fleet.there.until(id, "completed").await), "size 4");
    assert_eq!(fleet.here.effects(), 1);
}

#[tokio::test]
async fn a_call_whose_task_cannot_be_kept_is_served_without_one() {
    let fleet = Fleet::with(Limits::default().with_tasks(1, 1)).await;
    fleet.here.begin("guard").await;
    let asked = fleet.here.client.call("guard", json!({})).await.asked();
    assert_eq!(asked.accept("size", json!({"size": 4})).send(&fleet.here.client).await.text(), "size 4");
}

#[tokio::test]
async fn a_first_leg_that_is_sent_again_with_its_idempotency_key_gets_the_same_task() {
    let fleet = Fleet::new().await;
    let (here, there) = (super::client::host(&fleet.here.server).await, super::client::host(&fleet.there.server).await);
    let call = Call::tool("durable", object!({})).with_idempotency_key("0123456789abcdef0123456789abcdef");
    let [one, other] = [call.send(&here).await.unwrap(), call.send(&there).await.unwrap()];
    let (Sent::Later(one), Sent::Later(other)) = (one, other) else { panic!("both are tasks") };
    assert_eq!(one.task_id().unwrap(), other.task_id().unwrap());
    fleet.there.until(one.task_id().unwrap(), "input_required").await;
    assert_eq!(fleet.here.effects(), 1);
}

#[tokio::test]
async fn a_run_that_is_there_is_not_lost_because_its_store_was_away() {
    let fleet = Fleet::new().await;
    let id = fleet.here.begin("slow").await;
    fleet.here.server.handler().begun.notified().await;
    fleet.lose();
    fleet.ledger.cut.store(false, Ordering::Relaxed);
    assert_eq!(fleet.here.get(&id).await["status"], "working", "its own process knows better");
    assert_eq!(fleet.there.get(&id).await["status"], "working", "and has said so");
    fleet.here.server.handler().done.notify_one();
    assert_eq!(text_of(&fleet.there.until(&id, "completed").await), "done");
}

#[tokio::test]
async fn tasks_that_an_instance_cannot_open_do_not_crowd_out_its_own() {
    let fleet = Fleet::new().await;
    let limits = Limits::default().with_tasks(1000, 1000);
    let stranger = instance_with_key([8; 32], Shop::new(), &fleet.here.clock, fleet.ledger.clone(), limits).await;
    for _ in 0..110 {
        stranger.begin("slowly").await;
        stranger.server.handler().begun.notified().await;
    }
    fleet.here.clock.advance(Duration::from_millis(1));
    let id = fleet.here.begin("slowly").await;
    fleet.here.server.handler().begun.notified().await;
    let other = fleet.there.begin("durable").await;
    fleet.there.until(&other, "input_required").await;
    fleet.lose();
    let taken_over = fleet.there.server.handler().begun.notified();
    let time_passes = async {
        loop {
            fleet.here.clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = taken_over => {}
        () = time_passes => unreachable!("it goes on for ever"),
        () = tokio::time::sleep(Duration::from_secs(20)) => panic!("no sweep takes it over"),
    }
    fleet.there.server.handler().done.notify_one();
    fleet.there.until(&id, "input_required").await;
}
