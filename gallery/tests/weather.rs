//! The weather tool on the wire: what a client of either era sees, and what is left in the audit.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without is there, or the test fails")]

use gallery::Gallery;
use rounds::{
    Era, Rounds,
    test::{Client, Events},
};
use serde_json::{Value, json};

struct Stage {
    client: Client,
    server: Rounds<Gallery>,
    events: Events,
}

async fn stage(era: Era) -> Stage {
    let events = Events::new();
    let server = Rounds::builder(Gallery::new()).observe(events.clone()).build().unwrap();
    let client = match era {
        Era::Legacy => Client::legacy(server.clone()).await,
        _ => Client::modern(server.clone()).await,
    };
    Stage { client, server, events }
}

impl Stage {
    fn audited(&self, tool: &str) -> u64 {
        self.server.handler().audited().get(tool).copied().unwrap_or(0)
    }
}

const TOKYO: fn() -> Value = || json!({"location": "Tokyo"});

#[tokio::test]
async fn the_question_is_the_one_that_was_agreed_on() {
    let stage = stage(Era::Modern).await;
    let asked = stage.client.call("weather_e", TOKYO()).await.asked();
    assert_eq!(asked.keys(), ["units"]);
    assert_eq!(asked.message("units"), "Which units?");
    let schema = json!({
        "type": "object",
        "properties": {"units": {"type": "string", "enum": ["metric", "imperial"], "title": "Units"}},
        "required": ["units"],
    });
    assert_eq!(asked.schema("units"), &schema);
    assert_eq!(asked.result()["_meta"]["rounds/expiresInMs"], json!(600_000));
    assert!(asked.state().len() <= 250, "{} characters of state", asked.state().len());
}

#[tokio::test]
async fn every_answer_has_its_text_and_one_audit_entry() {
    for (answer, text) in [
        (json!({"action": "accept", "content": {"units": "metric"}}), "Weather in Tokyo: 22°C, partly cloudy."),
        (json!({"action": "accept", "content": {"units": "imperial"}}), "Weather in Tokyo: 72°F, partly cloudy."),
        (json!({"action": "decline"}), "Cancelled (decline)."),
        (json!({"action": "cancel"}), "Cancelled (cancel)."),
    ] {
        for (tool, audits) in [("weather_e", 1), ("weather_naive", 2)] {
            let stage = stage(Era::Modern).await;
            let asked = stage.client.call(tool, TOKYO()).await.asked();
            let done = asked.retry().respond("units", answer.clone()).send(&stage.client).await;
            assert_eq!(done.text(), text);
            assert!(!done.is_tool_error());
            assert_eq!(stage.audited(tool), audits, "{tool} answered {answer}");
            assert_eq!(stage.events.runs(tool), 2);
        }
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again() {
    let stage = stage(Era::Modern).await;
    let mut asked = stage.client.call("weather_e", TOKYO()).await.asked();
    for wrong in [json!({"units": "kelvin"}), json!({"units": 7}), json!({})] {
        asked = asked.accept("units", wrong).send(&stage.client).await.asked();
    }
    let done = asked.accept("units", json!({"units": "metric"})).send(&stage.client).await;
    assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.");
    assert_eq!(stage.audited("weather_e"), 1);
}

#[tokio::test]
async fn a_client_that_declares_no_form_gets_32021_and_is_not_audited() {
    let stage = stage(Era::Modern).await;
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}}), json!({"sampling": {}, "roots": {}})] {
        let leg = stage.client.declaring(capabilities).call("weather_e", TOKYO()).await;
        assert_eq!(leg.error()["code"], -32021);
        assert_eq!(leg.error()["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
    }
    assert_eq!(stage.audited("weather_e"), 0);
}

#[tokio::test]
async fn a_legacy_client_gets_metric_without_a_question() {
    let stage = stage(Era::Legacy).await;
    for tool in ["weather_e", "weather_naive"] {
        let done = stage.client.call(tool, TOKYO()).await;
        assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.");
        assert_eq!(stage.audited(tool), 1);
    }
    assert!(!stage.client.was_pushed().await);
}

#[tokio::test]
async fn the_audit_log_is_a_tool() {
    let stage = stage(Era::Modern).await;
    assert_eq!(stage.client.call("audit_log", json!({})).await.text(), "{}");
    let asked = stage.client.call("weather_e", TOKYO()).await.asked();
    let _ = asked.decline("units").send(&stage.client).await.text();
    let log = stage.client.call("audit_log", json!({})).await;
    assert_eq!(log.result()["structuredContent"], json!({"weather_e": 1}));
    assert_eq!(serde_json::from_str::<Value>(&log.text()).unwrap(), json!({"weather_e": 1}));
}
