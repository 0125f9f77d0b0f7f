//! Forged input of a client: it cannot mark an effect as run, a step as finished or a question as answered.

use rounds::{Era, test::AskedRound};
use serde_json::{Value, json};

use super::{Visit, decline, shapes::SHAPES};

const METRIC: &str = "Weather in Tokyo: 22°C, partly cloudy.";

fn tokyo() -> Value {
    json!({"location": "Tokyo"})
}

fn metric() -> Value {
    json!({"units": "metric"})
}

/// States that no server has sealed, and states that a server has sealed for another request.
fn forged(asked: &AskedRound) -> Vec<Value> {
    let state = asked.state();
    let (head, tail) = state.split_at(state.len() / 2);
    let flipped = if tail.starts_with('A') { "B" } else { "A" };
    vec![
        json!(format!("{head}{flipped}{}", &tail[1..])),
        json!(head),
        json!(format!("{state}{state}")),
        json!(""),
        json!(r#"{"once":["audit"],"steps":{"units":"metric"},"answers":{"units":"metric"}}"#),
        // The same in base64, as a server that does not seal might send it.
        json!("eyJvbmNlIjpbImF1ZGl0Il0sInVuaXRzIjoibWV0cmljIn0="),
        json!("r1.eyJvbmNlIjpbImF1ZGl0Il0sInVuaXRzIjoibWV0cmljIn0"),
        json!({"once": ["audit"], "units": "metric"}),
        json!(7),
    ]
}

#[tokio::test]
async fn a_state_that_was_made_up_is_refused_and_runs_nothing() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Modern).await;
        let asked = stage.client.call(shape.tool, tokyo()).await.asked();
        let before = (stage.audited(shape.tool), stage.events.runs(shape.tool));
        for state in forged(&asked) {
            asked.accept("units", metric()).with("requestState", state).send(&stage.client).await.frozen();
        }
        assert_eq!((stage.audited(shape.tool), stage.events.runs(shape.tool)), before, "{}", shape.tool);
        assert_eq!(asked.accept("units", metric()).send(&stage.client).await.text(), METRIC, "{}", shape.tool);
        let (_, audits) = shape.counts(Era::Modern);
        assert_eq!(stage.audited(shape.tool), audits, "{}", shape.tool);
    }
}

#[tokio::test]
async fn a_state_of_one_shape_is_none_of_another_and_none_of_another_place() {
    let stage = Visit::new(Era::Modern).await;
    for shape in SHAPES {
        let asked = stage.client.call(shape.tool, tokyo()).await.asked();
        let audited = stage.server.handler().audited();
        for other in SHAPES.iter().filter(|other| other.tool != shape.tool) {
            let retry = asked.accept("units", metric()).with("name", json!(other.tool));
            retry.send(&stage.client).await.frozen();
        }
        let retry = asked.accept("units", metric()).with("arguments", json!({"location": "Rome"}));
        retry.send(&stage.client).await.frozen();
        assert_eq!(stage.server.handler().audited(), audited, "{}", shape.tool);
    }
}

#[tokio::test]
async fn an_answer_to_what_was_not_asked_is_no_answer() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Modern).await;
        let asked = stage.client.call(shape.tool, tokyo()).await.asked();
        let retry = ["audit", "weather", "once", "finish", "Units"]
            .iter()
            .fold(asked.retry(), |retry, key| retry.accept(key, metric()));
        let asked = retry.send(&stage.client).await.asked();
        assert_eq!((asked.keys(), asked.message("units")), (vec!["units"], "Which units?"), "{}", shape.tool);
        assert_eq!(asked.decline("units").send(&stage.client).await.text(), "Cancelled (decline).", "{}", shape.tool);
    }
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_read_by_guards_only() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Modern).await;
        let uninvited = json!({
            "units": {"action": "accept", "content": metric()},
            "audit": {"action": "accept", "content": {"audit": null}},
        });
        let mut call = shape.call();
        call["inputResponses"] = uninvited;
        let leg = stage.client.request("tools/call", call).await;
        if shape.reads_uninvited {
            assert_eq!(leg.text(), METRIC, "{}", shape.tool);
        } else {
            let asked = leg.asked();
            assert_eq!(asked.decline("units").send(&stage.client).await.text(), "Cancelled (decline).");
        }
        assert_eq!(stage.audited(shape.tool), 1, "{}: the effect runs nevertheless", shape.tool);
    }
}

#[tokio::test]
async fn an_answer_that_an_old_client_was_not_asked_for_is_read_by_guards_only() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Legacy).await;
        let mut call = shape.call();
        call["inputResponses"] = json!({"units": {"action": "accept", "content": {"units": "imperial"}}});
        let played = stage.play("tools/call", call.clone(), &decline()).await;
        let text = match shape.tool {
            "weather_a" | "weather_e" | "weather_f" | "weather_naive" => "Weather in Tokyo: 72°F, partly cloudy.",
            // It uses the default for legacy clients, and does not read the answer.
            "weather_g" => METRIC,
            _ => "Cancelled (decline).",
        };
        assert_eq!(played.leg.text(), text, "{}", shape.tool);
        call["requestState"] = json!("r1.whatever");
        stage.client.request("tools/call", call).await.frozen();
    }
}

#[tokio::test]
async fn an_answer_cannot_be_taken_back_and_a_decline_cannot_bring_content() {
    for shape in SHAPES {
        let stage = Visit::new(Era::Modern).await;
        let asked = stage.client.call(shape.tool, tokyo()).await.asked();
        let content = json!({"action": "decline", "content": metric()});
        let declined = asked.retry().respond("units", content);
        assert_eq!(declined.send(&stage.client).await.text(), "Cancelled (decline).", "{}", shape.tool);
        asked.accept("units", metric()).send(&stage.client).await.frozen();
        let (_, audits) = shape.counts(Era::Modern);
        assert_eq!(stage.audited(shape.tool), audits, "{}", shape.tool);
    }
}
