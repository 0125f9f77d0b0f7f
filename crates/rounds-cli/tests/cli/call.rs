//! `call` without a terminal: answers that were given on the command line, results on stdout, and everything else on
//! stderr.

use serde_json::{Value, json};

use crate::{
    process::{Server, Written, run},
    raw::{Raw, asks, form, page, says},
    request::{METRIC, audit},
};

/// The command that starts `rounds serve`.
pub(crate) fn served_on_pipes() -> String {
    format!("'{}' serve --stdio", env!("CARGO_BIN_EXE_rounds"))
}

#[tokio::test]
async fn a_question_is_answered_from_the_command_line_in_both_eras_and_on_pipes() {
    let server = Server::start(&[]).await;
    let stdio = served_on_pipes();
    for at in [&[server.url.as_str()][..], &["--stdio", &stdio]] {
        for era in ["modern", "legacy", "auto"] {
            let options = ["weather_h", "location=Tokyo", "--era", era, "--answer", "units.units=metric"];
            let printed = run(&[&["call"], at, &options].concat()).await.printed();
            assert_eq!(printed, format!("{METRIC}\n"), "{at:?} {era}");
        }
    }
    assert_eq!(audit(&server).await, json!({"weather_h": 3}));
}

#[tokio::test]
async fn prompts_and_resources_are_asked_for_as_well() {
    let server = Server::start(&[]).await;
    let prompt = run(&["call", &server.url, "--prompt", "plan_day", "--answer", "pace=slow"]).await.printed();
    assert_eq!(prompt, "user: Plan a day for me, at a slow pace.\n");
    let uri = "weather://forecast/Tokyo";
    let resource = run(&["call", "--resource", &server.url, uri, "--answer", "units=metric"]).await.printed();
    assert_eq!(resource, format!("{METRIC}\n"));
}

#[tokio::test]
async fn arguments_are_texts_or_json_and_the_state_comes_back_as_it_came() {
    let raw = Raw::start([asks(json!({"sure": form("Sure?", json!({}), &[])})), says("done")]).await;
    let args = ["call", &raw.url, "tool", "n=3", "m:=3", "list:=[1]", "--answer", "sure=accept"];
    assert_eq!(run(&args).await.printed(), "done\n");
    let heard = raw.heard();
    for leg in &heard {
        assert_eq!(leg["arguments"], json!({"n": "3", "m": 3, "list": [1]}));
    }
    assert_eq!(heard[1]["requestState"], "as it came");
    assert_eq!(heard[1]["inputResponses"], json!({"sure": {"action": "accept", "content": {}}}));
}

fn details() -> Value {
    asks(json!({
        "details": form("A few details", json!({
            "bags": {"type": "integer", "minimum": 0, "maximum": 3, "default": 1},
            "window": {"type": "boolean"},
            "meal": {"type": "string", "oneOf": [{"const": "v", "title": "Vegetarian"}, {"const": "s", "title": "Standard"}]},
            "odd": {"type": "object"},
        }), &["meal"]),
        "pay": page("Please pay", "https://pay.example/42"),
    }))
}

#[tokio::test]
async fn each_field_is_read_as_its_kind_and_what_is_not_given_is_its_default() {
    let raw = Raw::start([details(), says("done")]).await;
    let answers = ["details.window=yes", "details.meal=vegetarian", "details.odd:={\"a\":[1]}", "pay=accept"];
    let answers = answers.iter().flat_map(|answer| ["--answer", answer]);
    run(&["call", raw.url.as_str(), "tool"].into_iter().chain(answers).collect::<Vec<_>>()).await.printed();
    let details = json!({"bags": 1, "window": true, "meal": "v", "odd": {"a": [1]}});
    let expected = json!({"details": {"action": "accept", "content": details}, "pay": {"action": "accept"}});
    assert_eq!(raw.answered(), expected);
}

#[tokio::test]
async fn answers_come_from_a_file_and_the_command_line_knows_better() {
    let raw = Raw::start([details(), says("done")]).await;
    let file = Written::new(r#"{"details": {"meal": "s", "bags": 2}, "pay": "decline"}"#);
    let args = ["call", &raw.url, "tool", "--answers", file.path(), "--answer", "details.bags:=3"];
    run(&args).await.printed();
    let details = json!({"action": "accept", "content": {"bags": 3, "meal": "s"}});
    assert_eq!(raw.answered(), json!({"details": details, "pay": {"action": "decline"}}));
}

#[tokio::test]
async fn what_has_no_other_answer_is_declined_when_asked_to() {
    let raw = Raw::start([details(), says("done")]).await;
    run(&["call", &raw.url, "tool", "--decline", "--answer", "pay=cancel"]).await.printed();
    assert_eq!(raw.answered(), json!({"details": {"action": "decline"}, "pay": {"action": "cancel"}}));

    let server = Server::start(&[]).await;
    for era in ["modern", "legacy"] {
        for how in [&["--decline"][..], &["--answer", "units=decline"], &["--answer", "*=decline"]] {
            let call = ["call", &server.url, "weather_h", "location=Tokyo", "--era", era];
            let printed = run(&[&call[..], how].concat()).await.printed();
            assert_eq!(printed, "Cancelled (decline).\n", "{era} {how:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_not_sent() {
    let raw = Raw::start([details()]).await;
    for (answer, why) in [
        ("details.bags=4", "`bags` must be at most 3"),
        ("details.bags=many", "`bags` must be a whole number"),
        ("details.meal=fish", "`meal` must be one of v, s"),
        ("details.window:=1", "`window` must be of type boolean"),
        ("details.bag=1", "it has no field `bag`; its fields: bags, meal, odd, window"),
        ("details=perhaps", "a form takes its fields, accept, decline or cancel"),
        ("details=accept", "`meal` is missing"),
        ("details:={\"meal\": \"v\", \"bag\": 1}", "it has no field `bag`; its fields: bags, meal, odd, window"),
    ] {
        let ended = run(&["call", &raw.url, "tool", "--answer", answer]).await;
        ended.failed(&format!("the answer to \"details\" does not fit, and was not sent: {why}"));
    }
    let ended = run(&["call", &raw.url, "tool", "--answer", "details.meal=v", "--answer", "pay=perhaps"]).await;
    ended.failed("the answer to \"pay\" does not fit, and was not sent: a page takes accept, decline or cancel");
    assert!(raw.heard().iter().all(|leg| leg["inputResponses"].is_null()), "no answer was sent");
}

#[tokio::test]
async fn a_question_without_an_answer_is_an_error_that_says_what_could_be_answered() {
    let server = Server::start(&[]).await;
    run(&["call", &server.url, "weather_e", "location=Tokyo"]).await.failed(
        "there is no answer to \"units\", which asks: Which units?\n  --answer 'units.units=metric|imperial'\n\
         --save FILE stops here instead, and `rounds resume FILE` continues.",
    );
    let legacy = run(&["call", &server.url, "weather_h", "location=Tokyo", "--era", "legacy"]).await;
    legacy.failed(
        "there is no answer to \"Which units?\", which asks: Which units?\n  --answer 'units=metric|imperial'\n\
         The question came over a live connection, so the call cannot be saved and answered later.",
    );
}

#[tokio::test]
async fn what_a_server_calls_its_questions_is_quoted_for_whoever_pastes_it() {
    let choices = json!({"type": "string", "enum": ["a", "$(reboot)"]});
    let text = json!({"type": "string"});
    let fields = json!({"c": choices, "First name": text, "a=b": text, "plain": text});
    let raw = Raw::start([asks(json!({"k$(reboot)": form("?", fields, &["c", "First name", "a=b", "plain"])}))]).await;
    let said = run(&["call", &raw.url, "tool"]).await.stderr;
    for way in [
        "  --answer 'k$(reboot).c=a|$(reboot)'\n",
        "  --answer 'k$(reboot).First name=VALUE'\n",
        "  --answers FILE, for \"k$(reboot).a=b\": its name has a = in it\n",
        "  --answer 'k$(reboot).plain=VALUE'\n",
    ] {
        assert!(said.contains(way), "{way} {said}");
    }
}

#[tokio::test]
async fn json_is_the_result_or_the_questions() {
    let server = Server::start(&[]).await;
    let call = ["call", &server.url, "weather_e", "location=Tokyo", "--json"];
    let done: Value =
        serde_json::from_str(&run(&[&call[..], &["--answer", "units=metric"]].concat()).await.printed()).unwrap();
    assert_eq!((&done["status"], &done["isError"]), (&json!("done"), &json!(false)));
    assert_eq!(done["result"]["content"][0]["text"], METRIC);

    let ended = run(&call).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let asks: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&asks["status"], &asks["server"]["address"]), (&json!("asks"), &json!(server.url)));
    let question = &asks["questions"][0];
    assert_eq!((&question["key"], &question["message"]), (&json!("units"), &json!("Which units?")));
    assert_eq!(question["fields"][0]["choices"][1], json!({"value": "imperial", "title": "imperial"}));
    assert!(asks["expiresInSeconds"].as_u64().unwrap() <= 600, "{asks}");
    assert!(!ended.stdout.contains("r1."), "a state is not printed: {ended:?}");
}

#[tokio::test]
async fn a_tool_that_fails_is_a_failure_with_its_words() {
    let failed = json!({"result": {
        "resultType": "complete", "isError": true, "content": [{"type": "text", "text": "no such \u{1b}[31mplace"}],
    }});
    let raw = Raw::start([failed]).await;
    run(&["call", &raw.url, "tool"]).await.failed(r"the tool failed: no such \u{1b}[31mplace");
    let ended = run(&["call", &raw.url, "tool", "--json"]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""), "{ended:?}");
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap()["isError"], true);
}

#[tokio::test]
async fn every_leg_is_shown_to_those_who_ask_with_the_size_of_its_state() {
    let server = Server::start(&[]).await;
    let args = ["call", "-v", &server.url, "weather_e", "location=Tokyo", "--answer", "units=metric"];
    let ended = run(&args).await;
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{METRIC}\n")));
    let legs: Vec<_> = ended.stderr.lines().collect();
    assert_eq!(legs.len(), 4, "{legs:?}");
    let bytes = legs[1].strip_prefix("leg 1 ← asks units; state of ").unwrap().split(' ').next().unwrap();
    assert!(bytes.parse::<usize>().unwrap() > 100, "{legs:?}");
    assert_eq!(legs[0], "leg 1 → tools/call weather_e; no state");
    assert_eq!(legs[2], format!("leg 2 → tools/call weather_e; 1 answer; state of {bytes} bytes"));
    assert!(legs[3].starts_with("leg 2 ← done; "), "{legs:?}");
}

#[tokio::test]
async fn a_token_goes_with_every_request() {
    let raw = Raw::start([asks(json!({"q": form("?", json!({}), &[])})), says("done")]).await;
    run(&["call", &raw.url, "tool", "--answer", "q=accept", "--bearer", "s3cret"]).await.printed();
    assert!(raw.authorized().len() >= 3, "discover and two legs");
    assert!(raw.authorized().iter().all(|header| header.as_deref() == Some("Bearer s3cret")), "{:?}", raw.authorized());
}

#[tokio::test]
async fn an_answer_to_what_was_not_asked_is_told() {
    let raw = Raw::start([says("done")]).await;
    let ended = run(&["call", &raw.url, "tool", "--answer", "unit=metric"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{ended:?}");
    assert_eq!(ended.stderr, "rounds: the answer \"unit\" was not used: no question asked for it\n");
}

#[tokio::test]
async fn a_model_and_roots_are_answered_for_by_those_who_say_so() {
    let sample = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    let questions = json!({"haiku": sample, "roots": {"method": "roots/list"}});
    let raw = Raw::start([asks(questions.clone()), says("done")]).await;
    let haiku = r#"haiku:={"role": "assistant", "content": {"type": "text", "text": "old pond"}, "model": "me"}"#;
    let roots = r#"roots:={"roots": [{"uri": "file:///tmp"}]}"#;
    run(&["call", &raw.url, "tool", "--answer", haiku, "--answer", roots]).await.printed();
    assert_eq!(raw.answered()["haiku"]["content"]["text"], "old pond");
    assert_eq!(raw.answered()["roots"]["roots"][0]["uri"], "file:///tmp");
    let declared = raw.heard()[0]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    assert!(declared["sampling"].is_object() && declared["roots"].is_object(), "{declared}");

    let raw = Raw::start([asks(questions)]).await;
    let ended = run(&["call", &raw.url, "tool"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("\"haiku\""), "{ended:?}");
    let declared = raw.heard().last().unwrap()["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    assert!(declared["sampling"].is_null() && declared["roots"].is_null(), "{declared}");
}
