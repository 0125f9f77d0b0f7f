//! The cost of a fleet: a leg with Redis compared with a leg in memory, and a leg that is carried to another instance
//! compared with one that is not. All are multiples of one round trip to the same Redis in the same run.

use std::error::Error;

use gallery::Gallery;
use rounds::{KeyRing, Rounds, test::Client};
use rounds_redis::{RedisLedger, RedisRelay};
use rounds_testkit::Redis;
use serde_json::json;

use crate::{
    progress::Progress,
    report::{Bars, Section, Table, figure},
    sample::Sample,
};

/// How often each is measured, in turns.
const TURNS: usize = 2000;

/// Turns that are not counted: schemas are built, scripts loaded, pages touched.
const WARM_UP: usize = 200;

pub(crate) async fn measure() -> Result<Section, Box<dyn Error>> {
    let mut progress = Progress::new("fleet", 2);
    progress.step("start a Redis, and two instances on it");
    let server = Redis::start();
    let url = server.url();
    let mut connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let alone = Client::modern(gallery::rounds().build()?).await;
    let one = Client::modern(instance(&url, "one").await?).await;
    let other = Client::modern(instance(&url, "other").await?).await;

    let mut trip = Sample::new("a round trip to Redis (PING)");
    let mut legs = [
        Sample::new("guard, in memory"),
        Sample::new("guard, through Redis"),
        Sample::new("guard with once, in memory"),
        Sample::new("guard with once, through Redis"),
        Sample::new("linear, in memory"),
        Sample::new("linear, through Redis"),
        Sample::new("linear, handed to another instance"),
    ];
    for turn in 0..WARM_UP + TURNS {
        if turn == WARM_UP {
            progress.step("legs in memory and through Redis, in turns");
            trip = Sample::new(trip.name);
            legs = legs.map(|leg| Sample::new(leg.name));
        }
        let () = trip.time(redis::cmd("PING").exec_async(&mut connection)).await?;
        let [guard, guard_redis, once, once_redis, linear, linear_redis, routed] = &mut legs;
        last_leg(guard, "weather_e", &alone, &alone).await;
        last_leg(guard_redis, "weather_e", &one, &one).await;
        last_leg(once, "weather_f", &alone, &alone).await;
        last_leg(once_redis, "weather_f", &one, &one).await;
        last_leg(linear, "weather_h", &alone, &alone).await;
        last_leg(linear_redis, "weather_h", &one, &one).await;
        last_leg(routed, "weather_h", &one, &other).await;
    }
    Ok(section(&trip, &legs))
}

async fn instance(url: &str, name: &str) -> Result<Rounds<Gallery>, Box<dyn Error>> {
    let server = gallery::rounds()
        .keys(KeyRing::from_bytes([[7; 32]])?)
        .audience("bench")
        .ledger(RedisLedger::connect(url).await?)
        .relay(RedisRelay::connect(url, name).await?)
        .build()?;
    Ok(server)
}

/// The second leg of a call with one question, which is the claimed one: asked at one client, and answered at another.
async fn last_leg(sample: &mut Sample, tool: &str, asks: &Client, answers: &Client) {
    let asked = asks.call(tool, json!({"location": "Tokyo"})).await.asked();
    let answer = asked.accept("units", json!({"units": "metric"}));
    let leg = sample.time(answer.send(answers)).await;
    assert_eq!(leg.text(), "Weather in Tokyo: 22°C, partly cloudy.");
}

fn section(trip: &Sample, legs: &[Sample]) -> Section {
    let mut table = Table::new(["leg", "takes"]);
    let mut bars = Bars::new("The last leg of a weather call", "multiples of a round trip to Redis");
    for leg in legs {
        let multiple = leg.median().as_secs_f64() / trip.median().as_secs_f64();
        table.push([leg.name.to_owned(), figure(multiple)]);
        bars = bars.group(leg.name, [multiple]);
    }
    Section {
        name: "fleet",
        title: "One of a fleet",
        text: format!(
            "The last leg of a weather call, {TURNS} of each, in turns; medians, as multiples of {}.",
            trip.name
        ),
        table,
        plots: vec![bars.mark(1.0, "a round trip").into()],
    }
}
