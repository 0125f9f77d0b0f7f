//! One event for each station of a leg, and one end for each leg.

use std::time::Duration;

use crate::common::{Desk, Visit, shop, small};
use rounds::observe::{Method, Outcome, Refusal, Station};
use serde_json::json;

fn asked(stage: &Visit) -> Station {
    let asked = |station: &Station| matches!(station, Station::Asked { .. });
    stage.events.stations().into_iter().find(asked).expect("a question")
}

#[tokio::test]
async fn a_flow_of_two_legs_a_replay_and_a_refusal_pass_their_stations_in_order() {
    use Station::*;
    let stage = Visit::of(shop()).await;
    let first = stage.order().await;
    let Asked { keys, bytes } = asked(&stage) else { unreachable!() };
    assert_eq!((keys, bytes), (vec!["size".to_owned()], first.state().len()));
    assert_eq!(stage.events.stations(), [Started, asked(&stage), Ended(Outcome::InputRequired)]);

    stage.events.clear();
    let _ = first.accept("size", small()).send(&stage.client).await.text();
    assert_eq!(
        stage.events.stations(),
        [Opened, Claimed { fence: 1 }, Answered { after: Duration::ZERO }, Started, Ended(Outcome::Complete)]
    );

    stage.events.clear();
    let _ = first.accept("size", small()).send(&stage.client).await.text();
    assert_eq!(stage.events.stations(), [Opened, Replayed, Ended(Outcome::Complete)]);

    let refused = Ended(Outcome::Error { code: -32602 });
    stage.events.clear();
    first.decline("size").send(&stage.client).await.frozen();
    assert_eq!(stage.events.stations(), [Opened, Refused(Refusal::AnsweredOtherwise), refused.clone()]);

    stage.events.clear();
    first.decline("size").with("name", json!("refund")).send(&stage.client).await.frozen();
    assert_eq!(stage.events.stations(), [Refused(Refusal::Target), refused.clone()]);

    stage.events.clear();
    first.decline("size").with("requestState", json!(7)).send(&stage.client).await.frozen();
    assert_eq!(stage.events.stations(), [Refused(Refusal::WrongType), refused]);
}

#[tokio::test]
async fn every_event_says_of_which_leg_it_is() {
    let stage = Visit::of(shop()).await;
    let first = stage.client.prompt("menu", json!({})).await.asked();
    let second = first.retry().send(&stage.client).await.asked();
    let _ = second.accept("size", small()).send(&stage.client).await.text();
    let events = stage.events.all();
    assert!(events.iter().all(|event| event.method == Method::Prompt && event.target == "menu"));
    assert!(events.iter().all(|event| event.flow.is_some() && event.flow == events[0].flow));
    let mut rounds: Vec<_> = events.iter().map(|event| event.round).collect();
    rounds.dedup();
    assert_eq!(rounds, [0, 1, 2]);
}

#[tokio::test]
async fn a_refused_state_names_its_flow_only_when_it_was_opened() {
    let stage = Visit::of(shop()).await;
    let asked = stage.order().await;
    let flow = stage.events.all()[0].flow;
    stage.events.clear();
    asked.retry().with("name", json!("refund")).send(&stage.client).await.frozen();
    assert_eq!(stage.events.all()[0].flow, flow, "the token is ours, but of another tool");
    stage.events.clear();
    asked.retry().with("requestState", json!("r1.forged")).send(&stage.client).await.frozen();
    assert_eq!(stage.events.all()[0].flow, None);
}

#[tokio::test]
async fn every_leg_ends_once_however_it_ends() {
    let desk = Desk::new(|turn| async move {
        match &*turn.target {
            "panics" => panic!("on purpose"),
            "fails" => Err(rounds::FlowError::failed("on purpose")),
            "errs" => Err(rmcp::ErrorData::resource_not_found("on purpose", None).into()),
            _ => crate::common::sell(&turn),
        }
    });
    let stage = Visit::of(desk).await;
    let mut legs = 0;
    let mut ended = |outcome: Outcome| {
        legs += 1;
        let outcomes = stage.events.outcomes();
        assert_eq!((outcomes.len(), outcomes.last()), (legs, Some(&outcome)));
    };
    let _ = stage.client.call("panics", json!({})).await;
    ended(Outcome::Panicked);
    let _ = stage.client.call("fails", json!({})).await;
    ended(Outcome::ToolError);
    let _ = stage.client.call("errs", json!({})).await;
    ended(Outcome::Error { code: -32002 });
    let _ = stage.client.declaring(json!({})).call("order", json!({})).await;
    ended(Outcome::Error { code: -32021 });
    let asked = stage.order().await;
    ended(Outcome::InputRequired);
    let _ = asked.accept("size", small()).send(&stage.client).await;
    ended(Outcome::Complete);
    let _ = asked.accept("size", small()).send(&stage.client).await;
    ended(Outcome::Complete);
    let _ = asked.cancel("size").send(&stage.client).await;
    ended(Outcome::Error { code: -32602 });
}
