//! `rounds list`: what a server offers.

use serde_json::{Value, json};

use crate::{
    call::served_on_pipes,
    process::{Server, run},
    raw::Raw,
    screen::Screen,
};

#[tokio::test]
async fn a_server_is_listed_in_both_eras_over_http_and_on_pipes() {
    let (server, stdio) = (Server::start(&[]).await, served_on_pipes());
    for at in [&[server.url.as_str()][..], &["--stdio", &stdio]] {
        for era in ["auto", "modern", "legacy"] {
            let listed = run(&[&["list"], at, &["--era", era]].concat()).await.printed();
            for entry in [
                "Tools:\n",
                "\n  weather_h location=TEXT\n      Weather for a place",
                "\n  book_flight date=TEXT from=TEXT to=TEXT\n",
                "\n  audit_log\n",
                "\n\nPrompts:\n  --prompt plan_day\n      Plan a day",
                "\n\nResources:\n  --resource weather://forecast/{location}\n",
            ] {
                assert!(listed.contains(entry), "{entry:?} is not in {listed}");
            }
            let json = run(&[&["list", "--json"], at, &["--era", era]].concat()).await.printed();
            let json: Value = serde_json::from_str(&json).unwrap();
            let tools = json["tools"].as_array().unwrap();
            let weather = tools.iter().find(|tool| tool["name"] == "weather_h").unwrap();
            assert_eq!(weather["inputSchema"]["required"], json!(["location"]));
            assert_eq!(json["resourceTemplates"][0]["uriTemplate"], "weather://forecast/{location}");
        }
    }
}

#[tokio::test]
async fn what_a_server_lists_cannot_deceive_a_terminal() {
    let bad = "\u{1b}[2J\u{202e}";
    let tool =
        json!({"name": format!("a{bad}"), "description": format!("b{bad}\nTools:"), "inputSchema": {"type": "object"}});
    let raw = Raw::start([json!({"result": {"resultType": "complete", "tools": [tool]}})]).await;
    let ended = Screen::start_all(&["list", &raw.url]).ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let shown = "Tools:\r\n  a\\u{1b}[2J\\u{202e}\r\n      b\\u{1b}[2J\\u{202e} Tools:\r\n";
    assert!(ended.stderr.contains(shown), "{ended:?}");
}

#[tokio::test]
async fn a_list_without_an_end_ends() {
    let page = json!({"result": {"resultType": "complete", "nextCursor": "more",
        "tools": [{"name": "again", "inputSchema": {"type": "object"}}]}});
    let raw = Raw::start([page]).await;
    let listed = run(&["list", &raw.url]).await.printed();
    assert_eq!(listed.matches("  again\n").count(), 100);
}

#[tokio::test]
async fn a_server_that_cannot_be_listed_is_told_in_a_sentence() {
    let ended = run(&["list"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let ended = run(&["list", "weather"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let raw = Raw::start([json!({"error": {"code": -32603, "message": "broken"}})]).await;
    run(&["list", &raw.url]).await.failed("the connection was lost: Mcp error: -32603: broken");
}
