//! `--save` and `resume`: a call that is saved in a file, and continues in another process.

use std::fs;

use serde_json::{Value, json};

use crate::{
    call::served_on_pipes,
    process::{Ended, Server, Written, in_time, run, unused_address},
    raw::{Raw, asks, form, says},
    request::{METRIC, audit},
    screen::Screen,
};

/// Saves the first leg of a call with a bearer token, and expects the message to name the next command.
async fn save(url: &str, tool: &[&str], file: &Written) -> Ended {
    let ended = run(&[&["call", url, "--save", file.path(), "--bearer", "s3cret"], tool].concat()).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""), "{ended:?}");
    assert!(ended.stderr.contains(&format!("`rounds resume {}` continues", file.path())), "{ended:?}");
    ended
}

const TOKYO: [&str; 2] = ["weather_e", "location=Tokyo"];

#[tokio::test]
async fn a_saved_call_goes_on_in_another_process_and_after_a_restart() {
    let (keys, file) = (Written::key().await, Written::nothing());
    let address = unused_address();
    let server = Server::start_on(&address, &["--key-file", keys.path()]).await;
    let said = save(&server.url, &TOKYO, &file).await.stderr;
    assert!(said.contains("  \"units\": Which units?\n    --answer 'units.units=metric|imperial'\n"), "{said}");
    server.stop().await;

    let lost = run(&["resume", file.path(), "--answer", "units.units=metric"]).await;
    assert_eq!(lost.code, Some(1), "{lost:?}");
    let server = Server::start_on(&address, &["--key-file", keys.path()]).await;
    for _ in ["the answer", "its retry"] {
        let printed = run(&["resume", file.path(), "--answer", "units.units=metric"]).await.printed();
        assert_eq!(printed, format!("{METRIC}\n"));
    }
    assert_eq!(audit(&server).await, json!({"weather_e": 1}));
}

#[tokio::test]
async fn a_saved_call_of_a_command_starts_the_command_again() {
    let (keys, file) = (Written::key().await, Written::nothing());
    let command = format!("{} --key-file {}", served_on_pipes(), keys.path());
    let ended = run(&["call", "--stdio", &command, "weather_e", "location=Tokyo", "--save", file.path()]).await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let printed = run(&["resume", file.path(), "--trust", "--answer", "units.units=metric"]).await.printed();
    assert_eq!(printed, format!("{METRIC}\n"));
}

#[tokio::test]
async fn what_a_file_names_is_not_started_and_gets_no_token_unless_that_is_agreed_to() {
    let number = asks(json!({"q": form("How many?", json!({"n": {"type": "integer"}}), &["n"])}));
    let (raw, file, started) = (Raw::start([number, says("done")]).await, Written::nothing(), Written::nothing());
    let ended = run(&["call", &raw.url, "tool", "--save", file.path()]).await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let (heard, answer) = (raw.authorized().len(), ["resume", file.path(), "--answer", "q.n=1"]);

    let ended = run(&[&answer[..], &["--bearer", "s3cret"]].concat()).await;
    assert_eq!((ended.code, raw.authorized().len()), (Some(2), heard), "{ended:?}");
    assert_eq!(
        ended.stderr,
        format!("rounds: the file says that this sends your token to {}; allow it with --trust\n", raw.url)
    );

    let mut saved: Value = serde_json::from_str(&file.read()).unwrap();
    let command = format!("touch {}", started.path());
    saved["server"] = json!({"stdio": command});
    fs::write(file.path(), saved.to_string()).unwrap();
    let ended = run(&answer).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.stderr, format!("rounds: the file says that this starts `{command}`; allow it with --trust\n"));
    let mut screen = Screen::start(&["resume", file.path()]);
    screen.see(&format!("The file says that this starts `{command}`. Continue? yes or [no] > ")).await;
    screen.say("").await;
    let ended = screen.ended().await;
    assert!(ended.stderr.ends_with("rounds: you did not agree, so nothing was done\r\n"), "{ended:?}");
    assert!(!fs::exists(started.path()).unwrap(), "nothing was started");
}

#[tokio::test]
async fn a_saved_call_is_for_its_owner_only_and_has_no_credentials_in_it() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    save(&server.url, &TOKYO, &file).await;
    assert!(!file.read().contains("s3cret"));
    let saved: Value = serde_json::from_str(&file.read()).unwrap();
    assert_eq!((&saved["version"], &saved["server"]), (&json!(1), &json!({"url": server.url})));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let name = std::path::Path::new(file.path());
    let beside = fs::read_dir(name.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = beside
        .filter(|other| {
            other.to_str().unwrap().starts_with(&format!("{}.", name.file_name().unwrap().to_str().unwrap()))
        })
        .collect();
    assert!(beside.is_empty(), "{beside:?}");
}

#[tokio::test]
async fn json_says_that_it_was_saved_and_what_is_asked() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    let ended = run(&["call", &server.url, "weather_e", "location=Tokyo", "--json", "--save", file.path()]).await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let saved: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&saved["status"], &saved["file"]), (&json!("saved"), &json!(file.path())));
    assert_eq!(saved["questions"][0]["key"], "units");
}

#[tokio::test]
async fn a_resume_that_meets_another_question_saves_it_to_the_same_file() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    save(&server.url, &["book_flight", "from=ZRH", "to=LIS", "date=2026-12-01"], &file).await;

    let again = run(&["resume", file.path(), "--answer", "seat.seat=12A", "--save"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(75), ""), "{again:?}");
    assert!(again.stderr.contains("\"confirm\": Pay 140 for seat 12A?"), "{again:?}");
    let printed = run(&["resume", file.path(), "--answer", "confirm.confirm=yes"]).await.printed();
    assert_eq!(printed, "Booked ZRH to LIS on 2026-12-01, seat 12A: charged 140.\n");
}

#[tokio::test]
async fn a_resume_that_fails_at_the_next_question_has_not_lost_the_last_one() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    save(&server.url, &["book_flight", "from=ZRH", "to=LIS", "date=2026-12-01"], &file).await;
    let ended = run(&["resume", file.path(), "--answer", "seat.seat=12A"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("there is no answer to \"confirm\""), "{ended:?}");
    let printed = run(&["resume", file.path(), "--answer", "confirm.confirm=no"]).await.printed();
    assert_eq!(printed, "Not booked.\n");
}

#[tokio::test]
async fn what_was_answered_is_saved_with_the_call_and_can_be_changed() {
    let two = json!({
        "a": form("A?", json!({"n": {"type": "integer"}}), &["n"]),
        "b": form("B?", json!({"n": {"type": "integer"}}), &["n"]),
    });
    let raw = Raw::start([asks(two), says("done")]).await;
    let file = Written::nothing();
    let said = save(&raw.url, &["tool", "--answer", "a.n=1"], &file).await.stderr;
    assert!(said.contains("\"b\": B?") && !said.contains("\"a\": A?"), "{said}");

    run(&["resume", file.path(), "--answer", "b.n=2"]).await.printed();
    let n = |n: u32| json!({"action": "accept", "content": {"n": n}});
    assert_eq!(raw.answered(), json!({"a": n(1), "b": n(2)}));
    run(&["resume", file.path(), "--answer", "b.n=2", "--answer", "a.n=3"]).await.printed();
    assert_eq!(raw.answered(), json!({"a": n(3), "b": n(2)}));
}

#[tokio::test]
async fn a_wrong_answer_leaves_the_saved_call_as_it_was() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    save(&server.url, &TOKYO, &file).await;
    let saved = file.read();
    let ended = run(&["resume", file.path(), "--answer", "units.units=kelvin", "--save"]).await;
    ended.failed("the answer to \"units\" does not fit, and was not sent: `units` must be one of metric, imperial");
    assert_eq!(file.read(), saved);
}

#[tokio::test]
async fn an_expired_call_says_so_and_can_be_started_over() {
    let mut brief = asks(json!({"q": form("Q?", json!({"n": {"type": "integer"}}), &["n"])}));
    brief["result"]["_meta"]["rounds/expiresInMs"] = json!(0);
    let raw = Raw::start([brief, says("done")]).await;
    let file = Written::nothing();
    save(&raw.url, &["tool", "x=1"], &file).await;
    let ended = run(&["resume", file.path(), "--answer", "q.n=1"]).await;
    let file_name = file.path();
    ended.failed(&format!(
        "the time to answer this call has expired; `rounds resume {file_name} --start-over` starts \
                          over"
    ));
    assert_eq!(raw.heard().len(), 1, "nothing was sent");
    let ended = run(&["resume", file.path(), "--start-over", "--answer", "q.n=1"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "done\n"), "{ended:?}");
    assert_eq!(raw.heard()[1]["arguments"], json!({"x": "1"}));
    assert!(raw.heard()[1]["requestState"].is_null(), "it is a new call");
}

#[tokio::test]
async fn a_state_that_is_no_longer_accepted_says_what_to_do() {
    let (server, file) = (Server::start(&[]).await, Written::nothing());
    save(&server.url, &TOKYO, &file).await;
    run(&["resume", file.path(), "--answer", "units.units=metric"]).await.printed();
    let ended = run(&["resume", file.path(), "--answer", "units.units=imperial"]).await;
    ended.failed(&format!(
        "the server no longer accepts this call: it has expired, or was answered before; `rounds resume {} \
         --start-over` starts over",
        file.path()
    ));
    let printed = run(&["resume", file.path(), "--start-over", "--answer", "units.units=metric"]).await.printed();
    assert_eq!(printed, format!("{METRIC}\n"));
}

#[tokio::test]
async fn another_server_at_the_same_address_gets_nothing() {
    let file = Written::nothing();
    let raw = Raw::start([asks(json!({"units": form("Units?", json!({}), &[])})), says("mine")]).await;
    save(&raw.url, &["tool"], &file).await;
    fs::write(file.path(), file.read().replace("\"name\": \"raw\"", "\"name\": \"another server\"")).unwrap();
    let ended = run(&["resume", file.path(), "--answer", "units=accept"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.contains("this call belongs to \"another server\""), "{ended:?}");
    assert_eq!(raw.heard().len(), 1, "nothing was sent");
}

#[tokio::test]
async fn what_cannot_be_saved_is_told_before_anything_is_called() {
    let raw = Raw::start([says("done")]).await;
    let ended = run(&["call", &raw.url, "tool", "--save", "/no/such/folder/file"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.starts_with("rounds: cannot write /no/such/folder/file: "), "{ended:?}");
    assert!(raw.heard().is_empty());

    let server = Server::start(&[]).await;
    let file = Written::nothing();
    let call = ["call", &server.url, "weather_h", "location=Tokyo", "--era", "legacy", "--save", file.path()];
    let ended = run(&call).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("cannot be saved and answered later"), "{ended:?}");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_call_without_a_question_is_not_saved() {
    let raw = Raw::start([says("done")]).await;
    let file = Written::nothing();
    assert_eq!(run(&["call", &raw.url, "tool", "--save", file.path()]).await.printed(), "done\n");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_file_that_is_no_saved_call_is_told_in_a_sentence() {
    for (text, why) in [
        ("hello", "it was not written by --save"),
        ("{}", "it was not written by --save"),
        (r#"{"version": 2}"#, "it has format version 2, and this rounds reads version 1"),
        (r#"{"version": 1, "server": {"url": "http://x/"}, "era": "auto", "pending": {"version": 9}}"#, "version 9"),
    ] {
        let file = Written::new(text);
        let ended = run(&["resume", file.path()]).await;
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{ended:?}");
        assert!(ended.stderr.contains(why), "{why} is not in {ended:?}");
    }
    let ended = run(&["resume", "no-such-file"]).await;
    assert!(ended.stderr.starts_with("rounds: cannot read no-such-file: "), "{ended:?}");
}

#[tokio::test]
async fn only_a_new_file_or_a_regular_one_is_saved_to() {
    let raw = Raw::start([asks(json!({"q": form("Sure?", json!({}), &[])}))]).await;
    let (pipe, target, link, nowhere) =
        (Written::nothing(), Written::new("as it was"), Written::nothing(), Written::nothing());
    assert!(std::process::Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    std::os::unix::fs::symlink(target.path(), link.path()).unwrap();
    std::os::unix::fs::symlink("/no/such/file", nowhere.path()).unwrap();
    for (file, what) in [
        ("/dev/null", "a device"),
        (pipe.path(), "a pipe"),
        (link.path(), "a symbolic link"),
        (nowhere.path(), "a symbolic link"),
    ] {
        let ended = run(&["call", &raw.url, "tool", "--save", file]).await;
        ended.failed(&format!("cannot write {file}: it is {what}; choose a new file or a regular file"));
    }
    assert!(raw.heard().is_empty(), "nothing was called");
    assert_eq!(target.read(), "as it was");
    for file in [Written::nothing(), Written::new("an old one")] {
        save(&raw.url, &["tool"], &file).await;
        assert!(file.read().contains("as it came"));
    }
}

/// The file is checked when it is written, and not only at the start.
#[tokio::test]
async fn what_takes_the_place_of_a_saved_call_in_the_meantime_is_not_replaced() {
    let raw = Raw::start_slow([asks(json!({"q": form("Sure?", json!({}), &[])}))]).await;
    let (file, target) = (Written::nothing(), Written::new("as it was"));
    let call = ["call", &raw.url, "tool", "--save", file.path()];
    let ended = tokio::join!(run(&call), async {
        in_time("the call", async {
            while raw.heard().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        std::os::unix::fs::symlink(target.path(), file.path()).unwrap();
        raw.go();
    });
    ended
        .0
        .failed(&format!("cannot write {}: it is a symbolic link; choose a new file or a regular file", file.path()));
    assert_eq!(target.read(), "as it was");
}

#[tokio::test]
async fn what_a_file_says_is_shown_without_effect() {
    let evil = "\u{1b}]0;owned\u{7}\u{202e}";
    let question = asks(json!({"q": form(&format!("Sure{evil}?"), json!({}), &[])}));
    let (raw, file) = (Raw::start([question]).await, Written::nothing());
    assert_eq!(run(&["call", &raw.url, "tool", "--save", file.path()]).await.code, Some(75));
    let saved: Value = serde_json::from_str(&file.read()).unwrap();
    let harmless = |ended: &Ended| {
        assert!(!ended.stderr.contains('\u{7}') && !ended.stderr.contains('\u{202e}'), "{ended:?}");
        assert!(!ended.stderr.contains("\u{1b}]0;") && !ended.stderr.contains("\nrounds: forged"), "{ended:?}");
    };
    let here = json!({"url": raw.url});
    for (place, value) in [
        ("/server", json!({"url": format!("http://{evil}.example/")})),
        ("/server", json!({"url": format!("{}?{evil}\nrounds: forged", raw.url)})),
        ("/server", json!({"stdio": format!("'no-such-program{evil}\nrounds: forged'")})),
        ("/server", json!({"stdio": format!("sh -c 'exit 3' '{evil}\nrounds: forged'")})),
        ("/server", json!({"stdio": format!("sh -c 'exec sleep 600' '{evil}\nrounds: forged'")})),
        ("/pending/origin/name", json!(format!("{evil}\nrounds: forged"))),
        ("/pending/call/target", json!(format!("{evil}\nrounds: forged"))),
        ("/pending/version", json!(evil)),
        ("/server", here.clone()),
    ] {
        let mut saved = saved.clone();
        *saved.pointer_mut(place).unwrap() = value;
        fs::write(file.path(), saved.to_string()).unwrap();
        for options in [&["--trust", "--timeout", "500ms"][..], &["--trust", "--verbose", "--timeout", "500ms"], &[]] {
            harmless(&run(&[&["resume", file.path()], options].concat()).await);
        }
        let screen = Screen::start(&["resume", file.path(), "--timeout", "500ms"]);
        harmless(&screen.left().await);
    }
}
