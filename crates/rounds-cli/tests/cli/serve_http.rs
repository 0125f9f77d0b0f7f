//! `serve --http`: flows over sockets, between processes, with keys, audiences, principals and lifetimes.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    process::{Server, Written, run},
    request::{answer, ask, audit, call, first, is_frozen, is_metric, message, post, refused_for, second, send},
};

#[tokio::test]
async fn a_flow_is_two_plain_json_responses() {
    let server = Server::start(&[]).await;
    let state = ask(&server, &[]).await;
    for params in [first(), second(&state)] {
        let response = post(&server, params, &[]).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
    }
    is_metric(&answer(&server, &state, &[]).await);
    assert_eq!(audit(&server).await, json!({"weather_e": 1}), "a retry has no further effect");
}

#[tokio::test]
async fn rmcps_own_stack_serves_the_same_flow() {
    let keys = Written::key().await;
    let ours = Server::start(&["--key-file", keys.path()]).await;
    let theirs = Server::start(&["--key-file", keys.path(), "--http-stack", "rmcp"]).await;
    let state = ask(&theirs, &[]).await;
    is_metric(&answer(&ours, &state, &[]).await);
    let state = ask(&ours, &[]).await;
    is_metric(&answer(&theirs, &state, &[]).await);
}

#[tokio::test]
async fn the_name_of_a_request_cannot_pass_for_a_line_of_the_log() {
    let mut server = Server::start(&[]).await;
    let mut request = message(1, call("no_such_tool"));
    request["id"] = json!("1\nforged \u{1b}[2J");
    let response: Value = send(&server, &request, &[]).await.json().await.unwrap();
    assert_eq!((&response["id"], &response["error"]["code"]), (&request["id"], &json!(-32602)));
    // The line before it says which tool the leg was for.
    assert!(server.logged().await.contains(r#"tool="no_such_tool""#));
    let logged = server.logged().await;
    assert!(logged.contains(r"1\nforged \u{1b}[2J") && logged.ends_with("more=0"), "{logged}");
}

#[tokio::test]
async fn only_mcp_is_served_and_only_to_loopback_hosts() {
    let server = Server::start(&["--no-desk"]).await;
    let root = rounds_testkit::http_client().get(server.url.strip_suffix("/mcp").unwrap()).send().await.unwrap();
    assert_eq!(root.status(), 404);
    assert_eq!(post(&server, first(), &[("Host", "evil.example")]).await.status(), 403);
    assert_eq!(post(&server, first(), &[("Host", "localhost")]).await.status(), 200);
}

/// Idle connections, and connections that have sent half a head or half a body.
fn crowd(server: &Server, connections: usize) -> Vec<TcpStream> {
    let host = server.address();
    let accept = "accept: application/json, text/event-stream\r\ncontent-type: application/json";
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {host}\r\n{accept}\r\ncontent-length: 900\r\n");
    let sent = [String::new(), head.clone(), head + "\r\n{"];
    let connect = |number: usize| {
        let mut connection = TcpStream::connect(host).unwrap();
        connection.write_all(sent[number % sent.len()].as_bytes()).unwrap();
        connection
    };
    (0..connections).map(connect).collect()
}

#[cfg(unix)]
#[tokio::test]
async fn a_crowd_that_sends_nothing_keeps_nobody_out() {
    let mut server = Server::start_with_files(64, &[]).await;
    let crowd = crowd(&server, 100);
    is_metric(&answer(&server, &ask(&server, &[]).await, &[]).await);
    let logged = server.logged().await;
    assert!(logged.contains("the limit on connections is reached") && logged.contains("connections=48"), "{logged}");
    drop(crowd);
}

/// More connections than there are file descriptors, whatever limit the operator has set.
#[cfg(unix)]
#[tokio::test]
async fn where_there_are_no_files_left_for_a_connection_others_make_room() {
    let mut server = Server::start_with_files(64, &["--connections", "1000"]).await;
    let crowd = crowd(&server, 100);
    is_metric(&answer(&server, &ask(&server, &[]).await, &[]).await);
    let logged = server.logged().await;
    assert!(logged.contains("cannot accept connections for now"), "{logged}");
    drop(crowd);
}

#[tokio::test]
async fn a_client_that_is_too_slow_is_cut_off_as_the_options_say() {
    let server = Server::start(&["--header-timeout", "50ms", "--body-timeout", "50ms"]).await;
    for mut connection in crowd(&server, 3) {
        let mut said = Vec::new();
        // A connection that is closed with unread data is reset.
        let _ = connection.read_to_end(&mut said);
        assert_eq!(String::from_utf8_lossy(&said), "");
    }
}

#[tokio::test]
async fn a_server_off_loopback_has_to_be_told_its_names() {
    let ended = run(&["serve", "--http", "0.0.0.0:0"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--host NAME") && ended.stderr.contains("--any-host"), "{ended:?}");
    for name in ["https://mcp.example.com", "mcp.example.com/mcp", "*.example.com", ""] {
        assert_eq!(run(&["serve", "--http", "0.0.0.0:0", "--host", name]).await.code, Some(2), "{name:?}");
    }
}

#[tokio::test]
async fn a_server_is_served_under_the_names_that_it_was_given() {
    let names = ["--host", "weather.example", "--host", "10.0.0.7:8000"];
    for (address, options, hosts) in [
        ("0.0.0.0:0", &names[..], [("weather.example", 200), ("localhost", 403), ("evil.example", 403)]),
        ("127.0.0.1:0", &names[..], [("weather.example", 200), ("localhost", 200), ("evil.example", 403)]),
        ("0.0.0.0:0", &["--any-host"][..], [("weather.example", 200), ("localhost", 200), ("evil.example", 200)]),
    ] {
        let mut server = Server::start_on(address, options).await;
        server.url = server.url.replace("0.0.0.0", "127.0.0.1");
        for (host, status) in hosts {
            assert_eq!(post(&server, first(), &[("Host", host)]).await.status(), status, "{options:?} {host}");
        }
        if options.len() > 1 {
            assert_eq!(post(&server, first(), &[("Host", "10.0.0.7:8000")]).await.status(), 200);
            assert_eq!(post(&server, first(), &[("Host", "10.0.0.7:8001")]).await.status(), 403);
        }
    }
}

#[tokio::test]
async fn a_server_for_modern_clients_only_refuses_older_ones_and_says_why() {
    let server = Server::start(&["--modern-only"]).await;
    is_metric(&answer(&server, &ask(&server, &[]).await, &[]).await);
    let ended = run(&["call", &server.url, "weather_e", "location=Tokyo", "--era", "legacy", "--decline"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("it serves protocol version 2026-07-28"), "{ended:?}");
}

#[tokio::test]
async fn a_web_page_from_elsewhere_is_not_served_by_either_stack() {
    for stack in ["rounds", "rmcp"] {
        let server = Server::start(&["--http-stack", stack]).await;
        for (origin, status) in [("https://evil.example", 403), ("null", 403), ("http://localhost:6274", 200)] {
            assert_eq!(post(&server, first(), &[("Origin", origin)]).await.status(), status, "{stack} {origin}");
        }
    }
    // With `--any-host`, a page that was loaded under the requested name has the server's own origin.
    let server = Server::start(&["--any-host"]).await;
    let at = |origin| [("Host", "weather.example"), ("Origin", origin)];
    assert_eq!(post(&server, first(), &at("https://weather.example")).await.status(), 200);
    assert_eq!(post(&server, first(), &at("https://evil.example")).await.status(), 403);
}

#[tokio::test]
async fn processes_with_the_same_key_file_go_on_with_each_others_flows() {
    let keys = Written::key().await;
    let one = Server::start(&["--key-file", keys.path()]).await;
    let other = Server::start(&["--key-file", keys.path()]).await;
    let state = ask(&one, &[]).await;
    is_metric(&answer(&other, &state, &[]).await);
}

#[tokio::test]
async fn a_flow_outlives_a_restart_with_a_key_file() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    let state = ask(&server, &[]).await;
    server.stop().await;
    let server = Server::start(&["--key-file", keys.path()]).await;
    is_metric(&answer(&server, &state, &[]).await);
}

#[tokio::test]
async fn a_flow_does_not_outlive_a_restart_without_a_key_file() {
    let server = Server::start(&[]).await;
    let state = ask(&server, &[]).await;
    server.stop().await;
    let server = Server::start(&[]).await;
    is_frozen(&answer(&server, &state, &[]).await);
    refused_for(server, "UnknownKey").await;
}

#[tokio::test]
async fn another_audience_cannot_go_on_with_a_flow() {
    let keys = Written::key().await;
    let gallery = Server::start(&["--key-file", keys.path()]).await;
    let named = Server::start(&["--key-file", keys.path(), "--audience", "gallery"]).await;
    let other = Server::start(&["--key-file", keys.path(), "--audience", "other"]).await;
    let state = ask(&gallery, &[]).await;
    is_frozen(&answer(&other, &state, &[]).await);
    is_metric(&answer(&named, &state, &[]).await);
    refused_for(other, "UnknownKey").await;
}

#[tokio::test]
async fn a_flow_belongs_to_the_principal_in_the_header() {
    let server = Server::start(&["--principal-header", "X-User"]).await;
    let state = ask(&server, &[("x-user", "ada")]).await;
    is_frozen(&answer(&server, &state, &[("x-user", "eve")]).await);
    is_frozen(&answer(&server, &state, &[]).await);
    is_metric(&answer(&server, &state, &[("x-user", "ada")]).await);

    let nobodys = ask(&server, &[]).await;
    is_frozen(&answer(&server, &nobodys, &[("x-user", "eve")]).await);
    is_metric(&answer(&server, &nobodys, &[]).await);

    assert_eq!(post(&server, first(), &[("x-user", "")]).await.status(), 400, "an empty name");
    refused_for(server, "Principal").await;
}

#[tokio::test]
async fn a_header_that_was_not_asked_for_is_nobody() {
    let server = Server::start(&[]).await;
    let state = ask(&server, &[("x-user", "ada")]).await;
    is_metric(&answer(&server, &state, &[("x-user", "eve")]).await);
}

#[tokio::test]
async fn an_answer_after_the_lifetime_of_its_round_or_flow_is_too_late() {
    for (option, reason) in [("--round-lifetime", "Expired"), ("--flow-deadline", "DeadlinePassed")] {
        let server = Server::start(&[option, "500ms"]).await;
        let state = ask(&server, &[]).await;
        // Real time has to pass, because the server is another process: enough of it for a first leg on a busy machine.
        sleep(Duration::from_millis(510)).await;
        is_frozen(&answer(&server, &state, &[]).await);
        refused_for(server, reason).await;
    }
}

#[tokio::test]
async fn the_longest_lifetimes_are_as_good_as_any() {
    let server = Server::start(&["--round-lifetime", "720h", "--flow-deadline", "720h"]).await;
    let state = ask(&server, &[]).await;
    is_metric(&answer(&server, &state, &[]).await);
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_in_a_sentence() {
    let server = Server::start(&[]).await;
    let ended = run(&["serve", "--http", server.address()]).await;
    let taken = TcpListener::bind(server.address()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    ended.failed(&format!("cannot listen on {}: {taken}", server.address()));
}
