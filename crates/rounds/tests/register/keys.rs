//! Keys that open flows use, and flows that last.

use rounds::{
    BuildError, Rounds,
    keys::ChangeKeysError,
    ledger::MemoryLedger,
    register::FlowStatus,
    test::{Client, Clock},
};
use serde_json::json;

use crate::{HOUR, Weather, apart::Apart, builder, keys, only};

#[tokio::test]
async fn a_key_that_open_flows_use_cannot_be_removed() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let server = builder(&weather, Apart::default(), &clock).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("book", json!({"city": "Lisbon"})).await.asked();
    client.call("book", json!({"city": "Porto"})).await.asked();
    server.change_keys(&keys(&[2, 1])).await.unwrap();
    client.call("book", json!({"city": "Faro"})).await.asked();
    let refused = server.change_keys(&keys(&[2])).await;
    assert!(matches!(refused, Err(ChangeKeysError::InUse { flows: 2 })), "{refused:?}");
    let unchecked = server.set_keys(&keys(&[2]));
    assert!(matches!(unchecked, Err(BuildError::UncheckedKeys)), "{unchecked:?}");
    asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    clock.advance(HOUR);
    server.change_keys(&keys(&[2])).await.unwrap();
}

#[tokio::test]
async fn a_tool_may_wait_for_thirty_days_while_others_do_not() {
    let (weather, clock) = (Weather::new(), Clock::new());
    let days = 24 * HOUR;
    let server = builder(&weather, MemoryLedger::new(), &clock)
        .round_lifetime_for("book", 29 * days)
        .flow_deadline_for("book", 30 * days)
        .build()
        .unwrap();
    let client = Client::modern(server.clone()).await;
    let trip = client.call("book", json!({"city": "Lisbon"})).await.asked();
    let today = client.call("weather", json!({"city": "Lisbon"})).await.asked();
    let metric = json!({"units": "metric"});
    clock.advance(28 * days);
    today.accept("units", metric.clone()).send(&client).await.frozen();
    assert_eq!(only(&server, FlowStatus::Waiting).await.target, "book");
    trip.accept("units", metric).send(&client).await.text();
}

#[test]
fn no_lifetime_is_longer_than_thirty_days_or_zero() {
    let built = |days: u32| Rounds::builder(Weather::new()).flow_deadline_for("book", 24 * HOUR * days).build();
    assert!(built(30).is_ok());
    assert!(matches!(built(31), Err(BuildError::TooLong { what: "flow deadline" })));
    assert!(matches!(built(0), Err(BuildError::Zero { what: "flow deadline" })));
    let general = Rounds::builder(Weather::new()).flow_deadline(24 * HOUR * 31);
    assert!(
        matches!(general.register().build(), Err(BuildError::TooLong { what: "flow deadline" })),
        "a store keeps it"
    );
}
