//! `call` and `resume` on a terminal: what the user sees and types, and what must not be shown.

use serde_json::{Value, json};

use crate::{
    call::served_on_pipes,
    process::{Server, Written, in_time, run},
    raw::{Raw, asks, form, page, says},
    request::{METRIC, audit},
    screen::Screen,
};

#[tokio::test]
async fn a_person_sees_who_asks_and_answers_in_both_eras_and_on_pipes() {
    let server = Server::start(&[]).await;
    let stdio = served_on_pipes();
    for (at, address) in
        [(&[server.url.as_str()][..], server.url.clone()), (&["--stdio", &stdio], format!("`{stdio}`"))]
    {
        for era in ["modern", "legacy"] {
            let mut screen = Screen::start(&[&["call"], at, &["weather_h", "location=Tokyo", "--era", era]].concat());
            let who = screen.see("Which units?").await;
            assert!(who.contains("\"rounds-gallery\" at ") && who.contains(&address), "{who:?}");
            assert_eq!(who.contains(" left)"), era == "modern", "{who:?}");
            let form = screen.see("  > ").await;
            assert!(form.contains("Units (one of these)") && form.contains(" 1  metric\r\n"), "{form:?}");
            screen.say("1").await;
            let review = screen.see("Send it? [yes], edit, decline or cancel > ").await;
            assert!(review.contains("  Units  metric\r\n"), "{review:?}");
            screen.say("y").await;
            let ended = screen.ended().await;
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), format!("{METRIC}\n").as_str()), "{ended:?}");
        }
    }
    assert_eq!(audit(&server).await, json!({"weather_h": 2}));
}

/// Every kind of field.
fn everything() -> Value {
    form(
        "Tell us everything",
        json!({
            "a": {"type": "string", "title": "Name", "minLength": 2, "maxLength": 5, "description":
                "As in your passport"},
            "b": {"type": "string", "format": "email", "title": "E-mail"},
            "c": {"type": "string", "format": "date", "title": "Day"},
            "d": {"type": "integer", "minimum": 0, "maximum": 3, "default": 1, "title": "Bags"},
            "e": {"type": "number", "maximum": 23.5, "title": "Weight"},
            "f": {"type": "boolean", "default": true, "title": "Window"},
            "g": {"type": "string", "title": "Meal",
                  "oneOf": [{"const": "v", "title": "Vegetarian"}, {"const": "s", "title": "Standard"}]},
            "h": {"type": "array", "title": "Extras", "maxItems": 2,
                  "items": {"anyOf": [{"const": "w", "title": "Wi-Fi"}, {"const": "l", "title": "Lounge"},
                                      {"const": "f", "title": "Fast lane"}]}},
            "i": {"type": "object", "title": "Odd"},
        }),
        &["a", "g", "h"],
    )
}

#[tokio::test]
async fn every_kind_of_field_is_shown_checked_at_once_and_asked_again() {
    let raw = Raw::start([asks(json!({"q": everything()})), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for (shown, typed) in [
        ("Name (text, 2 to 5 characters)\r\n    As in your passport\r\n  > ", ""),
        ("! it is required; answer it, or type :decline or :cancel\r\n  > ", "A"),
        ("! must have a length of at least 2\r\n  > ", ":skip"),
        ("! it is required and cannot be left out", "Ada"),
        ("E-mail (e-mail address, optional)\r\n  > ", "ada"),
        ("! must be an e-mail address\r\n  > ", "ada@example.org"),
        ("Day (date such as 2026-07-28, optional)\r\n  > ", ":back"),
        ("E-mail (e-mail address, optional)\r\n  [ada@example.org] > ", ":skip"),
        ("Day (date such as 2026-07-28, optional)\r\n  > ", "2026-02-30"),
        ("! must be a date such as 2026-07-28\r\n  > ", ""),
        ("Bags (whole number from 0 to 3, optional)\r\n  [1] > ", "4"),
        ("! must be at most 3\r\n  [1] > ", ""),
        ("Weight (number, 23.5 or less, optional)\r\n  > ", "20.5"),
        ("Window (yes or no, optional)\r\n  [yes] > ", "perhaps"),
        ("! must be yes or no\r\n  [yes] > ", "no"),
        ("Meal (one of these)\r\n     1  Vegetarian\r\n     2  Standard\r\n  > ", "3"),
        ("! that is not one of these", "2"),
        ("Extras (up to 2 of these, with commas)\r\n", "1, 2, 3"),
        ("! must have a number of choices of at most 2\r\n", "1, fast lane"),
        ("Odd (JSON, optional)\r\n    as in the schema {", "{"),
        ("! must be JSON\r\n  > ", r#"{"a": 1}"#),
    ] {
        screen.see(shown).await;
        screen.say(typed).await;
    }
    let review = screen.see("Send it? [yes], edit, decline or cancel > ").await;
    for line in
        ["Name    Ada", "E-mail  (left out)", "Bags    1", "Window  no", "Meal    Standard", "Extras  Wi-Fi, Fast lane"]
    {
        assert!(review.contains(&format!("  {line}\r\n")), "{line} is not in {review:?}");
    }
    assert_eq!(raw.heard().len(), 1, "nothing is sent before the review");
    screen.say("edit").await;
    screen.see("Which field? 1 to 9, a name, or Enter for [all] > ").await;
    screen.say("").await;
    screen.see("  [Ada] > ").await;
    screen.say("Eve").await;
    for _ in 0..8 {
        screen.see(" > ").await;
        screen.say("").await;
    }
    screen.see("Name    Eve").await;
    screen.see("Send it? [yes], edit, decline or cancel > ").await;
    screen.say("").await;
    assert_eq!(screen.ended().await.code, Some(0));
    let content = json!({"a": "Eve", "d": 1, "e": 20.5, "f": false, "g": "s", "h": ["w", "f"], "i": {"a": 1}});
    assert_eq!(raw.answered(), json!({"q": {"action": "accept", "content": content}}));
}

#[tokio::test]
async fn edit_jumps_to_the_field_that_is_meant() {
    let fields = json!({"a": {"type": "string", "title": "Name"}, "b": {"type": "integer", "title": "Bags"}});
    let raw = Raw::start([asks(json!({"q": form("Who?", fields, &["a", "b"])})), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for (shown, typed) in [
        ("  > ", "Ada"),
        ("  > ", "1"),
        ("   1  Name  Ada\r\n   2  Bags  1\r\nSend it? [yes], edit, decline or cancel > ", "edit 2"),
        ("Bags (whole number)\r\n  [1] > ", "2"),
        ("   1  Name  Ada\r\n   2  Bags  2\r\nSend it? [yes], edit, decline or cancel > ", "e name"),
        ("Name (text)\r\n  [Ada] > ", "Eve"),
        ("   1  Name  Eve\r\n   2  Bags  2\r\nSend it? [yes], edit, decline or cancel > ", "edit 3"),
        ("! there is no field \"3\": type its number or its name\r\nSend it?", "edit"),
        ("Which field? 1 to 2, a name, or Enter for [all] > ", "bags"),
        ("  [2] > ", "3"),
        ("Send it? [yes], edit, decline or cancel > ", ""),
    ] {
        screen.see(shown).await;
        screen.say(typed).await;
    }
    assert_eq!(screen.ended().await.code, Some(0));
    assert_eq!(raw.answered(), json!({"q": {"action": "accept", "content": {"a": "Eve", "b": 3}}}));
}

#[tokio::test]
async fn a_yes_or_no_takes_one_answer_and_a_word() {
    let sure = |default: Value| {
        let mut field = json!({"type": "boolean", "title": "Really"});
        field["default"] = default;
        asks(json!({"q": form("Delete everything?", json!({"sure": field}), &["sure"])}))
    };
    for (typed, answer) in [
        (&["y"][..], json!({"action": "accept", "content": {"sure": true}})),
        (&["", "perhaps", "No"], json!({"action": "accept", "content": {"sure": false}})),
        (&["decline"], json!({"action": "decline"})),
        (&[":cancel"], json!({"action": "cancel"})),
    ] {
        let raw = Raw::start([sure(json!(true)), says("done")]).await;
        let mut screen = Screen::start(&["call", &raw.url, "tool"]);
        screen.see("│ Delete everything?").await;
        screen.see("Really (yes or no)").await;
        for line in typed {
            screen.see("yes, no, decline or cancel; it is sent at once > ").await;
            screen.say(line).await;
        }
        let ended = screen.ended().await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{ended:?}");
        assert!(!ended.stderr.contains(" > "), "there is no second prompt: {ended:?}");
        assert_eq!(raw.answered(), json!({"q": answer}));
    }
}

#[tokio::test]
async fn questions_and_fields_are_shown_in_the_order_that_the_server_says() {
    let text = || json!({"type": "string"});
    let mut who = form("Who travels?", json!({"age": text(), "name": text(), "title": text()}), &["name"]);
    who["params"]["_meta"] = json!({"rounds/order": ["title", "name", "age"]});
    let mut asked = asks(json!({"bags": form("How many bags?", json!({"n": text()}), &[]), "who": who}));
    asked["result"]["_meta"]["rounds/order"] = json!(["who", "bags"]);
    let raw = Raw::start([asked, says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for (shown, typed) in [
        ("asks, 1 of 2", None),
        ("Who travels?", None),
        ("title (text, optional)\r\n  > ", Some("Countess")),
        ("name (text)\r\n  > ", Some("Ada")),
        ("age (text, optional)\r\n  > ", Some("36")),
        ("   1  title  Countess\r\n   2  name   Ada\r\n   3  age    36\r\n", None),
        ("Send it? [yes], edit, decline or cancel > ", Some("")),
        ("asks, 2 of 2", None),
        ("How many bags?", None),
        ("n (text, optional)\r\n  > ", Some("2")),
        ("Send it? [yes], edit, decline or cancel > ", Some("")),
    ] {
        screen.see(shown).await;
        if let Some(typed) = typed {
            screen.say(typed).await;
        }
    }
    assert_eq!(screen.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_question_is_declined_or_cancelled_at_any_prompt() {
    let number = || asks(json!({"q": form("How many?", json!({"n": {"type": "integer"}}), &["n"])}));
    for (typed, action) in [
        (&[":decline"][..], "decline"),
        (&[":c"], "cancel"),
        (&["3", "decline"], "decline"),
        (&["3", "c"], "cancel"),
        (&["3", ":d"], "decline"),
    ] {
        let raw = Raw::start([number(), says("as you like")]).await;
        let mut screen = Screen::start(&["call", &raw.url, "tool"]);
        for line in typed {
            screen.see(" > ").await;
            screen.say(line).await;
        }
        assert_eq!(screen.ended().await.stdout, "as you like\n");
        assert_eq!(raw.answered(), json!({"q": {"action": action}}));
    }
}

#[tokio::test]
async fn ctrl_c_at_a_question_ends_the_program_and_says_nothing_for_the_person() {
    let raw = Raw::start([asks(json!({"q": form("Sure?", json!({}), &[])}))]).await;
    let server = Server::start(&[]).await;
    for args in
        [&["call", &raw.url, "tool"][..], &["call", &server.url, "weather_h", "location=Tokyo", "--era", "legacy"]]
    {
        let mut screen = Screen::start(args);
        screen.see(" > ").await;
        screen.press("\u{3}").await;
        let ended = screen.ended().await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(130), ""), "{ended:?}");
        assert!(
            ended.stderr.ends_with("\r\nrounds: stopped; the question was neither answered nor declined\r\n"),
            "{ended:?}"
        );
    }
    assert_eq!(raw.heard().len(), 1, "no answer was sent");
}

#[tokio::test]
async fn ctrl_c_while_the_server_works_says_so_and_loses_nothing_that_was_typed() {
    let number = asks(json!({"q": form("How many?", json!({"n": {"type": "integer"}}), &["n"])}));
    let (raw, file) = (Raw::start_slow([number, says("done")]).await, Written::nothing());
    raw.go();
    let saved = run(&["call", &raw.url, "tool", "--save", file.path()]).await;
    assert_eq!(saved.code, Some(75), "{saved:?}");

    let mut screen = Screen::start(&["resume", file.path()]);
    screen.see("  > ").await;
    screen.say("7").await;
    screen.see("cancel > ").await;
    screen.say("y").await;
    in_time("the answer", async {
        while raw.heard().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    screen.press("\u{3}").await;
    let ended = screen.ended().await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let said = "rounds: stopped while the server was working; its effects may have happened\r\n";
    assert!(ended.stderr.ends_with(said), "{ended:?}");

    let mut screen = Screen::start(&["resume", file.path()]);
    screen
        .see(
            "All questions were answered before, and the answers may have been sent. Send them again? yes or [no] \
                > ",
        )
        .await;
    screen.say("yes").await;
    raw.go();
    raw.go();
    assert_eq!(screen.ended().await.stdout, "done\n");
    assert_eq!(raw.answered(), json!({"q": {"action": "accept", "content": {"n": 7}}}), "the same answer again");
}

#[tokio::test]
async fn several_of_many_are_chosen_by_numbers_and_names_with_commas_in_them() {
    let names = json!({"type": "array", "items": {"type": "string", "enum": ["Smith, John", "Doe, Jane", " x "]}});
    for (typed, chosen) in
        [("1", json!(["Smith, John"])), ("doe, jane", json!(["Doe, Jane"])), ("3,1", json!([" x ", "Smith, John"]))]
    {
        let raw = Raw::start([asks(json!({"q": form("Who?", json!({"who": names}), &["who"])})), says("done")]).await;
        let mut screen = Screen::start(&["call", &raw.url, "tool"]);
        screen.see("  > ").await;
        screen.say(typed).await;
        screen.see("cancel > ").await;
        screen.say("y").await;
        assert_eq!(screen.ended().await.stdout, "done\n");
        assert_eq!(raw.answered()["q"]["content"], json!({"who": chosen}), "{typed}");
    }
}

#[tokio::test]
async fn the_end_of_the_input_is_no_answer() {
    let raw = Raw::start([asks(json!({"q": form("Sure?", json!({}), &[])}))]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    screen.see("Agree? yes, decline or cancel > ").await;
    screen.press("\u{4}").await;
    let ended = screen.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the input ended before an answer, so nothing was sent"), "{ended:?}");
    assert_eq!(raw.heard().len(), 1);
}

#[tokio::test]
async fn consent_takes_a_word_and_not_a_key_pressed_too_often() {
    let raw = Raw::start([asks(json!({"q": form("Delete everything?", json!({}), &[])})), says("gone")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    screen.see("│ Delete everything?").await;
    screen.see("Agree? yes, decline or cancel > ").await;
    screen.say("").await;
    screen.see("! type one of these words").await;
    screen.say("yes").await;
    assert_eq!(screen.ended().await.stdout, "gone\n");
    assert_eq!(raw.answered(), json!({"q": {"action": "accept", "content": {}}}));
}

#[tokio::test]
async fn a_page_is_shown_whole_with_where_it_leads_and_agreed_to_in_words() {
    let url = format!("https://bank.example@pay.example/checkout?session={}", "0123456789".repeat(20));
    let raw = Raw::start([asks(json!({"pay": page("Please pay", &url)})), says("paid")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    let shown = screen.see("Agree to visit it? yes, decline or cancel > ").await;
    assert!(shown.contains(&format!("  {url}\r\n")), "{shown:?}");
    assert!(shown.contains("It leads to pay.example."), "{shown:?}");
    screen.say("").await;
    screen.see("! type one of these words").await;
    screen.say("y").await;
    assert_eq!(screen.ended().await.stdout, "paid\n");
    assert_eq!(raw.answered(), json!({"pay": {"action": "accept"}}));
}

#[tokio::test]
async fn nothing_that_a_server_writes_is_obeyed_by_the_terminal() {
    let bad = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r";
    let field = json!({"title": bad, "description": bad, "type": "string",
        "oneOf": [{"const": "x", "title": bad}, {"const": "y", "title": "Y"}]});
    let odd = json!({"title": bad, "type": bad});
    let questions = json!({
        "a": form(&format!("Hello{bad}\nSend it? "), json!({"f": field, "g": odd}), &["f"]),
        "b": page(bad, &format!("https://x.example/{bad}")),
    });
    let raw = Raw::start([asks(questions), says(&format!("done{bad}"))]).await;
    let mut screen = Screen::start_all(&["call", "-v", &raw.url, "tool"]);
    let mut all = String::new();
    for typed in ["z", "1", "", "y", "y"] {
        all += &screen.see(" > ").await;
        screen.say(typed).await;
    }
    all += &screen.ended().await.stderr;
    assert!(all.contains(r"│ Hello\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}"), "{all:?}");
    assert!(all.contains("│ Send it?\r\n"), "the server's text is behind a bar: {all:?}");
    assert!(all.contains(r"done\u{1b}]0;owned"), "{all:?}");
    let ours = all.replace("\r\u{1b}[2K", "").replace("\r\n", "\n");
    let harmful = |c: char| c == '\u{202e}' || (c.is_control() && c != '\n');
    assert!(!ours.contains(harmful), "{ours:?}");
}

#[tokio::test]
async fn a_spinner_turns_while_the_server_works_and_leaves_nothing_behind() {
    let raw = Raw::start_slow([says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    screen.see("waiting for the server, 0s").await;
    raw.go();
    let ended = screen.ended().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"));
    assert!(ended.stderr.ends_with("\r\u{1b}[2K"), "{ended:?}");
}

#[tokio::test]
async fn what_is_typed_while_the_server_works_answers_nothing() {
    let raw = Raw::start_slow([asks(json!({"q": form("Sure?", json!({}), &[])})), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    screen.see("waiting for the server").await;
    screen.say("yes").await;
    screen.see("yes\r\n").await;
    raw.go();
    screen.see("Agree? yes, decline or cancel > ").await;
    screen.say("decline").await;
    raw.go();
    assert_eq!(screen.ended().await.code, Some(0));
    assert_eq!(raw.answered(), json!({"q": {"action": "decline"}}));
}

#[tokio::test]
async fn questions_of_one_round_are_counted_and_sent_together() {
    let two = json!({"a": form("First?", json!({}), &[]), "b": form("Second?", json!({}), &[])});
    let raw = Raw::start([asks(two), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for (which, answer) in [("asks, 1 of 2", "yes"), ("asks, 2 of 2", "decline")] {
        screen.see(which).await;
        screen.see(" > ").await;
        assert_eq!(raw.heard().len(), 1);
        screen.say(answer).await;
    }
    assert_eq!(screen.ended().await.code, Some(0));
    assert_eq!(raw.answered(), json!({"a": {"action": "accept", "content": {}}, "b": {"action": "decline"}}));
}

#[tokio::test]
async fn a_person_who_took_too_long_starts_over_with_what_they_typed() {
    let number = || asks(json!({"q": form("How many?", json!({"n": {"type": "integer"}}), &["n"])}));
    let refused =
        json!({"error": {"code": -32602, "message": "too late", "data": {"reason": "invalid_request_state"}}});
    let raw = Raw::start([number(), refused, number(), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for (shown, typed) in [
        ("  > ", "7"),
        ("cancel > ", ""),
        ("Start over, with what you answered filled in? [yes] or no > ", ""),
        ("  [7] > ", ""),
        ("cancel > ", ""),
    ] {
        screen.see(shown).await;
        screen.say(typed).await;
    }
    assert_eq!(screen.ended().await.stdout, "done\n");
    assert_eq!(raw.answered(), json!({"q": {"action": "accept", "content": {"n": 7}}}));
    assert!(raw.heard()[2]["requestState"].is_null(), "it is a new call");
}

#[tokio::test]
async fn a_saved_call_is_resumed_by_a_person() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    let saved = run(&["call", &server.url, "weather_e", "location=Tokyo", "--save", file.path()]).await;
    assert_eq!(saved.code, Some(75), "{saved:?}");
    let mut screen = Screen::start(&["resume", file.path()]);
    screen.see("│ Which units?").await;
    screen.see("  > ").await;
    screen.say("metric").await;
    screen.see("cancel > ").await;
    screen.say("y").await;
    assert_eq!(screen.ended().await.stdout, format!("{METRIC}\n"));
}

#[tokio::test]
async fn with_answers_or_a_file_to_save_to_nobody_is_asked_on_a_terminal_either() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    let call = ["call", &server.url, "weather_e", "location=Tokyo"];
    for (options, code) in [
        (&["--answer", "units=metric"][..], 0),
        (&["--answer", "unit=metric"], 1),
        (&["--decline"], 0),
        (&["--save", file.path()], 75),
    ] {
        let ended = Screen::start(&[&call[..], options].concat()).ended().await;
        assert_eq!(ended.code, Some(code), "{options:?} {ended:?}");
        assert!(!ended.stderr.contains(" > "), "{ended:?}");
    }
}

#[tokio::test]
async fn what_was_typed_for_nothing_can_be_sent_again() {
    let number = asks(json!({"q": form("How many?", json!({"n": {"type": "integer"}}), &["n"])}));
    let raw = Raw::start([number, json!({"error": {"code": -32603, "message": "broken"}})]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    screen.see("  > ").await;
    screen.say("7").await;
    screen.see("cancel > ").await;
    screen.say("y").await;
    let ended = screen.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(r#"{"q":{"n":7}}"#), "{ended:?}");
    assert!(ended.stderr.ends_with("error -32603: broken\r\n"), "{ended:?}");
}

#[tokio::test]
async fn help_is_there_at_every_prompt() {
    let raw =
        Raw::start([asks(json!({"q": form("Name?", json!({"n": {"type": "string"}}), &["n"])})), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for (shown, typed) in [("  > ", ":help"), (":decline  say no", ":dance"), (":dance is not a command", "::c")] {
        screen.see(shown).await;
        screen.say(typed).await;
    }
    screen.see("  n  :c\r\n").await;
    screen.say("y").await;
    assert_eq!(screen.ended().await.code, Some(0));
    assert_eq!(raw.answered()["q"]["content"], json!({"n": ":c"}));
}

#[tokio::test]
async fn keys_that_are_no_text_are_not_taken_for_some() {
    let raw = Raw::start([asks(json!({"q": form("?", json!({"n": {"type": "string"}}), &["n"])})), says("done")]).await;
    let mut screen = Screen::start(&["call", &raw.url, "tool"]);
    for typed in ["Ad\u{1b}[Da", "Zo\u{2c6}"] {
        screen.see("  > ").await;
        screen.say(typed).await;
    }
    screen.see("  n  Zo\u{2c6}\r\n").await;
    screen.say("y").await;
    assert_eq!(screen.ended().await.code, Some(0));
    assert_eq!(raw.answered()["q"]["content"], json!({"n": "Zo\u{2c6}"}));
}
