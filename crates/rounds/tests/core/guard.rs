//! Handlers that run again for each round: what they keep, what they see, and what the library does for them.

use crate::common::{Desk, Reply, Visit};
use rounds::{Given, test::Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Basket {
    items: Vec<String>,
    paid: Option<u64>,
}

#[tokio::test]
async fn a_typed_state_is_kept_across_rounds_and_nobody_else_reads_it() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        let mut basket = round.state::<Basket>()?.unwrap_or(Basket { items: vec![], paid: None });
        if let Given::Accepted(item) = round.given::<String>("item") {
            basket.items.push(item);
        }
        if basket.items.len() < 3 {
            return round.questions().form::<String>("item", "What else?").state(&basket).send();
        }
        basket.paid = Some(7);
        Reply::text(format!("{basket:?}"))
    });
    let stage = Visit::of(desk).await;
    let mut leg = stage.client.call("shop", json!({})).await;
    for item in ["earl grey", "assam", "sencha"] {
        let asked = leg.asked();
        assert!(!asked.result().to_string().contains("grey"), "{}", asked.result());
        leg = asked.accept("item", json!({"item": item})).send(&stage.client).await;
    }
    assert_eq!(leg.text(), r#"Basket { items: ["earl grey", "assam", "sencha"], paid: Some(7) }"#);
}

#[tokio::test]
async fn a_state_that_can_no_longer_be_read_ends_the_flow_with_the_frozen_error() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match round.number() {
            0 => round.questions().state(&"the old version").send(),
            _ => Reply::text(format!("{:?}", round.state::<Basket>()?)),
        }
    });
    let stage = Visit::of(desk).await;
    stage.order().await.retry().send(&stage.client).await.frozen();
}

/// Asks its questions in order, whatever the answers are, and returns what it was given.
fn interview() -> Desk {
    Desk::new(|turn| async move {
        let round = turn.round()?;
        for key in ["one", "two", "three", "four"] {
            if matches!(round.given::<bool>(key), Given::Missing | Given::Invalid(_)) {
                return round.ask_form::<bool>(key, format!("{key}?"));
            }
        }
        let given = ["one", "two", "three", "four"].map(|key| round.given::<bool>(key));
        Reply::text(format!("{given:?}"))
    })
}

#[tokio::test]
async fn answers_of_earlier_rounds_stay_visible_and_no_declined_question_is_asked_again() {
    let stage = Visit::of(interview()).await;
    let one = stage.order().await;
    let two = one.accept("one", json!({"one": true})).send(&stage.client).await.asked();
    assert_eq!(two.keys(), ["two"]);
    let three = two.decline("two").send(&stage.client).await.asked();
    assert_eq!(three.keys(), ["three"]);
    let four = three.cancel("three").send(&stage.client).await.asked();
    assert_eq!(four.keys(), ["four"]);
    let done = four.accept("four", json!({"four": false})).send(&stage.client).await;
    assert_eq!(done.text(), "[Accepted(true), Declined, Cancelled, Accepted(false)]");
}

#[tokio::test]
async fn an_earlier_answer_cannot_be_changed_in_a_later_round() {
    let stage = Visit::of(interview()).await;
    let mut leg = stage.order().await.decline("one").send(&stage.client).await;
    for key in ["two", "three", "four"] {
        let again = leg.asked().decline(key).accept("one", json!({"one": true}));
        leg = again.send(&stage.client).await;
    }
    assert_eq!(leg.text(), "[Declined, Declined, Declined, Declined]");
}

#[tokio::test]
async fn questions_of_one_round_may_be_answered_in_part() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        let keys = ["milk", "sugar", "lemon"];
        let mut asks = round.questions();
        let mut missing = false;
        for key in keys {
            if matches!(round.given::<bool>(key), Given::Missing | Given::Invalid(_)) {
                asks = asks.form::<bool>(key, key);
                missing = true;
            }
        }
        if missing {
            return asks.send();
        }
        Reply::text(format!("{:?}", keys.map(|key| round.given::<bool>(key))))
    });
    let stage = Visit::of(desk).await;
    let asked = stage.order().await;
    assert_eq!(asked.keys(), ["milk", "sugar", "lemon"]);
    let partly = asked.decline("sugar").accept("lemon", json!({"lemon": "yes"})).accept("milk", json!({"milk": true}));
    let asked = partly.send(&stage.client).await.asked();
    assert_eq!(asked.keys(), ["lemon"], "only the invalid one, and neither the accepted nor the declined one");
    let done = asked.accept("lemon", json!({"lemon": false})).send(&stage.client).await;
    assert_eq!(done.text(), "[Accepted(true), Declined, Accepted(false)]");
}

#[tokio::test]
async fn a_question_that_is_asked_again_forgets_its_earlier_answer() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        match (round.number(), round.given::<bool>("sure")) {
            (0 | 1, _) => round.ask_form::<bool>("sure", "Really?"),
            (_, given) => Reply::text(format!("{given:?}")),
        }
    });
    let stage = Visit::of(desk).await;
    let asked = stage.order().await.accept("sure", json!({"sure": true})).send(&stage.client).await.asked();
    assert_eq!(asked.retry().send(&stage.client).await.text(), "Missing");
}

#[tokio::test]
async fn uninvited_answers_can_be_read_and_are_known_to_be_uninvited() {
    let desk = Desk::new(|turn| async move {
        let round = turn.round()?;
        let given = round.given::<bool>("sure");
        if round.solicited() {
            return Reply::text(format!("solicited {given:?} {}", round.number()));
        }
        match given {
            Given::Missing => round.ask_form::<bool>("sure", "Sure?"),
            given => Reply::text(format!("uninvited {given:?} {}", round.number())),
        }
    });
    let stage = Visit::of(desk).await;
    let uninvited = async |answer: Value| {
        let params = json!({"name": "order", "inputResponses": {"sure": answer}});
        stage.client.request("tools/call", params).await.text()
    };
    let accept = json!({"action": "accept", "content": {"sure": true}});
    assert_eq!(uninvited(accept.clone()).await, "uninvited Accepted(true) 0");
    assert_eq!(uninvited(json!({"action": "decline"})).await, "uninvited Declined 0");
    assert!(uninvited(json!({"action": "accept", "content": {"sure": 1}})).await.starts_with("uninvited Invalid"));
    let solicited = stage.client.call("order", json!({})).await.asked().retry().respond("sure", accept);
    assert_eq!(solicited.send(&stage.client).await.text(), "solicited Accepted(true) 1");
}

#[tokio::test]
async fn a_plain_rmcp_handler_gets_its_own_state_back_while_the_wire_has_only_a_token() {
    const SECRET: &str = "step=1;discount=42;unicode=é";
    for requests in [json!({"sure": {"method": "roots/list"}}), Value::Null] {
        let desk = Desk::new(move |turn| {
            let requests = requests.clone();
            async move {
                match turn.state {
                    Some(state) => Reply::text(state),
                    None => {
                        let mut asks = json!({"resultType": "input_required", "requestState": SECRET});
                        if !requests.is_null() {
                            asks["inputRequests"] = requests;
                        }
                        Reply::raw(asks)
                    }
                }
            }
        });
        let stage = Visit::of(desk).await;
        let asked = stage.order().await;
        assert!(asked.state().starts_with("r1."));
        assert!(!asked.result().to_string().contains("discount"));
        assert_eq!(asked.retry().send(&stage.client).await.text(), SECRET);
        asked.retry().with("requestState", json!(SECRET)).send(&stage.client).await.frozen();
    }
}

#[tokio::test]
async fn every_question_has_a_state_also_when_the_handler_keeps_none() {
    let stage = Visit::of(interview()).await;
    let asked = stage.order().await;
    assert!(asked.state().starts_with("r1."));
    assert_ne!(asked.state(), stage.order().await.state(), "no two are the same");
}

#[tokio::test]
async fn a_round_in_a_server_that_nobody_wrapped_says_what_to_do() {
    let client = Client::modern(interview()).await;
    let leg = client.call("order", json!({})).await;
    let message = leg.error()["message"].as_str().unwrap();
    assert!(message.contains("`Round` needs the server to be wrapped"), "{message}");
    assert!(message.contains("Rounds::new(server)"), "{message}");
}
