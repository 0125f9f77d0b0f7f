//! Calls that become tasks: they are polled, saved, resumed, left running and cancelled.

use serde_json::{Value, json};

use crate::{
    call::served_on_pipes,
    process::{Server, Written, run, unused_address},
    raw::Raw,
    request::METRIC,
    screen::Screen,
};

const AT_ONCE: [&str; 2] = ["--tasks-after", "0s"];

#[tokio::test]
async fn a_call_that_becomes_a_task_prints_what_it_prints_without_one() {
    let server = Server::start(&AT_ONCE).await;
    let command = format!("{} --tasks-after 0s", served_on_pipes());
    for to in [&["call", &server.url][..], &["call", "--stdio", &command]] {
        for tool in ["weather_h", "weather_i", "weather_e", "weather_asked", "weather_g"] {
            let args = [to, &[tool, "location=Tokyo", "--answer", "units.units=metric"]].concat();
            assert_eq!(run(&args).await.printed(), format!("{METRIC}\n"), "{tool}");
        }
    }
    let ended =
        run(&["call", &server.url, "weather_i", "location=Tokyo", "--answer", "units.units=metric", "-v"]).await;
    assert!(ended.stderr.contains("is a task; poll it in"), "{ended:?}");
}

#[tokio::test]
async fn a_saved_task_goes_on_in_another_process_and_after_a_restart() {
    let (folder, file, address) = (Written::nothing(), Written::nothing(), unused_address());
    let args = ["--data", folder.path(), "--tasks-after", "0s"];
    let server = Server::start_on(&address, &args).await;
    let ended = run(&["call", &server.url, "weather_i", "location=Tokyo", "--save", file.path()]).await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.stderr.contains("--answer 'units.units=metric|imperial'"), "{ended:?}");
    let saved: Value = serde_json::from_str(&file.read()).unwrap();
    assert!(saved["pending"]["task"]["id"].as_str().unwrap().starts_with("rounds."), "{saved}");
    server.stop().await;
    let _server = Server::start_on(&address, &args).await;
    for _ in ["the answer", "a second time"] {
        let printed = run(&["resume", file.path(), "--answer", "units.units=metric"]).await.printed();
        assert_eq!(printed, format!("{METRIC}\n"));
    }
    std::fs::remove_dir_all(folder.path()).unwrap();
}

fn task(kind: &str, status: &str) -> Value {
    json!({"result": {
        "resultType": kind, "taskId": "t-1", "status": status, "ttlMs": null, "pollIntervalMs": 100,
        "statusMessage": "half way", "createdAt": "2026-07-28T09:30:00Z", "lastUpdatedAt": "2026-07-28T09:30:00Z",
    }})
}

#[tokio::test]
async fn ctrl_c_leaves_a_task_running_or_cancels_it() {
    for (answer, code, said, cancels) in [
        ("no", Some(130), "rounds: stopped; the call goes on at the server, as task t-1\r\n", false),
        ("yes", Some(130), "rounds: stopped; the server was told to cancel the task\r\n", true),
    ] {
        let raw = Raw::start([task("task", "working"), task("complete", "working")]).await;
        let mut screen = Screen::start(&["call", &raw.url, "tool"]);
        screen.see("half way").await;
        screen.press("\u{3}").await;
        screen.see("Cancel the task at the server, too? yes or [no] > ").await;
        screen.say(answer).await;
        let ended = screen.ended().await;
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{ended:?}");
        assert!(ended.stderr.ends_with(said), "{ended:?}");
        let told = raw.heard().iter().any(|heard| heard["cancels"] == "t-1");
        assert_eq!(told, cancels);
    }
}
