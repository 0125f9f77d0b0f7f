//! The suite that every ledger has to pass: the life of a claim, step by step and with real concurrency.
//!
//! ```
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! rounds::ledger::suite::run(|| async { rounds::ledger::MemoryLedger::new() }).await;
//! # });
//! ```

use std::{sync::Arc, time::Duration};

use super::{ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger, OwnerLost, PrincipalShare, Retention, Spill};
use crate::{
    server::seal::{Digest, FlowId},
    shared::clock::{Clock as _, SystemClock, Timestamp},
};

/// Runs every check, each with a ledger of its own (or with the same one: no two checks share a flow).
///
/// # Panics
///
/// If the ledger breaks a promise; the message names it.
pub async fn run<L: Ledger, F: Future<Output = L>>(ledger: impl Fn() -> F) {
    a_free_round_is_given_once(&ledger().await).await;
    equal_answers_get_the_reply_and_other_answers_are_refused(&ledger().await).await;
    a_reply_that_was_not_kept_is_gone_and_not_run_again(&ledger().await).await;
    rounds_effects_and_flows_are_apart(&ledger().await).await;
    a_lapsed_lease_is_taken_over_and_the_old_owner_is_fenced_out(&ledger().await).await;
    a_renewed_lease_is_not_taken_over(&ledger().await).await;
    a_lapsed_lease_of_a_linear_flow_is_dead(&ledger().await).await;
    a_released_round_is_free_or_dead(&ledger().await).await;
    a_waiter_is_woken_by_the_outcome(&ledger().await).await;
    an_awaited_round_is_not_released(&ledger().await).await;
    a_spilled_state_is_given_to_every_run_of_its_round_and_to_no_other(&ledger().await).await;
    a_spent_effect_is_remembered_with_its_round_and_one_at_work_goes_on(&ledger().await).await;
    whose_share_a_claim_counts_against_changes_nothing_else(&ledger().await).await;
    of_many_at_once_one_is_fresh(Arc::new(ledger().await)).await;
}

const LEASE: Duration = Duration::from_secs(30);

fn round() -> ClaimId {
    let mut flow = [0; 16];
    getrandom::fill(&mut flow).expect("the operating system provides randomness");
    ClaimId { flow: FlowId::from_bytes(flow), what: ClaimKind::Round(1) }
}

fn now() -> Timestamp {
    SystemClock.now().into()
}

fn bid_at(now: Timestamp, answers: &str, orphan: OwnerLost) -> ClaimRequest {
    ClaimRequest {
        answers: Digest::of_principal(answers),
        keep: Retention { now, until: now + Duration::from_secs(600), share: PrincipalShare::Common },
        lease: LEASE,
        orphan,
    }
}

fn bid(answers: &str) -> ClaimRequest {
    bid_at(now(), answers, OwnerLost::Free)
}

async fn claim(ledger: &impl Ledger, id: ClaimId, bid: ClaimRequest) -> Claimed {
    ledger.claim(id, bid).await.expect("the ledger is there")
}

async fn fresh(ledger: &impl Ledger, id: ClaimId, bid: ClaimRequest) -> u32 {
    match claim(ledger, id, bid).await {
        Claimed::Fresh { fence, .. } => fence,
        other => panic!("expected a fresh claim, got {other:?}"),
    }
}

async fn settle(ledger: &impl Ledger, id: ClaimId, fence: u32, reply: Option<&str>) -> bool {
    let reply = reply.map(|reply| reply.as_bytes().to_vec());
    ledger.settle(id, fence, reply, None, vec![]).await.expect("the ledger is there")
}

async fn a_free_round_is_given_once(ledger: &impl Ledger) {
    let round = round();
    fresh(ledger, round, bid("yes")).await;
    assert!(matches!(claim(ledger, round, bid("yes")).await, Claimed::Running(_)), "equal answers wait");
    let other = claim(ledger, round, bid("no")).await;
    assert!(matches!(other, Claimed::AnsweredOtherwise), "other answers are refused: {other:?}");
}

async fn equal_answers_get_the_reply_and_other_answers_are_refused(ledger: &impl Ledger) {
    let round = round();
    let fence = fresh(ledger, round, bid("yes")).await;
    assert!(settle(ledger, round, fence, Some("the reply")).await);
    match claim(ledger, round, bid("yes")).await {
        Claimed::Done(Some(reply)) => assert_eq!(reply, b"the reply"),
        other => panic!("an equal retry gets the reply, got {other:?}"),
    }
    let other = claim(ledger, round, bid("no")).await;
    assert!(matches!(other, Claimed::AnsweredOtherwise), "{other:?}");
}

async fn a_reply_that_was_not_kept_is_gone_and_not_run_again(ledger: &impl Ledger) {
    let round = round();
    let fence = fresh(ledger, round, bid("yes")).await;
    assert!(settle(ledger, round, fence, None).await);
    let again = claim(ledger, round, bid("yes")).await;
    assert!(matches!(again, Claimed::Done(None)), "{again:?}");
}

async fn rounds_effects_and_flows_are_apart(ledger: &impl Ledger) {
    let first = round();
    let next = ClaimId { what: ClaimKind::Round(2), ..first };
    let effect = |name| ClaimId { what: ClaimKind::Once(Digest::of_once(first.flow, name)), ..first };
    for round in [first, next, effect("one"), effect("other"), round()] {
        fresh(ledger, round, bid("yes")).await;
    }
}

async fn a_lapsed_lease_is_taken_over_and_the_old_owner_is_fenced_out(ledger: &impl Ledger) {
    let round = round();
    let start = now();
    let old = fresh(ledger, round, bid_at(start, "yes", OwnerLost::Free)).await;
    let late = start + LEASE;
    let other = claim(ledger, round, bid_at(late, "no", OwnerLost::Free)).await;
    assert!(matches!(other, Claimed::AnsweredOtherwise), "only equal answers take over: {other:?}");
    let new = fresh(ledger, round, bid_at(late, "yes", OwnerLost::Free)).await;
    assert!(new > old, "the fence rises");
    assert!(!settle(ledger, round, old, Some("too late")).await, "the old owner cannot settle");
    let renewed = ledger.renew(round, old, late + LEASE).await.expect("the ledger is there");
    assert!(!renewed, "nor renew");
    assert!(settle(ledger, round, new, Some("in time")).await);
    match claim(ledger, round, bid_at(late, "yes", OwnerLost::Free)).await {
        Claimed::Done(Some(reply)) => assert_eq!(reply, b"in time"),
        other => panic!("the new owner's reply is kept, got {other:?}"),
    }
}

async fn a_renewed_lease_is_not_taken_over(ledger: &impl Ledger) {
    let round = round();
    let start = now();
    let fence = fresh(ledger, round, bid_at(start, "yes", OwnerLost::Free)).await;
    let renewed = ledger.renew(round, fence, start + LEASE + LEASE).await;
    assert!(renewed.expect("the ledger is there"));
    let again = claim(ledger, round, bid_at(start + LEASE, "yes", OwnerLost::Free)).await;
    assert!(matches!(again, Claimed::Running(_)), "{again:?}");
}

async fn a_lapsed_lease_of_a_linear_flow_is_dead(ledger: &impl Ledger) {
    let round = round();
    let start = now();
    let fence = fresh(ledger, round, bid_at(start, "yes", OwnerLost::Dead)).await;
    for _ in 0..2 {
        let again = claim(ledger, round, bid_at(start + LEASE, "yes", OwnerLost::Dead)).await;
        assert!(matches!(again, Claimed::Dead), "{again:?}");
    }
    assert!(!settle(ledger, round, fence, Some("too late")).await);
}

async fn a_released_round_is_free_or_dead(ledger: &impl Ledger) {
    let round = round();
    let fence = fresh(ledger, round, bid("yes")).await;
    let kept = ledger.release(round, fence, OwnerLost::Free, true).await;
    assert!(!kept.expect("the ledger is there"), "no leg waits");
    let fence = fresh(ledger, round, bid("no")).await;
    let kept = ledger.release(round, fence, OwnerLost::Dead, false).await;
    assert!(!kept.expect("the ledger is there"));
    let dead = claim(ledger, round, bid("no")).await;
    assert!(matches!(dead, Claimed::Dead), "{dead:?}");
}

async fn a_waiter_is_woken_by_the_outcome(ledger: &impl Ledger) {
    let round = round();
    let fence = fresh(ledger, round, bid("yes")).await;
    let Claimed::Running(waiting) = claim(ledger, round, bid("yes")).await else {
        panic!("an equal leg waits");
    };
    assert!(settle(ledger, round, fence, Some("the reply")).await);
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(woken.is_ok(), "a waiter is woken when the round is settled");
    assert!(matches!(claim(ledger, round, bid("yes")).await, Claimed::Done(Some(_))));
}

async fn an_awaited_round_is_not_released(ledger: &impl Ledger) {
    let round = round();
    let fence = fresh(ledger, round, bid("yes")).await;
    let Claimed::Running(waiting) = claim(ledger, round, bid("yes")).await else {
        panic!("an equal leg waits");
    };
    // A fence that no run has only asks whether a leg waits.
    let kept = ledger.release(round, 0, OwnerLost::Free, true).await;
    assert!(kept.expect("the ledger is there"), "an equal leg waits, whatever the fence");
    let kept = ledger.release(round, fence, OwnerLost::Free, true).await;
    assert!(kept.expect("the ledger is there"), "an equal leg waits: the run goes on for it");
    let again = claim(ledger, round, bid("yes")).await;
    assert!(matches!(again, Claimed::Running(_)), "{again:?}");
    drop((waiting, again));
    let kept = ledger.release(round, 0, OwnerLost::Dead, true).await;
    assert!(!kept.expect("the ledger is there"), "the waiters went away");
    assert!(ledger.renew(round, fence, now() + LEASE).await.expect("the ledger is there"), "nothing was released");
    let kept = ledger.release(round, fence, OwnerLost::Free, true).await;
    assert!(!kept.expect("the ledger is there"), "the waiters went away");
    fresh(ledger, round, bid("yes")).await;
}

async fn a_spilled_state_is_given_to_every_run_of_its_round_and_to_no_other(ledger: &impl Ledger) {
    let spilled = async |id, bid| match claim(ledger, id, bid).await {
        Claimed::Fresh { fence, spilled } => (fence, spilled),
        other => panic!("expected a fresh claim, got {other:?}"),
    };
    let first = round();
    let keep = bid("yes").keep;
    let spill = |id, state: &[u8]| Spill { id, keep, state: state.to_vec() };
    ledger.spill(spill(first, b"first")).await.expect("there is room for one state");
    let (fence, state) = spilled(first, bid("yes")).await;
    assert_eq!(state.as_deref(), Some(&b"first"[..]));
    let released = ledger.release(first, fence, OwnerLost::Free, false).await;
    assert!(!released.expect("the ledger is there"));
    let (old, state) = spilled(first, bid("yes")).await;
    assert_eq!(state.as_deref(), Some(&b"first"[..]), "a retry needs it as well");
    let (new, state) = spilled(first, bid_at(now() + LEASE, "yes", OwnerLost::Free)).await;
    assert_eq!(state.as_deref(), Some(&b"first"[..]), "and the leg that takes over");

    let next = ClaimId { what: ClaimKind::Round(2), ..first };
    let late = ledger.settle(first, old, None, Some(spill(next, b"of a leg that lost the round")), vec![]).await;
    assert!(!late.expect("the ledger is there"));
    let settled = ledger.settle(first, new, None, Some(spill(next, b"next")), vec![]).await;
    assert!(settled.expect("the ledger is there"));
    let (_, state) = spilled(next, bid("yes")).await;
    assert_eq!(state.as_deref(), Some(&b"next"[..]));
    let (_, state) = spilled(ClaimId { what: ClaimKind::Round(3), ..first }, bid("yes")).await;
    assert_eq!(state, None);
}

async fn a_spent_effect_is_remembered_with_its_round_and_one_at_work_goes_on(ledger: &impl Ledger) {
    let round = round();
    let effect = |name| ClaimId { what: ClaimKind::Once(Digest::of_once(round.flow, name)), ..round };
    let mut longer = bid("yes");
    longer.keep.until = longer.keep.until + Duration::from_secs(3600);
    let fence = fresh(ledger, round, bid("yes")).await;
    let done = fresh(ledger, effect("done"), longer).await;
    assert!(settle(ledger, effect("done"), done, Some("the value")).await);
    let running = fresh(ledger, effect("running"), longer).await;
    let failed = fresh(ledger, effect("failed"), longer).await;
    let released = ledger.release(effect("failed"), failed, OwnerLost::Free, false).await;
    assert!(!released.expect("the ledger is there"));

    let spent = ["done", "running", "failed", "never begun"].map(effect).to_vec();
    let late = ledger.settle(round, fence.wrapping_add(1), None, None, spent.clone()).await;
    assert!(!late.expect("the ledger is there"), "with another fence nothing is settled");
    let settled = ledger.settle(round, fence, Some(b"the reply".to_vec()), None, spent).await;
    assert!(settled.expect("the ledger is there"));
    match claim(ledger, effect("done"), longer).await {
        Claimed::Done(Some(value)) => assert_eq!(value, b"the value"),
        other => panic!("it is kept as long as its round, got {other:?}"),
    }
    let again = claim(ledger, effect("running"), longer).await;
    assert!(matches!(again, Claimed::Running(_)), "{again:?}");
    assert!(settle(ledger, effect("running"), running, Some("late")).await, "its owner still has it");
    assert!(fresh(ledger, effect("failed"), longer).await > failed, "the fence rises");
    fresh(ledger, effect("never begun"), longer).await;
}

async fn whose_share_a_claim_counts_against_changes_nothing_else(ledger: &impl Ledger) {
    let mut claims = Vec::new();
    for share in [
        PrincipalShare::Common,
        PrincipalShare::Anonymous,
        PrincipalShare::Principal([1; 16]),
        PrincipalShare::Principal([2; 16]),
    ] {
        let (round, mut bid) = (round(), bid("yes"));
        bid.keep.share = share;
        claims.push((round, bid, fresh(ledger, round, bid).await));
    }
    for (round, bid, fence) in claims {
        assert!(settle(ledger, round, fence, Some("the reply")).await);
        assert!(matches!(claim(ledger, round, bid).await, Claimed::Done(Some(_))), "{:?}", bid.keep.share);
    }
}

async fn of_many_at_once_one_is_fresh(ledger: Arc<impl Ledger>) {
    let round = round();
    let legs: Vec<_> = (0..50)
        .map(|_| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                loop {
                    match claim(&*ledger, round, bid("yes")).await {
                        Claimed::Fresh { fence, .. } => {
                            tokio::task::yield_now().await;
                            assert!(settle(&*ledger, round, fence, Some("the reply")).await);
                            return true;
                        }
                        Claimed::Running(waiting) => waiting.await,
                        Claimed::Done(Some(reply)) => {
                            assert_eq!(reply, b"the reply");
                            return false;
                        }
                        other => panic!("equal legs run, wait or get the reply, got {other:?}"),
                    }
                }
            })
        })
        .collect();
    let mut ran = 0;
    for leg in legs {
        ran += u32::from(leg.await.expect("no leg panics"));
    }
    assert_eq!(ran, 1, "of fifty equal legs at once one runs");
}
