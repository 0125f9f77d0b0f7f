//! `call` against servers that are missing, are not MCP servers or are broken: each call ends by itself, with a short
//! error.

use serde_json::json;

use crate::{
    process::{Ended, run, unused_address},
    raw::{Raw, asks, form, says},
};

#[track_caller]
fn short(ended: &Ended, words: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.starts_with("rounds: ") && ended.stderr.contains(words), "{words} is not in {ended:?}");
    assert_eq!((ended.stderr.lines().count(), ended.stderr.len() < 500), (1, true), "{ended:?}");
    assert!(!ended.stderr.contains(|c: char| c.is_control() && c != '\n'), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_in_a_sentence() {
    let unused = unused_address();
    for scheme in ["http", "https"] {
        short(&run(&["call", &format!("{scheme}://{unused}/mcp"), "tool"]).await, "Connection refused");
    }
    short(&run(&["call", "--stdio", "no-such-program", "tool"]).await, "cannot start no-such-program: ");
    short(
        &run(&["call", "--stdio", "sh -c 'exit 3'", "tool"]).await,
        "ended without sending an MCP message: exit status: 3",
    );
}

#[tokio::test]
async fn what_a_server_says_instead_of_a_result_is_told_in_a_sentence() {
    let state_only = json!({"result": {"resultType": "input_required", "requestState": "again"}});
    let question = |question| asks(json!({"q\u{1b}[0m": question}));
    for (reply, words) in [
        (
            json!({"error": {"code": -32602, "message": "no such \u{1b}[2Jtool"}}),
            r"error -32602: no such \u{1b}[2Jtool",
        ),
        (json!({"result": {"resultType": "input_required"}}), "neither a question nor a state"),
        (json!({"result": {"resultType": "half\u{1b}c"}}), "resultType"),
        (state_only, "has not finished after 10 rounds"),
        (asks(json!({"q": form("Again?", json!({}), &[])})), "has not finished after 10 rounds"),
        (question(json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": 7}})), "schema"),
        (question(json!({"method": "no/question"})), "is not a question"),
        (json!({"result": {"resultType": "input_required", "requestState": "x".repeat(10 << 20)}}), "10485760 bytes"),
    ] {
        let raw = Raw::start([reply]).await;
        short(&run(&["call", &raw.url, "tool", "--answer", "q=accept"]).await, words);
    }
}

#[tokio::test]
async fn what_a_server_says_is_not_said_twice() {
    let data = json!({"requiredCapabilities": {"sampling": {}}});
    for (words, data) in
        [("needs a model", data), ("needs a model", json!(null)), (&"needs a model, ".repeat(30), json!(7))]
    {
        let raw = Raw::start([json!({"error": {"code": -32021, "message": words, "data": data}})]).await;
        let ended = run(&["call", &raw.url, "tool"]).await;
        assert_eq!(ended.stderr.matches("-32021").count(), 1, "{ended:?}");
        assert_eq!(ended.stderr.matches("requiredCapabilities").count(), usize::from(data.is_object()), "{ended:?}");
        short(&ended, "the server answered with error -32021: needs a model");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_has_as_long_as_the_timeout() {
    // It accepts connections and requests, and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    for at in [&[url.as_str()][..], &["--stdio", "sleep 600"]] {
        for era in ["auto", "modern", "legacy"] {
            let ended = run(&[&["call"], at, &["tool", "--era", era, "--timeout", "200ms"]].concat()).await;
            short(&ended, "did not complete the MCP handshake within 200ms; allow more time with --timeout");
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_come_to_an_end_has_as_long_as_the_timeout() {
    let raw = Raw::start_slow([says("never")]).await;
    let ended = run(&["call", &raw.url, "tool", "--timeout", "700ms"]).await;
    short(
        &ended,
        "the server did not finish within 700ms, not counting the time it waited for answers; allow more time",
    );
}

#[tokio::test]
async fn a_command_line_that_makes_no_sense_is_not_sent_anywhere() {
    for (args, words) in [
        (&["call"][..], "required"),
        (&["call", "ftp://server.example", "tool"], "is not an http:// or https:// URL"),
        (&["call", "weather", "location=Tokyo"], "is not an http:// or https:// URL"),
        (&["call", "http://127.0.0.1:1/mcp"], "the name of the tool, prompt or resource is missing"),
        (&["call", "http://127.0.0.1:1/mcp", "tool", "location"], "write NAME=TEXT or NAME:=JSON"),
        (&["call", "http://127.0.0.1:1/mcp", "tool", "n:=three"], "is not JSON"),
        (&["call", "http://127.0.0.1:1/mcp", "tool", "--answer", "units"], "write NAME=TEXT or NAME:=JSON"),
        (&["call", "http://127.0.0.1:1/mcp", "--resource", "a://b", "n=3"], "a resource takes no arguments"),
        (&["call", "--stdio", "'", "tool"], "is not a command"),
        (&["resume"], "required"),
    ] {
        let ended = run(args).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words} is not in {ended:?}");
    }
}

#[tokio::test]
async fn a_server_of_the_modern_era_only_and_one_that_does_not_know_it_do_not_meet() {
    let silent = "sh -c 'read line; echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":0,\\\"error\\\":{\\\"code\\\":-32601,\\\"message\\\":\\\"no\\\"}}\"; cat'";
    short(&run(&["call", "--era", "modern", "--stdio", silent, "tool"]).await, "-32601");
}
