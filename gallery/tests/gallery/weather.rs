//! The weather tool in every way of writing it: one table says in what they may differ.

use rounds::Era;
use serde_json::{Value, json};

use super::{ERAS, Stage, accept, cancel, decline, units};

/// A way of writing the tool, and what is its own about it.
struct Shape {
    tool: &'static str,
    /// How often the handler runs in a modern client's call with one question. In a legacy client's call it runs once.
    runs: usize,
    /// How many entries such a call leaves in the audit.
    audits: u64,
    /// How many entries a call leaves that was refused because its client cannot be asked.
    audits_when_refused: u64,
    /// Whether a legacy client is asked as well, and not given metric.
    asks_legacy: bool,
}

const SHAPES: &[Shape] = &[
    Shape { tool: "weather_e", runs: 2, audits: 1, audits_when_refused: 0, asks_legacy: false },
    Shape { tool: "weather_f", runs: 2, audits: 1, audits_when_refused: 1, asks_legacy: false },
    Shape { tool: "weather_h", runs: 1, audits: 1, audits_when_refused: 1, asks_legacy: true },
    Shape { tool: "weather_i", runs: 2, audits: 1, audits_when_refused: 1, asks_legacy: true },
    Shape { tool: "weather_naive", runs: 2, audits: 2, audits_when_refused: 1, asks_legacy: false },
];

fn tokyo() -> Value {
    json!({"location": "Tokyo"})
}

#[tokio::test]
async fn the_question_is_the_one_that_was_agreed_on() {
    for Shape { tool, .. } in SHAPES {
        let stage = Stage::new(Era::Modern).await;
        let asked = stage.client.call(tool, tokyo()).await.asked();
        assert_eq!(asked.keys(), ["units"]);
        assert_eq!(asked.result()["_meta"]["rounds/expiresInMs"], json!(600_000));
        assert!(asked.state().len() <= 250, "{tool} has {} characters of state", asked.state().len());
    }
}

#[tokio::test]
async fn every_answer_has_its_text_and_every_call_its_audit_in_both_eras() {
    for era in ERAS {
        for shape in SHAPES.iter().filter(|shape| era == Era::Modern || shape.asks_legacy) {
            for (answer, text) in [
                (accept(json!({"units": "metric"})), "Weather in Tokyo: 22°C, partly cloudy."),
                (accept(json!({"units": "imperial"})), "Weather in Tokyo: 72°F, partly cloudy."),
                (decline(), "Cancelled (decline)."),
                (cancel(), "Cancelled (cancel)."),
            ] {
                let stage = Stage::new(era).await;
                let tool = shape.tool;
                let call = json!({"name": tool, "arguments": tokyo()});
                let played = stage.play("tools/call", call, &answer).await;
                played.asked_for("Which units?", "units", units());
                assert_eq!(played.leg.text(), text, "{tool} {era:?}");
                assert!(!played.leg.is_tool_error());
                assert_eq!(stage.audited(tool), shape.audits, "{tool} {era:?} answered {answer}");
                let runs = if era == Era::Legacy { 1 } else { shape.runs };
                assert_eq!(stage.events.runs(tool), runs, "{tool} {era:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again() {
    for (tool, runs) in [("weather_e", 5), ("weather_f", 5), ("weather_h", 1), ("weather_i", 5)] {
        let stage = Stage::new(Era::Modern).await;
        let mut asked = stage.client.call(tool, tokyo()).await.asked();
        for wrong in [json!({"units": "kelvin"}), json!({"units": 7}), json!({})] {
            asked = asked.accept("units", wrong).send(&stage.client).await.asked();
            assert_eq!(asked.schema("units")["properties"]["units"], units());
        }
        let done = asked.accept("units", json!({"units": "metric"})).send(&stage.client).await;
        assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.");
        assert_eq!(stage.audited(tool), 1);
        assert_eq!(stage.events.runs(tool), runs);
    }
}

#[tokio::test]
async fn a_modern_client_that_declares_no_form_gets_32021() {
    for shape in SHAPES {
        for capabilities in [json!({}), json!({"elicitation": {"url": {}}}), json!({"sampling": {}, "roots": {}})] {
            let stage = Stage::new(Era::Modern).await;
            let leg = stage.client.declaring(capabilities).call(shape.tool, tokyo()).await;
            assert_eq!(leg.error()["code"], -32021, "{}", shape.tool);
            assert_eq!(leg.error()["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
            assert_eq!(stage.audited(shape.tool), shape.audits_when_refused, "{}", shape.tool);
        }
    }
}

#[tokio::test]
async fn a_guard_gives_a_legacy_client_metric_without_a_question() {
    for Shape { tool, .. } in SHAPES.iter().filter(|shape| !shape.asks_legacy) {
        let stage = Stage::new(Era::Legacy).await;
        let done = stage.client.call(tool, tokyo()).await;
        assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.");
        assert_eq!(stage.audited(tool), 1);
        assert!(!stage.client.was_pushed().await);
    }
}

#[tokio::test]
async fn the_audit_log_is_a_tool() {
    let stage = Stage::new(Era::Modern).await;
    assert_eq!(stage.client.call("audit_log", json!({})).await.text(), "{}");
    let asked = stage.client.call("weather_e", tokyo()).await.asked();
    let _ = asked.decline("units").send(&stage.client).await.text();
    let log = stage.client.call("audit_log", json!({})).await;
    assert_eq!(log.result()["structuredContent"], json!({"weather_e": 1}));
    assert_eq!(serde_json::from_str::<Value>(&log.text()).unwrap(), json!({"weather_e": 1}));
}
