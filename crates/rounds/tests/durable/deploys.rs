//! Deployments during a flow: old code that gets a new token, and new code that gets an old one.

use rounds::{
    Durable, FlowError, durable,
    format::Format,
    observe::Refusal,
    test::{Client, Replayed, journal, replay},
};
use serde_json::json;

use super::{Airline, Flights, Trip};

macro_rules! version {
    ($name:ident, |$flow:ident| $body:expr) => {
        async fn $name($flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
            $body
        }
    };
}

version!(one, |flow| {
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {seat} {sure}"))
});

version!(renamed, |flow| {
    let quote = flow.once("price", async |airline, _key| airline.world.have("quote")).await?;
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {seat} {sure}"))
});

version!(reordered, |flow| {
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {seat} {sure}"))
});

version!(ask_added, |flow| {
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    let meal: String = flow.form("Which meal?").key("meal").await?;
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {meal} {seat} {sure}"))
});

version!(ask_added_with_care, |flow| {
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    let meal: String =
        if flow.patched("meal")? { flow.form("Which meal?").key("meal").await? } else { "no meal".to_owned() };
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {meal} {seat} {sure}"))
});

version!(reworded, |flow| {
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    let seat: String = flow.form("Which seat would you like?").key("seat").await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {seat} {sure}"))
});

/// A flow of version one that has its quote and its seat, and asks for confirmation.
async fn under_way(fleet: &Flights) -> rounds::test::Retry {
    let old = fleet.instance(durable("book", "", one)).await;
    let asked = old.call("book", json!({"to": "Rome"})).await.asked();
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&old).await.asked();
    asked.accept("confirm", json!({"confirm": true}))
}

#[tokio::test]
async fn a_changed_way_ends_the_flow_with_the_frozen_error_and_has_no_effect() {
    for (changed, wanted) in [
        (durable("book", "", renamed), "the effect `price`"),
        (durable("book", "", reordered), "the question `seat`"),
        (durable("book", "", ask_added), "the question `meal`"),
    ] {
        let fleet = Flights::new();
        let sure = under_way(&fleet).await;
        let new = fleet.instance(changed).await;
        sure.send(&new).await.frozen();
        assert_eq!(fleet.events.refusals(), [Refusal::Diverged], "{wanted}");
        sure.send(&new).await.frozen();
        assert_eq!(fleet.world.count("quote"), 1, "{wanted}");
    }
}

version!(together, |flow| {
    let seat = flow.form::<String>("Which seat?").key("seat");
    let (seat, meal) = flow.all((seat, flow.form::<String>("Which meal?").key("meal"))).await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{seat} {meal} {sure}"))
});

version!(together_reworded, |flow| {
    let seat = flow.form::<String>("Which seat would you like?").key("seat");
    let (seat, meal) = flow.all((seat, flow.form::<String>("Which meal?").key("meal"))).await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{seat} {meal} {sure}"))
});

#[tokio::test]
async fn a_question_among_others_that_was_answered_and_is_reworded_ends_the_flow_too() {
    let fleet = Flights::new();
    let old = fleet.instance(durable("book", "", together)).await;
    let asked = old.call("book", json!({"to": "Rome"})).await.asked();
    let both = asked.accept("seat", json!({"seat": "4C"})).accept("meal", json!({"meal": "soup"}));
    let sure = both.send(&old).await.asked().accept("confirm", json!({"confirm": true}));
    let new = fleet.instance(durable("book", "", together_reworded)).await;
    let told = sure.send(&new).await.error()["message"].clone();
    assert!(told.as_str().unwrap().starts_with("the question `seat` has changed"), "{told}");
}

#[tokio::test]
async fn a_guarded_change_leaves_flows_under_way_as_they_were_and_reaches_new_ones() {
    let fleet = Flights::new();
    let sure = under_way(&fleet).await;
    let new = fleet.instance(durable("book", "", ask_added_with_care)).await;
    assert_eq!(sure.send(&new).await.text(), "0 no meal 4C true");
    // Also a flow whose next question is still open: it was past the change when it asked.
    let old = fleet.instance(durable("book", "", one)).await;
    let asked = old.call("book", json!({"to": "Rome"})).await.asked();
    let asked = asked.accept("seat", json!({"seat": "2B"})).send(&new).await.asked();
    assert_eq!(asked.keys(), ["confirm"]);
    assert_eq!(asked.accept("confirm", json!({"confirm": true})).send(&new).await.text(), "1 no meal 2B true");
    let asked = new.call("book", json!({"to": "Rome"})).await.asked();
    assert_eq!(asked.keys(), ["meal"]);
    let asked = asked.accept("meal", json!({"meal": "soup"})).send(&new).await.asked();
    let asked = asked.accept("seat", json!({"seat": "1A"})).send(&new).await.asked();
    assert_eq!(asked.accept("confirm", json!({"confirm": true})).send(&new).await.text(), "2 soup 1A true");
    // Old code that gets a new token finds an entry that it does not know.
    let asked = new.call("book", json!({"to": "Rome"})).await.asked();
    let old = fleet.instance(durable("book", "", one)).await;
    asked.accept("meal", json!({"meal": "soup"})).send(&old).await.frozen();
    assert_eq!(fleet.events.refusals(), [Refusal::Diverged]);
}

#[tokio::test]
async fn a_question_that_was_reworded_ends_the_flow_by_its_name_whether_it_is_open_or_answered() {
    let fleet = Flights::new();
    let new = fleet.instance(durable("book", "", reworded)).await;
    let old = fleet.instance(durable("book", "", one)).await;
    let open = old.call("book", json!({"to": "Rome"})).await.asked().accept("seat", json!({"seat": "4C"}));
    for answered in [open, under_way(&fleet).await] {
        for _ in 0..2 {
            let error = answered.send(&new).await.error().clone();
            assert_eq!(error["code"], -32603);
            let told = error["message"].as_str().unwrap();
            assert!(told.starts_with("the question `seat` has changed since it was asked"), "{told}");
        }
        assert_eq!(answered.send(&old).await.error()["code"], -32603, "the flow has ended");
    }
    assert_eq!((fleet.world.count("quote"), fleet.events.refusals()), (2, vec![]));
}

version!(shortened, |flow| {
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    Ok(format!("{quote}"))
});

version!(charged, |flow| {
    let quote = flow.once("quote", async |airline, _key| airline.world.have("quote")).await?;
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let charge = flow.once("charge", async |airline, _key| airline.world.have("charge")).await?;
    Ok(format!("{quote} {seat} {charge}"))
});

#[tokio::test]
async fn instances_continue_flows_of_either_format() {
    for formats in [[Format::Previous, Format::Current], [Format::Current, Format::Previous]] {
        let mut fleet = Flights { format: formats[0], ..Flights::new() };
        let first = fleet.instance(durable("book", "", one)).await;
        fleet.format = formats[1];
        let second = fleet.instance(durable("book", "", one)).await;
        let asked = first.call("book", json!({"to": "Rome"})).await.asked();
        let asked = asked.accept("seat", json!({"seat": "4C"})).send(&second).await.asked();
        let booked = asked.accept("confirm", json!({"confirm": true})).send(&first).await;
        assert_eq!(booked.text(), "0 4C true");
        assert_eq!((fleet.world.count("quote"), fleet.events.refusals()), (1, vec![]));
    }
}

/// The journal of a flow of version one that has its quote and its seat.
async fn saved(fleet: &Flights) -> String {
    let server = fleet.server(durable("book", "", one));
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
    journal(&server, asked.state())
}

#[tokio::test]
async fn a_saved_journal_tells_before_a_deploy_what_becomes_of_flows_under_way() {
    // Only the current format keeps the texts of questions.
    for (format, seat) in
        [(Format::Previous, "the question `seat`"), (Format::Current, r#"the question `seat`, "Which seat?""#)]
    {
        replay_every_version(&Flights { format, ..Flights::new() }, seat).await;
    }
}

async fn replay_every_version(fleet: &Flights, seat: &str) {
    let saved = saved(fleet).await;
    let to_rome = || json!({"to": "Rome"});
    let diverged = |position, recorded: &str, wanted: &str| Replayed::Diverged {
        position,
        recorded: recorded.to_owned(),
        wanted: wanted.to_owned(),
    };
    let confirm = || Replayed::Asks(vec!["confirm".to_owned()]);
    for (today, becomes) in [
        (durable("book", "", one), confirm()),
        (durable("book", "", renamed), diverged(0, "the effect `quote`", "the effect `price`")),
        (durable("book", "", reordered), diverged(0, "the effect `quote`", "the question `seat`")),
        (durable("book", "", ask_added), diverged(1, "the question `seat`", "the question `meal`")),
        (durable("book", "", ask_added_with_care), confirm()),
        (durable("book", "", reworded), diverged(1, seat, r#"the question `seat`, "Which seat would you like?""#)),
        (durable("book", "", shortened), diverged(1, "the question `seat`", "its end")),
        (durable("book", "", charged), diverged(2, "the question `confirm`", "the effect `charge`")),
    ] {
        assert_eq!(replay(&fleet.server(today), "book", to_rome(), &saved).await, becomes);
    }
    // Nothing is open in a flow that returned from a checkpoint.
    let back = format!("{}\"open\":[]}}", saved.split("\"open\"").next().unwrap());
    let live = replay(&fleet.server(durable("book", "", charged)), "book", to_rome(), &back).await;
    assert_eq!(live, Replayed::Live { effect: "charge".to_owned() });
    assert_eq!((fleet.world.count("quote"), fleet.world.count("charge")), (1, 0), "a replay runs no effects");
    assert_eq!(fleet.server(durable("book", "", one)).waiting_calls(), 0);
}

#[tokio::test]
async fn a_replay_comes_to_the_end_of_a_handler_that_has_nothing_more_to_do() {
    let fleet = Flights::new();
    let nothing = r#"{"version":1,"entries":[{"Once":{"name":"quote","value":"100"}}],"open":[]}"#;
    let replayed = replay(&fleet.server(durable("book", "", shortened)), "book", json!({"to": "Rome"}), nothing).await;
    assert_eq!(replayed, Replayed::Ended);
}

#[tokio::test]
async fn a_page_to_visit_is_known_again_in_a_replay() {
    version!(signed_in, |flow| {
        flow.url("Sign in", "https://example.com").await?;
        let sure = flow.confirm("Sure?").await?;
        Ok(format!("{sure}"))
    });
    let fleet = Flights::new();
    let server = fleet.server(durable("book", "", signed_in));
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    let asked = asked.retry().respond("url", json!({"action": "accept"})).send(&client).await.asked();
    let replayed = replay(&server, "book", json!({"to": "Rome"}), &journal(&server, asked.state())).await;
    assert_eq!(replayed, Replayed::Asks(vec!["confirm".to_owned()]));
}

#[tokio::test]
async fn a_handler_that_ends_before_its_journal_does_is_refused() {
    let fleet = Flights::new();
    let sure = under_way(&fleet).await;
    let new = fleet.instance(durable("book", "", shortened)).await;
    sure.send(&new).await.frozen();
    assert_eq!(fleet.events.refusals(), [Refusal::Diverged]);
}

version!(retyped, |flow| {
    let quote: String = flow.once("quote", async |_airline, _key| String::new()).await?;
    let seat: String = flow.form("Which seat?").key("seat").await?;
    let sure = flow.confirm("Sure?").await?;
    Ok(format!("{quote} {seat} {sure}"))
});

#[tokio::test]
async fn a_value_that_has_another_type_now_is_refused_and_a_rollback_goes_on() {
    let fleet = Flights::new();
    let sure = under_way(&fleet).await;
    sure.send(&fleet.instance(durable("book", "", retyped)).await).await.frozen();
    assert_eq!(fleet.events.refusals(), [Refusal::HandlerState]);
    let old = fleet.instance(durable("book", "", one)).await;
    assert_eq!(sure.send(&old).await.text(), "0 4C true");
}

#[tokio::test]
#[should_panic(expected = "could not read the call or its journal")]
async fn a_replay_tells_of_a_value_that_has_another_type_now() {
    let fleet = Flights::new();
    let saved = saved(&fleet).await;
    replay(&fleet.server(durable("book", "", retyped)), "book", json!({"to": "Rome"}), &saved).await;
}
