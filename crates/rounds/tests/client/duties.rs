//! The client's duties under the protocol, one by one, as a server sees them.

use std::collections::HashSet;

use rmcp::object;
use rounds::client::{Call, Sent, UserAnswer};
use serde_json::{Value, json};

use crate::{Act, Raw, asked, asks_units, metric, said, soon, text, units_form};

/// Text that a client might be tempted to read, trim, parse or escape.
const STATE: &str =
    "  {\"looks\": [\"like\" , 1.0e2],\"json\":true}\t\r\n\u{0}\u{7f}\\u0041 ä 漢 🦀 \u{2028} <&amp;> %20+ ";

#[tokio::test]
async fn the_state_is_echoed_byte_for_byte() {
    let (raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units(STATE) } else { text("done") }
            },
        )
        .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    let saved = rounds::client::Pending::from_json(&pending.to_json()).unwrap();
    for pending in [pending, saved] {
        assert_eq!(said(pending.send(&client).await.unwrap()), "done");
    }
    let requests = raw.requests("tools/call");
    assert_eq!(requests.len(), 3);
    for retry in &requests[1..] {
        assert_eq!(retry["params"]["requestState"].as_str().unwrap().as_bytes(), STATE.as_bytes());
    }
}

#[tokio::test]
async fn each_leg_is_the_same_request_with_a_new_id() {
    let (raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { text("done") }
            },
        )
        .await;
    let mut pending = asked(Call::tool("x", object!({"place": "Paris"})).send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    pending.send(&client).await.unwrap();
    pending.send(&client).await.unwrap();
    let requests = raw.requests("tools/call");
    let ids: HashSet<String> = requests.iter().map(|request| request["id"].to_string()).collect();
    assert_eq!(ids.len(), 3);
    for request in &requests {
        assert_eq!(
            (&request["params"]["name"], &request["params"]["arguments"]),
            (&json!("x"), &json!({"place": "Paris"}))
        );
    }
    assert_eq!(
        requests[1]["params"]["inputResponses"],
        json!({
            "units": {"action": "accept", "content": {"units": "metric"}},
        })
    );
}

#[tokio::test]
async fn only_the_answers_of_the_last_round_are_sent() {
    let ask = |key: &str| {
        Act::Result(json!({
            "resultType": "input_required", "inputRequests": {key: units_form()}, "requestState": key,
        }))
    };
    let (raw, client) = Raw::modern(move |request| match request["params"]["requestState"].as_str() {
        None => ask("first"),
        Some("first") => ask("second"),
        Some(_) => text("done"),
    })
    .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.answer("first", metric()).unwrap();
    let mut pending = asked(pending.send(&client).await.unwrap());
    pending.answer("second", UserAnswer::Decline).unwrap();
    assert_eq!(said(pending.send(&client).await.unwrap()), "done");
    let last = &raw.requests("tools/call")[2]["params"];
    assert_eq!(last["inputResponses"], json!({"second": {"action": "decline"}}));
    assert_eq!(last["requestState"], "second");
}

#[tokio::test]
async fn no_state_is_sent_when_none_came_not_even_an_older_one() {
    let mut legs = 0;
    let (raw, client) = Raw::modern(move |_| {
        legs += 1;
        match legs {
            1 => asks_units("old"),
            2 => Act::Result(json!({"resultType": "input_required", "inputRequests": {"units": units_form()}})),
            _ => text("done"),
        }
    })
    .await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    let mut pending = asked(pending.send(&client).await.unwrap());
    assert_eq!(pending.state_bytes(), None);
    pending.answer("units", metric()).unwrap();
    assert_eq!(said(pending.send(&client).await.unwrap()), "done");
    let requests = raw.requests("tools/call");
    assert_eq!(requests[1]["params"]["requestState"], "old");
    assert!(requests[2]["params"].get("requestState").is_none());
}

#[tokio::test]
async fn a_state_without_questions_is_sent_back_without_answers() {
    let (raw, client) = Raw::modern(|request| match request["params"]["requestState"].as_str() {
        None => Act::Result(json!({"resultType": "input_required", "requestState": "later"})),
        Some(_) => text("done"),
    })
    .await;
    let Sent::Later(pending) = Call::tool("x", object!({})).send(&client).await.unwrap() else {
        panic!("expected a question");
    };
    assert!(pending.questions().is_empty() && pending.open().is_empty());
    assert_eq!(said(pending.send(&client).await.unwrap()), "done");
    assert!(raw.requests("tools/call")[1]["params"].get("inputResponses").is_none());
}

#[tokio::test]
async fn nothing_leaks_into_a_parallel_call_of_the_same_client() {
    let (raw, client) = Raw::modern(|request| {
        let name = request["params"]["name"].as_str().unwrap().to_owned();
        if request["params"].get("requestState").is_none() { asks_units(&name) } else { text(&name) }
    })
    .await;
    let mut calls: Vec<_> = Vec::new();
    for at in 0..20 {
        let call = Call::tool(format!("tool-{at}"), object!({"at": at}));
        calls.push(asked(call.send(&client).await.unwrap()));
    }
    let mut sent = tokio::task::JoinSet::new();
    for mut pending in calls {
        let peer = client.peer().clone();
        pending.answer("units", metric()).unwrap();
        sent.spawn(async move { (pending.call().target().to_owned(), said(pending.send(&peer).await.unwrap())) });
    }
    for (target, text) in soon(sent.join_all()).await {
        assert_eq!(target, text);
    }
    for request in raw.requests("tools/call") {
        let params = &request["params"];
        assert_eq!(params["name"], format!("tool-{}", params["arguments"]["at"]));
        assert!(params.get("requestState").is_none_or(|state| *state == params["name"]));
    }
}

#[tokio::test]
async fn every_leg_has_the_meta_that_is_required_and_the_callers_own() {
    let (raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { text("done") }
            },
        )
        .await;
    let call = Call::tool("x", object!({})).with_meta(object!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "io.modelcontextprotocol/protocolVersion": "1999-01-01",
        "io.modelcontextprotocol/clientCapabilities": {"roots": {"listChanged": true}},
        "progressToken": "stolen",
    }));
    let mut pending = asked(call.send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    pending.send(&client).await.unwrap();
    let metas: Vec<Value> =
        raw.requests("tools/call").iter().map(|request| request["params"]["_meta"].clone()).collect();
    assert_eq!(metas.len(), 2);
    for meta in &metas {
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        let capabilities = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(capabilities["elicitation"], json!({"form": {}, "url": {}}));
        assert_ne!(capabilities["roots"]["listChanged"], true);
        assert!(meta["io.modelcontextprotocol/clientInfo"]["name"].is_string());
        assert!(meta["traceparent"].as_str().unwrap().starts_with("00-"));
        assert_ne!(meta["progressToken"], "stolen");
    }
    assert_ne!(metas[0]["progressToken"], metas[1]["progressToken"]);
}

#[tokio::test]
async fn what_a_resource_was_read_with_is_not_cached() {
    let mut legs = 0;
    let (raw, client) = Raw::modern(move |request| {
        legs += 1;
        match request["params"].get("requestState") {
            None if legs == 1 => asks_units("s"),
            _ => Act::Result(json!({
                "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public",
                "contents": [{"uri": "a://b", "text": format!("leg {legs}")}],
            })),
        }
    })
    .await;
    let mut pending = asked(Call::resource("a://b").send(&client).await.unwrap());
    pending.answer("units", metric()).unwrap();
    assert_eq!(said(pending.send(&client).await.unwrap()), "leg 2");
    assert_eq!(said(pending.send(&client).await.unwrap()), "leg 3");
    let params = rmcp::model::ReadResourceRequestParams::new("a://b");
    client.peer().read_resource(params).await.unwrap();
    assert_eq!(raw.requests("resources/read").len(), 4, "rmcp's cache does not contain it either");
}

#[tokio::test]
async fn an_absent_result_type_is_complete_and_an_unknown_one_an_error() {
    let results = [
        ("tools/call", json!({"content": [{"type": "text", "text": "fine"}]})),
        ("prompts/get", json!({"messages": [{"role": "user", "content": {"type": "text", "text": "fine"}}]})),
        ("resources/read", json!({"contents": [{"uri": "a://b", "text": "fine"}]})),
    ];
    let (_raw, client) = Raw::modern(move |request| {
        let (_, result) = results.iter().find(|(method, _)| request["method"] == *method).unwrap();
        let mut result = result.clone();
        if request["params"]["name"] == "odd" || request["params"]["uri"] == "odd://b" {
            result["resultType"] = json!("surprise");
        }
        Act::Result(result)
    })
    .await;
    for call in [Call::tool("x", object!({})), Call::prompt("x", object!({})), Call::resource("a://b")] {
        assert_eq!(said(call.send(&client).await.unwrap()), "fine");
    }
    for call in [Call::tool("odd", object!({})), Call::prompt("odd", object!({})), Call::resource("odd://b")] {
        let error = call.send(&client).await.unwrap_err();
        assert_eq!(error.to_string(), "the server's response cannot be used: its resultType is \"surprise\"");
    }
}

#[tokio::test]
async fn a_task_is_handed_back_as_one() {
    let (_raw, client) = Raw::modern(|_| {
        Act::Result(json!({
            "resultType": "task", "taskId": "t-1", "status": "working", "ttlMs": null,
            "createdAt": "2026-07-28T09:30:00Z", "lastUpdatedAt": "2026-07-28T09:30:00Z",
        }))
    })
    .await;
    let sent = Call::tool("x", object!({})).send(&client).await.unwrap();
    assert!(matches!(&sent, Sent::Later(pending) if pending.task_id() == Some("t-1")), "{sent:?}");
    let error = Call::prompt("x", object!({})).send(&client).await.unwrap_err();
    assert!(error.to_string().ends_with("only a tool call becomes a task"), "{error}");
}

#[tokio::test]
async fn a_page_without_the_retired_id_can_be_asked_for() {
    let url = "https://example.com/consent?who=ada&what=everything#now";
    for id in [None, Some("e-1")] {
        let (raw, client) = Raw::modern(move |request| {
            if request["params"].get("requestState").is_some() {
                return text("done");
            }
            let mut params = json!({"mode": "url", "message": "Sign in, please", "url": url});
            if let Some(id) = id {
                params["elicitationId"] = json!(id);
            }
            let asks = json!({"page": {"method": "elicitation/create", "params": params}, "units": units_form()});
            Act::Result(json!({
                "resultType": "input_required", "inputRequests": asks, "requestState": "s",
                "_meta": {"rounds/expiresInMs": 60_000},
            }))
        })
        .await;
        let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
        let page = pending.question("page").unwrap();
        assert_eq!(
            (page.kind(), page.url(), page.message()),
            (rounds::observe::QuestionKind::Url, Some(url), "Sign in, please")
        );
        assert!(pending.expires_in().is_some());
        assert!(pending.accept("page", object!({})).is_err(), "a page is not a form");
        pending.answer("page", UserAnswer::Visit).unwrap();
        pending.answer("units", metric()).unwrap();
        assert_eq!(said(pending.send(&client).await.unwrap()), "done");
        assert_eq!(raw.requests("tools/call")[1]["params"]["inputResponses"]["page"], json!({"action": "accept"}));
    }
}

#[tokio::test]
async fn a_leg_that_nobody_waits_for_any_more_is_cancelled() {
    let (raw, client) = Raw::modern(|_| Act::Hang).await;
    {
        let call = Call::tool("x", object!({}));
        let leg = call.send(&client);
        tokio::select! {
            _ = leg => panic!("the leg must not end"),
            _ = raw.heard("tools/call") => {}
        }
    }
    let cancelled = raw.heard("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], raw.requests("tools/call")[0]["id"]);
}
