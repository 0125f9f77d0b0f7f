//! An instance that is asked to end: what waits there is served, and nothing else begins to wait.

use std::time::{Duration, Instant};

use rounds_testkit::Redis;

use crate::{
    call::{Call, METRIC, asks_for_a_retry, text},
    fleet::Instances,
    in_time,
    instance::Keys,
};

/// One instance on a Redis, and the answer of a flow whose handler waits there.
struct Waiting {
    instance: Instances,
    answer: Call,
    _redis: Redis,
}

impl Waiting {
    async fn with_drain(time: &'static str) -> Self {
        let redis = Redis::start();
        let instance = Instances::start(Keys::new(&[1]), &[&redis.url()], &["--drain", time]).await;
        let linear = Call::weather("weather_h");
        let answer = linear.metric(&instance.send_to(0, &linear).await.unwrap());
        Self { instance, answer, _redis: redis }
    }

    async fn probe(&self, path: &str) -> u16 {
        let url = self.instance.url(0).replace("/mcp", path);
        self.instance.http.get(url).send().await.unwrap().status().as_u16()
    }

    async fn drains(&self) {
        self.instance.signal(0, "TERM");
        in_time("the signal", async { while self.probe("/readyz").await == 200 {} }).await;
    }
}

#[tokio::test]
async fn it_is_not_ready_serves_what_waits_begins_no_wait_and_ends_when_none_is_left() {
    let waiting = Waiting::with_drain("60s").await;
    assert_eq!(waiting.probe("/readyz").await, 200);
    waiting.drains().await;
    assert_eq!((waiting.probe("/readyz").await, waiting.probe("/livez").await), (503, 200));
    let refused = waiting.instance.send_to(0, &Call::weather("weather_h")).await.unwrap();
    assert!(asks_for_a_retry(&refused), "{refused}");
    let guard = Call::weather("weather_e");
    let answer = guard.metric(&waiting.instance.send_to(0, &guard).await.unwrap());
    assert_eq!(text(&waiting.instance.send_to(0, &answer).await.unwrap()), METRIC, "a guard does not wait in memory");
    assert_eq!(text(&waiting.instance.send_to(0, &waiting.answer).await.unwrap()), METRIC);
    waiting.instance.log(0).ended().await;
}

#[tokio::test]
async fn it_says_how_many_calls_it_ended_when_its_time_has_passed() {
    let waiting = Waiting::with_drain("300ms").await;
    waiting.instance.signal(0, "TERM");
    waiting.instance.log(0).ended().await;
    let log = waiting.instance.log(0);
    assert_eq!(log.count("calls that still waited for an answer were ended"), 1);
    assert_eq!(log.count("ended=1"), 1);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let waiting = Waiting::with_drain("10m").await;
    waiting.drains().await;
    let began = Instant::now();
    waiting.instance.signal(0, "TERM");
    waiting.instance.log(0).ended().await;
    assert_eq!(waiting.instance.log(0).count("a second signal arrived"), 1);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
