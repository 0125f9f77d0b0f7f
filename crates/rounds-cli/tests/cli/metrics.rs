//! `serve --metrics`: what a scraper reads from a real process.

use std::time::Duration;

use rounds_testkit::http_client;

use crate::{
    process::{Server, in_time, run},
    request::{call, post, retry, state_of},
};

/// The body of a scrape, with the status.
async fn scrape(url: &str, host: &str) -> (u16, String) {
    let request = http_client().get(url).header("Host", host).send();
    let response = in_time("the scrape", request).await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

fn at_root(server: &Server) -> String {
    format!("http://{}/metrics", server.address())
}

#[tokio::test]
async fn metrics_are_served_only_if_they_are_asked_for() {
    let server = Server::start(&["--no-desk"]).await;
    assert_eq!(scrape(&at_root(&server), "127.0.0.1").await.0, 404);
    let server = Server::start(&["--no-desk", "--metrics", "--host", "rounds.example:8000"]).await;
    for (host, status) in [("127.0.0.1", 200), ("rounds.example", 200), ("evil.example", 403)] {
        assert_eq!(scrape(&at_root(&server), host).await.0, status, "{host}");
    }
    let ended = run(&["serve", "--stdio", "--metrics"]).await;
    assert!(ended.code == Some(2) && ended.stderr.contains("--metrics needs an address with --stdio"), "{ended:?}");
}

#[tokio::test]
async fn a_flow_over_http_is_counted_and_beside_the_desk_too() {
    let server = Server::start(&["--metrics"]).await;
    let asked = post(&server, call("weather_h"), &[]).await.json().await.unwrap();
    let (_, waiting) = scrape(&at_root(&server), "127.0.0.1").await;
    assert!(waiting.contains("\nrounds_waiting_handlers 1"), "{waiting}");
    let _ = post(&server, retry("weather_h", &state_of(&asked)), &[]).await.text().await.unwrap();
    let _ = post(&server, call("no_such_tool"), &[]).await.text().await.unwrap();
    let (_, ended) = scrape(&at_root(&server), "127.0.0.1").await;
    for line in [
        r#"rounds_flows_total{method="tools/call",target="weather_h",outcome="complete"} 1"#,
        r#"rounds_answer_duration_seconds_count{method="tools/call",target="weather_h"} 1"#,
        r#"rounds_legs_total{method="tools/call",target="other",outcome="error"} 1"#,
    ] {
        assert!(ended.contains(line), "{line} is not in\n{ended}");
    }
    assert!(!ended.contains("no_such_tool"), "{ended}");
}

#[tokio::test]
async fn metrics_can_have_a_port_of_their_own() {
    let mut server = Server::start(&["--no-desk", "--metrics=127.0.0.1:0"]).await;
    let line = server.line().await;
    let url = line.strip_prefix("metrics at ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(scrape(&at_root(&server), "127.0.0.1").await.0, 404);
    let (status, text) = scrape(url, "127.0.0.1").await;
    assert!(status == 200 && text.ends_with("# EOF\n"), "{status} {text}");
    assert_eq!(scrape(&url.replace("/metrics", "/mcp"), "127.0.0.1").await.0, 404, "and nothing else is there");
    server.signal("TERM").await;
    // The port of the metrics does not keep the process.
    let ended = tokio::time::timeout(Duration::from_secs(10), server.ended()).await.unwrap();
    assert_eq!(ended.code, Some(0));
}
