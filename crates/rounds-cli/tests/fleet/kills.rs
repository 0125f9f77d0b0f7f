//! Instances that are killed while flows are open.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    Fleet,
    call::{Call, METRIC, is_frozen, text},
    in_time,
};

on_every_store!(
    killed_between_legs_a_linear_flow_gets_the_frozen_error_at_once_and_a_durable_one_its_result,
    what_was_replied_before_the_kill_is_still_there_after_it,
    killed_in_the_middle_of_a_leg_nobody_hangs,
    a_flight_whose_instance_was_killed_is_booked_at_another_and_charged_once
);

async fn killed_between_legs_a_linear_flow_gets_the_frozen_error_at_once_and_a_durable_one_its_result(fleet: Fleet) {
    let linear = Call::weather("weather_h");
    let durable = Call::weather("weather_i");
    let kept = fleet.send_to(0, &linear).await.unwrap();
    let elsewhere = fleet.send_to(1, &linear).await.unwrap();
    let replayed = fleet.send_to(0, &durable).await.unwrap();
    fleet.kill(0).await;

    let began = Instant::now();
    let response = fleet.send_to(1, &linear.metric(&kept)).await.unwrap();
    assert!(is_frozen(&response), "{response}");
    assert!(began.elapsed() < Duration::from_secs(2), "a dead instance is not waited for: {:?}", began.elapsed());
    assert_eq!(text(&fleet.send_to(2, &linear.metric(&elsewhere)).await.unwrap()), METRIC);
    assert_eq!(text(&fleet.send_to(2, &durable.metric(&replayed)).await.unwrap()), METRIC);

    // An instance that is started under the same name is another instance.
    fleet.replace(0).await;
    assert!(is_frozen(&fleet.send_to(0, &linear.metric(&kept)).await.unwrap()));
    assert_eq!(text(&fleet.send_to(0, &durable.metric(&replayed)).await.unwrap()), METRIC);
}

async fn what_was_replied_before_the_kill_is_still_there_after_it(fleet: Fleet) {
    let call = Call::weather("weather_h");
    let answer = call.metric(&fleet.send_to(0, &call).await.unwrap());
    assert_eq!(text(&fleet.send_to(0, &answer).await.unwrap()), METRIC);
    fleet.kill(0).await;
    for at in [1, 2] {
        assert_eq!(text(&fleet.send_to(at, &answer).await.unwrap()), METRIC);
    }
}

async fn killed_in_the_middle_of_a_leg_nobody_hangs(fleet: Fleet) {
    let (linear, durable) = (Call::weather("weather_h"), Call::weather("weather_i"));
    let waits = linear.metric(&fleet.send_to(0, &linear).await.unwrap());
    let replayed = durable.metric(&fleet.send_to(0, &durable).await.unwrap());
    // It accepts legs, but does not process them.
    fleet.signal(0, "STOP");
    let mut connection = TcpStream::connect(fleet.address(0)).await.unwrap();
    connection.write_all(replayed.to_http(&fleet.address(0)).as_bytes()).await.unwrap();
    let before = fleet.store.published().await;
    let (routed, ()) = tokio::join!(in_time("a leg of the linear flow", fleet.send_to(1, &waits)), async {
        in_time("the errand", async { while fleet.store.published().await == before {} }).await;
        fleet.kill(0).await;
    });
    let routed = routed.unwrap();
    assert!(is_frozen(&routed), "{routed}");
    let mut response = Vec::new();
    let read = in_time("the end of the connection", connection.read_to_end(&mut response)).await;
    assert!(read.is_err() || response.is_empty(), "it was killed before it replied");
    assert_eq!(text(&fleet.send(&replayed).await), METRIC);
}

impl Fleet {
    fn address(&self, at: usize) -> String {
        let url = self.url(at);
        url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned()
    }
}

async fn a_flight_whose_instance_was_killed_is_booked_at_another_and_charged_once(fleet: Fleet) {
    let call = Call::booking(1);
    let seat = call.accepted(&fleet.send_to(0, &call).await.unwrap(), "seat", json!("12A"));
    fleet.kill(0).await;
    let pay = call.accepted(&fleet.send_to(1, &seat).await.unwrap(), "confirm", json!(true));
    fleet.kill(1).await;
    for _ in ["the answer", "its retry"] {
        assert_eq!(text(&fleet.send(&pay).await), "Booked LHR to FCO on day 1, seat 12A: charged 140.");
    }
    let ledger = fleet.send(&Call::tool("airline_ledger", &json!({}))).await;
    assert_eq!(ledger["result"]["structuredContent"], json!({"quotes": 1, "charges": 1, "duplicates": 0}));
}
