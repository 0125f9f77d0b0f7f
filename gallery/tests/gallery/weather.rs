//! The weather tool in every shape: a client cannot tell the shapes apart.

use rounds::Era;
use serde_json::{Value, json};

use super::{ERAS, Visit, accept, cancel, decline, shapes::SHAPES, units};

fn tokyo() -> Value {
    json!({"location": "Tokyo"})
}

#[tokio::test]
async fn the_question_is_the_one_that_was_agreed_on() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Modern).await;
        let asked = stage.client.call(shape.tool, tokyo()).await.asked();
        assert_eq!(asked.keys(), ["units"]);
        assert_eq!(asked.result()["_meta"]["rounds/expiresInMs"], json!(600_000));
        assert!(asked.state().len() <= 250, "{} has {} characters of state", shape.tool, asked.state().len());
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
                let stage = Visit::new(era).await;
                let tool = shape.tool;
                let played = stage.play("tools/call", shape.call(), &answer).await;
                played.asked_for("Which units?", "units", units());
                assert_eq!(played.leg.text(), text, "{tool} {era:?}");
                assert!(!played.leg.is_tool_error());
                let counted = (stage.events.runs(tool), stage.audited(tool));
                assert_eq!(counted, shape.counts(era), "{tool} {era:?} answered {answer}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Modern).await;
        let mut asked = stage.client.call(shape.tool, tokyo()).await.asked();
        for wrong in [json!({"units": "kelvin"}), json!({"units": 7}), json!({})] {
            asked = asked.accept("units", wrong).send(&stage.client).await.asked();
            assert_eq!(asked.schema("units")["properties"]["units"], units());
        }
        let done = asked.accept("units", json!({"units": "metric"})).send(&stage.client).await;
        assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.", "{}", shape.tool);
        // An effect that runs once per round has run five times.
        let (runs, audits) = shape.counts(Era::Modern);
        let (runs, audits) = (if runs == 1 { 1 } else { 5 }, if audits == 1 { 1 } else { 5 });
        assert_eq!((stage.events.runs(shape.tool), stage.audited(shape.tool)), (runs, audits), "{}", shape.tool);
    }
}

#[tokio::test]
async fn a_modern_client_that_declares_no_form_gets_32021() {
    for shape in SHAPES {
        for capabilities in [json!({}), json!({"elicitation": {"url": {}}}), json!({"sampling": {}, "roots": {}})] {
            let stage = Visit::new(Era::Modern).await;
            let leg = stage.client.declaring(capabilities).call(shape.tool, tokyo()).await;
            assert_eq!(leg.error()["code"], -32021, "{}", shape.tool);
            assert_eq!(leg.error()["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
            assert_eq!(stage.audited(shape.tool), shape.audits_when_refused, "{}", shape.tool);
        }
    }
}

#[tokio::test]
async fn a_shape_that_does_not_ask_legacy_clients_gives_them_metric_without_a_question() {
    for shape in SHAPES.iter().filter(|shape| !shape.asks_legacy) {
        let stage = Visit::new(Era::Legacy).await;
        let done = stage.client.call(shape.tool, tokyo()).await;
        assert_eq!(done.text(), "Weather in Tokyo: 22°C, partly cloudy.");
        assert_eq!(stage.audited(shape.tool), 1);
        assert!(!stage.client.was_pushed());
    }
}

#[tokio::test]
async fn the_audit_log_is_a_tool() {
    let stage = Visit::new(Era::Modern).await;
    assert_eq!(stage.client.call("audit_log", json!({})).await.text(), "{}");
    let asked = stage.client.call("weather_e", tokyo()).await.asked();
    let _ = asked.decline("units").send(&stage.client).await.text();
    let log = stage.client.call("audit_log", json!({})).await;
    assert_eq!(log.result()["structuredContent"], json!({"weather_e": 1}));
    assert_eq!(serde_json::from_str::<Value>(&log.text()).unwrap(), json!({"weather_e": 1}));
}
