//! Which lane takes what, and what the fast one does.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use rounds_http::Endpoint;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower_service::Service;
use tracing::{Instrument, Subscriber, span::Id, subscriber::set_default};
use tracing_subscriber::{
    Layer,
    layer::{self, SubscriberExt},
    registry,
    registry::LookupSpan,
};

use crate::{desk::Desk, send::Sent};

pub(crate) type Rmcp<H> = StreamableHttpService<H, LocalSessionManager>;
pub(crate) type At<H> = Endpoint<H, LocalSessionManager>;

pub(crate) fn rmcp<H: ServerHandler + Clone>(handler: &H, config: StreamableHttpServerConfig) -> Rmcp<H> {
    let handler = handler.clone();
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::default(), config)
}

pub(crate) fn endpoint<H: ServerHandler + Clone>(handler: &H, config: StreamableHttpServerConfig) -> At<H> {
    Endpoint::over(handler.clone(), rmcp(handler, config))
}

pub(crate) fn json() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_json_response(true)
}

#[tokio::test]
async fn the_methods_that_have_one_result_take_the_fast_lane() {
    let desk = Desk::default();
    let mut endpoint = endpoint(&desk, json());
    let completion = json!({ "ref": { "type": "ref/prompt", "name": "a" }, "argument": { "name": "b", "value": "c" } });
    for (method, params) in [
        ("tools/call", json!({ "name": "echo", "arguments": { "value": "a" } })),
        ("prompts/get", json!({ "name": "echo" })),
        ("resources/read", json!({ "uri": "echo" })),
        ("tools/list", json!({})),
        ("prompts/list", json!({ "cursor": "2" })),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("server/discover", json!({})),
        ("completion/complete", completion),
        ("tasks/get", json!({ "taskId": "1" })),
        ("tasks/update", json!({ "taskId": "1", "inputResponses": {} })),
    ] {
        let before = desk.fast();
        let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let sent = Sent::new(method, params);
        let sent = sent.putting("/params/_meta/io.modelcontextprotocol~1clientCapabilities", tasks);
        let answer = sent.to(&mut endpoint).await;
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        assert!(answer.message()["result"].is_object(), "{method}: {answer:?}");
        assert_eq!(desk.fast(), before + 1, "{method}: {answer:?}");
    }
}

#[tokio::test]
async fn requests_with_a_token_a_log_level_or_an_origin_take_the_fast_lane() {
    let desk = Desk::default();
    let mut endpoint = endpoint(&desk, json());
    let echo = || Sent::new("tools/call", json!({ "name": "echo" }));
    let token = || echo().putting("/params/_meta/progressToken", json!(1));
    for (sent, fast) in [
        (token(), 1),
        (echo().putting("/params/_meta/progressToken", json!("p")), 2),
        (echo().putting("/params/_meta/io.modelcontextprotocol~1logLevel", json!("info")), 3),
        (token().putting("/params/_meta/io.modelcontextprotocol~1logLevel", json!("info")), 4),
        (echo().with("origin", "http://localhost"), 5),
    ] {
        let answer = sent.to(&mut endpoint).await;
        assert!(answer.message()["result"].is_object(), "{answer:?}");
        assert!(answer.body.starts_with('{'), "nothing was sent before: {answer:?}");
        assert_eq!(desk.fast(), fast, "{sent:?}");
    }
}

#[tokio::test]
async fn what_only_rmcp_can_judge_is_left_to_rmcp() {
    let desk = Desk::default();
    let mut endpoint = endpoint(&desk, json());
    let echo = || Sent::new("tools/call", json!({ "name": "echo" }));
    for sent in [
        echo().putting("/params/_meta/progressToken", json!(1.5)),
        echo().putting("/params/_meta/progressToken", json!(null)),
        echo().putting("/params/_meta/progressToken", json!([1])),
        echo().putting("/params/_meta/io.modelcontextprotocol~1logLevel", json!("loud")),
        echo().putting("/params/extra", json!(1)),
        Sent::new("tools/call", json!({ "name": "region" })),
    ] {
        let answer = sent.to(&mut endpoint).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(desk.fast(), 0, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_too_many_json_values_is_refused_in_both_lanes() {
    let desk = Desk::default();
    let fast =
        |zeros: usize| Sent::new("tools/call", json!({ "name": "echo", "arguments": { "value": vec![0; zeros] } }));
    let slow = |zeros| fast(zeros).putting("/params/_meta/progressToken", json!(1.5));
    let page = |zeros| fast(zeros).with("origin", "http://localhost").with("origin", "http://localhost");
    let legacy = |zeros: usize| Sent::legacy(&json!({ "jsonrpc": "2.0", "method": "a", "params": vec![0; zeros] }));
    // The message around them has 31 values and keys, and two more with a token.
    let mut endpoint = endpoint(&desk, json()).with_json_values(1031);
    for sent in [fast(1000), slow(998), page(1000)] {
        assert_eq!(sent.to(&mut endpoint).await.status, 200);
    }
    assert_eq!(desk.fast(), 1);
    for sent in [fast(1001), slow(999), page(1001), legacy(1031), page(1001).with("host", "evil.example")] {
        let answer = sent.to(&mut endpoint).await;
        assert_eq!(answer.status, 413, "{answer:?}");
        assert!(answer.body.contains("more than 1031 JSON values"), "{answer:?}");
        assert!(answer.body.contains("Endpoint::with_json_values"), "{answer:?}");
    }
    assert_eq!(desk.fast(), 1, "no handler gets to see it");
}

/// What every request shares is made by the first one, and keeps nothing of it.
#[tokio::test]
async fn the_span_of_the_first_request_ends_with_it() {
    struct Closed(Arc<AtomicUsize>);

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Closed {
        fn on_close(&self, id: Id, context: layer::Context<'_, S>) {
            if context.metadata(&id).is_some_and(|span| span.name() == "around the request") {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    let closed = Arc::new(AtomicUsize::new(0));
    let _listening = set_default(registry().with(Closed(closed.clone())));
    let mut endpoint = endpoint(&Tool::new(|_| async { done() }), json());
    for requests in 1..3 {
        called().to(&mut endpoint).instrument(tracing::info_span!("around the request")).await;
        assert_eq!(closed.load(Ordering::Relaxed), requests);
    }
}

/// Different on purpose: with rmcp the client gets no answer.
#[tokio::test(start_paused = true)]
async fn a_panic_is_answered() {
    let tool = Tool::new(|_| async { panic!("at the desk") });
    let mut ours = endpoint(&tool, json());
    for _ in 0..2 {
        let answer = called().to(&mut ours).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.message()["error"], json!({ "code": -32603, "message": "the handler panicked" }));
    }
    let mut theirs = rmcp(&tool, json());
    let waited = tokio::time::timeout(Duration::from_secs(3600), called().to(&mut theirs)).await;
    assert!(waited.is_err(), "{waited:?}");
}

/// Different on purpose: with rmcp a peer ends with its request.
#[tokio::test(start_paused = true)]
async fn a_peer_that_was_kept_stays_open() {
    let kept = Arc::new(Mutex::new(None));
    let tool = Tool::new({
        let kept = kept.clone();
        move |context| {
            *kept.lock().unwrap() = Some(context);
            async { done() }
        }
    });
    let mut endpoint = endpoint(&tool, json());
    called().to(&mut endpoint).await;
    let ours: RequestContext<RoleServer> = kept.lock().unwrap().take().unwrap();
    ours.peer.notify_tool_list_changed().await.unwrap();
    called().to(&mut rmcp(&tool, json())).await;
    let theirs = kept.lock().unwrap().take().unwrap();
    theirs.peer.notify_tool_list_changed().await.unwrap_err();
    // The token is another matter: it is the same in both lanes.
    assert!(ours.ct.is_cancelled() && theirs.ct.is_cancelled());
}

#[tokio::test]
async fn a_handler_whose_client_is_gone_is_told_and_comes_to_its_end() {
    let (told, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let tool = Tool::new({
        let (told, finished) = (told.clone(), finished.clone());
        move |context| {
            let (told, finished) = (told.clone(), finished.clone());
            async move {
                // An effect that is under way, and goes on for a few turns after its client is gone.
                context.ct.cancelled().await;
                tokio::task::yield_now().await;
                told.store(true, Ordering::SeqCst);
                finished.notify_one();
                done()
            }
        }
    });
    let mut waiting = endpoint(&tool, json()).call(called().request());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(!told.load(Ordering::SeqCst));
    drop(waiting);
    finished.notified().await;
    assert!(told.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_answers_as_rmcp_does() {
    let told = CancellationToken::new();
    let tool = Tool::new({
        let told = told.clone();
        move |context| {
            let told = told.clone();
            async move {
                context.ct.cancelled().await;
                told.cancel();
                pending().await
            }
        }
    });
    let stop = CancellationToken::new();
    let config = json().with_cancellation_token(stop.clone());
    let (mut ours, mut theirs) = (endpoint(&tool, config.clone()), rmcp(&tool, config));
    let called = called();
    let (one, other, ()) = tokio::join!(called.to(&mut ours), called.to(&mut theirs), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    });
    assert_eq!(one.status, 500);
    assert_eq!(one, other);
    told.cancelled().await;
    // And from then on.
    assert_eq!(called.to(&mut ours).await, one);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_session_is_kept() {
    let mut endpoint = endpoint(&Desk::default(), json());
    let client = json!({ "name": "a", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let initialized = endpoint.call(Sent::legacy(&initialize).request()).await.unwrap();
    let session = initialized.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let in_session = |message| Sent::legacy(&message).with("mcp-session-id", &session);

    let noted = in_session(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(noted.to(&mut endpoint).await.status, 202);
    let params = json!({ "name": "echo" });
    let call = in_session(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    let answer = call.to(&mut endpoint).await;
    assert!(answer.body.contains("2025-11-25"), "{answer:?}");
}

/// A server with one tool.
#[derive(Clone)]
pub(crate) struct Tool {
    called: Arc<Called>,
    logs: bool,
}

type Called = dyn Fn(RequestContext<RoleServer>) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync;
pub(crate) type Outcome = Result<CallToolResponse, ErrorData>;

impl Tool {
    pub(crate) fn new<F>(called: impl Fn(RequestContext<RoleServer>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self { called: Arc::new(move |context| Box::pin(called(context))), logs: false }
    }

    /// One that declares that it has log messages.
    pub(crate) fn with_logs(self) -> Self {
        Self { logs: true, ..self }
    }
}

impl ServerHandler for Tool {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.logging = self.logs.then(JsonObject::default);
        ServerConfig::new(capabilities)
    }

    async fn call_tool(&self, _: CallToolRequestParams, context: RequestContext<RoleServer>) -> Outcome {
        (self.called)(context).await
    }
}

pub(crate) fn done() -> Outcome {
    Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
}

pub(crate) fn called() -> Sent {
    Sent::new("tools/call", json!({ "name": "it" }))
}
