//! Effects that run once in a flow, however often its handler runs.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::common::{
    Desk, Reply, Size, Turn, Visit, asks_for_a_retry,
    gate::{Gate, Gone},
    ledger::{Faulty, Step},
    ring, secs, small,
};
use rounds::{
    Ask, FlowError, Given, Legacy, Limits, Round,
    observe::{Refusal, Station},
    test::{Client, Clock},
};
use serde_json::{Value, json};

/// Asks for a size, after an effect with a number.
async fn numbered(turn: &Turn) -> Result<Reply, FlowError> {
    let round = turn.round()?;
    let number = round.once("number", async || turn.effects.have() + 1).await?;
    match round.given::<Value>("size") {
        Given::Missing => ask(&round, "size"),
        _ => Reply::text(format!("number {number}")),
    }
}

fn ask(round: &Round<Reply>, key: &str) -> Result<Reply, FlowError> {
    round.ask_form::<crate::common::Size>(key, "Which size?")
}

#[tokio::test]
async fn an_effect_above_the_question_happens_once_and_keeps_its_value() {
    let stage = Visit::of(Desk::new(|turn| async move { numbered(&turn).await })).await;
    for call in 1..=2 {
        let accepted = stage.order().await.accept("size", small());
        assert_eq!(accepted.send(&stage.client).await.text(), format!("number {call}"));
        assert_eq!(accepted.send(&stage.client).await.text(), format!("number {call}"));
        assert_eq!((stage.runs(), stage.effects.count()), (2 * call, call));
    }
    let effects = stage.events.stations().into_iter().filter(|station| matches!(station, Station::Effect { .. }));
    assert_eq!(effects.count(), 2);
}

#[tokio::test]
async fn it_happens_once_over_many_rounds_and_one_after_another() {
    let stage = Visit::of(Desk::new(|turn| async move {
        let round = turn.round()?;
        let mut had = Vec::new();
        for key in ["a", "b", "c"] {
            had.push(round.once(key, async || turn.effects.have()).await?);
            if let Given::Missing = round.given::<Value>(key) {
                return ask(&round, key);
            }
        }
        Reply::text(format!("{had:?}"))
    }))
    .await;
    let mut asked = stage.order().await;
    for key in ["a", "b"] {
        asked = asked.accept(key, json!({key: "small"})).send(&stage.client).await.asked();
    }
    assert_eq!(asked.accept("c", json!({"c": "small"})).send(&stage.client).await.text(), "[0, 1, 2]");
    assert_eq!((stage.runs(), stage.effects.count()), (4, 3));
}

#[tokio::test]
async fn a_leg_that_fails_after_its_effect_does_not_have_it_again_on_any_instance() {
    let (clock, ledger, fails) = (Clock::new(), Faulty::new(), Arc::new(AtomicUsize::new(1)));
    let desk = || {
        let fails = fails.clone();
        Desk::new(move |turn| {
            let fails = fails.clone();
            async move {
                let round = turn.round()?;
                if let Given::Missing = round.given::<Value>("size") {
                    return ask(&round, "size");
                }
                let number = round.once("charge", async || turn.effects.have() + 1).await?;
                assert_ne!(fails.swap(0, Ordering::SeqCst), 1, "as the test wants it");
                Reply::text(format!("charge {number}"))
            }
        })
    };
    let fleet =
        |ledger: Faulty| |builder: rounds::RoundsBuilder<_>| builder.keys(ring(&[1])).audience("tea").ledger(ledger);
    let here = Visit::at(&clock, desk(), fleet(ledger.clone())).await;
    let there = Visit::at(&clock, desk(), fleet(ledger.elsewhere())).await;
    let accepted = here.order().await.accept("size", small());
    assert_eq!(accepted.send(&here.client).await.error()["message"], "the handler panicked");
    assert_eq!(accepted.send(&there.client).await.text(), "charge 1");
    assert_eq!((here.effects.count(), there.effects.count()), (1, 0));
}

#[tokio::test]
async fn a_guard_whose_client_is_gone_goes_on_after_its_effect_and_a_retry_gets_its_reply() {
    let (gate, after) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (waits, counted) = (gate.clone(), after.clone());
    let stage = Visit::of(Desk::new(move |turn| {
        let (waits, after) = (waits.clone(), counted.clone());
        async move {
            let round = turn.round()?;
            if let Given::Missing = round.given::<Value>("size") {
                return ask(&round, "size");
            }
            let effect = async || {
                waits.pass().await;
                turn.effects.have() + 1
            };
            let number = round.once("charge", effect).await?;
            after.fetch_add(1, Ordering::SeqCst);
            Reply::text(format!("charge {number}"))
        }
    }))
    .await;
    let accepted = stage.order().await.accept("size", small());
    let leg = accepted.start(&stage.client).await;
    gate.reached().await;
    leg.cancel().await;
    let retry = accepted.start(&stage.client).await;
    stage.events.until(1, |station| *station == Station::Waiting).await;
    gate.open();
    assert_eq!(retry.finish().await.text(), "charge 1");
    assert_eq!((stage.runs(), stage.effects.count(), after.load(Ordering::SeqCst)), (2, 1, 1));
}

#[tokio::test]
async fn no_effect_begins_in_a_handler_that_lives_only_to_end_another() {
    let (gate, other, gone) = (Gate::new(), Gate::new(), Gone::default());
    let (waits, later, held) = (gate.clone(), other.clone(), gone.clone());
    let desk = Desk::new(move |turn| {
        let (waits, later, held) = (waits.clone(), later.clone(), held.clone());
        async move {
            let round = turn.round()?;
            // A handler that has asked is dropped when its client is gone.
            let _: Size = Ask::from_context(&turn.context)?.form("Which size?").await?;
            let _guard = held.guard();
            let one = round.once("one", async || {
                waits.pass().await;
                turn.effects.have()
            });
            let two = async {
                later.pass().await;
                round.once("two", async || turn.effects.have()).await
            };
            Reply::text(format!("{:?}", tokio::join!(one, two)))
        }
    });
    let limits = Limits::default().with_grace(secs(0));
    let stage = Visit::with(desk, |builder| builder.limits(limits)).await;
    let leg = stage.order().await.accept("size", small()).start(&stage.client).await;
    gate.reached().await;
    other.reached().await;
    leg.cancel().await;
    stage.events.until(1, |station| matches!(station, Station::Ended(rounds::observe::Outcome::Cancelled))).await;
    other.open();
    gate.open();
    while !gone.is_gone() {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn a_task_that_outlives_its_handler_goes_on_after_its_effect() {
    let (gate, gone, after) = (Gate::new(), Gone::default(), Arc::new(AtomicUsize::new(0)));
    let (waits, held, counted) = (gate.clone(), gone.clone(), after.clone());
    let stage = Visit::of(Desk::new(move |turn| {
        let (waits, held, after) = (waits.clone(), held.clone(), counted.clone());
        async move {
            let (round, begun) = (turn.round()?, waits.clone());
            tokio::spawn(async move {
                let _guard = held.guard();
                let had = round.once("audit", async || waits.pass().await).await;
                assert!(had.is_ok(), "{had:?}");
                let late = round.once("late", async || unreachable!("the flow is over")).await;
                assert!(matches!(late, Err::<(), _>(FlowError::FlowEnded)), "{late:?}");
                after.fetch_add(1, Ordering::SeqCst);
            });
            begun.reached().await;
            Reply::text("done")
        }
    }))
    .await;
    assert_eq!(stage.client.call("order", json!({})).await.text(), "done");
    gate.open();
    while !gone.is_gone() {
        tokio::task::yield_now().await;
    }
    assert_eq!(after.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_effect_that_a_first_leg_left_under_way_does_not_begin_again() {
    for legacy in [false, true] {
        let gate = Gate::new();
        let waits = gate.clone();
        let stage = Visit::with(
            Desk::new(move |turn| {
                let waits = waits.clone();
                async move {
                    let (round, begun, effects) = (turn.round()?, waits.clone(), turn.effects.clone());
                    let task = round.clone();
                    let audit = tokio::spawn(async move {
                        let effect = async || {
                            effects.have();
                            waits.pass().await;
                        };
                        task.once("audit", effect).await
                    });
                    match round.given::<Value>("size") {
                        Given::Missing => {
                            begun.reached().await;
                            ask(&round, "size")
                        }
                        _ => Reply::text(audit.await.unwrap().unwrap_err().to_string()),
                    }
                }
            }),
            |builder| builder.legacy(Legacy::push()),
        )
        .await;
        let said = if legacy {
            let client = Client::legacy(stage.server.clone()).await;
            let leg = client.start("tools/call", json!({"name": "order"})).await;
            let answer = json!({"action": "accept", "content": small()});
            client.pushed().await.unwrap().answer(answer).await;
            leg.finish().await.text()
        } else {
            stage.order().await.accept("size", small()).send(&stage.client).await.text()
        };
        assert!(said.contains("the effect `audit` may have run"), "{said}");
        gate.open();
        assert_eq!(stage.effects.count(), 1, "{legacy}");
    }
}

#[tokio::test]
async fn an_effect_of_a_first_leg_whose_value_is_not_kept_does_not_happen_again() {
    let stage = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            let report = async || {
                turn.effects.have();
                "long ".repeat(100)
            };
            let lost = round.once("report", report).await.unwrap_err();
            assert!(matches!(lost, FlowError::EffectLost { .. }), "{lost}");
            match round.given::<Value>("size") {
                Given::Missing => ask(&round, "size"),
                _ => Reply::text("sold"),
            }
        }),
        |builder| builder.limits(Limits::default().with_effects(4, 100)),
    )
    .await;
    assert_eq!(stage.order().await.accept("size", small()).send(&stage.client).await.text(), "sold");
    assert_eq!((stage.runs(), stage.effects.count()), (2, 1));
}

#[tokio::test]
async fn a_first_leg_that_is_cancelled_ends_its_effect_too() {
    let gate = Gate::new();
    let waits = gate.clone();
    let stage = Visit::of(Desk::new(move |turn| {
        let waits = waits.clone();
        async move {
            let round = turn.round()?;
            let effect = async || {
                waits.pass().await;
                turn.effects.have()
            };
            round.once("audit", effect).await?;
            ask(&round, "size")
        }
    }))
    .await;
    let leg = stage.client.start("tools/call", json!({"name": "order"})).await;
    gate.reached().await;
    leg.cancel().await;
    let _ = stage.client.request("tools/list", json!({})).await;
    gate.open();
    stage.events.until(1, |station| matches!(station, Station::Effect { .. })).await;
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn a_name_is_used_once_in_a_run_except_after_a_failure_when_it_keeps_its_key() {
    let stage = Visit::of(Desk::new(|turn| async move {
        let round = turn.round()?;
        let keys = std::sync::Mutex::new(Vec::new());
        let attempt = async || {
            keys.lock().expect("the lock is not poisoned").push(round.once_key("charge"));
            if turn.effects.have() == 0 { Err(FlowError::failed("the bank is closed")) } else { Ok("charged") }
        };
        let failed = round.try_once("charge", async || attempt().await.map(str::to_owned)).await;
        assert_eq!(failed.expect_err("the first fails").to_string(), "the bank is closed");
        assert_eq!(round.try_once("charge", async || attempt().await.map(str::to_owned)).await?, "charged");
        let keys = keys.into_inner().expect("the lock is not poisoned");
        assert!(keys[0] == keys[1] && keys[0] != round.once_key("refund"));
        round.once("charge", async || ()).await?;
        Reply::text("unreachable")
    }))
    .await;
    let leg = stage.client.call("order", json!({})).await;
    assert_eq!(leg.error()["message"], "two effects of this call are named `charge`: give each its own name");
}

#[tokio::test]
async fn a_failure_in_one_leg_leaves_the_effect_to_the_next() {
    let stage = Visit::of(Desk::new(|turn| async move {
        let round = turn.round()?;
        if let Given::Missing = round.given::<Value>("size") {
            return ask(&round, "size");
        }
        let charge = async || match turn.effects.have() {
            0 => Err(FlowError::retry("the bank is closed")),
            _ => Ok(round.once_key("charge")),
        };
        Reply::text(round.try_once("charge", charge).await?)
    }))
    .await;
    let accepted = stage.order().await.accept("size", small());
    asks_for_a_retry(&accepted.send(&stage.client).await);
    assert_eq!(accepted.send(&stage.client).await.text().len(), 64, "the key is a digest");
    assert_eq!(stage.effects.count(), 2);
}

#[tokio::test]
async fn a_panic_in_an_effect_gives_it_back() {
    let stage = Visit::of(Desk::new(|turn| async move {
        let round = turn.round()?;
        if let Given::Missing = round.given::<Value>("size") {
            return ask(&round, "size");
        }
        let charge = async || {
            let before = turn.effects.have();
            assert_ne!(before, 0, "as the test wants it");
            before
        };
        Reply::text(format!("charge {}", round.once("charge", charge).await?))
    }))
    .await;
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.error()["code"], -32603);
    assert_eq!(accepted.send(&stage.client).await.text(), "charge 1");
}

#[tokio::test]
async fn an_effect_whose_value_cannot_be_written_has_happened_all_the_same() {
    let stage = Visit::of(Desk::new(|turn| async move {
        let round = turn.round()?;
        if let Given::Missing = round.given::<Value>("size") {
            return ask(&round, "size");
        }
        // JSON cannot have such keys.
        let charge = async || HashMap::from([((turn.effects.have(), 0), "charged".to_owned())]);
        match round.once("charge", charge).await {
            Err(FlowError::State(_)) => panic!("as the test wants it, so that the round stays open"),
            other => Reply::text(format!("{:?}", other?)),
        }
    }))
    .await;
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.error()["message"], "the handler panicked");
    let lost = "the effect `charge` may have run, and its value was not recorded: check what it did, then start the call again";
    assert_eq!(accepted.send(&stage.client).await.error()["message"], lost);
    assert_eq!(stage.effects.count(), 1);
}

#[tokio::test]
async fn there_is_room_for_a_value_before_its_effect_runs() {
    let limits = Limits::default().with_effects(2, 100).with_token_bytes(1000);
    let many = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            for name in ["a", "b", "c"] {
                round.once(name, async || turn.effects.have()).await?;
            }
            Reply::text("unreachable")
        }),
        |builder| builder.limits(limits.clone()),
    )
    .await;
    let leg = many.client.call("order", json!({})).await;
    assert_eq!(
        leg.error()["message"],
        "this call has run 2 effects, which is the limit: do more in each, or raise `Limits::with_effects`"
    );
    assert_eq!(many.effects.count(), 2);

    let at_once = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            let one = |name: &'static str| {
                round.once(name, async || {
                    turn.effects.have();
                    tokio::task::yield_now().await;
                })
            };
            tokio::try_join!(one("a"), one("b"), one("c"))?;
            Reply::text("unreachable")
        }),
        |builder| builder.limits(limits.clone()),
    )
    .await;
    let leg = at_once.client.call("order", json!({})).await;
    assert_eq!(
        leg.error()["message"],
        "this call has run 2 effects, which is the limit: do more in each, or raise `Limits::with_effects`"
    );
    assert_eq!(at_once.effects.count(), 2, "the third did not run");

    let tight = limits.with_effects(64, 400);
    let together = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            let one = |name: &'static str| {
                round.once(name, async || {
                    turn.effects.have();
                    tokio::task::yield_now().await;
                    "x".repeat(390)
                })
            };
            let (a, b) = tokio::join!(one("a"), one("b"));
            // Whichever was second.
            let lost = [a, b].into_iter().filter_map(Result::err).collect::<Vec<_>>();
            assert!(matches!(&lost[..], [FlowError::EffectLost { .. }]), "{lost:?}");
            match round.given::<Value>("size") {
                Given::Missing => ask(&round, "size"),
                _ => Reply::text("sold"),
            }
        }),
        |builder| builder.limits(tight.clone()),
    )
    .await;
    assert_eq!(together.order().await.accept("size", small()).send(&together.client).await.text(), "sold");
    assert_eq!(together.effects.count(), 2, "an effect that is not recorded does not run again either");

    let large = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            for name in ["a", "b"] {
                let value = async || {
                    turn.effects.have();
                    "x".repeat(390)
                };
                round.once(name, value).await?;
            }
            Reply::text("unreachable")
        }),
        |builder| builder.limits(tight),
    )
    .await;
    let leg = large.client.call("order", json!({})).await;
    assert!(leg.is_tool_error() && leg.text().contains("and the limit is 750:"), "{}", leg.text());
    assert_eq!(large.effects.count(), 1, "the second did not run");
}

#[tokio::test]
async fn a_value_that_is_too_large_is_not_kept_and_its_effect_does_not_happen_again() {
    let stage = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            if let Given::Missing = round.given::<Value>("size") {
                return ask(&round, "size");
            }
            let huge = async || {
                turn.effects.have();
                "x".repeat(200)
            };
            // A failure that opens the round again, so that the handler runs again.
            round.once("huge", huge).await.map_err(|error| FlowError::retry(error.to_string()))?;
            Reply::text("unreachable")
        }),
        |builder| builder.limits(Limits::default().with_effects(64, 100)),
    )
    .await;
    let accepted = stage.order().await.accept("size", small());
    for _ in 0..3 {
        asks_for_a_retry(&accepted.send(&stage.client).await);
    }
    assert_eq!((stage.runs(), stage.effects.count()), (4, 1));
}

#[tokio::test]
async fn nothing_happens_while_the_ledger_is_away() {
    let ledger = Faulty::new();
    let away = ledger.clone();
    let stage = Visit::with(
        Desk::new(move |turn| {
            let away = away.clone();
            async move {
                let round = turn.round()?;
                if let Given::Missing = round.given::<Value>("size") {
                    return ask(&round, "size");
                }
                if turn.effects.count() == 0 && round.number() == 1 && away.claims_so_far() == 1 {
                    away.is_away_at(Step::Claim);
                }
                Reply::text(format!("charge {}", round.once("charge", async || turn.effects.have()).await?))
            }
        }),
        |builder| builder.ledger(ledger.clone()),
    )
    .await;
    let accepted = stage.order().await.accept("size", small());
    asks_for_a_retry(&accepted.send(&stage.client).await);
    assert_eq!(stage.effects.count(), 0);
    ledger.is_back();
    assert_eq!(accepted.send(&stage.client).await.text(), "charge 0");
}

#[tokio::test]
async fn nobody_waits_until_an_effect_is_recorded() {
    let ledger = Faulty::new();
    ledger.records_no_effect();
    let stage = Visit::with(
        Desk::new(|turn| async move {
            let round = turn.round()?;
            if let Given::Missing = round.given::<Value>("size") {
                return ask(&round, "size");
            }
            let one = round.once("one", async || turn.effects.have()).await?;
            let two = round.once("two", async || turn.effects.have()).await?;
            Reply::text(format!("{one} {two}"))
        }),
        |builder| builder.ledger(ledger.clone()),
    )
    .await;
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.text(), "0 1");
    assert_eq!(ledger.given().len(), 3, "the ledger was given both, and then the reply");
}

#[tokio::test]
async fn a_value_of_another_type_is_a_state_that_cannot_be_read() {
    let (clock, ledger) = (Clock::new(), Faulty::new());
    let fleet =
        |ledger: Faulty| |builder: rounds::RoundsBuilder<_>| builder.keys(ring(&[1])).audience("tea").ledger(ledger);
    let old = Visit::at(&clock, Desk::new(|turn| async move { numbered(&turn).await }), fleet(ledger.clone())).await;
    let new = Desk::new(|turn| async move {
        let number: Vec<String> = turn.round()?.once("number", async || vec![]).await?;
        Reply::text(number.join(" "))
    });
    let new = Visit::at(&clock, new, fleet(ledger.elsewhere())).await;
    let accepted = old.order().await.accept("size", small());
    accepted.send(&new.client).await.frozen();
    assert_eq!(new.events.refusals(), [Refusal::HandlerState]);
    assert_eq!(accepted.send(&old.client).await.text(), "number 1", "after a rollback the flow continues");
}

#[tokio::test]
async fn a_ledger_that_is_away_leaves_the_name_to_another_try_in_the_same_run() {
    let ledger = Faulty::new();
    let away = ledger.clone();
    let stage = Visit::with(
        Desk::new(move |turn| {
            let away = away.clone();
            async move {
                let round = turn.round()?;
                if let Given::Missing = round.given::<Value>("size") {
                    return ask(&round, "size");
                }
                away.is_away_at(Step::Claim);
                let failed = round.once("charge", async || turn.effects.have()).await;
                assert!(matches!(failed, Err(FlowError::Retry(_))), "{failed:?}");
                away.is_back();
                Reply::text(format!("charge {}", round.once("charge", async || turn.effects.have()).await?))
            }
        }),
        |builder| builder.ledger(ledger.clone()),
    )
    .await;
    let accepted = stage.order().await.accept("size", small());
    assert_eq!(accepted.send(&stage.client).await.text(), "charge 0");
}
