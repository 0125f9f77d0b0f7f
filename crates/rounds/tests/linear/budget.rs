//! How many handlers may wait, and how much memory they may take: in all, for a principal, and for callers without one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse, ServerCapabilities, ServerConfig},
    service::RequestContext,
};
use rounds::{
    Ask, FlowError, Given, Legacy, Limits, Principal, Round, Rounds,
    test::{Client, Leg},
};
use serde_json::{Value, json};

use super::{Units, stage_with, units};

const KIB: usize = 1024;

/// Requests with a principal or without one, as the test says.
#[derive(Clone, Default)]
struct Caller(Arc<Mutex<Option<&'static str>>>);

impl Caller {
    fn is(&self, name: Option<&'static str>) {
        *self.0.lock().unwrap() = name;
    }

    fn identify(&self) -> impl Fn(&RequestContext<RoleServer>) -> Option<Principal> + use<> {
        let caller = self.clone();
        move |_| caller.0.lock().unwrap().map(Principal::new)
    }
}

fn metric() -> Value {
    json!({"units": "metric"})
}

#[track_caller]
fn assert_refused(leg: &Leg, words: &str) {
    assert!(leg.is_tool_error() && leg.text().starts_with(words), "{}", leg.text());
}

#[tokio::test]
async fn callers_without_a_principal_leave_half_of_the_places_to_principals() {
    let caller = Caller::default();
    let limits = Limits::default().with_frames(4, 4);
    let stage = stage_with(units, |builder| builder.limits(limits).principal(caller.identify()));
    let client = Client::modern(stage.server.clone()).await;
    let first = client.call("x", json!({})).await.asked();
    let _second = client.call("x", json!({})).await.asked();
    assert_refused(&client.call("x", json!({})).await, "too many calls are waiting for an answer (limit 2)");
    caller.is(Some("alice"));
    let _hers = client.call("x", json!({})).await.asked();
    let _hers_too = client.call("x", json!({})).await.asked();
    assert_refused(&client.call("x", json!({})).await, "too many calls are waiting for an answer (limit 4)");
    caller.is(None);
    assert_eq!(first.accept("units", metric()).send(&client).await.text(), "Metric");
    let _third = client.call("x", json!({})).await.asked();
}

#[tokio::test]
async fn a_server_without_principals_has_all_its_places_for_everybody() {
    let stage = stage_with(units, |builder| builder.limits(Limits::default().with_frames(4, 1)));
    let client = Client::modern(stage.server.clone()).await;
    for _ in 0..4 {
        let _ = client.call("x", json!({})).await.asked();
    }
    assert_refused(&client.call("x", json!({})).await, "too many calls are waiting for an answer (limit 4)");
}

/// The principal is a value in the request's extensions, where middleware puts it.
struct SignedIn<H> {
    rounds: Rounds<H>,
    caller: Caller,
}

impl<H: ServerHandler> ServerHandler for SignedIn<H> {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = *self.caller.0.lock().unwrap();
        if let Some(caller) = caller {
            context.extensions.insert(Principal::new(caller));
        }
        self.rounds.call_tool(request, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.rounds.get_info()
    }
}

#[tokio::test]
async fn from_the_first_principal_on_callers_without_one_get_no_more_than_half() {
    let caller = Caller::default();
    let stage = stage_with(units, |builder| builder.limits(Limits::default().with_frames(8, 8)));
    let client = Client::modern(SignedIn { rounds: stage.server.clone(), caller: caller.clone() }).await;
    for _ in 0..5 {
        let _ = client.call("x", json!({})).await.asked();
    }
    caller.is(Some("alice"));
    let _ = client.call("x", json!({})).await.asked();
    caller.is(None);
    assert_refused(&client.call("x", json!({})).await, "too many calls are waiting for an answer (limit 4)");
    caller.is(Some("bob"));
    let _ = client.call("x", json!({})).await.asked();
    assert_eq!(stage.server.waiting_calls(), 7, "the waiting calls are not affected");
}

#[tokio::test]
async fn what_a_client_sends_to_be_kept_is_limited_in_bytes() {
    let limits = Limits::default().with_frame_bytes(300 * KIB, 300 * KIB);
    let stage = stage_with(units, |builder| builder.limits(limits));
    let client = Client::modern(stage.server.clone()).await;
    let large = json!({"note": "x".repeat(100 * KIB)});
    let first = client.call("x", large.clone()).await.asked();
    let second = client.call("x", large.clone()).await.asked();
    let counted = stage.server.waiting_bytes();
    assert!(counted > 200 * KIB && counted < 216 * KIB, "{counted} bytes");
    let refused = client.call("x", large.clone()).await;
    assert_refused(&refused, "the calls that wait for an answer take too much memory (limit 307200 bytes)");
    let small = client.call("x", json!({})).await.asked();
    assert_eq!(first.accept("units", metric()).send(&client).await.text(), "Metric");
    let third = client.call("x", large).await.asked();
    for asked in [second, third, small] {
        assert_eq!(asked.accept("units", metric()).send(&client).await.text(), "Metric");
    }
    assert_eq!(stage.server.waiting_bytes(), 0);
}

#[tokio::test]
async fn bytes_have_a_share_for_each_principal_and_for_callers_without_one() {
    let caller = Caller::default();
    let limits = Limits::default().with_frame_bytes(500 * KIB, 150 * KIB);
    let stage = stage_with(units, |builder| builder.limits(limits).principal(caller.identify()));
    let client = Client::modern(stage.server.clone()).await;
    let large = json!({"note": "x".repeat(90 * KIB)});
    for (name, may) in [(Some("alice"), 1), (None, 2), (Some("bob"), 1)] {
        caller.is(name);
        for _ in 0..may {
            let _ = client.call("x", large.clone()).await.asked();
        }
        let limit = if name.is_some() { 150 * KIB } else { 250 * KIB };
        let words = format!("the calls that wait for an answer take too much memory (limit {limit} bytes)");
        assert_refused(&client.call("x", large.clone()).await, &words);
    }
}

/// Asks as often as it is told to, with ever longer questions; or ends in another way.
async fn by_its_argument(ask: Ask) -> Result<String, FlowError> {
    for round in 1..=3 {
        let _: Units = ask.form("?".repeat(round * KIB)).key("units").await?;
    }
    Ok("done".to_owned())
}

#[tokio::test]
async fn a_call_counts_for_what_it_keeps_in_each_of_its_rounds() {
    let limits = Limits::default().with_frame_bytes(16 * KIB, 16 * KIB);
    let stage = stage_with(by_its_argument, |builder| builder.limits(limits));
    let client = Client::modern(stage.server.clone()).await;
    let mut asked = client.call("x", json!({})).await.asked();
    let mut counted = vec![stage.server.waiting_bytes()];
    for _ in 1..3 {
        asked = asked.accept("units", metric()).send(&client).await.asked();
        counted.push(stage.server.waiting_bytes());
    }
    assert!(counted.windows(2).all(|bytes| bytes[1] >= bytes[0] + KIB), "{counted:?}");
    assert_eq!(asked.accept("units", metric()).send(&client).await.text(), "done");
    assert_eq!(stage.server.waiting_bytes(), 0);
}

#[tokio::test]
async fn a_later_round_that_is_too_much_ends_the_call_and_counts_for_nothing_any_more() {
    let probe = stage_with(by_its_argument, |builder| builder);
    let client = Client::modern(probe.server.clone()).await;
    let _ = client.call("x", json!({})).await.asked();
    // As much as its first round takes, and no more.
    let bytes = probe.server.waiting_bytes();
    let stage = stage_with(by_its_argument, |builder| builder.limits(Limits::default().with_frame_bytes(bytes, bytes)));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let refused = asked.accept("units", metric()).send(&client).await;
    assert_refused(&refused, "the calls that wait for an answer take too much memory");
    assert_eq!((stage.server.waiting_calls(), stage.server.waiting_bytes()), (0, 0));
}

#[tokio::test]
async fn however_a_call_ends_it_counts_for_nothing_any_more() {
    let stage = stage_with(
        |ask: Ask| async move {
            let answer: Units = ask.form("Which units?").await?;
            let again: Units = ask.form("Really?").key("units").await?;
            assert_eq!(answer, again, "a panic, if they are not");
            Ok("the same".to_owned())
        },
        |builder| builder,
    );
    let client = Client::modern(stage.server.clone()).await;
    let note = json!({"note": "x".repeat(KIB)});
    let first = async || client.call("x", note.clone()).await.asked();
    let second = async || first().await.accept("units", metric()).send(&client).await.asked();
    assert_eq!(second().await.accept("units", metric()).send(&client).await.text(), "the same");
    assert_eq!(stage.server.waiting_bytes(), 0, "it returned");
    let _ = second().await.decline("units").send(&client).await.text();
    assert_eq!(stage.server.waiting_bytes(), 0, "it failed");
    let _ = second().await.accept("units", json!({"units": "imperial"})).send(&client).await;
    assert_eq!(stage.server.waiting_bytes(), 0, "it panicked");
    let _ = (first().await, second().await);
    assert!(stage.server.waiting_bytes() > 2 * KIB);
    stage.clock.advance(Duration::from_secs(11 * 60));
    while stage.server.waiting_calls() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.server.waiting_bytes(), 0, "no client came back");
}

#[tokio::test]
async fn what_waits_for_a_push_counts_as_well() {
    let limits = Limits::default().with_frame_bytes(300 * KIB, 300 * KIB);
    let stage = stage_with(units, |builder| builder.limits(limits));
    let client = Client::legacy(stage.server.clone()).await;
    let large = json!({"name": "x", "arguments": {"note": "x".repeat(100 * KIB)}});
    let mut legs = Vec::new();
    for _ in 0..2 {
        let leg = client.start("tools/call", large.clone()).await;
        legs.push((leg, client.pushed().await.unwrap()));
    }
    assert!(stage.server.waiting_bytes() > 200 * KIB);
    let refused = client.request("tools/call", large).await;
    assert_refused(&refused, "the calls that wait for an answer take too much memory (limit 307200 bytes)");
    for (leg, pushed) in legs {
        pushed.answer(json!({"action": "accept", "content": metric()})).await;
        assert_eq!(leg.finish().await.text(), "Metric");
    }
    assert_eq!(stage.server.waiting_bytes(), 0);
}

/// Reads an unsolicited answer, before it asks and after that. It may keep the context of its request.
struct Uninvited {
    keeps_context: bool,
}

fn given(context: &RequestContext<RoleServer>) -> Result<bool, FlowError> {
    Ok(matches!(Round::<CallToolResponse>::from_context(context)?.given::<Units>("units"), Given::Accepted(_)))
}

impl ServerHandler for Uninvited {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (ask, kept) = (Ask::from_context(&context)?, self.keeps_context.then(|| context.clone()));
        let before = given(&context)?;
        drop(context);
        let asked = async {
            let _: Units = ask.form("Which units?").key("other").await?;
            let after = kept.as_ref().map(given).transpose()?;
            Ok::<_, FlowError>(format!("{before} {after:?}"))
        };
        asked.await.into_call_tool_result()
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::test]
async fn answers_that_came_uninvited_are_forgotten_when_the_handler_waits() {
    for keeps_context in [false, true] {
        let server = Rounds::new(Uninvited { keeps_context });
        let client = Client::modern(server.clone()).await;
        let content = json!({"units": "metric", "note": "x".repeat(100 * KIB)});
        let answers = json!({"units": {"action": "accept", "content": content}});
        let asked = client.request("tools/call", json!({"name": "x", "inputResponses": answers})).await.asked();
        assert!(server.waiting_bytes() < 16 * KIB, "{} bytes", server.waiting_bytes());
        let told = asked.accept("other", json!({"other": "metric"})).send(&client).await.text();
        assert_eq!(told, if keeps_context { "true Some(false)" } else { "true None" });
    }
}

#[tokio::test]
async fn what_a_client_put_into_meta_counts_as_long_as_the_handler_keeps_its_context() {
    let meta = json!({"name": "x", "_meta": {"example/note": "x".repeat(100 * KIB)}});
    for (keeps_context, counts) in [(false, false), (true, true)] {
        let server = Rounds::new(Uninvited { keeps_context });
        let client = Client::modern(server.clone()).await;
        let _asked = client.request("tools/call", meta.clone()).await.asked();
        assert_eq!(server.waiting_bytes() > 100 * KIB, counts, "{} bytes", server.waiting_bytes());
    }
}

/// A guard that asks twice, and returns what it was given.
struct Guard;

impl ServerHandler for Guard {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let round = Round::<CallToolResponse>::from_context(&context)?;
        let said = format!("{} {:?} {:?}", request.name, request.arguments, context.meta);
        match (round.given::<Units>("units"), round.number()) {
            (Given::Accepted(_), 1) => round.ask_form::<Units>("again", "Really?"),
            (_, 0) => round.ask_form::<Units>("units", "Which units?"),
            _ => Ok(rounds::text(said)),
        }
        .or_else(IntoCallToolResult::into_call_tool_result)
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::test]
async fn a_guard_that_is_pushed_gets_the_same_request_each_time_it_is_called() {
    let server = Rounds::builder(Guard).legacy(Legacy::push()).build().unwrap();
    let client = Client::legacy(server.clone()).await;
    let arguments = json!({"city": "Tokyo", "deep": {"list": [1, 2.5, null, {"a": "é\n"}]}});
    let meta = json!({"progressToken": 7, "example/note": {"b": [true]}});
    let leg = client.start("tools/call", json!({"name": "x", "arguments": arguments, "_meta": meta})).await;
    for key in ["units", "again"] {
        let pushed = client.pushed().await.unwrap();
        pushed.answer(json!({"action": "accept", "content": {key: "metric"}})).await;
    }
    let expected = format!(
        "x {:?} {:?}",
        serde_json::from_value::<Option<rmcp::model::JsonObject>>(arguments).unwrap(),
        serde_json::from_value::<rmcp::model::RequestMetaObject>(meta).unwrap()
    );
    assert_eq!(leg.finish().await.text(), expected);
    assert_eq!(server.waiting_bytes(), 0);
}
