//! A handler that waits for its user in its own process: it continues in that process or not at all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    process::{Server, Written, in_time, signal},
    request::{answer, ask, audit, call, is_frozen, is_metric, metric, post, refused_for, retry, state_of},
    serve_stdio::Conversation,
};

const TOOL: &str = "weather_h";

async fn leg(server: &Server, params: Value) -> Value {
    let response = post(server, params, &[]).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    response.json().await.unwrap()
}

#[tokio::test]
async fn a_linear_flow_is_two_plain_json_responses_with_one_effect() {
    let server = Server::start(&[]).await;
    let state = state_of(&leg(&server, call(TOOL)).await);
    assert_eq!(audit(&server).await, json!({TOOL: 1}), "the effect is above the question");
    for _ in ["the answer", "its retry"] {
        is_metric(&leg(&server, retry(TOOL, &state)).await);
    }
    assert_eq!(audit(&server).await, json!({TOOL: 1}));
}

#[tokio::test]
async fn a_linear_flow_on_pipes() {
    let mut conversation = Conversation::begin();
    let state = state_of(&conversation.leg(1, call(TOOL)).await);
    is_metric(&conversation.leg(2, retry(TOOL, &state)).await);
}

#[tokio::test]
async fn a_restart_ends_the_flow_of_a_handler_that_waits_and_not_that_of_a_guard() {
    let keys = Written::key().await;
    let server = Server::start(&["--key-file", keys.path(), "--drain", "0s"]).await;
    let linear = state_of(&leg(&server, call(TOOL)).await);
    let guarded = ask(&server, &[]).await;
    server.stop().await;

    let server = Server::start(&["--key-file", keys.path()]).await;
    is_frozen(&post(&server, retry(TOOL, &linear), &[]).await.json().await.unwrap());
    is_metric(&answer(&server, &guarded, &[]).await);
    assert_eq!(audit(&server).await, json!({"weather_e": 1}), "nothing ran for the lost flow");
    refused_for(server, "FrameGone").await;
}

/// Initializes a connection as a client of 2025-11-25, calls the tool and returns the pushed question.
async fn pushed(conversation: &mut Conversation) -> Value {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "rounds-cli-test", "version": "1"},
    }});
    conversation.send(&initialize).await;
    assert_eq!(conversation.receive().await["result"]["protocolVersion"], "2025-11-25");
    conversation.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    conversation.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call(TOOL)})).await;
    let question = conversation.receive().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["message"], "Which units?", "{question}");
    question
}

#[tokio::test]
async fn a_legacy_client_on_pipes_is_pushed_the_question() {
    let mut conversation = Conversation::begin();
    let question = pushed(&mut conversation).await;
    conversation.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": metric()})).await;
    let response = conversation.receive().await;
    assert_eq!(response["id"], 2);
    is_metric(&response);
}

/// Shorter than the time that requests in flight have to finish.
const PROMPTLY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_handler_that_waits_does_not_keep_the_server_longer_than_it_drains() {
    let server = Server::start(&["--drain", "0s"]).await;
    state_of(&leg(&server, call(TOOL)).await);
    let began = Instant::now();
    server.stop().await;
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_question_that_is_pushed_and_not_answered_does_not_keep_a_server_on_pipes() {
    let mut conversation = Conversation::begin_with(&["--drain", "0s"]);
    pushed(&mut conversation).await;
    let began = Instant::now();
    signal(&conversation.child, "TERM").await;
    let status = in_time("the end", conversation.child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
}
