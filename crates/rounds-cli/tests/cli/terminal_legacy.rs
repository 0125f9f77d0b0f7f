//! A user at a terminal, and legacy servers: they ask over the live connection, also several questions at the same
//! time.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    process::{Written, in_time, run},
    screen::Screen,
};

/// The start of a legacy server, in a few lines of shell.
fn shell(rest: &str) -> Written {
    let initialized = json!({"jsonrpc": "2.0", "id": 0, "result": {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "shell", "version": "1"},
    }});
    Written::new(&format!(
        "read initialize\necho '{initialized}'\nread initialized\nread call\n{rest}\ncat > /dev/null\n"
    ))
}

/// A line of such a server that asks for a number.
fn echo_question(id: u32, message: &str) -> String {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let params = json!({"message": message, "requestedSchema": schema});
    format!("echo '{}'", json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}))
}

/// A line of such a server that ends the call.
fn echo_thanks() -> String {
    let result = json!({"content": [{"type": "text", "text": "thanks"}]});
    format!("echo '{}'", json!({"jsonrpc": "2.0", "id": 1, "result": result}))
}

#[tokio::test]
async fn questions_that_a_legacy_server_asks_at_once_are_shown_one_after_the_other() {
    let answers = Written::nothing();
    let (first, second, thanks) = (echo_question(7, "First?"), echo_question(8, "Second?"), echo_thanks());
    let keep = format!("echo \"$one\" > {file}\necho \"$other\" >> {file}", file = answers.path());
    let script = shell(&format!("{first}\n{second}\nread one\nread other\n{keep}\n{thanks}"));
    let mut screen = Screen::start(&["call", "--stdio", &format!("sh {}", script.path()), "tool", "--era", "legacy"]);
    let mut numbers = json!({});
    for number in [1, 2] {
        let shown = screen.see("  > ").await;
        let id = if shown.contains("First?") { 7 } else { 8 };
        assert_eq!(shown.matches("asks:").count(), 1, "{shown:?}");
        numbers[id.to_string()] = json!(number);
        screen.say(&number.to_string()).await;
        screen.see("cancel > ").await;
        screen.say("perhaps").await;
        let shown = screen.see("cancel > ").await;
        assert!(!shown.contains("asks:") && !shown.contains("waiting"), "{shown:?}");
        screen.say("y").await;
    }
    let ended = screen.ended().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "thanks\n"), "{ended:?}");
    for answer in answers.read().lines() {
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(answer["result"]["content"]["n"], numbers[answer["id"].to_string()], "{answer}");
    }
}

/// A pipe on which a script waits until the test writes a line.
fn gate() -> Written {
    let gate = Written::nothing();
    assert!(Command::new("mkfifo").arg(gate.path()).status().unwrap().success());
    gate
}

#[tokio::test]
async fn the_log_of_a_server_on_pipes_does_not_mix_with_the_form() {
    let (gate, written) = (gate(), Written::nothing());
    let script = shell(&format!(
        "echo 'starting \u{1b}[2J' >&2\n{}\nread go < {}\necho 'still here' >&2\n: > {}\nread answer\n{}",
        echo_question(7, "How many?"),
        gate.path(),
        written.path(),
        echo_thanks(),
    ));
    let mut screen = Screen::start(&["call", "--stdio", &format!("sh {}", script.path()), "tool", "--era", "legacy"]);
    let before = screen.see("  > ").await;
    assert!(!before.contains('\u{1b}') || before.contains("\r\u{1b}[2K"), "{before:?}");
    fs::write(gate.path(), "go\n").unwrap();
    in_time("the log", async {
        while !written.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    screen.say("3").await;
    let form = screen.see("Send it? [yes], edit, decline or cancel > ").await;
    assert!(!form.contains("still here"), "{form:?}");
    screen.say("y").await;
    let ended = screen.ended().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "thanks\n"), "{ended:?}");
    assert!((before + &form + &ended.stderr).contains(r"server: starting \u{1b}[2J"), "it cannot clear the screen");
    assert!(ended.stderr.contains("server: still here\r\n"), "{ended:?}");
}

#[tokio::test]
async fn what_the_server_says_of_its_progress_is_shown_while_it_works() {
    let gate = gate();
    let told = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$token',"progress":1,"total":3,"message":"half\u001bway"}}"#;
    let token = r#"token=$(echo "$call" | sed 's/.*"progressToken":\([0-9]*\).*/\1/')"#;
    let script = shell(&format!("{token}\necho '{told}'\nread go < {}\n{}", gate.path(), echo_thanks()));
    let mut screen = Screen::start(&["call", "--stdio", &format!("sh {}", script.path()), "tool", "--era", "legacy"]);
    screen.see(r"s (1 of 3: half\u{1b}way)").await;
    fs::write(gate.path(), "go\n").unwrap();
    let ended = screen.ended().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "thanks\n"), "{ended:?}");
    assert!(ended.stderr.ends_with("\r\u{1b}[2K"), "it leaves nothing behind: {ended:?}");
}

/// A line of such a server that asks for a sample or for roots, which have neither a key nor a message.
fn echo_request(id: u32, method: &str) -> String {
    let params = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 9});
    let params = if method == "roots/list" { json!({}) } else { params };
    format!("echo '{}'", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

#[tokio::test]
async fn what_a_model_said_and_roots_are_given_to_a_legacy_server_too() {
    let answers = Written::nothing();
    let asked = ["sampling/createMessage", "roots/list", "sampling/createMessage", "sampling/createMessage"];
    let each = |(id, method): (u32, &&str)| {
        format!("{}\nread answer\necho \"$answer\" >> {}", echo_request(id, method), answers.path())
    };
    let asks: Vec<_> = (7..).zip(&asked).map(each).collect();
    let script = shell(&format!("{}\n{}", asks.join("\n"), echo_thanks()));
    let said = |text: &str| json!({"role": "assistant", "model": "none", "content": {"type": "text", "text": text}});
    let ended = run(&[
        "call",
        "--stdio",
        &format!("sh {}", script.path()),
        "tool",
        "--era",
        "legacy",
        "--answer",
        &format!("sample:={}", said("first")),
        "--answer",
        r#"roots:={"roots": [{"uri": "file:///here"}]}"#,
        "--answer",
        &format!("other:={}", said("second")),
    ])
    .await;
    assert_eq!(ended.printed(), "thanks\n");
    let answers: Vec<Value> = answers.read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let given: Vec<_> = answers.iter().map(|answer| &answer["result"]).collect();
    assert_eq!(given[0]["content"]["text"], "first", "{given:?}");
    assert_eq!(given[1]["roots"][0]["uri"], "file:///here", "{given:?}");
    assert_eq!((&given[2]["content"]["text"], &given[3]["content"]["text"]), (&json!("second"), &json!("second")));
}

#[tokio::test]
async fn a_question_that_a_legacy_server_takes_back_is_not_waited_for() {
    let withdrawn = gate();
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    let (question, thanks) = (echo_question(7, "How many?"), echo_thanks());
    let script = shell(&format!("{question}\nread go < {}\necho '{cancelled}'\n{thanks}", withdrawn.path()));
    let mut screen = Screen::start(&["call", "--stdio", &format!("sh {}", script.path()), "tool", "--era", "legacy"]);
    screen.see("  > ").await;
    fs::write(withdrawn.path(), "go\n").unwrap();
    let ended = screen.ended().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "thanks\n"), "{ended:?}");
}
