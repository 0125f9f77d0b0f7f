//! Keys: the first seals, all open, and they can be replaced during flows.

use crate::common::{Desk, Visit, ring, shop, small};
use rounds::{KeyRing, Rounds, RoundsBuilder, ledger::MemoryLedger, observe::Refusal, test::Clock};

const OLD: u8 = 1;
const NEW: u8 = 2;

/// Two instances of one service, with one ledger.
async fn fleet(keys: &[u8]) -> [Visit; 2] {
    let (clock, ledger) = (Clock::new(), MemoryLedger::new());
    let configured = |builder: RoundsBuilder<Desk>| builder.keys(ring(keys)).audience("tea").ledger(ledger.clone());
    [Visit::at(&clock, shop(), configured).await, Visit::at(&clock, shop(), configured).await]
}

#[tokio::test]
async fn a_rotation_in_three_steps_is_noticed_by_no_open_flow() {
    let fleet = fleet(&[OLD]).await;
    // Flows that are asked before the rotation begins and in each of its states, and answered in the next state, at the
    // other instance.
    let mut open = vec![(0, fleet[0].order().await)];
    for step in [&[OLD, NEW][..], &[NEW, OLD]] {
        for turn in 0..fleet.len() {
            fleet[turn].server.set_keys(&ring(step)).unwrap();
            // One instance has taken the step and the other has not: each opens what either seals.
            for (at, asked) in std::mem::take(&mut open) {
                let other = &fleet[1 - at];
                let asked = asked.retry().send(&other.client).await.asked();
                assert_eq!(asked.keys(), ["size"]);
                open.push((1 - at, asked));
            }
            open.push((turn, fleet[turn].order().await));
        }
    }
    // The last token of the old key is answered before the old key is removed.
    for (at, asked) in &mut open {
        *asked = asked.retry().send(&fleet[*at].client).await.asked();
    }
    for stage in &fleet {
        stage.server.set_keys(&ring(&[NEW])).unwrap();
    }
    for (at, asked) in open {
        assert!(asked.accept("size", small()).send(&fleet[1 - at].client).await.text().starts_with("Small"));
    }
    assert!(fleet.iter().all(|stage| stage.events.refusals().is_empty()));
}

#[tokio::test]
async fn a_token_of_a_retired_key_is_refused() {
    let [stage, _] = fleet(&[OLD]).await;
    let accepted = stage.order().await.accept("size", small());
    stage.server.set_keys(&ring(&[NEW])).unwrap();
    accepted.send(&stage.client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::UnknownKey]);
    stage.server.set_keys(&ring(&[NEW, OLD])).unwrap();
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1", "only the key was the reason");
}

#[tokio::test]
async fn new_keys_reach_every_clone_and_every_connection() {
    let [stage, _] = fleet(&[OLD]).await;
    let (before, clone) = (stage.client.clone(), stage.server.clone());
    clone.set_keys(&ring(&[NEW])).unwrap();
    let asked = stage.order().await;
    stage.server.set_keys(&ring(&[OLD])).unwrap();
    asked.accept("size", small()).send(&before).await.frozen();
}

#[tokio::test]
async fn the_same_token_is_single_use_across_a_rotation() {
    let [stage, other] = fleet(&[OLD]).await;
    let accepted = stage.order().await.accept("size", small());
    let _ = accepted.send(&stage.client).await.text();
    for stage in [&stage, &other] {
        stage.server.set_keys(&ring(&[NEW, OLD])).unwrap();
        assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
    }
    assert_eq!((stage.effects.count(), other.effects.count()), (1, 0));
}

#[test]
fn keys_that_others_may_share_need_an_audience() {
    let says = |error: rounds::BuildError| {
        assert!(error.to_string().contains("keys that other services may share need an audience"), "{error}");
    };
    says(Rounds::builder(shop()).keys(ring(&[OLD])).build().unwrap_err());
    says(Rounds::builder(shop()).keys(ring(&[OLD])).audience("").build().unwrap_err());
    says(Rounds::new(shop()).set_keys(&ring(&[OLD])).unwrap_err());
    assert!(Rounds::new(shop()).set_keys(&KeyRing::ephemeral()).is_ok(), "an ephemeral ring cannot be shared");
}

#[tokio::test]
async fn keys_that_are_refused_change_nothing() {
    let stage = Visit::of(shop()).await;
    let accepted = stage.order().await.accept("size", small());
    assert!(stage.server.set_keys(&ring(&[OLD])).is_err());
    assert_eq!(accepted.send(&stage.client).await.text(), "Small order number 1");
}
