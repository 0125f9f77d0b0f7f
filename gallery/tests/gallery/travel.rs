//! A prompt and a resource template that ask, as tools do.

use rounds::Era;
use serde_json::{Value, json};

use super::{ERAS, Visit, accept, cancel, decline, units};

#[tokio::test]
async fn a_prompt_and_a_resource_ask_and_go_on() {
    for era in ERAS {
        for (method, params, question, field, schema, answer, text) in [
            (
                "prompts/get",
                plan_day(),
                "At what pace?",
                "pace",
                json!({"type": "string"}),
                "slow",
                "Plan a day for me, at a slow pace.",
            ),
            (
                "resources/read",
                forecast(),
                "Which units?",
                "units",
                units(),
                "imperial",
                "Weather in Tokyo: 72°F, partly cloudy.",
            ),
        ] {
            let stage = Visit::new(era).await;
            let played = stage.play(method, params, &accept(json!({field: answer}))).await;
            played.asked_for(question, field, schema);
            assert_eq!(played.leg.text(), text, "{era:?}");
        }
    }
}

#[tokio::test]
async fn a_no_ends_a_prompt_and_a_resource_with_an_error_in_words() {
    for era in ERAS {
        for (method, params, question) in
            [("prompts/get", plan_day(), "At what pace?"), ("resources/read", forecast(), "Which units?")]
        {
            for (answer, words) in [(decline(), "The user declined"), (cancel(), "The user cancelled")] {
                let stage = Visit::new(era).await;
                let played = stage.play(method, params.clone(), &answer).await;
                assert_eq!(played.leg.error()["code"], -32600, "{era:?} {method}");
                assert_eq!(played.leg.error()["message"], format!("{words}: {question}"));
            }
        }
    }
}

#[tokio::test]
async fn a_modern_client_without_forms_gets_32021() {
    let client = Visit::new(Era::Modern).await.client.declaring(json!({}));
    for (method, params) in [("prompts/get", plan_day()), ("resources/read", forecast())] {
        assert_eq!(client.request(method, params).await.error()["code"], -32021, "{method}");
    }
}

#[tokio::test]
async fn a_resource_that_there_is_not_is_an_error_before_any_question() {
    for era in ERAS {
        let stage = Visit::new(era).await;
        // Since 2026-07-28 this is an invalid parameter; before, it had a code of its own.
        let code = if era == Era::Legacy { -32002 } else { -32602 };
        for uri in ["weather://forecast/", "weather://yesterday/Tokyo", "file:///etc/passwd"] {
            let played = stage.play("resources/read", json!({"uri": uri}), &decline()).await;
            assert_eq!(played.questions, [] as [Value; 0]);
            assert_eq!(played.leg.error()["code"], code, "{era:?} {uri}");
            assert_eq!(played.leg.error()["message"], format!("no such resource: {uri}"));
        }
    }
}

#[tokio::test]
async fn they_are_listed() {
    for era in ERAS {
        let stage = Visit::new(era).await;
        for (method, list, field, values) in [
            ("prompts/list", "prompts", "name", &["plan_day"][..]),
            ("resources/templates/list", "resourceTemplates", "uriTemplate", &["weather://forecast/{location}"]),
            (
                "tools/list",
                "tools",
                "name",
                &[
                    "airline_ledger",
                    "audit_log",
                    "balances",
                    "book_flight",
                    "delete_all",
                    "delete_branch",
                    "deploy",
                    "get_weather",
                    "refund_large",
                    "refund_order",
                    "resolve_work_item",
                    "transfer",
                    "weather_a",
                    "weather_asked",
                    "weather_b",
                    "weather_c",
                    "weather_d",
                    "weather_e",
                    "weather_f",
                    "weather_g",
                    "weather_h",
                    "weather_i",
                    "weather_lowlevel",
                    "weather_naive",
                ],
            ),
        ] {
            let leg = stage.client.request(method, json!({})).await;
            let listed: Vec<_> = leg.result()[list].as_array().unwrap().iter().map(|item| &item[field]).collect();
            assert_eq!(listed, values, "{era:?} {method}");
        }
    }
}

fn plan_day() -> Value {
    json!({"name": "plan_day"})
}

fn forecast() -> Value {
    json!({"uri": "weather://forecast/Tokyo"})
}
