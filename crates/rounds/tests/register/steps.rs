//! A record and its claims, in any order of steps, and a list of many.

use std::time::{Duration, Instant};

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger as _, MemoryLedger, OwnerLost, PrincipalShare, Retention,
    },
    observe::Method,
    register::{FlowChange, FlowEnd, FlowFilter, FlowStation, FlowStatus, FlowSummary, Register, TimelineEntry},
    time::Timestamp,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn change(flow: u128, round: u32, status: FlowStatus) -> FlowChange {
    let summary = FlowSummary {
        id: FlowId::from_bytes(flow.to_be_bytes()),
        method: Method::Tool,
        target: "weather".to_owned(),
        principal: None,
        created: NOW + Duration::from_millis(flow as u64),
        changed: NOW,
        deadline: NOW + Duration::from_secs(3600),
        status,
        round,
        open: vec![],
        open_until: NOW + Duration::from_secs(3600),
        kept_until: NOW + Duration::from_secs(7200),
        owner: None,
        keys: vec![],
    };
    let entry = TimelineEntry { leg: round, station: FlowStation::Claimed, at: NOW };
    FlowChange { summary, entry, part: None, share: PrincipalShare::Common }
}

fn request() -> ClaimRequest {
    let keep = Retention { now: NOW, until: NOW + Duration::from_secs(600), share: PrincipalShare::Common };
    ClaimRequest { answers: Digest::from_bytes([7; 32]), keep, lease: Duration::from_secs(30), orphan: OwnerLost::Free }
}

/// Two owners at a time take steps at random, also with claims that they have lost, and forget some as a killed process
/// does. What the claim came to is what the record says, after every step.
#[tokio::test]
async fn a_record_and_its_claim_never_disagree() {
    for seed in 1..=300_u64 {
        let ledger = MemoryLedger::new();
        let register: &dyn Register = ledger.register().unwrap();
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let id = FlowId::from_bytes(1_u128.to_be_bytes());
        let claim = |round| ClaimId { flow: id, what: ClaimKind::Round(round) };
        register.begin(change(1, 1, FlowStatus::Waiting), None).await.unwrap();
        let (mut expected, mut round, mut owner) = (FlowStatus::Waiting, 1, None::<u32>);
        let mut fences = vec![(1, 99)];
        for step in 0..60 {
            let (of, fence) = fences[random(fences.len() as u64) as usize];
            let is_owner = expected == FlowStatus::Working && of == round && owner == Some(fence);
            match random(12) {
                0..=4 => match register
                    .claim_with(claim(round), request(), Some(change(1, round, FlowStatus::Working)))
                    .await
                    .unwrap()
                {
                    Claimed::Fresh { fence, .. } => {
                        assert_eq!(expected, FlowStatus::Waiting, "seed {seed}, step {step}");
                        fences.push((round, fence));
                        (expected, owner) = (FlowStatus::Working, Some(fence));
                    }
                    Claimed::Running(_) => assert_eq!(expected, FlowStatus::Working, "seed {seed}, step {step}"),
                    Claimed::Cancelled => assert_eq!(expected, FlowStatus::Cancelled, "seed {seed}, step {step}"),
                    Claimed::Done(_) => assert_eq!(expected, FlowStatus::Completed, "seed {seed}, step {step}"),
                    other => panic!("{other:?} at seed {seed}, step {step}"),
                },
                5 | 6 => {
                    let next = change(1, of + 1, FlowStatus::Waiting);
                    let settled = register.settle_with(claim(of), fence, None, None, vec![], next).await.unwrap();
                    assert_eq!(settled, is_owner, "seed {seed}, step {step}");
                    if settled {
                        (expected, round, owner) = (FlowStatus::Waiting, round + 1, None);
                    }
                }
                7 => {
                    let done = change(1, of, FlowStatus::Completed);
                    let settled = register.settle_with(claim(of), fence, None, None, vec![], done).await.unwrap();
                    assert_eq!(settled, is_owner, "seed {seed}, step {step}");
                    if settled {
                        (expected, owner) = (FlowStatus::Completed, None);
                    }
                }
                8 | 9 => {
                    let back = change(1, of, FlowStatus::Waiting);
                    register.release_with(claim(of), fence, OwnerLost::Free, false, back).await.unwrap();
                    if is_owner {
                        (expected, owner) = (FlowStatus::Waiting, None);
                    }
                }
                10 => {
                    let renewed = ledger.renew(claim(of), fence, NOW + Duration::from_secs(60)).await.unwrap();
                    assert_eq!(renewed, is_owner, "seed {seed}, step {step}");
                }
                _ if random(4) == 0 => {
                    let end = FlowEnd { now: NOW, retention: Duration::ZERO, slack: Duration::ZERO };
                    let before = register.cancel(id, end).await.unwrap();
                    assert_eq!(before, Some(expected), "seed {seed}, step {step}");
                    if expected.is_open() {
                        expected = FlowStatus::Cancelled;
                    }
                }
                _ => {}
            }
            let record = register.get(id, NOW).await.unwrap().unwrap();
            assert_eq!((record.summary.status, record.summary.round), (expected, round), "seed {seed}, step {step}");
        }
    }
}

#[tokio::test]
async fn a_page_of_a_hundred_thousand_records_is_found_at_once() {
    let ledger = MemoryLedger::new();
    let register: &dyn Register = ledger.register().unwrap();
    for flow in 0..100_000 {
        let status = if flow % 100 == 0 { FlowStatus::Working } else { FlowStatus::Waiting };
        register.begin(change(flow, 1, status), None).await.unwrap();
    }
    let filter = |status| FlowFilter { status: Some(status), ..FlowFilter::new(NOW) };
    let begun = Instant::now();
    let page = register.list(filter(FlowStatus::Waiting)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?} in a debug build", begun.elapsed());
    assert_eq!((page.flows.len(), page.flows[0].created), (100, NOW + Duration::from_millis(1)));
    let (mut pages, mut seen, mut after) = (0, 0, None);
    loop {
        let page = register.list(FlowFilter { most: 10_000, after, ..filter(FlowStatus::Waiting) }).await.unwrap();
        (pages, seen, after) = (pages + 1, seen + page.flows.len(), page.next);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, seen), (10, 99_000));
    assert_eq!(register.list(filter(FlowStatus::Completed)).await.unwrap().flows.len(), 0);
}
