//! Redis away: for all instances, or for one.

use rounds_testkit::Cable;

use crate::{
    Fleet, Redis,
    call::{Call, METRIC, asks_for_a_retry, is_frozen, text},
    in_time,
    instance::Keys,
    store::Store,
};

#[tokio::test]
async fn stopped_and_started_it_costs_retries_and_no_flow() {
    let mut fleet = Fleet::start().await;
    let mut answers = Vec::new();
    for shape in ["e", "h", "i", "asked"] {
        let call = Call::weather(&format!("weather_{shape}"));
        answers.push(call.metric(&fleet.send(&call).await));
    }
    fleet.store.stop();
    for answer in &answers {
        for at in 0..3 {
            let response = in_time("a leg without Redis", fleet.send_to(at, answer)).await.unwrap();
            assert!(asks_for_a_retry(&response), "{response}");
        }
    }
    fleet.store.start_again();
    for answer in &answers {
        assert_eq!(text(&fleet.send(answer).await), METRIC, "{answer:?}");
    }
}

#[tokio::test]
async fn an_instance_that_is_cut_off_from_redis_serves_nobody_and_comes_back_by_itself() {
    let redis = Redis::start();
    let (url, cable) = (redis.url(), Cable::to(redis.socket()).await);
    let fleet = Fleet::on(Store::Redis(redis), Keys::new(&[1]), [&cable.redis_url(), &url, &url]).await;
    let (linear, durable) = (Call::weather("weather_h"), Call::weather("weather_i"));
    let waits = linear.metric(&fleet.send_to(0, &linear).await.unwrap());
    let waits_elsewhere = linear.metric(&fleet.send_to(1, &linear).await.unwrap());
    let replayed = durable.metric(&fleet.send_to(0, &durable).await.unwrap());
    assert!(fleet.store.listens("a").await);
    cable.cut();

    for answer in [&waits, &waits_elsewhere, &replayed] {
        let response = in_time("a leg that is cut off", fleet.send_to(0, answer)).await.unwrap();
        assert!(asks_for_a_retry(&response), "{response}");
    }
    assert!(is_frozen(&in_time("a leg for the instance that is cut off", fleet.send_to(1, &waits)).await.unwrap()));
    assert_eq!(text(&fleet.send(&waits_elsewhere).await), METRIC);
    assert_eq!(text(&fleet.send(&replayed).await), METRIC);

    cable.mend();
    fleet.log(0).says("subscribed to Redis again", 1).await;
    let asked = in_time("a first leg", async {
        loop {
            let response = fleet.send_to(0, &linear).await.unwrap();
            if !asks_for_a_retry(&response) {
                return response;
            }
        }
    });
    let waits = linear.metric(&asked.await);
    assert_eq!(text(&fleet.send_to(2, &waits).await.unwrap()), METRIC);
}
