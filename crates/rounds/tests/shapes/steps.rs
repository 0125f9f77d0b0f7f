//! Steps: each asks or gives its value, each sees the earlier values, and the finish runs once.

use rmcp::{handler::server::tool::ToolRoute, schemars};
use rounds::{
    Era, FlowError, Legacy, Steps,
    asked::DeclaredQuestion,
    steps::{Refused, StepsError},
    test::Client,
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Shop, Stage, Units, accept};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Trip {
    to: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Class {
    Saver,
    Flex,
}

/// A class, a price that is never asked for, a seat that only some may choose, and a confirmation.
fn book() -> ToolRoute<Shop> {
    Steps::<Shop, Trip>::new("book", "Books a trip")
        .step("class", async |step, ()| {
            step.server().count("class");
            Ok(DeclaredQuestion::form(format!("To {} in which class?", step.arguments().to)))
        })
        .step("price", async |step, (class,)| {
            step.server().count("price");
            let factor = if class == Class::Flex { 2 } else { 1 };
            Ok(DeclaredQuestion::known(step.server().price() * factor))
        })
        .maybe("seat", async |step, (class, _price)| {
            step.server().count("seat");
            Ok((class == Class::Flex).then(|| DeclaredQuestion::form("Which seat?")))
        })
        .step("agreed", async |step, (_, price, seat): (Class, u32, Option<String>)| {
            step.server().count("agreed");
            Ok(DeclaredQuestion::form(format!("Pay {price} for seat {}?", seat.as_deref().unwrap_or("any"))))
        })
        .finish(async |step, (class, price, seat, agreed): (Class, u32, Option<String>, bool)| {
            step.server().count("finish");
            Ok(format!("{}: {class:?} {price} {seat:?} {agreed}", step.arguments().to))
        })
        .build()
        .unwrap()
}

fn stage() -> Stage<Shop> {
    let stage = Shop::stage_of(book());
    stage.server.handler().set_price(10);
    stage
}

#[tokio::test]
async fn three_questions_are_three_rounds_and_the_finish_runs_once_with_types() {
    let stage = stage();
    let client = stage.modern().await;
    let class = client.call("book", json!({"to": "Rome"})).await.asked();
    assert_eq!(class.message("class"), "To Rome in which class?");
    let seat = class.accept("class", json!({"class": "flex"})).send(&client).await.asked();
    assert_eq!(seat.message("seat"), "Which seat?");
    // A recorded value does not change, whatever the shop's price is now.
    stage.server.handler().set_price(99);
    let agreed = seat.accept("seat", json!({"seat": "12A"})).send(&client).await.asked();
    assert_eq!(agreed.message("agreed"), "Pay 20 for seat 12A?");
    assert_eq!(stage.handler().counted("finish"), 0);
    for _ in 0..2 {
        let done = agreed.accept("agreed", json!({"agreed": true})).send(&client).await;
        assert_eq!(done.text(), r#"Rome: Flex 20 Some("12A") true"#);
    }
    for step in ["class", "price", "seat", "agreed", "finish"] {
        assert_eq!(stage.handler().counted(step), 1, "{step} ran once: a step with a value does not run again");
    }
}

#[tokio::test]
async fn a_step_is_skipped_because_of_an_earlier_answer() {
    let stage = stage();
    let client = stage.modern().await;
    let class = client.call("book", json!({"to": "Rome"})).await.asked();
    let agreed = class.accept("class", json!({"class": "saver"})).send(&client).await.asked();
    assert_eq!(agreed.message("agreed"), "Pay 10 for seat any?");
    assert_eq!(
        agreed.accept("agreed", json!({"agreed": false})).send(&client).await.text(),
        "Rome: Saver 10 None false"
    );
    assert_eq!(stage.handler().counted("seat"), 1, "the last leg knows that it was skipped");
}

#[tokio::test]
async fn no_client_can_answer_a_step_that_was_not_asked() {
    let stage = stage();
    let client = stage.modern().await;
    let all = json!({
        "class": accept(json!({"class": "flex"})), "price": accept(json!({"price": 0})),
        "seat": accept(json!({"seat": "1A"})), "agreed": accept(json!({"agreed": true})),
    });
    let uninvited = json!({"name": "book", "arguments": {"to": "Rome"}, "inputResponses": all});
    let class = client.request("tools/call", uninvited).await.asked();
    assert_eq!(class.keys(), ["class"]);
    let mut ahead = class.accept("class", json!({"class": "flex"}));
    for key in ["price", "seat", "agreed"] {
        ahead = ahead.accept(key, all[key]["content"].clone());
    }
    let seat = ahead.send(&client).await.asked();
    assert_eq!((seat.keys(), stage.handler().counted("finish")), (vec!["seat"], 0));
    let agreed = seat.accept("seat", json!({"seat": "1A"})).send(&client).await.asked();
    assert_eq!(agreed.message("agreed"), "Pay 20 for seat 1A?", "the price is that of the shop");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again_three_times() {
    let stage = stage();
    let client = stage.modern().await;
    let mut class = client.call("book", json!({"to": "Rome"})).await.asked();
    for _ in 0..3 {
        class = class.accept("class", json!({"class": "royal"})).send(&client).await.asked();
        assert_eq!(class.message("class"), "To Rome in which class? (`class` must be one of saver, flex)");
    }
    assert!(class.accept("class", json!({"class": "royal"})).send(&client).await.is_tool_error());
    assert_eq!(stage.handler().counted("finish"), 0);
}

#[tokio::test]
async fn a_refused_step_ends_the_call_in_words_or_by_the_rule_of_its_author() {
    let stage = stage();
    let client = stage.modern().await;
    let class = client.call("book", json!({"to": "Rome"})).await.asked();
    let ended = class.decline("class").send(&client).await;
    assert_eq!(ended.text(), "The user declined: To Rome in which class?");
    assert!(ended.is_tool_error());

    let ruled = Steps::<Shop, Trip>::new("ruled", "")
        .step::<Units, _, _>("units", async |_, ()| Ok(DeclaredQuestion::form("Which units?")))
        .refused(async |_, step: String, how| {
            Ok(match how {
                Refused::Declined => text(format!("no {step}")),
                Refused::Cancelled => text(format!("{step} left open")),
            })
        })
        .finish(async |step, (_,)| {
            step.server().count("finish");
            Ok("done".to_owned())
        });
    let stage = Shop::stage_of(ruled.build().unwrap());
    let client = stage.modern().await;
    let units = client.call("ruled", json!({"to": "Rome"})).await.asked();
    let ended = units.decline("units").send(&client).await;
    assert_eq!((ended.text(), ended.is_tool_error()), ("no units".to_owned(), false));
    let units = client.call("ruled", json!({"to": "Rome"})).await.asked();
    assert_eq!(units.cancel("units").send(&client).await.text(), "units left open");
    assert_eq!(stage.handler().counted("finish"), 0);
}

/// The question is built once more, only to be named in the refusal.
#[tokio::test]
async fn a_person_who_said_no_said_no_whatever_the_step_comes_to_by_then() {
    let away = Steps::<Shop, Trip>::new("away", "")
        .step::<Units, _, _>("units", async |step, ()| {
            step.server().count("units");
            match step.server().counts.lock().unwrap()["units"] {
                1 => Ok(DeclaredQuestion::form("Which units?")),
                _ => Err(FlowError::failed("The catalogue is away.")),
            }
        })
        .finish(async |_, _| Ok("never".to_owned()));
    let stage = Shop::stage_of(away.build().unwrap());
    let client = stage.modern().await;
    let units = client.call("away", json!({"to": "Rome"})).await.asked();
    assert_eq!(units.decline("units").send(&client).await.text(), "The user declined: units");
}

#[test]
fn two_steps_of_one_name_make_no_tool() {
    let twice = Steps::<Shop, Trip>::new("twice", "")
        .step::<Units, _, _>("units", async |_, ()| Ok(DeclaredQuestion::form("Which units?")))
        .step::<Units, _, _>("units", async |_, _| Ok(DeclaredQuestion::form("Which units?")))
        .finish(async |_, _| Ok("never".to_owned()));
    let error = twice.build().unwrap_err();
    assert_eq!(error, StepsError::DuplicateStep { tool: "twice".to_owned(), step: "units".to_owned() });
    assert_eq!(error.to_string(), "two steps of `twice` are named `units`: give each its own name");

    let list = Steps::<Shop, Vec<String>>::new("list", "")
        .step::<Units, _, _>("units", async |_, ()| Ok(DeclaredQuestion::form("Which units?")))
        .finish(async |_, _| Ok("never".to_owned()));
    assert!(matches!(list.build().unwrap_err(), StepsError::Arguments { tool, .. } if tool == "list"));
}

#[tokio::test]
async fn a_step_that_fails_ends_the_call_with_its_words() {
    let failing = Steps::<Shop, Trip>::new("failing", "")
        .step::<Units, _, _>("units", async |step, ()| {
            Err(FlowError::failed(format!("No flight goes to {}.", step.arguments().to)))
        })
        .finish(async |_, _| Ok("never".to_owned()));
    let stage = Shop::stage_of(failing.build().unwrap());
    let ended = stage.modern().await.call("failing", json!({"to": "Rome"})).await;
    assert_eq!((ended.text(), ended.is_tool_error()), ("No flight goes to Rome.".to_owned(), true));
}

#[tokio::test]
async fn an_effect_of_a_finish_that_is_tried_again_happens_once() {
    let flaky = Steps::<Shop, Trip>::new("flaky", "")
        .step::<Units, _, _>("units", async |_, ()| Ok(DeclaredQuestion::form("Which units?")))
        .finish(async |step, _| {
            step.once("charge", async || step.server().count("charge")).await?;
            step.server().count("finish");
            match step.server().counts.lock().unwrap()["finish"] {
                1 => Err(FlowError::retry("the printer is away")),
                _ => Ok("printed".to_owned()),
            }
        });
    let stage = Shop::stage_of(flaky.build().unwrap());
    let client = stage.modern().await;
    let units = client.call("flaky", json!({"to": "Rome"})).await.asked();
    let answer = units.accept("units", json!({"units": "metric"}));
    assert_eq!(answer.send(&client).await.error()["data"]["reason"], "retry");
    assert_eq!(answer.send(&client).await.text(), "printed");
    assert_eq!((stage.handler().counted("charge"), stage.handler().counted("finish")), (1, 2));
}

#[tokio::test]
async fn a_client_of_the_legacy_era_is_told_so_gets_a_default_or_is_pushed_to() {
    let client = stage().legacy().await;
    let told = client.call("book", json!({"to": "Rome"})).await;
    assert!(told.is_tool_error() && told.text().contains("before 2026-07-28"), "{}", told.text());

    let with_default = || {
        Steps::<Shop, Trip>::new("units", "")
            .step("units", async |_, ()| Ok(DeclaredQuestion::form("Which units?").or(Units::Metric)))
            .finish(async |_, (units,)| Ok(format!("{units:?}")))
            .build()
            .unwrap()
    };
    let stage = Shop::stage_of(with_default());
    assert_eq!(stage.legacy().await.call("units", json!({"to": "Rome"})).await.text(), "Metric");
    let cannot = Client::connect(stage.server.clone(), Era::Modern, json!({})).await;
    assert_eq!(cannot.call("units", json!({"to": "Rome"})).await.text(), "Metric");

    let router = rmcp::handler::server::router::tool::ToolRouter::new().with_route(book());
    let shop = Shop { tool_router: router, ..Shop::default() };
    shop.set_price(10);
    let stage = Stage::with(shop, |builder| builder.legacy(Legacy::push()));
    let client = stage.legacy().await;
    let leg = client.start("tools/call", json!({"name": "book", "arguments": {"to": "Rome"}})).await;
    for answer in [json!({"class": "royal"}), json!({"class": "flex"}), json!({"seat": "12A"}), json!({"agreed": true})]
    {
        client.pushed().await.unwrap().answer(accept(answer)).await;
    }
    assert_eq!(leg.finish().await.text(), r#"Rome: Flex 20 Some("12A") true"#);
    assert_eq!((stage.handler().counted("price"), stage.handler().counted("finish")), (1, 1));
}

/// A charge that fails at first, a question whether to try again, and a finish that tries again.
fn pay() -> ToolRoute<Shop> {
    async fn charge(step: &rounds::steps::Step<Shop, Trip>) -> Result<String, FlowError> {
        let attempt = async || {
            step.server().count("charge");
            step.server().count(&step.once_key("charge"));
            match step.server().price() {
                0 => Err(FlowError::failed("the bank is closed")),
                price => Ok(format!("paid {price}")),
            }
        };
        step.try_once("charge", attempt).await
    }
    Steps::<Shop, Trip>::new("pay", "Pays for a trip")
        .step("again", async |step, ()| match charge(&step).await {
            Ok(_) => Ok(DeclaredQuestion::known(true)),
            Err(failed) => Ok(DeclaredQuestion::form(format!("{failed}. Try again?"))),
        })
        .step("sure", async |_, (_again,): (bool,)| Ok(DeclaredQuestion::form("Sure?")))
        .finish(
            async |step, (again, _sure): (bool, bool)| {
                if again { charge(&step).await } else { Ok("not paid".to_owned()) }
            },
        )
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_no_after_a_charge_that_failed_in_a_step_is_a_no() {
    let yes = |key: &str| json!({key: true});
    for again in [json!({"action": "decline"}), json!({"action": "cancel"}), accept(json!({"again": false}))] {
        let stage = Shop::stage_of(pay());
        let client = stage.modern().await;
        let asked = client.call("pay", json!({"to": "Rome"})).await.asked();
        assert_eq!(asked.message("again"), "the bank is closed. Try again?");
        stage.server.handler().set_price(10);
        let mut leg = asked.retry().respond("again", again.clone()).send(&client).await;
        if again["action"] == "accept" {
            leg = leg.asked().accept("sure", yes("sure")).send(&client).await;
            assert_eq!(leg.text(), "not paid");
        } else {
            assert!(leg.text().ends_with("the bank is closed. Try again?"), "{}", leg.text());
        }
        assert_eq!(stage.handler().counted("charge"), 1);
    }
}

#[tokio::test]
async fn a_yes_after_a_charge_that_failed_in_a_step_is_one_more_attempt_with_the_same_key() {
    let stage = Shop::stage_of(pay());
    let client = stage.modern().await;
    let asked = client.call("pay", json!({"to": "Rome"})).await.asked();
    stage.server.handler().set_price(10);
    // After an answer that does not fit, the step runs again, and its charge fails in the same way.
    let asked = asked.accept("again", json!({"again": "maybe"})).send(&client).await.asked();
    assert_eq!(stage.handler().counted("charge"), 1);
    let sure = asked.accept("again", json!({"again": true})).send(&client).await.asked();
    assert_eq!(stage.handler().counted("charge"), 1, "the finish has not run yet");
    let done = sure.accept("sure", json!({"sure": true}));
    for _ in 0..2 {
        assert_eq!(done.send(&client).await.text(), "paid 10");
    }
    assert_eq!(stage.handler().counted("charge"), 2);
    assert_eq!(stage.server.handler().counts.lock().unwrap().len(), 2, "both have one key");
}

#[tokio::test]
async fn a_charge_that_succeeds_in_a_step_is_not_made_again_in_the_finish() {
    let stage = Shop::stage_of(pay());
    stage.server.handler().set_price(7);
    let client = stage.modern().await;
    let sure = client.call("pay", json!({"to": "Rome"})).await.asked();
    assert_eq!(sure.keys(), ["sure"]);
    assert_eq!(sure.accept("sure", json!({"sure": true})).send(&client).await.text(), "paid 7");
    assert_eq!(stage.handler().counted("charge"), 1);
}

#[tokio::test]
async fn a_step_after_what_cannot_be_recorded_is_not_asked() {
    let route = Steps::<Shop, Trip>::new("pay", "Pays for a trip")
        .step("again", async |step, ()| {
            let odd = async || Err::<(), _>(FlowError::NoBackChannel);
            let _ = step.try_once("charge", odd).await;
            Ok(DeclaredQuestion::<bool>::form("Try again?"))
        })
        .finish(async |_, _: (bool,)| Ok("paid".to_owned()))
        .build()
        .unwrap();
    let leg = Shop::stage_of(route).modern().await.call("pay", json!({"to": "Rome"})).await;
    let told = leg.error()["message"].as_str().unwrap();
    assert!(told.starts_with("nothing can be asked after the effect `charge`"), "{told}");
}
