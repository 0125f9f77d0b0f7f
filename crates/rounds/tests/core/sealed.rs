//! The contents of a ledger: a reader learns nothing from it, and a writer cannot make a flow accept forged records.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use crate::common::{Desk, Reply, Visit, ledger::Faulty, ring, small};
use rounds::{
    FlowError, Given, Round, RoundsBuilder,
    ledger::{ClaimKind, MemoryLedger},
    observe::Refusal,
};
use serde_json::{Value, json};

/// Asks, runs an effect with a value, and replies with it; the first time it fails after its effect.
fn desk() -> Desk {
    Desk::new(|turn| async move {
        let round: Round<Reply> = turn.round()?;
        if let Given::Missing = round.given::<Value>("size") {
            return round.questions().form::<String>("size", "canary-question").state(&"canary-state").send();
        }
        let number = round.once("canary-effect", async || format!("canary-value {}", turn.effects.have())).await?;
        if number.ends_with(&turn.target) {
            return Err(FlowError::retry("as the test wants it"));
        }
        Reply::text(format!("canary-reply {number}"))
    })
}

async fn stage(ledger: &Faulty) -> Visit {
    Visit::with(desk(), |builder| builder.keys(ring(&[1])).audience("tea").ledger(ledger.clone())).await
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

#[tokio::test]
async fn no_ledger_that_somebody_wrote_is_given_anything_that_it_could_read() {
    let ledger = Faulty::new();
    let stage = stage(&ledger).await;
    let told = stage.order().await.accept("size", small()).send(&stage.client).await.text();
    assert_eq!(told, "canary-reply canary-value 0");
    let given = ledger.given();
    assert_eq!(given.len(), 2, "a value and a reply");
    for bytes in given {
        assert!(!contains(&bytes, b"canary") && !contains(&bytes, b"small"), "{}", bytes.escape_ascii());
    }
}

/// It is in the process that has the keys. Sealing draws a nonce, so the test counts nonces.
#[tokio::test]
async fn only_for_the_ledger_in_memory_nothing_is_sealed() {
    let drawn = async |configure: fn(RoundsBuilder<Desk>) -> RoundsBuilder<Desk>| {
        let drawn = Arc::new(AtomicU8::new(0));
        let entropy = drawn.clone();
        let draw = move |bytes: &mut [u8]| bytes.fill(entropy.fetch_add(1, Ordering::Relaxed));
        let stage = Visit::with(desk(), |builder| configure(builder).entropy(draw)).await;
        let accepted = stage.order().await.accept("size", small());
        let told = accepted.send(&stage.client).await.text();
        assert_eq!(accepted.send(&stage.client).await.text(), told, "a retry gets it");
        assert_eq!(stage.effects.count(), 1);
        drawn.load(Ordering::Relaxed)
    };
    // The nonces of the flow's name and of the token.
    assert_eq!(drawn(|builder| builder).await, 2);
    assert_eq!(drawn(|builder| builder.ledger(MemoryLedger::new())).await, 2);
    // Also those of the value and of the reply.
    assert_eq!(
        drawn(|builder| builder.ledger(Faulty::new())).await,
        4,
        "a ledger that wraps one in memory gets sealed records"
    );
}

#[tokio::test]
async fn a_reply_that_does_not_open_is_gone_and_the_round_is_not_run_again() {
    let ledger = Faulty::new();
    let stage = stage(&ledger).await;
    let [one, other] = [stage.order().await.accept("size", small()), stage.order().await.accept("size", small())];
    let told = one.send(&stage.client).await.text();
    other.send(&stage.client).await.text();
    let of_other = ledger.given().pop().unwrap();
    let forgeries = [of_other, vec![], b"rsomething".to_vec(), vec![0; 100]];
    for forged in forgeries.clone() {
        ledger.forges(move |_, _| Some(forged.clone()));
        one.send(&stage.client).await.frozen();
    }
    ledger.forges(|_, kept| Some(kept));
    assert_eq!(one.send(&stage.client).await.text(), told);
    assert_eq!((stage.runs(), stage.effects.count()), (4, 2));
    assert_eq!(stage.events.refusals(), [Refusal::ReplyGone; 4]);
}

#[tokio::test]
async fn the_value_of_an_effect_that_does_not_open_is_lost_and_the_effect_is_not_had_again() {
    let ledger = Faulty::new();
    let stage = stage(&ledger).await;
    let place = async |tool: &str| stage.client.call(tool, json!({})).await.asked().accept("size", small());
    // The first run fails after its effect, so that its round runs again.
    let (one, other) = (place("0").await, place("other").await);
    one.send(&stage.client).await.error();
    other.send(&stage.client).await.text();
    let of_other = ledger.given().swap_remove(1);
    for forged in [of_other, vec![], b"\"canary-value 7\"".to_vec()] {
        ledger.forges(move |id, kept| Some(if matches!(id.what, ClaimKind::Once(_)) { forged.clone() } else { kept }));
        let lost = one.send(&stage.client).await;
        assert!(lost.response().to_string().contains("canary-effect"), "{:?}", lost.response());
        assert!(!lost.response().to_string().contains("canary-value"), "{:?}", lost.response());
    }
    assert_eq!(stage.effects.count(), 2);
}

#[tokio::test]
async fn records_of_an_older_key_are_read_while_the_ring_has_it() {
    let ledger = Faulty::new();
    let stage = stage(&ledger).await;
    let accepted = stage.order().await.accept("size", small());
    let told = accepted.send(&stage.client).await.text();
    stage.server.set_keys(&ring(&[2, 1])).unwrap();
    assert_eq!(accepted.send(&stage.client).await.text(), told);
    assert_eq!(stage.effects.count(), 1);
}
