//! The central claim: over every transport, a client of the weather tool cannot tell how the tool is written, whether it
//! is asked in rounds, by pushed requests, or through a task. The shapes differ only in their audit.

use rounds::Era;
use serde_json::{Value, json};

use crate::wire::Wire;

const SHAPES: [&str; 12] = [
    "weather_a",
    "weather_b",
    "weather_c",
    "weather_d",
    "weather_e",
    "weather_f",
    "weather_g",
    "weather_h",
    "weather_i",
    "weather_asked",
    "weather_naive",
    "weather_lowlevel",
];

/// Shapes that use the default for a legacy client, and ask no question.
const DEFAULT_TO_METRIC: [&str; 4] = ["weather_e", "weather_f", "weather_g", "weather_naive"];

/// Shapes whose effect runs once per leg of a modern client.
const FOOTGUNS: [&str; 2] = ["weather_b", "weather_naive"];

const QUESTION: &str = "Which units?";
const METRIC: &str = "Weather in Tokyo: 22°C, partly cloudy.";
const IMPERIAL: &str = "Weather in Tokyo: 72°F, partly cloudy.";

struct Story {
    /// The user's answers in order. `None`: the client sends its call again without an answer, which only a modern
    /// client can do.
    answers: Vec<Option<Value>>,
    asked: Vec<&'static str>,
    text: &'static str,
}

fn stories(era: Era, tasks: bool) -> [Story; 6] {
    let accept = |content: Value| Some(json!({"action": "accept", "content": content}));
    let metric = || accept(json!({"units": "metric"}));
    let once = |answer, text| Story { answers: vec![answer], asked: vec![QUESTION], text };
    let twice = |answer, again| Story { answers: vec![answer, metric()], asked: vec![QUESTION, again], text: METRIC };
    [
        once(metric(), METRIC),
        once(accept(json!({"units": "imperial"})), IMPERIAL),
        once(Some(json!({"action": "decline"})), "Cancelled (decline)."),
        once(Some(json!({"action": "cancel"})), "Cancelled (cancel)."),
        twice(accept(json!({"units": "kelvin"})), "Which units? (`units` must be one of metric, imperial)"),
        match era {
            // What is not answered in a task stays asked.
            _ if tasks => twice(accept(json!({})), "Which units? (`units` is missing)"),
            Era::Legacy => twice(accept(json!({})), "Which units? (`units` is missing)"),
            _ => twice(None, QUESTION),
        },
    ]
}

#[tokio::test]
async fn every_shape_is_the_same_to_every_client_over_memory() {
    for era in [Era::Modern, Era::Legacy] {
        holds(Wire::memory(era).await).await;
    }
}

#[tokio::test]
async fn every_shape_is_the_same_to_every_client_over_stdio() {
    for era in [Era::Modern, Era::Legacy] {
        holds(Wire::stdio(era).await).await;
    }
}

#[tokio::test]
async fn every_shape_is_the_same_to_every_client_over_http() {
    for era in [Era::Modern, Era::Legacy] {
        holds(Wire::http(era).await).await;
    }
}

#[tokio::test]
async fn every_shape_is_the_same_to_a_client_of_tasks() {
    for mut wire in [Wire::memory(Era::Modern).await, Wire::stdio(Era::Modern).await, Wire::http(Era::Modern).await] {
        wire.tasks = true;
        holds(wire).await;
    }
}

/// Plays every story with every shape.
async fn holds(mut wire: Wire) {
    for shape in SHAPES {
        for story in stories(wire.era, wire.tasks) {
            let before = audited(&mut wire, shape).await;
            let legs = if wire.era == Era::Modern { story.asked.len() + 1 } else { 1 };
            let defaults = wire.era == Era::Legacy && DEFAULT_TO_METRIC.contains(&shape);
            let (expected, text) = if defaults { (vec![], METRIC) } else { (story.asked, story.text) };
            let (asked, ended) = play(&mut wire, shape, story.answers).await;
            assert_eq!(asked, expected.into_iter().map(question).collect::<Vec<_>>(), "{shape} {:?}", wire.era);
            assert_eq!(ended["content"], json!([{"type": "text", "text": text}]), "{shape} {:?}", wire.era);
            assert_ne!(ended["isError"], true, "{shape} {:?}", wire.era);
            let times = if FOOTGUNS.contains(&shape) { legs } else { 1 };
            assert_eq!(audited(&mut wire, shape).await - before, times, "{shape} {:?}", wire.era);
        }
    }
}

/// The question as it must be on the wire in both eras.
fn question(message: &str) -> Value {
    let units = json!({"type": "string", "enum": ["metric", "imperial"], "title": "Units"});
    json!({"method": "elicitation/create", "params": {
        "mode": "form",
        "message": message,
        "requestedSchema": {"type": "object", "properties": {"units": units}, "required": ["units"]},
    }})
}

/// Calls a shape and gives the answers in order. Returns what was asked, and the result.
async fn play(wire: &mut Wire, shape: &str, answers: Vec<Option<Value>>) -> (Vec<Value>, Value) {
    let call = json!({"name": shape, "arguments": {"location": "Tokyo"}});
    let mut answers = answers.into_iter();
    let mut asked = Vec::new();
    wire.request("tools/call", call.clone()).await;
    loop {
        let mut message = wire.receive().await;
        if message.get("method").is_some() {
            assert_eq!(wire.era, Era::Legacy, "a modern client gets no pushed question");
            message["params"].as_object_mut().unwrap().remove("_meta");
            asked.push(json!({"method": message["method"], "params": message["params"]}));
            let answer = answers.next().expect("no further question");
            wire.send(json!({"jsonrpc": "2.0", "id": message["id"], "result": answer})).await;
            continue;
        }
        let result = &message["result"];
        if let Some(id) = result["taskId"].as_str() {
            return poll(wire, id, answers, asked).await;
        }
        assert!(!wire.tasks, "{message}");
        if result["resultType"] != "input_required" {
            return (asked, result.clone());
        }
        let requests = result["inputRequests"].as_object().unwrap();
        assert_eq!(requests.keys().collect::<Vec<_>>(), ["units"]);
        asked.push(requests["units"].clone());
        let mut retry = call.clone();
        retry["requestState"] = result["requestState"].clone();
        retry["inputResponses"] = match answers.next().expect("no further question") {
            Some(answer) => json!({"units": answer}),
            None => json!({}),
        };
        wire.request("tools/call", retry).await;
    }
}

/// Polls a task to its end, and gives the answers in order.
async fn poll(
    wire: &mut Wire,
    id: &str,
    mut answers: impl Iterator<Item = Option<Value>>,
    mut asked: Vec<Value>,
) -> (Vec<Value>, Value) {
    let mut keys: Vec<String> = Vec::new();
    loop {
        wire.request("tasks/get", json!({"taskId": id})).await;
        let task = wire.receive().await["result"].clone();
        match task["status"].as_str() {
            Some("working") => tokio::task::yield_now().await,
            Some("input_required") => {
                let (key, request) = task["inputRequests"].as_object().unwrap().iter().next().unwrap();
                assert!(!keys.contains(key), "no key is used twice");
                keys.push(key.clone());
                asked.push(request.clone());
                let answer = answers.next().expect("no further question").expect("an answer");
                wire.request("tasks/update", json!({"taskId": id, "inputResponses": {key: answer}})).await;
                assert_eq!(wire.receive().await["result"]["resultType"], "complete");
            }
            Some("completed") => return (asked, task["result"].clone()),
            _ => panic!("{task}"),
        }
    }
}

async fn audited(wire: &mut Wire, shape: &str) -> usize {
    let tasks = std::mem::take(&mut wire.tasks);
    wire.request("tools/call", json!({"name": "audit_log", "arguments": {}})).await;
    wire.tasks = tasks;
    let log = wire.receive().await;
    let entries = &log["result"]["structuredContent"];
    assert!(entries.is_object(), "{log}");
    entries[shape].as_u64().unwrap_or(0).try_into().unwrap()
}
