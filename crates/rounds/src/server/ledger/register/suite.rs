//! The suite that every register has to pass: the life of a record, step by step and with real concurrency.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! rounds::register::suite::run(|| async { rounds::ledger::MemoryLedger::new() }).await;
//! # });
//! ```

use std::{sync::Arc, time::Duration};

use super::{
    super::{ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger, OwnerLost, PrincipalShare, Retention, Spill},
    Changed, FlowChange, FlowEnd, FlowFilter, FlowOwner, FlowPart, FlowRecord, FlowSet, FlowStation, FlowStatus,
    FlowSummary, Register, Timeline, TimelineEntry,
};
use crate::{
    server::seal::{Digest, FlowId},
    shared::{
        clock::{Clock as _, SystemClock, Timestamp},
        kind::Method,
    },
};

/// Runs every check, each with a ledger of its own (or with the same one: no two checks share a flow or a tool).
///
/// # Panics
///
/// If the ledger keeps no register, or breaks a promise; the message names it.
pub async fn run<L: Ledger, F: Future<Output = L>>(ledger: impl Fn() -> F) {
    a_record_is_kept_as_it_was_written(&Store(ledger().await)).await;
    a_record_changes_with_its_claims(&Store(ledger().await)).await;
    an_owner_that_lost_its_claim_changes_nothing(&Store(ledger().await)).await;
    a_flow_that_began_without_a_record_gets_one_with_its_next_leg(&Store(ledger().await)).await;
    a_released_round_waits_again_and_an_awaited_one_goes_on(&Store(ledger().await)).await;
    a_state_spills_in_the_same_step(&Store(ledger().await)).await;
    a_renewed_lease_keeps_a_record_open(&Store(ledger().await)).await;
    refusals_are_in_the_timeline_and_cannot_fill_it(&Store(ledger().await)).await;
    a_round_whose_owner_is_lost_for_good_has_failed(&Store(ledger().await)).await;
    a_cancelled_flow_is_refused_in_every_round_and_effect(&Store(ledger().await)).await;
    a_run_whose_flow_was_cancelled_can_neither_renew_nor_settle(&Store(ledger().await)).await;
    a_waiter_of_a_cancelled_flow_is_woken(&Store(ledger().await)).await;
    a_flow_that_has_ended_is_not_cancelled(&Store(ledger().await)).await;
    a_record_expires_with_its_round(&Store(ledger().await)).await;
    a_list_has_what_the_filter_lets_through_page_by_page(&Store(ledger().await)).await;
    counts_by_target_are_those_of_the_lists(&Store(ledger().await)).await;
    a_record_is_removed_when_its_time_is_over_and_not_before(&Store(ledger().await)).await;
    a_deleted_flow_is_neither_found_nor_resumed(&Store(ledger().await)).await;
    the_flows_of_a_principal_are_deleted_and_no_others(&Store(ledger().await)).await;
    a_watch_sees_every_change(&Store(ledger().await)).await;
    of_a_cancellation_and_a_reply_at_once_one_wins(Arc::new(Store(ledger().await))).await;
}

const LEASE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The ledger under test.
struct Store<L>(L);

impl<L: Ledger> Store<L> {
    fn register(&self) -> &dyn Register {
        self.0.register().expect("the ledger keeps a register")
    }

    async fn begin(&self, change: FlowChange) {
        self.register().begin(change, None).await.expect("there is space for a record");
    }

    async fn claim(&self, id: ClaimId, answers: &str, change: Option<FlowChange>) -> Claimed {
        let now = change.as_ref().map_or_else(now, |change| change.entry.at);
        self.claim_as(id, answers, change, now, OwnerLost::Free).await
    }

    async fn claim_as(
        &self,
        id: ClaimId,
        answers: &str,
        change: Option<FlowChange>,
        now: Timestamp,
        orphan: OwnerLost,
    ) -> Claimed {
        let keep = Retention { now, until: now + MINUTE * 10, share: PrincipalShare::Common };
        let request = ClaimRequest { answers: Digest::of_principal(answers), keep, lease: LEASE, orphan };
        self.register().claim_with(id, request, change).await.expect("the ledger is there")
    }

    async fn fresh(&self, id: ClaimId, change: FlowChange) -> u32 {
        match self.claim(id, "yes", Some(change)).await {
            Claimed::Fresh { fence, .. } => fence,
            other => panic!("expected a fresh claim, got {other:?}"),
        }
    }

    async fn settle(&self, id: ClaimId, fence: u32, change: FlowChange) -> bool {
        let settled = self.register().settle_with(id, fence, Some(b"the reply".to_vec()), None, vec![], change).await;
        settled.expect("the ledger is there")
    }

    async fn get(&self, flow: FlowId, now: Timestamp) -> Option<FlowRecord> {
        self.register().get(flow, now).await.expect("the ledger is there")
    }

    async fn status(&self, flow: FlowId, now: Timestamp) -> Option<FlowStatus> {
        Some(self.get(flow, now).await?.summary.status)
    }

    async fn cancel(&self, flow: FlowId, now: Timestamp) -> Option<FlowStatus> {
        self.register().cancel(flow, end(now)).await.expect("the ledger is there")
    }

    /// How many records with this status a tool has.
    async fn count(&self, status: Option<FlowStatus>, tool: &str, now: Timestamp) -> usize {
        let counts = self.register().count(status, now, usize::MAX).await.expect("the ledger is there");
        assert!(counts.is_whole);
        counts.by_target.get(tool).copied().unwrap_or_default() as usize
    }

    async fn ids(&self, filter: FlowFilter) -> Vec<FlowId> {
        let page = self.register().list(filter).await.expect("the ledger is there");
        page.flows.into_iter().map(|flow| flow.id).collect()
    }
}

fn end(now: Timestamp) -> FlowEnd {
    FlowEnd { now, retention: DAY, slack: MINUTE }
}

fn now() -> Timestamp {
    SystemClock.now().into()
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    bytes
}

fn round(flow: &FlowChange, number: u32) -> ClaimId {
    ClaimId { flow: flow.summary.id, what: ClaimKind::Round(number) }
}

/// A flow that asks for the first time.
fn asked(tool: &str) -> FlowChange {
    let now = now();
    FlowChange {
        summary: FlowSummary {
            id: FlowId::from_bytes(random()),
            method: Method::Tool,
            target: tool.to_owned(),
            principal: None,
            created: now,
            changed: now,
            deadline: now + MINUTE * 60,
            status: FlowStatus::Waiting,
            round: 1,
            open: vec!["units".to_owned(), "day".to_owned()],
            open_until: now + MINUTE * 10,
            kept_until: now + MINUTE * 11 + DAY,
            owner: None,
            keys: vec![[1; 8]],
        },
        entry: TimelineEntry { leg: 0, station: FlowStation::Asked, at: now },
        part: Some(FlowPart { number: 0, sealed: b"the call".to_vec() }),
        share: PrincipalShare::Common,
    }
}

/// The same flow later.
fn later(flow: &FlowChange, leg: u32, status: FlowStatus, station: FlowStation) -> FlowChange {
    let at = flow.summary.created + Duration::from_millis(u64::from(leg) * 1000);
    let mut change = flow.clone();
    (change.summary.status, change.summary.changed, change.summary.round) = (status, at, leg.max(1));
    (change.entry, change.part) = (TimelineEntry { leg, station, at }, None);
    change
}

fn claimed(flow: &FlowChange, leg: u32) -> FlowChange {
    let mut change = later(flow, leg, FlowStatus::Working, FlowStation::Claimed);
    let lease_until = Some(change.entry.at + LEASE);
    change.summary.owner = Some(FlowOwner { instance: "one".to_owned(), lease_until });
    change
}

fn completed(flow: &FlowChange, leg: u32) -> FlowChange {
    let mut change = later(flow, leg, FlowStatus::Completed, FlowStation::Completed);
    change.summary.open.clear();
    change.part = Some(FlowPart { number: leg, sealed: b"the answers and the result".to_vec() });
    change
}

fn stations(record: &FlowRecord) -> Vec<(u32, FlowStation)> {
    record.timeline.entries().iter().map(|entry| (entry.leg, entry.station)).collect()
}

async fn a_record_is_kept_as_it_was_written(store: &Store<impl Ledger>) {
    let mut flow = asked("kept");
    flow.summary.principal = Some([7; 16]);
    flow.summary.method = Method::Prompt;
    flow.summary.owner = Some(FlowOwner { instance: "where it waits".to_owned(), lease_until: None });
    store.begin(flow.clone()).await;
    let record = store.get(flow.summary.id, now()).await.expect("the record is there");
    assert_eq!(record, FlowRecord::new(flow.clone()));
    let mut filter = FlowFilter::new(now());
    filter.target = Some("kept".to_owned());
    let page = store.register().list(filter).await.expect("the ledger is there");
    assert!(page.flows.contains(&flow.summary), "the list has the same columns: {page:?}");
    assert_eq!(store.get(FlowId::from_bytes(random()), now()).await, None);
}

async fn a_record_changes_with_its_claims(store: &Store<impl Ledger>) {
    let flow = asked("changed");
    store.begin(flow.clone()).await;
    let mut expected = FlowRecord::new(flow.clone());

    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    expected.apply(claimed(&flow, 1));
    assert_eq!(store.get(flow.summary.id, flow.summary.created).await, Some(expected.clone()), "claimed");

    let mut next = later(&flow, 1, FlowStatus::Waiting, FlowStation::Asked);
    (next.summary.round, next.summary.open, next.summary.keys) = (2, vec!["city".to_owned()], vec![[2; 8], [1; 8]]);
    next.part = Some(FlowPart { number: 1, sealed: b"the answers and the next questions".to_vec() });
    // What a change says about what never changes does not count.
    (next.summary.created, next.summary.target) = (next.entry.at, "other".to_owned());
    assert!(store.settle(round(&flow, 1), fence, next.clone()).await);
    expected.apply(next);
    assert_eq!(expected.summary.keys, [[1; 8], [2; 8]]);
    assert_eq!(store.get(flow.summary.id, flow.summary.created).await, Some(expected.clone()), "asked again");

    let again = store.claim(round(&flow, 1), "yes", Some(claimed(&flow, 1))).await;
    assert!(matches!(again, Claimed::Done(Some(_))), "{again:?}");
    assert_eq!(
        store.get(flow.summary.id, flow.summary.created).await,
        Some(expected.clone()),
        "a retry changes nothing"
    );

    let fence = store.fresh(round(&flow, 2), claimed(&flow, 2)).await;
    assert!(store.settle(round(&flow, 2), fence, completed(&flow, 2)).await);
    expected.apply(claimed(&flow, 2));
    expected.apply(completed(&flow, 2));
    assert_eq!(store.get(flow.summary.id, flow.summary.created).await, Some(expected.clone()), "completed");
    assert_eq!(expected.parts.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
}

async fn an_owner_that_lost_its_claim_changes_nothing(store: &Store<impl Ledger>) {
    let flow = asked("overtaken");
    store.begin(flow.clone()).await;
    let old = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let mut takeover = claimed(&flow, 1);
    takeover.entry.at = takeover.entry.at + LEASE;
    let new = store.fresh(round(&flow, 1), takeover.clone()).await;
    let before = store.get(flow.summary.id, takeover.entry.at).await;
    assert!(!store.settle(round(&flow, 1), old, completed(&flow, 1)).await, "the old owner cannot settle");
    let change = later(&flow, 1, FlowStatus::Waiting, FlowStation::Released);
    let kept = store.register().release_with(round(&flow, 1), old, OwnerLost::Free, false, change).await;
    assert!(!kept.expect("the ledger is there"));
    assert_eq!(store.get(flow.summary.id, takeover.entry.at).await, before, "nor does the record change");
    assert!(store.settle(round(&flow, 1), new, completed(&flow, 1)).await);
    assert_eq!(store.status(flow.summary.id, takeover.entry.at).await, Some(FlowStatus::Completed));
}

async fn a_flow_that_began_without_a_record_gets_one_with_its_next_leg(store: &Store<impl Ledger>) {
    let flow = asked("late");
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    assert_eq!(store.status(flow.summary.id, flow.summary.created).await, Some(FlowStatus::Working));
    assert!(store.settle(round(&flow, 1), fence, completed(&flow, 1)).await);
    let record = store.get(flow.summary.id, flow.summary.created).await.expect("the record is there");
    assert_eq!(stations(&record), [(1, FlowStation::Claimed), (1, FlowStation::Completed)]);
}

async fn a_released_round_waits_again_and_an_awaited_one_goes_on(store: &Store<impl Ledger>) {
    let flow = asked("released");
    store.begin(flow.clone()).await;
    let released = || later(&flow, 1, FlowStatus::Waiting, FlowStation::Released);
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let Claimed::Running(waiting) = store.claim(round(&flow, 1), "yes", Some(claimed(&flow, 1))).await else {
        panic!("an equal leg waits");
    };
    let kept = store.register().release_with(round(&flow, 1), fence, OwnerLost::Free, true, released()).await;
    assert!(kept.expect("the ledger is there"), "the run goes on for the leg that waits");
    assert_eq!(store.status(flow.summary.id, flow.summary.created).await, Some(FlowStatus::Working));
    drop(waiting);
    let kept = store.register().release_with(round(&flow, 1), fence, OwnerLost::Free, true, released()).await;
    assert!(!kept.expect("the ledger is there"));
    let record = store.get(flow.summary.id, flow.summary.created).await.expect("the record is there");
    assert_eq!((record.summary.status, &record.summary.owner), (FlowStatus::Waiting, &None));
    assert_eq!(stations(&record)[1..], [(1, FlowStation::Claimed), (1, FlowStation::Released)]);
    store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
}

async fn a_state_spills_in_the_same_step(store: &Store<impl Ledger>) {
    let flow = asked("spilled");
    let keep = Retention { now: now(), until: now() + MINUTE * 10, share: PrincipalShare::Common };
    let spill = |number, state: &[u8]| Some(Spill { id: round(&flow, number), keep, state: state.to_vec() });
    store.register().begin(flow.clone(), spill(1, b"first")).await.expect("there is space for a state");
    let Claimed::Fresh { fence, spilled } = store.claim(round(&flow, 1), "yes", Some(claimed(&flow, 1))).await else {
        panic!("the round is free");
    };
    assert_eq!(spilled.as_deref(), Some(&b"first"[..]));
    let next = later(&flow, 1, FlowStatus::Waiting, FlowStation::Asked);
    let settled = store.register().settle_with(round(&flow, 1), fence, None, spill(2, b"next"), vec![], next).await;
    assert!(settled.expect("the ledger is there"));
    let next = store.claim(round(&flow, 2), "yes", Some(claimed(&flow, 2))).await;
    assert!(matches!(&next, Claimed::Fresh { spilled: Some(state), .. } if state == b"next"), "{next:?}");
}

async fn a_renewed_lease_keeps_a_record_open(store: &Store<impl Ledger>) {
    let flow = asked("renewed");
    store.begin(flow.clone()).await;
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let late = flow.summary.open_until + MINUTE;
    assert_eq!(store.status(flow.summary.id, late).await, Some(FlowStatus::Expired));
    let renewed = store.0.renew(round(&flow, 1), fence, late + LEASE).await;
    assert!(renewed.expect("the ledger is there"));
    let record = store.get(flow.summary.id, late).await.expect("the record is there");
    assert_eq!((record.summary.status, record.summary.open_until), (FlowStatus::Working, late + LEASE));
    assert_eq!(record.summary.owner.and_then(|owner| owner.lease_until), Some(late + LEASE));
    assert!(!store.0.renew(round(&flow, 1), fence.wrapping_add(1), late + DAY).await.expect("the ledger is there"));
    assert_eq!(store.status(flow.summary.id, late + LEASE).await, Some(FlowStatus::Expired));
}

async fn refusals_are_in_the_timeline_and_cannot_fill_it(store: &Store<impl Ledger>) {
    let flow = asked("refused");
    store.begin(flow.clone()).await;
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    for _ in 0..Timeline::MOST {
        let other = store.claim(round(&flow, 1), "no", Some(claimed(&flow, 1))).await;
        assert!(matches!(other, Claimed::AnsweredOtherwise), "{other:?}");
    }
    assert!(store.settle(round(&flow, 1), fence, completed(&flow, 1)).await);
    let record = store.get(flow.summary.id, flow.summary.created).await.expect("the record is there");
    let stations = stations(&record);
    assert_eq!(stations[..2], [(0, FlowStation::Asked), (1, FlowStation::Claimed)], "nothing was dropped");
    assert_eq!(stations[2], (1, FlowStation::RefusedOtherAnswers));
    assert_eq!(stations.len(), Timeline::REFUSALS_UP_TO + 1);
    assert_eq!(stations.last(), Some(&(1, FlowStation::Completed)));

    let unknown = asked("refused");
    let fence = store.fresh(round(&unknown, 1), claimed(&unknown, 1)).await;
    assert!(store.settle(round(&unknown, 1), fence, completed(&unknown, 1)).await);
    let mut busy = claimed(&unknown, 1);
    for _ in 0..2 * Timeline::MOST {
        let fence = store.fresh(round(&unknown, 2), busy.clone()).await;
        let released = later(&unknown, 1, FlowStatus::Waiting, FlowStation::Released);
        let kept = store.register().release_with(round(&unknown, 2), fence, OwnerLost::Free, false, released).await;
        assert!(!kept.expect("the ledger is there"));
        busy.entry.leg += 1;
    }
    let record = store.get(unknown.summary.id, unknown.summary.created).await.expect("the record is there");
    assert_eq!(record.timeline.entries().len(), Timeline::MOST, "the timeline is bounded");
}

async fn a_round_whose_owner_is_lost_for_good_has_failed(store: &Store<impl Ledger>) {
    let flow = asked("lost");
    store.begin(flow.clone()).await;
    let start = flow.summary.created;
    let first = store.claim_as(round(&flow, 1), "yes", Some(claimed(&flow, 1)), start, OwnerLost::Dead).await;
    assert!(matches!(first, Claimed::Fresh { .. }), "{first:?}");
    for _ in 0..2 {
        let late = start + LEASE;
        let dead = store.claim_as(round(&flow, 1), "yes", Some(claimed(&flow, 1)), late, OwnerLost::Dead).await;
        assert!(matches!(dead, Claimed::Dead), "{dead:?}");
    }
    let record = store.get(flow.summary.id, start).await.expect("the record is there");
    assert_eq!((record.summary.status, &record.summary.owner), (FlowStatus::Failed, &None));
    assert!(record.summary.open.is_empty(), "no question waits any more");
    assert_eq!(
        stations(&record)[1..],
        [(1, FlowStation::Claimed), (1, FlowStation::Failed), (1, FlowStation::RefusedDead)]
    );
}

async fn a_cancelled_flow_is_refused_in_every_round_and_effect(store: &Store<impl Ledger>) {
    let flow = asked("cancelled");
    let id = flow.summary.id;
    store.begin(flow.clone()).await;
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let next = later(&flow, 1, FlowStatus::Waiting, FlowStation::Asked);
    assert!(store.settle(round(&flow, 1), fence, next).await);
    let at = flow.summary.created + MINUTE;
    assert_eq!(store.cancel(id, at).await, Some(FlowStatus::Waiting), "the status before");
    assert_eq!(store.cancel(id, at).await, Some(FlowStatus::Cancelled), "once");
    assert_eq!(store.cancel(FlowId::from_bytes(random()), at).await, None);
    let effect = ClaimId { flow: id, what: ClaimKind::Once(Digest::of_once(id, "charge")) };
    for (claim, change) in
        [(round(&flow, 1), Some(claimed(&flow, 1))), (round(&flow, 2), Some(claimed(&flow, 2))), (effect, None)]
    {
        let refused = store.claim(claim, "yes", change).await;
        assert!(matches!(refused, Claimed::Cancelled), "{claim:?}: {refused:?}");
    }
    let record = store.get(id, at).await.expect("the record is there");
    assert_eq!((record.summary.status, record.summary.changed), (FlowStatus::Cancelled, at));
    assert!(record.summary.open.is_empty());
    assert_eq!(record.timeline.entries().last().map(|entry| entry.station), Some(FlowStation::Cancelled));
    assert_eq!(record.summary.kept_until, at + DAY, "the retention begins");
    assert_eq!(record.parts[&0], b"the call");
}

async fn a_run_whose_flow_was_cancelled_can_neither_renew_nor_settle(store: &Store<impl Ledger>) {
    let flow = asked("cancelled at work");
    store.begin(flow.clone()).await;
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let effect = ClaimId { flow: flow.summary.id, what: ClaimKind::Once(Digest::of_once(flow.summary.id, "charge")) };
    let Claimed::Fresh { fence: of_effect, .. } = store.claim(effect, "yes", None).await else {
        panic!("the effect is free");
    };
    assert_eq!(store.cancel(flow.summary.id, flow.summary.created).await, Some(FlowStatus::Working));
    let renewed = store.0.renew(round(&flow, 1), fence, flow.summary.created + DAY).await;
    assert!(!renewed.expect("the ledger is there"));
    assert!(!store.settle(round(&flow, 1), fence, completed(&flow, 1)).await);
    let change = later(&flow, 1, FlowStatus::Waiting, FlowStation::Released);
    let kept = store.register().release_with(round(&flow, 1), fence, OwnerLost::Free, false, change).await;
    assert!(!kept.expect("the ledger is there"));
    assert_eq!(store.status(flow.summary.id, flow.summary.created).await, Some(FlowStatus::Cancelled));
    let settled = store.0.settle(effect, of_effect, Some(b"the value".to_vec()), None, vec![]).await;
    assert!(settled.expect("the ledger is there"), "an effect that has begun is recorded");
}

async fn a_waiter_of_a_cancelled_flow_is_woken(store: &Store<impl Ledger>) {
    let flow = asked("awaited");
    store.begin(flow.clone()).await;
    store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let Claimed::Running(waiting) = store.claim(round(&flow, 1), "yes", Some(claimed(&flow, 1))).await else {
        panic!("an equal leg waits");
    };
    store.cancel(flow.summary.id, flow.summary.created).await;
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(woken.is_ok(), "a waiter is woken when the flow is cancelled");
}

async fn a_flow_that_has_ended_is_not_cancelled(store: &Store<impl Ledger>) {
    let flow = asked("ended");
    store.begin(flow.clone()).await;
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    assert!(store.settle(round(&flow, 1), fence, completed(&flow, 1)).await);
    let before = store.get(flow.summary.id, flow.summary.created).await;
    assert_eq!(store.cancel(flow.summary.id, flow.summary.created).await, Some(FlowStatus::Completed));
    assert_eq!(store.get(flow.summary.id, flow.summary.created).await, before);
    let again = store.claim(round(&flow, 1), "yes", Some(claimed(&flow, 1))).await;
    assert!(matches!(again, Claimed::Done(Some(_))), "a retry still gets the reply: {again:?}");

    let late = asked("ended");
    store.begin(late.clone()).await;
    let expired = store.cancel(late.summary.id, late.summary.open_until).await;
    assert_eq!(expired, Some(FlowStatus::Expired));
}

async fn a_record_expires_with_its_round(store: &Store<impl Ledger>) {
    let (tool, flow) = ("expiring", asked("expiring"));
    store.begin(flow.clone()).await;
    let just_before = Timestamp::from_millis(flow.summary.open_until.as_millis() - 1);
    for (now, status) in [(just_before, FlowStatus::Waiting), (flow.summary.open_until, FlowStatus::Expired)] {
        assert_eq!(store.status(flow.summary.id, now).await, Some(status));
        for wanted in FlowStatus::ALL {
            let filter = FlowFilter { status: Some(wanted), target: Some(tool.to_owned()), ..FlowFilter::new(now) };
            assert_eq!(store.ids(filter).await.len(), usize::from(wanted == status), "{wanted} at {now:?}");
        }
    }
}

async fn a_list_has_what_the_filter_lets_through_page_by_page(store: &Store<impl Ledger>) {
    let (tool, start) = (format!("listed {:?}", FlowId::from_bytes(random())), now());
    let (mine, yours) = (random(), random());
    let mut flows = Vec::new();
    for number in 0..25 {
        let mut flow = asked(&tool);
        // Some are created in the same millisecond.
        flow.summary.created = start + Duration::from_millis(number / 2 * 10);
        flow.summary.principal = [Some(mine), Some(yours), None][number as usize % 3];
        store.begin(flow.clone()).await;
        if number % 5 == 0 {
            let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
            if number % 10 == 0 {
                assert!(store.settle(round(&flow, 1), fence, completed(&flow, 1)).await);
            }
        }
        flows.push(flow.summary);
    }
    flows.sort_by_key(FlowSummary::cursor);
    let all: Vec<_> = flows.iter().map(|flow| flow.id).collect();
    let filter = || FlowFilter { target: Some(tool.clone()), ..FlowFilter::new(start) };
    assert_eq!(store.ids(filter()).await, all, "oldest first");

    for most in [1, 7, 24, 25, 26] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page =
                store.register().list(FlowFilter { most, after, ..filter() }).await.expect("the ledger is there");
            assert!(page.flows.len() <= most);
            seen.extend(page.flows.iter().map(|flow| flow.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, all, "every record is on one page of {most}");
    }
    let count = async |filter| store.ids(filter).await.len();
    assert_eq!(count(FlowFilter { status: Some(FlowStatus::Waiting), ..filter() }).await, 20);
    assert_eq!(count(FlowFilter { status: Some(FlowStatus::Working), ..filter() }).await, 2);
    assert_eq!(count(FlowFilter { status: Some(FlowStatus::Completed), ..filter() }).await, 3);
    assert_eq!(count(FlowFilter { principal: Some(vec![mine]), ..filter() }).await, 9);
    assert_eq!(count(FlowFilter { principal: Some(vec![mine, yours]), ..filter() }).await, 17);
    assert_eq!(count(FlowFilter { principal: Some(vec![random()]), ..filter() }).await, 0);
    assert_eq!(count(FlowFilter { target: Some("listed".to_owned()), ..filter() }).await, 0);
    let before = start + Duration::from_millis(50);
    assert_eq!(count(FlowFilter { created_before: Some(before), ..filter() }).await, 10);
}

async fn counts_by_target_are_those_of_the_lists(store: &Store<impl Ledger>) {
    let tools = [0, 1].map(|number| format!("counted {number}: ü {:?}", FlowId::from_bytes(random())));
    let (mut flows, mut fence_of_3) = (Vec::new(), 0);
    for number in 0..24 {
        let flow = asked(&tools[number % 2]);
        store.begin(flow.clone()).await;
        if number % 3 == 0 {
            let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
            if number == 3 {
                fence_of_3 = fence;
            }
            if number % 6 == 0 {
                assert!(store.settle(round(&flow, 1), fence, completed(&flow, 1)).await);
            }
        }
        flows.push(flow);
    }
    let first = flows[0].summary.created;
    let (cancelled, deleted, renewed) = (&flows[1].summary, &flows[5].summary, &flows[9]);
    assert_eq!(store.cancel(cancelled.id, first).await, Some(FlowStatus::Waiting));
    store.register().delete(FlowSet::One(deleted.id), end(first)).await.expect("the ledger is there");
    store.register().delete(FlowSet::One(flows[0].summary.id), end(first)).await.expect("the ledger is there");
    let release = later(&flows[3], 1, FlowStatus::Waiting, FlowStation::Released);
    let released =
        store.register().release_with(round(&flows[3], 1), fence_of_3, OwnerLost::Free, false, release).await;
    assert!(!released.expect("the ledger is there"));
    // The round is over, and its owner goes on.
    let ended = flows.iter().map(|flow| flow.summary.open_until).max().expect("there are flows");
    let Claimed::Fresh { fence, .. } = store.claim(round(renewed, 2), "yes", Some(claimed(renewed, 2))).await else {
        panic!("the round is free");
    };
    assert!(store.0.renew(round(renewed, 2), fence, ended + MINUTE).await.expect("the ledger is there"));

    for now in [first + Duration::from_secs(3), ended] {
        for tool in &tools {
            for status in FlowStatus::ALL.into_iter().map(Some).chain([None]) {
                let filter = FlowFilter { status, target: Some(tool.clone()), ..FlowFilter::new(now) };
                let listed = store.ids(filter).await.len();
                assert_eq!(store.count(status, tool, now).await, listed, "{status:?} of {tool} at {now:?}");
            }
        }
    }
    assert_eq!(store.count(Some(FlowStatus::Working), &tools[1], ended).await, 1, "its lease was renewed");
    assert_eq!(store.count(None, "nothing", first).await, 0);
    let some = store.register().count(None, first, 5).await.expect("the ledger is there");
    assert!(some.is_whole || some.total() == 5, "{some:?}");
}

async fn a_record_is_removed_when_its_time_is_over_and_not_before(store: &Store<impl Ledger>) {
    let mut flow = asked("swept");
    // Long ago, by a clock that this store may not know.
    flow.summary.kept_until = flow.summary.open_until + MINUTE;
    let (open, mut ended) = (flow.clone(), asked("swept"));
    store.begin(open.clone()).await;
    store.begin(ended.clone()).await;
    let fence = store.fresh(round(&ended, 1), claimed(&ended, 1)).await;
    ended.summary.kept_until = ended.summary.created + DAY;
    assert!(store.settle(round(&ended, 1), fence, completed(&ended, 1)).await);
    let sweep = async |now| while store.register().sweep(now, 100).await.expect("the ledger is there") > 0 {};
    let filter = |now| FlowFilter { target: Some("swept".to_owned()), ..FlowFilter::new(now) };
    let at = Timestamp::from_millis(open.summary.kept_until.as_millis() - 1);
    sweep(at).await;
    assert_eq!(store.ids(filter(at)).await.len(), 2, "not before its time");
    sweep(open.summary.kept_until).await;
    assert_eq!(store.ids(filter(at)).await, [ended.summary.id], "only the record whose time is over");
    sweep(ended.summary.kept_until).await;
    assert!(store.ids(filter(at)).await.is_empty());
    assert_eq!(store.get(ended.summary.id, at).await, None);
}

async fn a_deleted_flow_is_neither_found_nor_resumed(store: &Store<impl Ledger>) {
    let (waiting, ended) = (asked("deleted"), asked("deleted"));
    for flow in [&waiting, &ended] {
        store.begin(flow.clone()).await;
    }
    let fence = store.fresh(round(&ended, 1), claimed(&ended, 1)).await;
    assert!(store.settle(round(&ended, 1), fence, completed(&ended, 1)).await);
    let at = waiting.summary.created + MINUTE;
    for flow in [&waiting, &ended] {
        let id = flow.summary.id;
        let deleted = store.register().delete(FlowSet::One(id), end(at)).await;
        assert_eq!(deleted.expect("the ledger is there"), 1);
        assert_eq!(store.get(id, at).await, None);
        let again = store.register().delete(FlowSet::One(id), end(at)).await;
        assert_eq!(again.expect("the ledger is there"), 0, "it is not found");
        assert_eq!(store.cancel(id, at).await, None);
    }
    let filter = FlowFilter { target: Some("deleted".to_owned()), ..FlowFilter::new(at) };
    assert!(store.ids(filter).await.is_empty());
    let refused = store.claim(round(&waiting, 1), "yes", Some(claimed(&waiting, 1))).await;
    assert!(matches!(refused, Claimed::Cancelled), "its token is refused: {refused:?}");
    assert_eq!(store.get(waiting.summary.id, at).await, None, "and its record does not come back");
}

async fn the_flows_of_a_principal_are_deleted_and_no_others(store: &Store<impl Ledger>) {
    let (mine, mine_before, yours) = (random(), random(), random());
    let mut flows = Vec::new();
    for principal in [Some(mine), Some(mine_before), Some(yours), None] {
        let mut flow = asked("personal");
        flow.summary.principal = principal;
        store.begin(flow.clone()).await;
        flows.push(flow);
    }
    let at = flows[3].summary.created;
    let deleted = store.register().delete(FlowSet::Principal(vec![mine, mine_before]), end(at)).await;
    assert_eq!(deleted.expect("the ledger is there"), 2);
    for (flow, is_there) in flows.iter().zip([false, false, true, true]) {
        assert_eq!(store.get(flow.summary.id, at).await.is_some(), is_there);
        let claimed = store.claim(round(flow, 1), "yes", Some(claimed(flow, 1))).await;
        assert_eq!(matches!(claimed, Claimed::Fresh { .. }), is_there, "{claimed:?}");
    }
}

async fn a_watch_sees_every_change(store: &Store<impl Ledger>) {
    let mut watch = store.register().watch().await.expect("the ledger is there");
    let flow = asked("watched");
    let id = flow.summary.id;
    store.begin(flow.clone()).await;
    let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
    let next = later(&flow, 1, FlowStatus::Waiting, FlowStation::Asked);
    assert!(store.settle(round(&flow, 1), fence, next).await);
    store.cancel(id, flow.summary.created).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&FlowStatus::Cancelled) {
        let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
        let Changed { id: changed, status } = next.expect("a change is seen in time").expect("the watch goes on");
        if changed == id {
            seen.push(status);
        }
    }
    use FlowStatus::{Cancelled, Waiting, Working};
    assert_eq!(seen, [Waiting, Working, Waiting, Cancelled]);
}

async fn of_a_cancellation_and_a_reply_at_once_one_wins(store: Arc<Store<impl Ledger>>) {
    for _ in 0..20 {
        let flow = asked("raced");
        store.begin(flow.clone()).await;
        let fence = store.fresh(round(&flow, 1), claimed(&flow, 1)).await;
        let settling = tokio::spawn({
            let (store, flow) = (store.clone(), flow.clone());
            async move { store.settle(round(&flow, 1), fence, completed(&flow, 1)).await }
        });
        let cancelling = tokio::spawn({
            let (store, flow) = (store.clone(), flow.clone());
            async move { store.cancel(flow.summary.id, flow.summary.created).await }
        });
        let settled = settling.await.expect("settling does not panic");
        let before = cancelling.await.expect("cancelling does not panic");
        let (expected, status) = match settled {
            true => (FlowStatus::Completed, FlowStatus::Completed),
            false => (FlowStatus::Working, FlowStatus::Cancelled),
        };
        assert_eq!(before, Some(expected), "settled: {settled}");
        assert_eq!(store.status(flow.summary.id, flow.summary.created).await, Some(status));
    }
}
