//! Effects that fail and handlers that continue: the next leg sees the same failure, and no effect runs before its
//! answer is read.

use rmcp::{ErrorData, model::ErrorCode};
use rounds::{Durable, FlowError, Limits, Rounds, durable, observe::Refusal, test::Client};
use serde_json::json;

use super::{Airline, Flights, Trip};

fn to_rome() -> serde_json::Value {
    json!({"to": "Rome"})
}

/// The bank is closed at first, and opens later.
async fn charge(airline: &Airline, key: &str) -> Result<String, FlowError> {
    airline.world.keys.lock().unwrap().push(key.to_owned());
    match airline.world.have("charge") {
        0 => Err(FlowError::failed("the bank is closed")),
        n => Ok(format!("charge {n}")),
    }
}

/// Charges, and asks the user whether to try again as long as that fails.
async fn pay(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
    loop {
        match flow.try_once("charge", charge).await {
            Ok(receipt) => return Ok(format!("Paid: {receipt}")),
            Err(failed) => {
                if !flow.confirm(format!("{failed}. Try again?")).key("again").await? {
                    return Ok("Not paid".to_owned());
                }
            }
        }
    }
}

#[tokio::test]
async fn a_no_after_a_failed_charge_is_a_no_on_every_instance() {
    for no in [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        json!({"action": "accept", "content": {"again": false}}),
    ] {
        let fleet = Flights::new();
        let instance = || fleet.instance(durable("pay", "", pay));
        let asked = instance().await.call("pay", to_rome()).await.asked();
        assert_eq!(asked.message("again"), "the bank is closed. Try again?");
        let refused = asked.retry().respond("again", no);
        for _ in 0..2 {
            assert_eq!(refused.send(&instance().await).await.text(), "Not paid");
        }
        assert_eq!(fleet.world.count("charge"), 1, "the bank would have been open by now");
        assert_eq!(fleet.events.refusals(), []);
    }
}

#[tokio::test]
async fn a_yes_after_a_failed_charge_is_one_more_attempt_with_the_same_key() {
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("pay", "", pay));
    let asked = instance().await.call("pay", to_rome()).await.asked();
    let yes = asked.accept("again", json!({"again": true}));
    for _ in 0..2 {
        assert_eq!(yes.send(&instance().await).await.text(), "Paid: charge 1");
    }
    let keys = fleet.world.keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[tokio::test]
async fn every_attempt_is_an_entry_of_its_own_and_fails_again_as_it_did() {
    async fn stubborn(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let mut told = Vec::new();
        for n in 0..4 {
            let attempt = async |airline: &Airline, _: &str| -> Result<(), FlowError> {
                match airline.world.have("charge") {
                    0 => Err(FlowError::failed("closed")),
                    1 => Err(FlowError::retry("away")),
                    2 => Err(ErrorData::new(ErrorCode(-32007), "no funds", Some(json!({"left": [1.5, null]}))).into()),
                    _ => Ok(()),
                }
            };
            match flow.try_once("charge", attempt).await {
                Ok(()) => told.push("paid".to_owned()),
                Err(FlowError::Failed(words)) => told.push(words),
                Err(FlowError::Retry(source)) => told.push(format!("retry {source}")),
                Err(FlowError::Protocol(error)) => {
                    told.push(format!("{} {} {:?}", error.code.0, error.message, error.data));
                }
                Err(other) => return Err(other),
            }
            flow.confirm("Go on?").key(format!("on{n}")).await?;
        }
        Ok(told.join(", "))
    }
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("pay", "", stubborn));
    let mut asked = instance().await.call("pay", to_rome()).await.asked();
    for n in 0..3 {
        let key = format!("on{n}");
        asked = asked.accept(&key, json!({key.as_str(): true})).send(&instance().await).await.asked();
    }
    let told = asked.accept("on3", json!({"on3": true})).send(&instance().await).await.text();
    assert_eq!(told, r#"closed, retry away, -32007 no funds Some(Object {"left": Array [Number(1.5), Null]}), paid"#);
    assert_eq!(fleet.world.count("charge"), 4);
}

#[tokio::test]
async fn a_failure_that_ends_the_leg_with_a_retry_leaves_the_effect_to_the_retry() {
    async fn unlucky(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.confirm("Pay?").await?;
        let first = flow.try_once("charge", charge).await;
        match first {
            Ok(receipt) => Ok(receipt),
            Err(_) => Err(FlowError::retry("the bank is closed")),
        }
    }
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("pay", "", unlucky));
    let paid = instance().await.call("pay", to_rome()).await.asked().accept("confirm", json!({"confirm": true}));
    assert_eq!(paid.send(&instance().await).await.error()["data"]["reason"], "retry");
    assert_eq!(paid.send(&instance().await).await.text(), "charge 1");
}

/// Nothing has changed by the time of the retry, which would find the same record.
#[tokio::test]
async fn a_recorded_failure_that_ends_the_call_does_not_ask_for_a_retry() {
    async fn gives_up(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let away = async |airline: &Airline, _: &str| {
            airline.world.have("charge");
            Err::<(), _>(FlowError::retry("the bank is away"))
        };
        let failed = flow.try_once("charge", away).await.unwrap_err();
        if flow.confirm("Try again?").await? { Ok(String::new()) } else { Err(failed) }
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("pay", "", gives_up)).await;
    let no = client.call("pay", to_rome()).await.asked().decline("confirm");
    for _ in 0..2 {
        let leg = no.send(&client).await;
        assert_eq!(leg.error()["code"], -32603);
        assert_eq!(leg.error()["message"], "the call cannot go on: start it again");
        assert_eq!(leg.error()["data"].get("reason"), None, "{}", leg.response());
    }
    assert_eq!(fleet.world.count("charge"), 1);
}

/// An outside condition is read without `once`, and has changed on the next leg.
#[tokio::test]
async fn an_answer_is_not_read_by_a_handler_that_takes_another_way() {
    macro_rules! strays_to {
        ($name:ident, |$flow:ident| $instead:expr) => {
            async fn $name($flow: Durable<Airline>, trip: Trip) -> Result<String, FlowError> {
                if trip.to != seen() {
                    $instead;
                }
                let sure = $flow.confirm("Sure?").await?;
                $flow.once("charge", async |airline, _| airline.world.have("charge")).await?;
                Ok(format!("{sure}"))
            }
        };
    }
    // A static outside of the flow.
    static SEEN: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    fn seen() -> String {
        SEEN.lock().unwrap().clone()
    }
    strays_to!(to_an_effect, |flow| {
        flow.once("note", async |airline, _| airline.world.have("charge")).await?;
    });
    strays_to!(to_a_failure, |flow| {
        let _ = flow.try_once("note", charge).await;
    });
    strays_to!(to_a_look, |flow| flow.now()?);
    strays_to!(to_chance, |flow| flow.random()?);
    strays_to!(to_a_checkpoint, |flow| flow.checkpoint().await?);
    strays_to!(to_a_question, |flow| flow.form::<String>("Which meal?").key("meal").await?);
    strays_to!(to_the_end, |_flow| return Ok("booked".to_owned()));
    strays_to!(to_its_words, |_flow| return Err(FlowError::failed("no seats")));
    let ways = [
        durable("pay", "", to_an_effect),
        durable("pay", "", to_a_failure),
        durable("pay", "", to_a_look),
        durable("pay", "", to_chance),
        durable("pay", "", to_a_checkpoint),
        durable("pay", "", to_a_question),
        durable("pay", "", to_the_end),
        durable("pay", "", to_its_words),
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let fleet = Flights::new();
        let client = fleet.instance(way).await;
        "Rome".clone_into(&mut SEEN.lock().unwrap());
        let asked = client.call("pay", to_rome()).await.asked();
        assert_eq!(asked.keys(), ["confirm"]);
        "Paris".clone_into(&mut SEEN.lock().unwrap());
        asked.accept("confirm", json!({"confirm": true})).send(&client).await.frozen();
        assert_eq!(fleet.events.refusals(), [Refusal::Diverged], "way {n}");
        assert_eq!(fleet.world.count("charge"), 0, "way {n}");
    }
}

#[tokio::test]
async fn a_leg_that_comes_back_from_a_checkpoint_comes_to_the_checkpoint_first() {
    static SKIPS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    async fn skips(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        if !SKIPS.load(std::sync::atomic::Ordering::SeqCst) {
            flow.checkpoint().await?;
        }
        flow.once("charge", async |airline, _| airline.world.have("charge")).await?;
        Ok("paid".to_owned())
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("pay", "", skips)).await;
    let back = client.call("pay", to_rome()).await.asked().retry();
    SKIPS.store(true, std::sync::atomic::Ordering::SeqCst);
    back.send(&client).await.frozen();
    assert_eq!((fleet.events.refusals(), fleet.world.count("charge")), (vec![Refusal::Diverged], 0));
}

/// A question that is polled and dropped at once is neither asked nor recorded, on any leg.
#[tokio::test]
async fn a_question_that_is_given_up_before_it_is_sent_does_not_stand_in_the_way() {
    async fn given_up(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        for key in ["confirm", "other"] {
            tokio::select! {
                biased;
                _ = flow.confirm("Never mind?").key(key).into_future() => return Ok("asked".to_owned()),
                () = std::future::ready(()) => {}
            }
        }
        let both = flow.all((flow.confirm("One?").key("one"), flow.confirm("Two?").key("two")));
        tokio::select! {
            biased;
            _ = both => return Ok("asked".to_owned()),
            () = std::future::ready(()) => {}
        }
        let sure = flow.confirm("Sure?").await?;
        Ok(format!("{sure}"))
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("pay", "", given_up)).await;
    let asked = client.call("pay", to_rome()).await.asked();
    assert_eq!((asked.keys(), asked.message("confirm")), (vec!["confirm"], "Sure?"));
    assert_eq!(asked.accept("confirm", json!({"confirm": true})).send(&client).await.text(), "true");
}

/// The outcome of a question after an effect that cannot be recorded.
async fn refused(route: rmcp::handler::server::tool::ToolRoute<Airline>) -> String {
    let fleet = Flights::new();
    fleet.world.gate.add_permits(1);
    let client = fleet.instance(route).await;
    let leg = client.call("pay", to_rome()).await;
    assert_eq!(fleet.world.count("charge"), 1);
    leg.text()
}

macro_rules! then_asks {
    ($name:ident, |$flow:ident| $first:expr) => {
        async fn $name($flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
            let _ = $first;
            let asked = $flow.confirm("Try again?").await;
            Ok(asked.unwrap_err().to_string())
        }
    };
}

then_asks!(unfit, |flow| {
    let lost = async |airline: &Airline, _: &str| {
        airline.world.have("charge");
        Err::<(), _>(FlowError::NoBackChannel)
    };
    flow.try_once("charge", lost).await
});

then_asks!(too_large, |flow| {
    let lengthy = async |airline: &Airline, _: &str| {
        airline.world.have("charge");
        Err::<(), _>(FlowError::failed("no ".repeat(10_000)))
    };
    flow.try_once("charge", lengthy).await
});

then_asks!(unwritable, |flow| {
    let unwritable =
        async |airline: &Airline, _: &str| std::collections::HashMap::from([((airline.world.have("charge"), 0), 0)]);
    flow.once("charge", unwritable).await
});

then_asks!(dropped, |flow| {
    let slow = async |airline: &Airline, _: &str| {
        airline.world.have("charge");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        had = flow.once("charge", slow) => had.unwrap(),
        () = std::future::ready(()) => {}
    }
});

then_asks!(without_room, |flow| {
    flow.once("charge", async |airline, _| airline.world.have("charge")).await?;
    for _ in 1..64 {
        flow.now()?;
    }
    flow.now()
});

#[tokio::test]
async fn after_what_cannot_be_recorded_no_question_is_sent_and_the_handler_is_told_why() {
    let told = refused(durable("pay", "", unfit)).await;
    assert_eq!(
        told,
        "nothing can be asked after the effect `charge`, because it cannot be recorded: it failed with \"this tool has a \
         question, and this connection has no way to ask it: the client's HTTP requests have no session\"; let it fail with \
         `FlowError::failed`, `FlowError::retry` or rmcp's `ErrorData`, which can be recorded"
    );
    for (route, why) in [
        (
            durable("pay", "", too_large),
            "after the effect `charge`, because it cannot be recorded: the effect `charge` takes 300",
        ),
        (
            durable("pay", "", unwritable),
            "after the effect `charge`, because it cannot be recorded: its value cannot be written",
        ),
        (
            durable("pay", "", dropped),
            "after the effect `charge`, because it cannot be recorded: it was dropped before",
        ),
        (
            durable("pay", "", without_room),
            "this call has run 64 operations, which is the limit: do more in each, or raise `Limits::with_effects`",
        ),
    ] {
        let told = refused(route).await;
        assert!(told.contains(why), "{told}");
    }
}

/// Both questions are sent together or not at all, including the one that was open before the answer to the other
/// arrived.
#[tokio::test]
async fn an_answer_that_is_too_large_to_record_keeps_the_others_from_being_asked_again() {
    async fn both(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let both = flow.all((flow.form::<String>("One?").key("one"), flow.form::<String>("Two?").key("two"))).await;
        Ok(both.unwrap_err().to_string())
    }
    for key in ["one", "two"] {
        let fleet = Flights::new();
        let client = fleet.instance(durable("pay", "", both)).await;
        let asked = client.call("pay", to_rome()).await.asked();
        let told = asked.accept(key, json!({key: "x".repeat(20_000)})).send(&client).await.text();
        assert!(told.contains("and the limit of an entry is 16384:"), "{told}");
    }
}

#[tokio::test]
async fn a_legacy_client_is_asked_after_any_failure() {
    let fleet = Flights::new();
    for (answer, said) in [(true, "Paid: charge 1"), (false, "Not paid")] {
        fleet.world.effects.lock().unwrap().clear();
        let client = Client::legacy(fleet.server(durable("pay", "", pay))).await;
        let leg = client.start("tools/call", json!({"name": "pay", "arguments": to_rome()})).await;
        client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"again": answer}})).await;
        assert_eq!(leg.finish().await.text(), said);
    }
}

#[tokio::test]
async fn attempts_are_limited_as_all_entries_are() {
    async fn forever(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        loop {
            let closed = async |airline: &Airline, _: &str| {
                airline.world.have("charge");
                Err::<(), _>(FlowError::failed("the bank is closed"))
            };
            match flow.try_once("charge", closed).await {
                Err(FlowError::Failed(_)) => {}
                other => return Ok(other.unwrap_err().to_string()),
            }
        }
    }
    let fleet = Flights::new();
    let airline = fleet.server(durable("pay", "", forever));
    let few =
        Rounds::builder(Airline { tool_router: airline.handler().tool_router.clone(), world: fleet.world.clone() })
            .limits(Limits::default().with_effects(3, 1000))
            .build()
            .unwrap();
    let told = Client::modern(few).await.call("pay", to_rome()).await.text();
    assert_eq!(
        (told.as_str(), fleet.world.count("charge")),
        ("this call has run 3 operations, which is the limit: do more in each, or raise `Limits::with_effects`", 3)
    );
}
