//! A replica becomes the primary, while the old primary still answers.

use rounds_testkit::{Cable, Redis};
use serde_json::json;

use crate::{
    Fleet,
    call::{Call, METRIC, text},
    instance::Keys,
    store::Store,
};

/// Connections to the old primary stay open, and reads succeed there: only a write tells that it was demoted.
#[tokio::test]
async fn flows_and_the_airline_go_on_at_the_new_primary() {
    let [old, new] = Redis::with_replica(&[]).await;
    let cable = Cable::to(old.socket()).await;
    let fleet = Fleet::on(Store::Redis(old), Keys::new(&[1]), [&*cable.redis_url(); 3]).await;
    let (mut paying, mut waiting) = (Vec::new(), Vec::new());
    let weather = Call::weather("weather_h");
    for number in 0..6 {
        // Every instance has a connection of its airline, because it has asked for a price.
        let booking = Call::booking(number);
        let seat = booking.accepted(&fleet.send_to(number % 3, &booking).await.unwrap(), "seat", json!("12A"));
        paying.push((number, booking.accepted(&fleet.send(&seat).await, "confirm", json!(true))));
        waiting.push(weather.metric(&fleet.send_to(number % 3, &weather).await.unwrap()));
    }

    let Store::Redis(old) = &fleet.store else { unreachable!("the store is a Redis") };
    cable.lead_to(new.socket());
    old.fail_over(&new).await;
    for (number, pay) in paying {
        let booked = format!("Booked LHR to FCO on day {number}, seat 12A: charged 140.");
        assert_eq!(text(&fleet.send(&pay).await), booked);
    }
    for answer in waiting {
        assert_eq!(text(&fleet.send(&answer).await), METRIC, "its instance lived");
    }
    let charges = Store::Redis(new).charges().await;
    assert_eq!(charges.len(), 6, "{charges:?}");
}
