//! Postgres is killed.

use crate::{
    Fleet,
    call::{Call, METRIC, asks_for_a_retry, text},
    in_time,
};

#[tokio::test]
async fn killed_and_started_it_costs_retries_and_no_flow() {
    let mut fleet = Fleet::start_on_postgres().await;
    let mut answers = Vec::new();
    for shape in ["e", "h", "i", "asked"] {
        let call = Call::weather(&format!("weather_{shape}"));
        answers.push(call.metric(&fleet.send(&call).await));
    }
    fleet.store.stop();
    for answer in &answers {
        for at in 0..3 {
            let response = in_time("a leg without Postgres", fleet.send_to(at, answer)).await.unwrap();
            assert!(asks_for_a_retry(&response), "{response}");
        }
    }
    fleet.store.start_again();
    for answer in &answers {
        assert_eq!(text(&fleet.send(answer).await), METRIC, "{answer:?}");
    }
}
