//! Questions, and the values of their answers.

use rmcp::schemars;
use rounds::{
    Answer, Ask, Era, FlowError, Limits, Rounds,
    observe::Station,
    test::{AskedRound, Client},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Count, Tool, Units, stage, stage_with, units};

#[tokio::test]
async fn a_handler_runs_once_and_goes_on_where_it_stopped() {
    let above = Count::default();
    let counted = above.clone();
    let stage = stage(move |ask: Ask| {
        counted.up();
        units(ask)
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    assert_eq!((asked.keys(), asked.message("units")), (vec!["units"], "Which units?"));
    let expected = json!({
        "type": "object",
        "properties": {"units": {"type": "string", "enum": ["metric", "imperial"], "title": "Units"}},
        "required": ["units"],
    });
    assert_eq!(asked.schema("units"), &expected);
    assert!(asked.state().len() <= 250, "{}", asked.state().len());
    let done = asked.accept("units", json!({"units": "imperial"})).send(&client).await;
    assert_eq!(done.text(), "Imperial");
    assert_eq!((above.get(), stage.events.runs("weather"), stage.server.waiting_calls()), (1, 1, 0));
    assert!(stage.events.stations().contains(&Station::Resumed));
    assert!(!client.was_pushed(), "a modern client is never pushed to");
}

#[tokio::test]
async fn an_option_may_be_left_empty_in_both_eras() {
    async fn note(ask: Ask) -> Result<String, FlowError> {
        let note: Option<String> = ask.form("Anything else?").await?;
        Ok(format!("{note:?}"))
    }
    let stage = stage(note);
    let (modern, legacy) = (Client::modern(stage.server.clone()).await, Client::legacy(stage.server.clone()).await);
    for (answer, text) in [
        (json!({"action": "accept", "content": {}}), "None"),
        (json!({"action": "accept"}), "None"),
        (json!({"action": "accept", "content": {"answer": null}}), "None"),
        (json!({"action": "accept", "content": {"answer": ""}}), "None"),
        (json!({"action": "accept", "content": {"answer": "no nuts"}}), "Some(\"no nuts\")"),
        (json!({"action": "decline"}), "The user declined: Anything else?"),
    ] {
        let asked = modern.call("note", json!({})).await.asked();
        assert_eq!(asked.schema("answer"), &json!({"type": "object", "properties": {"answer": {"type": "string"}}}));
        assert_eq!(asked.retry().respond("answer", answer.clone()).send(&modern).await.text(), text);
        let leg = legacy.start("tools/call", json!({"name": "note"})).await;
        legacy.pushed().await.unwrap().answer(answer).await;
        assert_eq!(leg.finish().await.text(), text);
    }
}

#[tokio::test]
async fn a_decline_and_a_dismissal_end_the_call_in_words() {
    let stage = stage(units);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    let declined = asked.decline("units").send(&client).await;
    assert_eq!((declined.text().as_str(), declined.is_tool_error()), ("The user declined: Which units?", true));
    let asked = client.call("weather", json!({})).await.asked();
    let cancelled = asked.cancel("units").send(&client).await;
    assert_eq!((cancelled.text().as_str(), cancelled.is_tool_error()), ("The user cancelled: Which units?", true));
}

#[tokio::test]
async fn the_answer_has_three_outcomes() {
    let stage = stage(|ask: Ask| async move {
        Ok(match ask.form::<Units>("Which units?").answer().await? {
            Answer::Accepted(units) => format!("{units:?}"),
            Answer::Declined => "no".to_owned(),
            Answer::Cancelled => "whatever".to_owned(),
        })
    });
    let client = Client::modern(stage.server.clone()).await;
    for (answer, text) in [
        (json!({"action": "accept", "content": {"units": "metric"}}), "Metric"),
        (json!({"action": "decline", "content": {"units": "metric"}}), "no"),
        (json!({"action": "cancel"}), "whatever"),
    ] {
        let asked = client.call("weather", json!({})).await.asked();
        assert_eq!(asked.retry().respond("units", answer).send(&client).await.text(), text);
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again_with_a_note_three_times() {
    let stage = stage(units);
    let client = Client::modern(stage.server.clone()).await;
    let mut asked = client.call("weather", json!({})).await.asked();
    for _ in 0..3 {
        asked = asked.accept("units", json!({"units": "kelvin"})).send(&client).await.asked();
        assert_eq!(asked.message("units"), "Which units? (`units` must be one of metric, imperial)");
    }
    let done = asked.accept("units", json!({"units": 7})).send(&client).await;
    assert_eq!(done.text(), "The answer to \"Which units?\" is not valid: `units` must be of type string");
    assert!(done.is_tool_error());
    assert_eq!(stage.events.runs("weather"), 1);
}

#[tokio::test]
async fn an_answer_that_is_missing_is_asked_for_again_and_unknown_ones_are_ignored() {
    let stage = stage(units);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    let asked = asked.retry().respond("other", json!({"action": "decline"})).send(&client).await.asked();
    assert_eq!(asked.message("units"), "Which units?");
    let asked = asked.retry().without("inputResponses").send(&client).await.asked();
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test]
async fn what_is_asked_again_is_the_same_question() {
    let stage = stage(|ask: Ask| async move {
        let (there, back, page): (Result<Units, _>, Result<Units, _>, Result<(), _>) = tokio::join!(
            ask.form("Which units?").into_future(),
            ask.form("And for the return?").into_future(),
            ask.url("Sign in", "https://example.com").into_future(),
        );
        page?;
        Ok(format!("{:?} {:?}", there?, back?))
    });
    let client = Client::modern(stage.server.clone()).await;
    let first = client.call("trip", json!({})).await.asked();
    let same = |one: &AskedRound, other: &AskedRound| {
        ["units", "units_2", "url"].iter().for_each(|key| assert_eq!(one.question(key), other.question(key)));
    };
    let second = first.retry().without("inputResponses").send(&client).await.asked();
    same(&second, &first);
    let noted = second.accept("units", json!({"units": "kelvin"})).send(&client).await.asked();
    assert_eq!(noted.message("units"), "Which units? (`units` must be one of metric, imperial)");
    let third = noted.retry().without("inputResponses").send(&client).await.asked();
    same(&third, &noted);
    let done = third
        .accept("units", json!({"units": "metric"}))
        .accept("units_2", json!({"units": "imperial"}))
        .respond("url", json!({"action": "accept"}));
    assert_eq!(done.send(&client).await.text(), "Metric Imperial");
}

#[tokio::test]
async fn answers_that_nobody_asked_for_are_not_read() {
    let stage = stage(units);
    let client = Client::modern(stage.server.clone()).await;
    let params = json!({
        "name": "weather", "arguments": {},
        "inputResponses": {"units": {"action": "accept", "content": {"units": "metric"}}},
    });
    let _ = client.request("tools/call", params).await.asked();
}

#[tokio::test]
async fn a_confirmation_is_true_only_when_accepted_and_true() {
    let stage = stage(|ask: Ask| async move { Ok(ask.confirm("Deploy to prod?").await?.to_string()) });
    let client = Client::modern(stage.server.clone()).await;
    for (answer, text) in [
        (json!({"action": "accept", "content": {"confirm": true}}), "true"),
        (json!({"action": "accept", "content": {"confirm": false}}), "false"),
        (json!({"action": "decline", "content": {"confirm": true}}), "false"),
        (json!({"action": "cancel"}), "false"),
    ] {
        let asked = client.call("deploy", json!({})).await.asked();
        assert_eq!(asked.schema("confirm")["properties"], json!({"confirm": {"type": "boolean"}}));
        assert_eq!(asked.retry().respond("confirm", answer).send(&client).await.text(), text);
    }
}

#[tokio::test]
async fn keys_are_named_after_types_unless_they_are_given() {
    #[derive(Deserialize, schemars::JsonSchema)]
    struct DayTrip {
        place: String,
    }
    let stage = stage(|ask: Ask| async move {
        let (trip, units, again, free): (Result<DayTrip, _>, Result<Units, _>, Result<Units, _>, Result<String, _>) = tokio::join!(
            ask.form("Where?").into_future(),
            ask.form("Which units?").into_future(),
            ask.form("And for the return?").into_future(),
            ask.form("Anything else?").key("free").into_future(),
        );
        Ok(format!("{} {:?} {:?} {}", trip?.place, units?, again?, free?))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("trip", json!({})).await.asked();
    assert_eq!(asked.keys(), ["day_trip", "units", "units_2", "free"]);
    let done = asked
        .accept("day_trip", json!({"place": "Kyoto"}))
        .accept("free", json!({"free": "no"}))
        .accept("units", json!({"units": "metric"}))
        .accept("units_2", json!({"units": "imperial"}));
    assert_eq!(done.send(&client).await.text(), "Kyoto Metric Imperial no");
}

#[tokio::test]
async fn two_questions_with_the_same_explicit_key_are_a_mistake_that_is_named() {
    let stage = stage(|ask: Ask| async move {
        let one = ask.form::<Units>("One?").key("k").into_future();
        let two = ask.form::<Units>("Two?").key("k").into_future();
        tokio::try_join!(one, two)?;
        Ok(String::new())
    });
    let client = Client::modern(stage.server.clone()).await;
    let leg = client.call("x", json!({})).await;
    assert_eq!(leg.error()["message"], "two questions of this round have the key `k`: give each its own key");
}

#[tokio::test]
#[expect(deprecated, reason = "deprecated questions work as long as rmcp has them")]
async fn pages_models_and_roots_can_be_asked_for() {
    use rmcp::model::{CreateMessageRequestParams, SamplingMessage};
    let stage = stage(|ask: Ask| async move {
        ask.url("Sign in", "https://example.com/in").await?;
        let said =
            ask.sample(CreateMessageRequestParams::new(vec![SamplingMessage::user_text("Capital?")], 10)).await?;
        let roots = ask.roots().await?;
        let said = said.message.content.first().and_then(|content| content.as_text()).map(|text| text.text.clone());
        Ok(format!("{} {}", said.unwrap_or_default(), roots.roots[0].uri))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert_eq!(asked.question("url")["params"]["url"], "https://example.com/in");
    let asked = asked.retry().respond("url", json!({"action": "accept"})).send(&client).await.asked();
    assert_eq!(asked.question("sample")["method"], "sampling/createMessage");
    let message = json!({"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"});
    let asked = asked.retry().respond("sample", message).send(&client).await.asked();
    assert_eq!(asked.question("roots")["method"], "roots/list");
    let done = asked.retry().respond("roots", json!({"roots": [{"uri": "file:///a"}]})).send(&client).await;
    assert_eq!(done.text(), "Paris file:///a");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_gets_32021_a_default_or_a_hint() {
    let plain = stage(units);
    let client = Client::modern(plain.server.clone()).await.declaring(json!({}));
    let refused = client.call("weather", json!({})).await;
    assert_eq!(refused.error()["code"], -32021);
    assert_eq!(refused.error()["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
    assert_eq!(plain.server.waiting_calls(), 0);

    let with_default = stage(|ask: Ask| async move {
        assert!(!ask.can_form() && !ask.can_url());
        Ok(format!("{:?}", ask.form("Which units?").or(Units::Metric).await?))
    });
    let client = Client::modern(with_default.server.clone()).await.declaring(json!({}));
    assert_eq!(client.call("weather", json!({})).await.text(), "Metric");

    let with_argument = stage(|ask: Ask| async move {
        Ok(format!("{:?}", ask.form::<Units>("Which units?").or_argument("units").await?))
    });
    let client = Client::modern(with_argument.server.clone()).await.declaring(json!({"elicitation": {"url": {}}}));
    let hint = client.call("weather", json!({})).await;
    assert!(hint.is_tool_error());
    assert!(hint.text().contains("\"Which units?\"") && hint.text().contains("argument `units`"), "{}", hint.text());
    assert_eq!(client.call("weather", json!({"units": "imperial"})).await.text(), "Imperial");
    let wrong = client.call("weather", json!({"units": "kelvin"})).await;
    assert!(wrong.is_tool_error() && wrong.text().contains("must be one of metric, imperial"), "{}", wrong.text());
}

#[tokio::test]
async fn a_default_does_not_stand_in_for_a_person_who_said_no() {
    let stage = stage(|ask: Ask| async move { Ok(format!("{:?}", ask.form("Which units?").or(Units::Metric).await?)) });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    assert_eq!(asked.decline("units").send(&client).await.text(), "The user declined: Which units?");
}

#[tokio::test]
async fn capabilities_are_looked_at_on_every_leg() {
    let stage = stage(|ask: Ask| async move {
        let first: Units = ask.form("First?").key("a").await?;
        let second = ask.form("Second?").key("b").or(Units::Metric).await?;
        Ok(format!("{first:?} {second:?}"))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let done = asked.accept("a", json!({"a": "imperial"})).send(&client.declaring(json!({}))).await;
    assert_eq!(done.text(), "Imperial Metric");
}

#[tokio::test]
async fn a_person_who_never_gets_it_right_meets_the_limit_of_rounds_too() {
    let stage = stage_with(units, |builder| builder.limits(Limits::default().with_rounds(2)));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("weather", json!({})).await.asked();
    let asked = asked.retry().send(&client).await.asked();
    let done = asked.retry().send(&client).await;
    assert!(done.is_tool_error());
    assert_eq!(
        done.text(),
        "this call has asked 2 times, which is the limit: start it again, or raise `Limits::with_rounds`"
    );
    assert_eq!(stage.server.waiting_calls(), 0, "no call waits any more");
}

#[tokio::test]
async fn in_a_server_that_nobody_wrapped_it_says_what_to_write() {
    let client = Client::modern(Tool(units)).await;
    let message = client.call("weather", json!({})).await.error()["message"].clone();
    let said = message.as_str().unwrap();
    assert!(said.starts_with("`Ask` needs the server to be wrapped: write `Rounds::new(server)"), "{said}");
}

#[tokio::test]
async fn the_same_retry_gets_the_same_reply_and_another_is_refused() {
    let stage = stage(|ask: Ask| async move {
        let first: Units = ask.form("First?").key("a").await?;
        let second: Units = ask.form("Second?").key("b").await?;
        Ok(format!("{first:?} {second:?}"))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let first = asked.accept("a", json!({"a": "metric"}));
    let second = first.send(&client).await.asked();
    let again = first.send(&client).await.asked();
    assert_eq!(again.result(), second.result(), "an older token gives the same next question");
    asked.accept("a", json!({"a": "imperial"})).send(&client).await.frozen();
    let last = second.accept("b", json!({"b": "metric"}));
    assert_eq!(last.send(&client).await.text(), "Metric Metric");
    assert_eq!(last.send(&client).await.text(), "Metric Metric", "the same after the handler has ended");
    second.decline("b").send(&client).await.frozen();
    assert_eq!(stage.events.runs("x"), 1);
}

#[tokio::test]
async fn the_era_and_what_can_be_asked_are_there_to_be_looked_at() {
    let look = |ask: Ask| async move {
        let can = [ask.can_form(), ask.can_url(), ask.can_sample(), ask.can_roots()];
        Ok(format!("{:?} {can:?}", ask.era()))
    };
    let server = Rounds::new(Tool(look));
    for (era, capabilities, seen) in [
        (Era::Modern, json!({"elicitation": {}}), "Modern [true, false, false, false]"),
        (Era::Modern, json!({"elicitation": {"url": {}}, "roots": {}}), "Modern [false, true, false, true]"),
        (Era::Legacy, json!({"elicitation": {}, "sampling": {}}), "Legacy [true, false, true, false]"),
        (Era::Legacy, json!({}), "Legacy [false, false, false, false]"),
    ] {
        let client = Client::connect(server.clone(), era, capabilities).await;
        assert_eq!(client.call("x", Value::Null).await.text(), seen);
    }
}

#[tokio::test]
async fn a_type_that_no_form_can_express_fails_in_the_first_test() {
    #[derive(Deserialize, schemars::JsonSchema)]
    struct Inner {
        #[expect(dead_code, reason = "only its schema is looked at")]
        deep: String,
    }
    #[derive(Deserialize, schemars::JsonSchema)]
    struct Outer {
        #[expect(dead_code, reason = "only its schema is looked at")]
        inner: Inner,
    }
    let stage = stage(|ask: Ask| async move {
        let _: Outer = ask.form("Well?").await?;
        Err(FlowError::failed("unreachable"))
    });
    let client = Client::modern(stage.server.clone()).await;
    let leg = client.call("x", json!({})).await;
    let message = leg.error()["message"].as_str().unwrap();
    assert!(message.contains("Outer` cannot be asked for with a form: `inner` is a struct"), "{message}");
}

#[tokio::test]
async fn an_argument_is_found_whichever_kind_of_question_cannot_be_asked() {
    let stage = stage(|ask: Ask| async move {
        let first: Units = ask.form("First?").key("first").await?;
        let second: Units = ask.form("Second?").or_argument("second").await?;
        Ok(format!("{first:?} {second:?}"))
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({"second": "imperial"})).await.asked();
    let done = asked.accept("first", json!({"first": "metric"})).send(&client.declaring(json!({}))).await;
    assert_eq!(done.text(), "Metric Imperial", "the same when the client has stopped declaring forms");
}
