//! A durable flow, leg by leg.

use std::time::{Duration, SystemTime};

use rounds::{
    Durable, FlowError, Rounds, durable,
    observe::{Outcome, Refusal, Station},
    test::Client,
};
use serde_json::json;

use super::{Airline, Flights, Trip, World, book};

fn to_rome() -> serde_json::Value {
    json!({"to": "Rome"})
}

#[tokio::test]
async fn every_leg_may_land_on_another_instance_and_each_effect_happens_once() {
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "Book a trip", book));
    let asked = instance().await.call("book", to_rome()).await.asked();
    assert_eq!(asked.message("seat"), "Rome for 100. Which seat?");
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&instance().await).await.asked();
    assert_eq!((asked.keys(), asked.message("confirm")), (vec!["confirm"], "Pay 100?"));
    let paid = asked.accept("confirm", json!({"confirm": true}));
    assert_eq!(paid.send(&instance().await).await.text(), "seat 4C, charge 0");
    assert_eq!(paid.send(&instance().await).await.text(), "seat 4C, charge 0", "a retry gets the same reply");
    assert_eq!((fleet.world.count("quote"), fleet.world.count("charge")), (1, 1));
    let no = asked.decline("confirm").send(&instance().await).await;
    no.frozen();
}

#[tokio::test]
async fn refusals_travel_in_the_journal_like_answers() {
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "Book a trip", book)).await;
    let asked = client.call("book", to_rome()).await.asked();
    let declined = asked.decline("seat").send(&client).await;
    assert_eq!(declined.text(), "The user declined: Rome for 100. Which seat?");
    let asked = client.call("book", to_rome()).await.asked();
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    assert_eq!(asked.cancel("confirm").send(&client).await.text(), "not booked");
    assert_eq!(fleet.world.count("charge"), 0);
}

#[tokio::test]
async fn a_connection_that_closes_while_the_airline_charges_leaves_one_charge_and_the_retry_gets_the_booking() {
    async fn slow(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.confirm("Pay?").await?;
        let charge = flow
            .once("charge", async |airline, _key| {
                airline.world.pass().await;
                airline.world.have("charge")
            })
            .await?;
        Ok(format!("charge {charge}"))
    }
    let fleet = Flights::new();
    let (here, there) =
        (fleet.instance(durable("book", "", slow)).await, fleet.instance(durable("book", "", slow)).await);
    let paid = here.call("book", to_rome()).await.asked().accept("confirm", json!({"confirm": true}));
    let leg = paid.start(&here).await;
    fleet.world.reached.acquire().await.unwrap().forget();
    leg.cancel().await;
    fleet.events.until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    let retry = paid.start(&there).await;
    fleet.events.until(3, |station| *station == Station::Started).await;
    fleet.world.gate.add_permits(1);
    assert_eq!(retry.finish().await.text(), "charge 0");
    assert_eq!(fleet.world.count("charge"), 1);
}

#[tokio::test]
async fn a_leg_that_dies_after_its_effect_does_not_have_it_again() {
    async fn frail(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.confirm("Pay?").await?;
        let charge = flow.once("charge", async |airline, _key| airline.world.have("charge")).await?;
        flow.once("stumble", async |airline, _key| assert!(airline.world.have("stumble") > 0, "as the test wants it"))
            .await?;
        Ok(format!("charge {charge}"))
    }
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "", frail));
    let paid = instance().await.call("book", to_rome()).await.asked().accept("confirm", json!({"confirm": true}));
    assert_eq!(paid.send(&instance().await).await.error()["code"], -32603);
    assert_eq!(paid.send(&instance().await).await.text(), "charge 0");
    assert_eq!((fleet.world.count("charge"), fleet.world.count("stumble")), (1, 2));
}

#[tokio::test]
async fn an_effect_that_failed_is_tried_again_under_its_key() {
    async fn unlucky(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.confirm("Pay?").await?;
        flow.try_once("charge", async |airline, key| {
            airline.world.keys.lock().unwrap().push(key.to_owned());
            match airline.world.have("charge") {
                0 => Err(FlowError::retry("the bank is closed")),
                n => Ok(format!("charge {n}")),
            }
        })
        .await
    }
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "", unlucky));
    let paid = instance().await.call("book", to_rome()).await.asked().accept("confirm", json!({"confirm": true}));
    assert_eq!(paid.send(&instance().await).await.error()["data"]["reason"], "retry");
    assert_eq!(paid.send(&instance().await).await.text(), "charge 1");
    let keys = fleet.world.keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1]);
}

#[tokio::test]
async fn questions_together_are_one_round_and_may_be_answered_in_any_order() {
    async fn both(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let (seat, meal): (String, String) =
            flow.all((flow.form("Which seat?").key("seat"), flow.form("Which meal?").key("meal"))).await?;
        let sure = flow.confirm("Sure?").await?;
        Ok(format!("{seat} {meal} {sure}"))
    }
    for order in [["seat", "meal"], ["meal", "seat"]] {
        let fleet = Flights::new();
        let instance = || fleet.instance(durable("book", "", both));
        let asked = instance().await.call("book", to_rome()).await.asked();
        assert_eq!(asked.keys(), ["seat", "meal"]);
        let asked = asked.accept(order[0], json!({order[0]: order[0]})).send(&instance().await).await.asked();
        assert_eq!(asked.keys(), [order[1]]);
        let asked = asked.accept(order[1], json!({order[1]: order[1]})).send(&instance().await).await.asked();
        let done = asked.accept("confirm", json!({"confirm": true})).send(&instance().await).await;
        assert_eq!(done.text(), "seat meal true");
        assert_eq!(fleet.events.refusals(), []);
    }
}

#[tokio::test]
async fn time_and_chance_are_the_same_on_every_leg() {
    async fn look(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let (now, drawn) = (flow.now()?, flow.random()?);
        flow.confirm("Sure?").await?;
        let late = flow.now()?.duration_since(now).unwrap().as_secs();
        Ok(format!("{:?} {:?} {late}", now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), &drawn[..2]))
    }
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "", look));
    let asked = instance().await.call("book", to_rome()).await.asked();
    fleet.clock.advance(Duration::from_secs(60));
    let sure = asked.accept("confirm", json!({"confirm": true}));
    let told = sure.send(&instance().await).await.text();
    assert!(told.starts_with("1800000000 [") && told.ends_with("] 60"), "{told}");
}

#[tokio::test]
async fn a_checkpoint_puts_all_so_far_into_the_clients_hands() {
    async fn careful(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.checkpoint().await?;
        let charge = flow
            .once("charge", async |airline, _key| {
                airline.world.pass().await;
                airline.world.have("charge")
            })
            .await?;
        flow.checkpoint().await?;
        Ok(format!("charge {charge}"))
    }
    let fleet = Flights::new();
    fleet.world.gate.add_permits(10);
    let instance = || fleet.instance(durable("book", "", careful));
    let first = instance().await.call("book", to_rome()).await.asked();
    assert!(first.keys().is_empty() && first.result().get("inputRequests").is_none());
    assert_eq!(fleet.world.count("charge"), 0);
    let second = first.retry().send(&instance().await).await.asked();
    assert_eq!(fleet.world.count("charge"), 1);
    // The client never received that, and sends what it has.
    let again = first.retry().send(&instance().await).await.asked();
    assert_eq!(again.result()["requestState"], second.result()["requestState"]);
    assert_eq!(second.retry().send(&instance().await).await.text(), "charge 0");
    assert_eq!(fleet.world.count("charge"), 1);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again_three_times() {
    async fn number(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let seats: u8 = flow.form("How many?").key("seats").await?;
        Ok(format!("{seats} seats"))
    }
    let fleet = Flights::new();
    let instance = || fleet.instance(durable("book", "", number));
    let mut asked = instance().await.call("book", to_rome()).await.asked();
    for _ in 0..3 {
        asked = asked.accept("seats", json!({"seats": "many"})).send(&instance().await).await.asked();
        assert_eq!(asked.message("seats"), "How many? (`seats` must be a whole number)");
    }
    let done = asked.accept("seats", json!({"seats": 3.0})).send(&instance().await).await;
    assert_eq!(done.text(), "3 seats");
    let last = asked.accept("seats", json!({"seats": null})).send(&instance().await).await;
    last.frozen();
}

#[tokio::test]
async fn what_could_not_be_asked_stays_so_on_later_legs() {
    async fn defaulted(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let seat = flow.form("Which seat?").key("seat").or("any".to_owned()).await?;
        flow.url("Sign in", "https://example.com").await?;
        let meal = flow.form("Which meal?").key("meal").or("none".to_owned()).await?;
        Ok(format!("{seat} {meal}"))
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", defaulted)).await;
    let asked = client.declaring(json!({"elicitation": {"url": {}}})).call("book", to_rome()).await.asked();
    assert_eq!(asked.keys(), ["url"]);
    // From here on this client supports forms, but the seat is already recorded.
    let asked = asked.retry().respond("url", json!({"action": "accept"})).send(&client).await.asked();
    assert_eq!(asked.keys(), ["meal"]);
    assert_eq!(asked.accept("meal", json!({"meal": "soup"})).send(&client).await.text(), "any soup");
}

#[tokio::test]
async fn what_a_durable_handler_has_recorded_counts_while_a_push_waits() {
    let book = |flow: Durable<Airline>, _: Trip| async move {
        flow.once("quote", async |_, _| "x".repeat(10_000)).await?;
        flow.form::<String>("Which seat?").await
    };
    let server = Flights::new().server(durable("book", "", book));
    let client = Client::legacy(server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "book", "arguments": {"to": "Tokyo"}})).await;
    let pushed = client.pushed().await.unwrap();
    assert!(server.waiting_bytes() > 10_000, "{} bytes", server.waiting_bytes());
    pushed.answer(json!({"action": "accept", "content": {"answer": "1A"}})).await;
    assert_eq!(leg.finish().await.text(), "1A");
    assert_eq!(server.waiting_bytes(), 0);
}

#[tokio::test]
async fn a_legacy_client_is_asked_over_its_connection_by_the_same_code() {
    let fleet = Flights::new();
    let client = Client::legacy(fleet.server(durable("book", "Book a trip", book))).await;
    let leg = client.start("tools/call", json!({"name": "book", "arguments": to_rome()})).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"seat": "4C"}})).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"confirm": true}})).await;
    assert_eq!(leg.finish().await.text(), "seat 4C, charge 0");
    assert_eq!((fleet.events.runs("book"), fleet.world.count("quote")), (1, 1));
}

#[tokio::test]
async fn the_server_is_found_inside_of_an_arc_and_another_one_is_named() {
    use rmcp::handler::server::router::tool::ToolRouter;
    let fleet = Flights::new();
    let airline = |world: &std::sync::Arc<World>| Airline {
        tool_router: ToolRouter::new().with_route(durable("book", "Book a trip", book)),
        world: world.clone(),
    };
    let client = Client::modern(Rounds::new(std::sync::Arc::new(airline(&fleet.world)))).await;
    let _ = client.call("book", to_rome()).await.asked();
    struct Wrapper(Airline);
    impl rmcp::ServerHandler for Wrapper {
        async fn call_tool(
            &self,
            request: rmcp::model::CallToolRequestParams,
            context: rmcp::service::RequestContext<rmcp::RoleServer>,
        ) -> Result<rmcp::model::CallToolResponse, rmcp::ErrorData> {
            self.0.call_tool(request, context).await
        }
    }
    let client = Client::modern(Rounds::new(Wrapper(airline(&fleet.world)))).await;
    let message = client.call("book", to_rome()).await.error()["message"].clone();
    assert!(message.as_str().unwrap().contains("pass `Rounds::new` the `durable::Airline` itself"), "{message}");
}

#[tokio::test]
async fn a_forged_journal_is_no_journal() {
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "Book a trip", book)).await;
    let asked = client.call("book", to_rome()).await.asked();
    let forged = asked.accept("confirm", json!({"confirm": true})).tamper(|state| {
        let (before, rest) = state.split_at(state.len() / 2);
        let other = if rest.starts_with('A') { 'B' } else { 'A' };
        format!("{before}{other}{}", &rest[1..])
    });
    forged.send(&client).await.frozen();
    assert_eq!(fleet.events.refusals(), [Refusal::Tampered]);
    // Answers to questions that were not asked yet do not count.
    let early = asked.accept("seat", json!({"seat": "4C"})).accept("confirm", json!({"confirm": true}));
    assert_eq!(early.send(&client).await.asked().keys(), ["confirm"]);
    assert_eq!(fleet.world.count("charge"), 0);
}

/// An effect after each answer; the last round is answered when the record of the first effect has been deleted.
#[tokio::test]
async fn the_journal_knows_an_effect_for_longer_than_the_ledger_does() {
    async fn stepwise(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let mut had = Vec::new();
        for key in ["a", "b", "c"] {
            flow.form::<String>("And?").key(key).await?;
            had.push(flow.once(key, async |airline, _key| airline.world.have(key)).await?);
        }
        Ok(format!("{had:?}"))
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("x", "", stepwise)).await;
    let mut asked = client.call("x", to_rome()).await.asked();
    assert_eq!(fleet.ledger.claims(), 0, "an open question needs no record");
    for key in ["a", "b"] {
        fleet.clock.advance(Duration::from_secs(590));
        asked = asked.accept(key, json!({key: "go on"})).send(&client).await.asked();
    }
    assert_eq!(fleet.ledger.claims(), 2, "a round and its effect, and no record of the round before");
    fleet.clock.advance(Duration::from_secs(590));
    assert_eq!(asked.accept("c", json!({"c": "go on"})).send(&client).await.text(), "[0, 0, 0]");
    assert_eq!(["a", "b", "c"].map(|key| fleet.world.count(key)), [1, 1, 1]);
}
