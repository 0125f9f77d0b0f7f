//! Legacy sessions over HTTP: how many there may be, and which of them end to admit others.

use std::{convert::Infallible, sync::Arc};

use http::Response;
use http_body_util::combinators::BoxBody;
use rmcp::{
    RoleServer,
    service::RequestContext,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use rounds::{Ask, Era, FlowError, Limits, Principal, Rounds, RoundsBuilder, test::Client, time::BoxFuture};
use serde_json::{Value, json};

use super::{
    Tool,
    http::{Http, next},
    units,
};

type Units = fn(Ask) -> BoxFuture<'static, Result<String, FlowError>>;
type Weather = Tool<Units>;
type Stream = Response<BoxBody<bytes::Bytes, Infallible>>;

fn built(configure: impl FnOnce(RoundsBuilder<Weather>) -> RoundsBuilder<Weather>) -> Rounds<Weather> {
    let tool: Units = |ask| Box::pin(units(ask));
    configure(Rounds::builder(Tool(tool))).build().unwrap()
}

/// A server with limits on sessions, in total and per principal.
fn server(sessions: usize, per_principal: usize) -> Rounds<Weather> {
    built(|builder| builder.limits(Limits::default().with_sessions(sessions, per_principal)))
}

fn to(server: &Rounds<Weather>) -> Http<Weather> {
    Http::to(server, StreamableHttpServerConfig::default())
}

async fn open(http: &Http<Weather>) -> Http<Weather> {
    http.initialized("2025-11-25").await
}

/// The reason why a session is rejected.
async fn refused(http: &Http<Weather>) -> String {
    let (session, answer) = http.initialize("2025-11-25", json!({})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(!is_open(&session).await);
    answer["error"]["message"].as_str().unwrap().to_owned()
}

async fn is_open(session: &Http<Weather>) -> bool {
    match session.legacy(json!({"id": 9, "method": "ping"})).await.status().as_u16() {
        200 => true,
        404 => false,
        status => panic!("{status}"),
    }
}

/// Calls a tool that asks, and returns the id of the question. The call is in flight from here on.
async fn asked(session: &Http<Weather>, id: u64) -> (Stream, Value) {
    let call = json!({"id": id, "method": "tools/call", "params": {"name": "weather"}});
    let mut stream = session.legacy(call).await;
    let pushed = next(&mut stream).await;
    assert_eq!(pushed["method"], "elicitation/create", "{pushed}");
    (stream, pushed["id"].clone())
}

async fn answer(session: &Http<Weather>, question: &Value) {
    let answer = json!({"action": "accept", "content": {"units": "metric"}});
    let taken = session.legacy(json!({"id": question, "result": answer})).await;
    assert!(taken.status().is_success());
}

#[tokio::test]
async fn the_session_that_was_idle_for_the_longest_time_ends_for_a_new_one() {
    let server = server(3, 100);
    let http = to(&server);
    let (one, two, three) = (open(&http).await, open(&http).await, open(&http).await);
    assert!(is_open(&one).await);
    let four = open(&http).await;
    assert!(!is_open(&two).await, "it was used less recently than the others");
    for session in [&one, &three, &four] {
        assert!(is_open(session).await);
    }
    // Sessions of another mount count as well, and can be ended for others.
    let five = open(&to(&server)).await;
    assert!(is_open(&five).await && !is_open(&one).await);
    assert_eq!(server.sessions().count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_begin_at_once_find_room_for_each_other_and_exceed_nothing() {
    let server = server(5, 100);
    let opened = (0..100).map(|_| {
        let http = to(&server);
        tokio::spawn(async move { http.initialize("2025-11-25", json!({})).await.1 })
    });
    let mut served = 0;
    for opened in opened.collect::<Vec<_>>() {
        served += usize::from(opened.await.unwrap()["result"].is_object());
    }
    // A session that begins while all others do may be rejected, because none of them is idle yet.
    assert!(served >= 5, "{served}");
    assert!(server.sessions().count() <= 5, "{}", server.sessions().count());
    let last = open(&to(&server)).await;
    assert!(is_open(&last).await);
}

#[tokio::test]
async fn a_session_with_a_call_in_flight_is_not_ended_and_goes_on() {
    let http = to(&server(2, 100));
    let asking = open(&http).await;
    let (mut stream, question) = asked(&asking, 1).await;
    let mut last = open(&http).await;
    for _ in 0..5 {
        let next = open(&http).await;
        assert!(!is_open(&last).await);
        last = next;
    }
    answer(&asking, &question).await;
    assert_eq!(next(&mut stream).await["result"]["content"][0]["text"], "Metric");
}

#[tokio::test]
async fn a_call_is_in_flight_until_it_is_answered_or_cancelled_also_if_its_stream_is_closed() {
    let http = to(&server(1, 100));
    let asking = open(&http).await;
    let (stream, question) = asked(&asking, 1).await;
    drop(stream);
    let said = refused(&http).await;
    assert!(said.contains("limit 1") && said.contains("Limits::with_sessions"), "{said}");
    assert!(said.contains("2026-07-28"), "{said}");
    answer(&asking, &question).await;
    let (stream, _) = {
        // A call reports its end when its answer is sent.
        let (mut stream, question) = asked(&asking, 2).await;
        answer(&asking, &question).await;
        assert_eq!(next(&mut stream).await["result"]["content"][0]["text"], "Metric");
        asked(&asking, 3).await
    };
    refused(&http).await;
    let cancelled = json!({"method": "notifications/cancelled", "params": {"requestId": 3}});
    assert!(asking.legacy(cancelled).await.status().is_success());
    drop(stream);
    let next = open(&http).await;
    assert!(is_open(&next).await && !is_open(&asking).await);
}

#[tokio::test]
async fn a_session_that_its_client_ends_leaves_its_place() {
    let server = server(2, 100);
    let http = to(&server);
    let (one, two) = (open(&http).await, open(&http).await);
    assert_eq!(one.delete().await.status(), 202);
    assert_eq!(server.sessions().count(), 1);
    open(&http).await;
    assert!(is_open(&two).await);
}

#[tokio::test]
async fn a_principal_has_a_share_of_the_sessions() {
    // One principal that middleware knows, and one that the server itself finds in a header.
    let by_header = |context: &RequestContext<RoleServer>| {
        let parts = context.extensions.get::<http::request::Parts>()?;
        Some(Principal::new(parts.headers.get("x-user")?.to_str().ok()?))
    };
    let limits = Limits::default().with_sessions(100, 2);
    let identified = built(|builder| builder.limits(limits).principal(by_header));
    for (http, ada, ben) in
        [(to(&server(100, 2)), None, None), (to(&identified), Some(("x-user", "ada")), Some(("x-user", "ben")))]
    {
        let client = |name: &str, header: Option<(&'static str, &'static str)>| match header {
            Some(header) => http.with_header(header),
            None => http.known_as(name),
        };
        let (ada, ben) = (client("ada", ada), client("ben", ben));
        let others = open(&ben).await;
        let (one, two) = (open(&ada).await, open(&ada).await);
        let three = open(&ada).await;
        assert!(!is_open(&one).await && is_open(&two).await && is_open(&others).await);
        let (_two, _three) = (asked(&two, 1).await, asked(&three, 1).await);
        let said = refused(&ada).await;
        assert!(said.contains("of this principal") && said.contains("limit 2"), "{said}");
        open(&ben).await;
    }
}

#[tokio::test]
async fn callers_without_a_principal_have_one_half_where_others_have_one() {
    let server = server(4, 4);
    let http = to(&server);
    let ada = http.known_as("ada");
    let theirs = [open(&ada).await, open(&ada).await];
    let (one, two) = (open(&http).await, open(&http).await);
    let three = open(&http).await;
    assert!(!is_open(&one).await && is_open(&two).await);
    for session in &theirs {
        assert!(is_open(session).await, "it has a principal");
    }
    let (_two, _three) = (asked(&two, 1).await, asked(&three, 1).await);
    let said = refused(&http).await;
    assert!(said.contains("without a principal") && said.contains("limit 2"), "{said}");
}

#[tokio::test]
async fn a_session_with_a_large_beginning_counts_as_several() {
    let http = to(&server(1000, 10));
    let ada = http.known_as("ada");
    // Some 700 KB in memory, and twice that as a margin.
    let large = json!({"experimental": {"a": {"b": vec![json!({"": 0}); 1000]}}});
    let (_, answered) = ada.initialize("2025-11-25", large.clone()).await;
    assert!(answered["error"]["message"].as_str().unwrap().contains("counts as several"), "{answered}");
    let (_, answered) = http.initialize("2025-11-25", large).await;
    assert!(answered["result"].is_object(), "{answered}");
    // A small message does not.
    let small = open(&ada).await;
    for _ in 0..9 {
        open(&ada).await;
    }
    assert!(is_open(&small).await);
}

#[tokio::test]
async fn a_handler_without_rounds_has_the_limit_too() {
    struct Plain;
    impl rmcp::ServerHandler for Plain {}

    let limits = Limits::default().with_sessions(2, 2);
    let server = Rounds::builder(Plain).limits(limits).build().unwrap();
    let sessions = Arc::new(server.sessions());
    let service = StreamableHttpService::new(|| Ok(Plain), sessions.clone(), StreamableHttpServerConfig::default());
    for _ in 0..5 {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"},
        }});
        let request = http::Request::post("/")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string())
            .unwrap();
        assert!(next(&mut service.handle(request).await).await["result"].is_object());
    }
    assert_eq!(sessions.count(), 2);
}

#[tokio::test]
async fn a_server_for_modern_clients_only_has_no_sessions_and_says_what_it_serves() {
    let server = built(RoundsBuilder::modern_only);
    for sessions in [true, false] {
        let config = StreamableHttpServerConfig::default().with_legacy_session_mode(sessions);
        let http = Http::to(&server, config);
        for version in ["2025-11-25", "2026-07-28"] {
            let (session, answer) = http.initialize(version, json!({})).await;
            assert_eq!(answer["error"]["code"], -32022, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("2026-07-28"), "{answer}");
            assert_eq!(answer["error"]["data"]["supported"], json!(["2026-07-28"]));
            assert!(!is_open(&session).await);
        }
        let alone = http.legacy(json!({"id": 1, "method": "tools/call", "params": {"name": "weather"}})).await;
        assert_eq!(alone.status(), 400, "a request without a session is not served either");
        let asked = next(&mut http.modern(1, json!({"name": "weather"})).await).await;
        assert_eq!(asked["result"]["resultType"], "input_required");
    }
    assert_eq!(server.sessions().count(), 0);
    let client = Client::connect(server.clone(), Era::Modern, json!({"elicitation": {}})).await;
    let discovered = client.request("server/discover", json!({})).await;
    assert_eq!(discovered.result()["supportedVersions"], json!(["2026-07-28"]));
}
