//! `keygen` and `open`.

use std::fs;

use serde_json::{Value, json};

use crate::{
    process::{Server, Written, run, run_with_stdin},
    request::{ask, call, post, state_of},
};

#[tokio::test]
async fn a_new_key_is_32_bytes_of_hex_on_a_line_and_each_is_another() {
    let key = run(&["keygen"]).await.printed();
    let digits = key.strip_suffix('\n').unwrap();
    assert_eq!(digits.len(), 64);
    assert!(digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{digits}");
    assert_ne!(run(&["keygen"]).await.printed(), key);
}

#[tokio::test]
async fn whoever_has_the_key_can_look_into_a_token() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    let token = ask(&server, &[]).await;

    let shown = run(&["open", &token, "--key-file", keys.path()]).await.printed();
    let has = |start: &str| shown.lines().any(|line| line.starts_with(start));
    for start in ["flow ", "request    tools/call weather_e", "principal  none", "asked      units (Form)"] {
        assert!(has(start), "{start} is not in\n{shown}");
    }
    let piped = run_with_stdin(&["open", "-", "--key-file", keys.path()], &format!("  {token}\n")).await.printed();
    assert_eq!(piped, shown);
}

#[tokio::test]
async fn the_journal_of_a_durable_token_is_shown_and_saved() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path(), "--format", "current"]).await;
    let response: Value = post(&server, call("weather_i"), &[]).await.json().await.unwrap();
    let open = ["open", &state_of(&response), "--key-file", keys.path()];
    let shown = run(&open).await.printed();
    assert!(shown.contains(r#"journal  0 Once { name: "audit", value: "null" }"#), "{shown}");

    let file = Written::new("");
    assert_eq!(run(&[&open[..], &["--journal", file.path()]].concat()).await.printed(), shown);
    assert_eq!(file.mode(), 0o600, "the journal in it is not sealed");
    let journal: Value = serde_json::from_str(&fs::read_to_string(file.path()).unwrap()).unwrap();
    assert_eq!(journal["version"], 2);
    assert_eq!(journal["entries"], json!([{"Once": {"name": "audit", "value": "null"}}]));
    assert_eq!(journal["open"][0]["key"], "units");

    let nowhere = [&open[..], &["--journal", "/no/such/folder/file"]].concat();
    run(&nowhere).await.failed("cannot write /no/such/folder/file: No such file or directory (os error 2)");
}

#[tokio::test]
async fn a_journal_is_not_written_over_what_is_not_a_file() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    let response: Value = post(&server, call("weather_i"), &[]).await.json().await.unwrap();
    let (pipe, target, link) = (Written::nothing(), Written::new("as it was"), Written::nothing());
    assert!(std::process::Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    std::os::unix::fs::symlink(target.path(), link.path()).unwrap();
    for (file, what) in [(pipe.path(), "a pipe"), (link.path(), "a symbolic link"), ("/dev/null", "a device")] {
        let open = ["open", &state_of(&response), "--key-file", keys.path(), "--journal", file];
        run(&open).await.failed(&format!("cannot write {file}: it is {what}; choose a new file or a regular file"));
    }
    assert_eq!(target.read(), "as it was");
}

#[tokio::test]
async fn what_a_client_put_into_a_token_is_shown_without_effect() {
    let (keys, file) = (Written::key().await, Written::nothing());
    let server = Server::start(&["--key-file", keys.path()]).await;
    let uri = "weather://forecast/\u{1b}[2J\u{202e}\u{9b}x\nprincipal  none";
    let saved = run(&["call", "--resource", &server.url, uri, "--save", file.path()]).await;
    assert_eq!(saved.code, Some(75), "{saved:?}");
    let saved: Value = serde_json::from_str(&file.read()).unwrap();
    let token = saved["pending"]["state"].as_str().unwrap();
    let shown = run(&["open", token, "--key-file", keys.path()]).await.printed();
    assert!(
        shown.contains(r"request    resources/read weather://forecast/\u{1b}[2J\u{202e}\u{9b}x\u{a}principal"),
        "{shown:?}"
    );
    assert!(!shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown:?}");
    assert_eq!(shown.lines().filter(|line| line.starts_with("principal")).count(), 1, "{shown}");
}

#[tokio::test]
async fn a_key_file_that_others_can_read_is_warned_of() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    let token = ask(&server, &[]).await;
    let open = ["open", &token, "--key-file", keys.path()];
    for mode in [0o600, 0o400, 0o700] {
        keys.set_mode(mode);
        run(&open).await.printed();
    }
    for mode in [0o640, 0o604, 0o644] {
        keys.set_mode(mode);
        let opened = run(&open).await;
        assert_eq!(opened.code, Some(0), "{opened:?}");
        let warned = format!("the key file {} can be read by users other than its owner (mode {mode:o})", keys.path());
        assert!(opened.stderr.contains("WARN") && opened.stderr.contains(&warned), "{opened:?}");
    }
    // A pipe has no owner to check.
    let piped = run_with_stdin(&["open", &token, "--key-file", "/dev/stdin"], &keys.read()).await;
    piped.printed();
}

#[tokio::test]
async fn a_token_without_a_journal_is_told_in_a_sentence_and_leaves_the_file_alone() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    for tool in ["weather_e", "weather_f", "weather_h"] {
        let response: Value = post(&server, call(tool), &[]).await.json().await.unwrap();
        let file = Written::new("as it was");
        let open = ["open", &state_of(&response), "--key-file", keys.path(), "--journal", file.path()];
        run(&open).await.failed(
            "the token has no journal: only the tokens of durable handlers have one, so leave out \
                                 --journal",
        );
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "as it was");
    }
}

#[tokio::test]
async fn a_token_is_opened_under_the_audience_it_was_sealed_for() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path(), "--audience", "weather-prod"]).await;
    let token = ask(&server, &[]).await;
    let open = ["open", &token, "--key-file", keys.path()];
    run(&open).await.failed(
        "cannot open the token: no key of this ring sealed the state: it is of another server or audience, or its key \
         was retired",
    );
    run(&[&open[..], &["--audience", "weather-prod"]].concat()).await.printed();
}

#[tokio::test]
async fn a_token_that_was_changed_or_is_none_is_refused_in_a_sentence() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    let mut token = ask(&server, &[]).await;
    let middle = token.len() / 2;
    let other = if token[middle..].starts_with('A') { "B" } else { "A" };
    token.replace_range(middle..=middle, other);

    let open = async |token| run(&["open", token, "--key-file", keys.path()]).await;
    open(&token).await.failed("cannot open the token: the state was changed after it was sealed");
    open("hello").await.failed("cannot open the token: the state is not a token of this format");
    let much = "r1.".to_owned() + &"A".repeat(1 << 20);
    let piped = run_with_stdin(&["open", "-", "--key-file", keys.path()], &much).await;
    piped.failed("cannot open the token: the state is longer than the token limit");
}

#[tokio::test]
async fn a_key_file_that_cannot_be_used_is_told_in_a_sentence() {
    let missing = "cannot read the key file /no/such/file: No such file or directory (os error 2)";
    run(&["open", "r1.AAAA", "--key-file", "/no/such/file"]).await.failed(missing);
    run(&["serve", "--stdio", "--key-file", "/no/such/file"]).await.failed(missing);
    let broken = Written::new("# the ring\nnonsense\n");
    let sentence = "key 2 is not hexadecimal: it has a character other than 0-9 and a-f";
    run(&["serve", "--http", "127.0.0.1:0", "--key-file", broken.path()]).await.failed(sentence);
}
