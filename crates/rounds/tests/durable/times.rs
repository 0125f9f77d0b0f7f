//! Questions with their own timeout.

use std::time::Duration;

use rounds::{Durable, FlowError, durable, test::Client};
use serde_json::{Value, json};

use super::{Airline, Flights, Trip};

const EXPIRES: &str = "rounds/expiresInMs";

fn to_rome() -> Value {
    json!({"to": "Rome"})
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A hold that lasts for half a minute, and a seat that lasts as long as a round.
async fn hold(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
    let held = flow.confirm("Hold it?").key("hold").within(secs(30)).await;
    let held = match held {
        Err(FlowError::NotInTime { question }) => format!("too late for: {question}"),
        other => other?.to_string(),
    };
    let seat: String = flow.form(format!("{held}. Which seat?")).key("seat").await?;
    flow.once("book", async |airline, _| airline.world.have("book")).await?;
    Ok(format!("{held}, {seat}"))
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_not_taken_on_any_later_leg() {
    for (after, held) in [(29, "true"), (30, "too late for: Hold it?"), (599, "too late for: Hold it?")] {
        let fleet = Flights::new();
        let instance = || fleet.instance(durable("book", "", hold));
        let asked = instance().await.call("book", to_rome()).await.asked();
        assert_eq!(asked.result()["_meta"][EXPIRES], json!(30_000));
        fleet.clock.advance(secs(after));
        let yes = asked.accept("hold", json!({"hold": true}));
        let seat = yes.send(&instance().await).await.asked();
        assert_eq!(seat.message("seat"), format!("{held}. Which seat?"), "after {after} s");
        assert_eq!(seat.result()["_meta"][EXPIRES], json!(600_000));
        // A retry, and a leg that replays it.
        fleet.clock.advance(secs(40));
        if after < 500 {
            assert_eq!(yes.send(&instance().await).await.asked().state(), seat.state());
        }
        let done = seat.accept("seat", json!({"seat": "4C"})).send(&instance().await).await;
        assert_eq!((done.text(), fleet.world.count("book")), (format!("{held}, 4C"), 1));
        assert_eq!(fleet.events.refusals(), []);
    }
}

#[tokio::test]
async fn a_question_whose_time_is_over_is_not_asked_again() {
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", hold)).await;
    let asked = client.call("book", to_rome()).await.asked();
    fleet.clock.advance(secs(31));
    assert_eq!(asked.retry().send(&client).await.asked().message("seat"), "too late for: Hold it?. Which seat?");
    let asked = client.call("book", to_rome()).await.asked();
    fleet.clock.advance(secs(31));
    let misfit = asked.accept("hold", json!({"hold": "perhaps"}));
    assert_eq!(misfit.send(&client).await.asked().keys(), ["seat"]);
}

#[tokio::test]
async fn asking_again_gives_no_more_time() {
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "", hold));
    let asked = instance().await.call("book", to_rome()).await.asked();
    fleet.clock.advance(secs(10));
    let asked = asked.accept("hold", json!({"hold": "perhaps"})).send(&instance().await).await.asked();
    assert_eq!((asked.keys(), &asked.result()["_meta"][EXPIRES]), (vec!["hold"], &json!(20_000)));
    fleet.clock.advance(secs(10));
    let asked = asked.retry().send(&instance().await).await.asked();
    assert_eq!((asked.keys(), &asked.result()["_meta"][EXPIRES]), (vec!["hold"], &json!(10_000)));
    fleet.clock.advance(secs(10));
    let seat = asked.accept("hold", json!({"hold": true})).send(&instance().await).await.asked();
    assert_eq!(seat.message("seat"), "too late for: Hold it?. Which seat?");
}

#[tokio::test]
async fn a_patient_question_lets_its_round_live_longer() {
    async fn patient(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        Ok(flow.confirm("Sure?").within(secs(1800)).await?.to_string())
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", patient)).await;
    let asked = client.call("book", to_rome()).await.asked();
    assert_eq!(asked.result()["_meta"][EXPIRES], json!(1_800_000));
    fleet.clock.advance(secs(1799));
    assert_eq!(asked.accept("confirm", json!({"confirm": true})).send(&client).await.text(), "true");
}

/// Two questions at the same time. One has a shorter timeout, and a default value.
async fn both(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
    let meal = flow.form::<String>("Which meal?").key("meal").within(secs(30)).or("none".to_owned());
    let (seat, meal) = flow.all((flow.form::<String>("Which seat?").key("seat"), meal)).await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{seat} {meal} {sure}"))
}

#[tokio::test]
async fn with_two_questions_each_is_told_its_own_time_and_only_one_is_too_late() {
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "", both));
    let own = |asked: &rounds::test::AskedRound, key: &str| asked.question(key)["params"]["_meta"][EXPIRES].clone();
    for (after, meal) in [(29, "soup"), (30, "none")] {
        let asked = instance().await.call("book", to_rome()).await.asked();
        assert_eq!(asked.result()["_meta"][EXPIRES], json!(600_000), "the round is not shortened");
        assert_eq!((own(&asked, "meal"), own(&asked, "seat")), (json!(30_000), Value::Null));
        fleet.clock.advance(secs(after));
        let answers = asked.accept("seat", json!({"seat": "4C"})).accept("meal", json!({"meal": "soup"}));
        let sure = answers.send(&instance().await).await.asked();
        let done = sure.accept("confirm", json!({"confirm": true})).send(&instance().await).await;
        assert_eq!(done.text(), format!("4C {meal} true"));
    }
    // The remaining question carries the rest of its time.
    let asked = instance().await.call("book", to_rome()).await.asked();
    fleet.clock.advance(secs(10));
    let meal = asked.accept("seat", json!({"seat": "4C"})).send(&instance().await).await.asked();
    assert_eq!((meal.keys(), &meal.result()["_meta"][EXPIRES]), (vec!["meal"], &json!(20_000)));
    assert_eq!(own(&meal, "meal"), Value::Null, "it is the lifetime of the round");
    fleet.clock.advance(secs(20));
    let sure = meal.accept("meal", json!({"meal": "soup"})).send(&instance().await).await.asked();
    assert_eq!(sure.accept("confirm", json!({"confirm": true})).send(&instance().await).await.text(), "4C none true");
}

#[tokio::test]
async fn a_value_for_a_question_stands_in_for_its_time_and_not_for_a_no() {
    async fn meal(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.form("Which meal?").key("meal").within(secs(30)).or("none".to_owned()).await
    }
    async fn argument(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.form("Which meal?").key("meal").within(secs(30)).or_argument("to").await
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", meal)).await;
    let asked = client.call("book", to_rome()).await.asked();
    assert_eq!(asked.decline("meal").send(&client).await.text(), "The user declined: Which meal?");
    let asked = client.call("book", to_rome()).await.asked();
    fleet.clock.advance(secs(30));
    assert_eq!(asked.decline("meal").send(&client).await.text(), "none", "this refusal arrived too late");
    let client = fleet.instance(durable("book", "", argument)).await;
    let asked = client.call("book", to_rome()).await.asked();
    fleet.clock.advance(secs(30));
    let late = asked.accept("meal", json!({"meal": "soup"})).send(&client).await;
    assert_eq!(
        late.text(),
        "The user did not answer in time: Which meal?",
        "the model does not answer for the user then"
    );
}

#[tokio::test]
async fn a_legacy_client_that_takes_too_long_gets_the_value() {
    let fleet = Flights::new();
    let client = Client::legacy(fleet.server(durable("book", "", both))).await;
    let leg = client.start("tools/call", json!({"name": "book", "arguments": to_rome()})).await;
    let first = client.pushed().await.unwrap();
    let second = client.pushed().await.unwrap();
    let (seat, _meal) = if first.params()["message"] == "Which seat?" { (first, second) } else { (second, first) };
    seat.answer(json!({"action": "accept", "content": {"seat": "4C"}})).await;
    fleet.clock.until_asleep(2).await;
    fleet.clock.advance(secs(30));
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"confirm": true}})).await;
    assert_eq!(leg.finish().await.text(), "4C none true");
}
