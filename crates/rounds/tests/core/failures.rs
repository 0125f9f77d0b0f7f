//! Effects of a guard-first handler that fail: the next leg sees the same failures, and tries again only where the
//! handler does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use crate::common::{
    Desk, Reply, Turn, Visit,
    ledger::{Faulty, Step},
};
use rmcp::{ErrorData, model::ErrorCode};
use rounds::{FlowError, Given, Legacy, Limits, test::Client};
use serde_json::{Value, json};

/// What the bank received: the idempotency key of every attempt.
type Bank = Arc<Mutex<Vec<String>>>;

/// Charges, and asks whether to try again as long as that fails. The bank is closed before this attempt, and open from
/// then on.
fn pay(opens_at: usize) -> (Desk, Bank) {
    let bank = Bank::default();
    let heard = bank.clone();
    let desk = Desk::new(move |turn| {
        let heard = heard.clone();
        async move {
            let round = turn.round()?;
            for again in ["again0", "again1", "again2"] {
                let attempt = async || {
                    let mut heard = heard.lock().expect("the lock is not poisoned");
                    heard.push(round.once_key("charge"));
                    match heard.len() > opens_at {
                        true => Ok(format!("charge {}", heard.len())),
                        false => Err(FlowError::failed(format!("closed {}", heard.len()))),
                    }
                };
                let failed = match round.try_once("charge", attempt).await {
                    Ok(receipt) => return Reply::text(receipt),
                    Err(failed) => failed.to_string(),
                };
                match round.given::<bool>(again) {
                    Given::Accepted(true) => {}
                    Given::Missing => return round.ask_form::<bool>(again, format!("{failed}. Try again?")),
                    _ => return Reply::text("not paid"),
                }
            }
            Reply::text("given up")
        }
    });
    (desk, bank)
}

#[tokio::test]
async fn a_no_after_a_failed_charge_is_a_no() {
    let (desk, bank) = pay(1);
    let stage = Visit::of(desk).await;
    let asked = stage.order().await;
    assert_eq!(asked.message("again0"), "closed 1. Try again?");
    for _ in 0..2 {
        assert_eq!(asked.decline("again0").send(&stage.client).await.text(), "not paid");
    }
    assert_eq!(bank.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_yes_after_a_failed_charge_is_one_more_attempt_with_the_same_key() {
    let (desk, bank) = pay(2);
    let stage = Visit::of(desk).await;
    let asked = stage.order().await.accept("again0", json!({"again0": true})).send(&stage.client).await.asked();
    assert_eq!(asked.message("again1"), "closed 2. Try again?", "the first attempt fails in the same way");
    let yes = asked.accept("again1", json!({"again1": true}));
    for _ in 0..2 {
        assert_eq!(yes.send(&stage.client).await.text(), "charge 3");
    }
    let heard = bank.lock().unwrap();
    assert!(heard.len() == 3 && heard.iter().all(|key| *key == heard[0]), "{heard:?}");
}

#[tokio::test]
async fn a_legacy_client_that_is_pushed_to_meets_the_same_failures() {
    for (answers, said, attempts) in
        [(vec![true], "charge 2", 2), (vec![false], "not paid", 1), (vec![true, false], "not paid", 2)]
    {
        let (desk, bank) = pay(if answers.len() == 1 { 1 } else { 9 });
        let stage = Visit::with(desk, |builder| builder.legacy(Legacy::push())).await;
        let client = Client::legacy(stage.server.clone()).await;
        let leg = client.start("tools/call", json!({"name": "order"})).await;
        for (n, answer) in answers.iter().enumerate() {
            let content = json!({format!("again{n}"): answer});
            client.pushed().await.unwrap().answer(json!({"action": "accept", "content": content})).await;
        }
        assert_eq!(leg.finish().await.text(), said);
        assert_eq!(bank.lock().unwrap().len(), attempts);
    }
}

#[tokio::test]
async fn a_failure_keeps_its_kind_its_words_and_its_data() {
    let kinds: Arc<dyn Fn() -> Vec<FlowError> + Send + Sync> = Arc::new(|| {
        let protocol = |data| FlowError::from(ErrorData::new(ErrorCode(-32007), "no funds", data));
        vec![
            FlowError::failed("the bank is \"closed\" ☂"),
            FlowError::failed(""),
            FlowError::retry("the bank is away"),
            protocol(None),
            protocol(Some(json!({"left": [1.5, null, "x"]}))),
        ]
    });
    let stage = Visit::of(Desk::new(move |turn| {
        let kinds = kinds.clone();
        async move {
            let round = turn.round()?;
            let mut told = String::new();
            for (n, kind) in kinds().into_iter().enumerate() {
                let failed = round
                    .try_once(&format!("n{n}"), async || {
                        Err::<(), _>({
                            turn.effects.have();
                            kind
                        })
                    })
                    .await;
                told += &match failed.expect_err("they all fail") {
                    FlowError::Retry(source) => format!("retry {source};"),
                    other => format!("{other:?};"),
                };
            }
            match round.given::<Value>("size") {
                Given::Missing => round.questions().form::<bool>("size", "Go on?").state(&told).send(),
                _ => Reply::text(format!("{}", round.state::<String>()?.is_some_and(|before| before == told))),
            }
        }
    }))
    .await;
    let asked = stage.order().await;
    assert_eq!(asked.decline("size").send(&stage.client).await.text(), "true");
    assert_eq!((stage.runs(), stage.effects.count()), (2, 5));
}

/// Each tool has an effect whose outcome the next leg could not know, and then asks.
async fn unrecorded(turn: Turn) -> Result<Reply, FlowError> {
    let round = turn.round()?;
    let failing = |error: FlowError| {
        let effects = turn.effects.clone();
        async move || {
            effects.have();
            Err::<(), _>(error)
        }
    };
    match turn.target.as_str() {
        "unfit" => drop(round.try_once("charge", failing(FlowError::NoBackChannel)).await),
        "too large" => drop(round.try_once("charge", failing(FlowError::failed("no ".repeat(100)))).await),
        // JSON cannot have such keys.
        "unwritable" => drop(round.once("charge", async || HashMap::from([((turn.effects.have(), 0), 0)])).await),
        "dropped" => {
            let slow = async || {
                turn.effects.have();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                had = round.once("charge", slow) => had?,
                () = std::future::ready(()) => {}
            }
        }
        "panicked" => {
            let (round, effects) = (round.clone(), turn.effects.clone());
            let panics = async move || assert_eq!(effects.have(), usize::MAX, "as the test wants it");
            let panicked = tokio::spawn(async move { round.once("charge", panics).await }).await;
            assert!(panicked.is_err());
        }
        "twice" => {
            round.once("charge", async || turn.effects.have()).await?;
            assert!(round.once("charge", async || ()).await.is_err());
        }
        "without room" => {
            round.once("charge", async || turn.effects.have()).await?;
            for name in ["a", "b", "c"] {
                drop(round.once(name, async || ()).await);
            }
            assert!(matches!(round.once("d", async || ()).await, Err(FlowError::TooManyEffects { limit: 4 })));
        }
        other => unreachable!("{other}"),
    }
    match round.ask_form::<bool>("again", "Try again?") {
        Err(refused) => {
            // A handler that builds its question by hand is prevented from asking, too.
            assert!(matches!(refused, FlowError::Unrecorded { .. }), "{refused:?}");
            Reply::raw(
                json!({"resultType": "input_required", "inputRequests": {"again": {"method": "elicitation/create", "params": {
                    "mode": "form", "message": "Try again?", "requestedSchema": {"type": "object", "properties": {}}
                }}}}),
            )
        }
        Ok(asks) => Ok(asks),
    }
}

#[tokio::test]
async fn after_what_cannot_be_recorded_no_question_is_sent_and_the_handler_is_told_why() {
    for (tool, why) in [
        ("unfit", "it failed with \"this tool has a question"),
        ("too large", "its failure takes 326 bytes, and there is room for 100"),
        ("unwritable", "its value cannot be written as JSON: key must be a string"),
        (
            "dropped",
            "it was dropped before it came to its end; put a time limit inside of the effect and not around it",
        ),
        ("panicked", "it was dropped before it came to its end"),
        ("twice", "two effects of this call are named `charge`: give each its own name"),
        (
            "without room",
            "this call has run 4 effects, which is the limit: do more in each, or raise `Limits::with_effects`",
        ),
    ] {
        let limits = Limits::default().with_effects(4, 100);
        let configure = |builder: rounds::RoundsBuilder<_>| builder.limits(limits).legacy(Legacy::push());
        let stage = Visit::with(Desk::new(unrecorded), configure).await;
        let legacy = Client::legacy(stage.server.clone()).await;
        for (n, client) in [&stage.client, &legacy].into_iter().enumerate() {
            let leg = client.call(tool, json!({})).await;
            let told = leg.error()["message"].as_str().unwrap_or_default();
            assert!(told.starts_with("nothing can be asked after the effect `"), "{tool}: {told}");
            assert!(told.contains(why), "{tool}: {told}");
            assert_eq!(stage.effects.count(), n + 1, "{tool}");
        }
    }
}

#[tokio::test]
async fn attempts_count_as_effects_do_and_each_has_to_find_room() {
    let stage = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            let mut failed = Vec::new();
            for _ in 0..4 {
                let attempt = async || Err::<(), _>(FlowError::failed(format!("closed {}", turn.effects.have())));
                failed.push(round.try_once("charge", attempt).await.expect_err("it always does").to_string());
            }
            Reply::text(failed.join(", "))
        }),
        |builder| builder.limits(Limits::default().with_effects(3, 100)),
    )
    .await;
    let said = stage.client.call("order", json!({})).await.text();
    assert_eq!(
        said,
        "closed 0, closed 1, closed 2, this call has run 3 effects, which is the limit: do more in each, or raise `Limits::with_effects`"
    );
    assert_eq!(stage.effects.count(), 3);
}

/// The ledger is away when the handler reaches its effect, which does not run then. It is back when the answer arrives.
#[tokio::test]
async fn an_effect_that_could_not_be_claimed_does_not_run_before_the_answer_is_read() {
    let ledger = Faulty::new();
    let away = ledger.clone();
    let stage = Visit::with(
        Desk::new(move |turn| {
            let away = away.clone();
            async move {
                let round = turn.round()?;
                if let Given::Missing = round.given::<Value>("size") {
                    return round.ask_form::<bool>("size", "Pay?");
                }
                if round.number() == 1 {
                    away.is_away_at(Step::Claim);
                }
                let charged = round.once("charge", async || turn.effects.have()).await;
                away.is_back();
                match (charged, round.given::<Value>("again")) {
                    (Ok(_), _) => Reply::text("paid"),
                    (Err(_), Given::Missing) => round.ask_form::<bool>("again", "Try again?"),
                    (Err(_), _) => Reply::text("not paid"),
                }
            }
        }),
        |builder| builder.ledger(ledger.clone()),
    )
    .await;
    let again = stage.order().await.accept("size", json!({"size": true})).send(&stage.client).await.asked();
    assert_eq!(again.decline("again").send(&stage.client).await.text(), "not paid");
    assert_eq!(stage.effects.count(), 0);
}
