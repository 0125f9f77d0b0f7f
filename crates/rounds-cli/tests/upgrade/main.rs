//! A deploy: an instance of the previous release and an instance of this release serve the same flows. Each leg goes to
//! the other instance than the leg before. `cargo xtask upgrade` builds the older program and runs this.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![cfg(unix)]

#[path = "../fleet/call.rs"]
#[expect(dead_code, reason = "the tests of fleets use more of it")]
mod call;
#[path = "../fleet/instance.rs"]
#[expect(dead_code, reason = "the tests of fleets use more of it")]
mod instance;

use std::time::Duration;

use call::{Call, METRIC, is_frozen, text};
use instance::{Instance, Keys, program, rounds};
use rounds_testkit::{Redis, http_client};
use serde_json::{Value, json};

/// Far longer than anything here takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// What every client of the gallery calls, is asked, answers and gets.
const FLOWS: &str = include_str!("../../../../interop/flows.json");

/// A guard, a guard with an effect above it, steps, a linear handler, a durable one, and a declared question.
const SHAPES: [&str; 6] = ["weather_e", "weather_f", "weather_g", "weather_h", "weather_i", "weather_asked"];

async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Which of the two releases, by its place among the instances.
const BEFORE: usize = 0;
const NOW: usize = 1;

/// An instance of each release, which share keys and a Redis.
struct Deploy {
    _redis: Redis,
    _keys: Keys,
    instances: [Instance; 2],
    http: reqwest::Client,
}

impl Deploy {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With these arguments for the instance of this release.
    async fn with(args: &[&str]) -> Self {
        let path = std::env::var("ROUNDS_BEFORE")
            .expect("ROUNDS_BEFORE names no program of the release before this one: run `cargo xtask upgrade`");
        let (redis, keys) = (Redis::start(), Keys::new(&[1]));
        let before = Instance::run(program(&path, &["serve"]), &redis.url(), &keys, "before").await;
        let now = Instance::run(rounds(&[&["serve"], args].concat()), &redis.url(), &keys, "now").await;
        Self { _redis: redis, _keys: keys, instances: [before, now], http: http_client() }
    }

    async fn send(&self, at: usize, call: &Call) -> Value {
        in_time("a leg", call.send(&self.http, &self.instances[at].url)).await.unwrap()
    }

    /// What the airline of both instances has counted.
    async fn airline(&self) -> Value {
        let counted = self.send(NOW, &Call::tool("airline_ledger", &json!({}))).await;
        counted["result"]["structuredContent"].clone()
    }

    /// The tools of the previous release.
    async fn tools_before(&self) -> Vec<String> {
        let listed = self.send(BEFORE, &Call::new("tools/list", json!({}))).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// How often the effect of this tool ran, on both instances together.
    async fn audited(&self, tool: &str) -> u64 {
        let mut entries = 0;
        for at in [BEFORE, NOW] {
            let counted = self.send(at, &Call::tool("audit_log", &json!({}))).await;
            entries += counted["result"]["structuredContent"][tool].as_u64().unwrap_or_default();
        }
        entries
    }

    /// Plays a flow that begins on this instance. Each leg goes to the other instance than the leg before.
    async fn play(&self, mut at: usize, flow: &Value, mut call: Call) {
        let mut response = self.send(at, &call).await;
        for round in flow["rounds"].as_array().unwrap() {
            at = 1 - at;
            let mut answers = json!({});
            for (key, exchange) in round.as_object().unwrap() {
                let asked = &response["result"]["inputRequests"][key]["params"]["message"];
                assert_eq!(*asked, exchange["asks"], "{call:?} {response}");
                answers[key] = exchange["answer"].clone();
            }
            call = call.answered(&response, answers);
            response = self.send(at, &call).await;
            let again = self.send(1 - at, &call).await;
            for part in ["content", "messages", "contents", "inputRequests", "requestState"] {
                assert_eq!(again["result"][part], response["result"][part], "a retry elsewhere gets the same reply");
            }
        }
        assert_eq!(text(&response), flow["text"], "{call:?}");
    }
}

/// The calls of this flow, of tools that both releases have.
fn calls(flow: &Value, known: &[String]) -> Vec<Call> {
    let tools = flow["tools"].as_array().into_iter().flatten().map(|tool| tool.as_str().unwrap());
    // Its handler was a guard in the previous release, and is linear now. No format lets one continue the other.
    let tools = tools.filter(|tool| *tool != "get_weather" && known.iter().any(|known| known == tool));
    let mut calls: Vec<_> = tools.map(|tool| Call::tool(tool, &flow["arguments"])).collect();
    calls.extend(flow["prompt"].as_str().map(Call::prompt));
    calls.extend(flow["resource"].as_str().map(Call::resource));
    calls
}

#[tokio::test]
async fn every_flow_goes_back_and_forth_wherever_it_began() {
    let list: Value = serde_json::from_str(FLOWS).unwrap();
    for first in [BEFORE, NOW] {
        let deploy = Deploy::start().await;
        let known = deploy.tools_before().await;
        let mut played = 0;
        for flow in list["flows"].as_array().unwrap().iter().filter(|flow| flow["era"] != "legacy") {
            for call in calls(flow, &known) {
                deploy.play(first, flow, call).await;
                played += 1;
            }
        }
        assert!(played > 60, "{played}");
        assert_eq!(deploy.airline().await, list["counted"]["airline_ledger"], "each effect ran once");
    }
}

#[tokio::test]
async fn an_effect_runs_once_in_every_shape() {
    let deploy = Deploy::start().await;
    for tool in SHAPES {
        for (flows, first) in (1..).zip([BEFORE, NOW]) {
            let call = Call::weather(tool);
            let asked = deploy.send(first, &call).await;
            let again = deploy.send(1 - first, &call.accepted(&asked, "units", json!("kelvin"))).await;
            assert_eq!(text(&deploy.send(first, &call.metric(&again)).await), METRIC, "{tool}");
            assert_eq!(deploy.audited(tool).await, flows, "{tool}");
        }
    }
}

#[tokio::test]
async fn the_same_leg_at_both_instances_at_once_runs_once() {
    let deploy = Deploy::start().await;
    for (number, first) in (1..).zip([BEFORE, NOW]) {
        let call = Call::booking(number);
        let seat = call.accepted(&deploy.send(first, &call).await, "seat", json!("12A"));
        let pay = call.accepted(&deploy.send(1 - first, &seat).await, "confirm", json!(true));
        let (one, other) = tokio::join!(deploy.send(BEFORE, &pay), deploy.send(NOW, &pay));
        assert_eq!(text(&one), format!("Booked LHR to FCO on day {number}, seat 12A: charged 140."));
        assert_eq!(text(&one), text(&other));
        assert_eq!(deploy.airline().await, json!({"quotes": number, "charges": number, "duplicates": 0}));
    }
}

#[tokio::test]
async fn a_token_of_the_current_format_is_refused_before_and_stays_good_now() {
    let deploy = Deploy::with(&["--format", "current"]).await;
    let call = Call::booking(1);
    let seat = call.accepted(&deploy.send(NOW, &call).await, "seat", json!("12A"));
    assert!(is_frozen(&deploy.send(BEFORE, &seat).await), "the older instance cannot read it");
    let pay = call.accepted(&deploy.send(NOW, &seat).await, "confirm", json!(true));
    assert!(is_frozen(&deploy.send(BEFORE, &pay).await));
    assert_eq!(text(&deploy.send(NOW, &pay).await), "Booked LHR to FCO on day 1, seat 12A: charged 140.");
    assert_eq!(deploy.airline().await, json!({"quotes": 1, "charges": 1, "duplicates": 0}));

    // What the older instance has begun goes on here, in the current format from then on.
    let call = Call::booking(2);
    let seat = call.accepted(&deploy.send(BEFORE, &call).await, "seat", json!("12A"));
    let pay = call.accepted(&deploy.send(NOW, &seat).await, "confirm", json!(true));
    assert!(is_frozen(&deploy.send(BEFORE, &pay).await));
    assert_eq!(text(&deploy.send(NOW, &pay).await), "Booked LHR to FCO on day 2, seat 12A: charged 140.");
}
