//! What a handler sends to its client while its request is in flight.

#![expect(deprecated, reason = "SEP-2577 deprecates logging, and a server may still log")]

use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, combinators::BoxBody};
use rmcp::{
    RoleServer,
    model::{
        CustomNotification, LoggingMessageNotificationParam, NumberOrString, ProgressNotificationParam, ProgressToken,
        ServerNotification,
    },
    service::{RequestContext, ServiceError},
    transport::streamable_http_server::{
        StreamableHttpServerConfig,
        session::{
            ServerSseMessage,
            local::LocalSessionManager,
            store::{EventId, EventStore, EventStoreError, EventStream},
        },
    },
};
use rounds::Rounds;
use rounds_http::Endpoint;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::{
    desk::Desk,
    lanes::{At, Tool, called, done, endpoint, json, rmcp},
    send::Sent,
};

/// Tells the client of a request how far it is.
async fn tell(context: &RequestContext<RoleServer>, step: u32) -> Result<(), ServiceError> {
    let token = context.meta.get_progress_token().unwrap();
    context.peer.notify_progress(ProgressNotificationParam::new(token, f64::from(step))).await
}

/// A call that wants to know.
fn with_token(token: impl Into<Value>) -> Sent {
    called().putting("/params/_meta/progressToken", token.into())
}

async fn begin(endpoint: &mut At<Tool>, sent: &Sent) -> BoxBody<Bytes, Infallible> {
    let response = endpoint.call(sent.request()).await.unwrap();
    assert_is_stream(&response);
    response.into_body()
}

fn assert_is_stream<B>(response: &Response<B>) {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
}

/// The next piece of a body, if there is one within a second.
async fn next(body: &mut BoxBody<Bytes, Infallible>) -> Option<String> {
    let frame = tokio::time::timeout(Duration::from_secs(1), body.frame()).await.ok()??;
    Some(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
}

async fn rest(body: &mut BoxBody<Bytes, Infallible>) -> String {
    let mut rest = String::new();
    while let Some(piece) = next(body).await {
        rest.push_str(&piece);
    }
    rest
}

/// The messages in a stream, without comments.
fn messages(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| panic!("no message: {data}"))).collect()
}

/// How far a stream was told that its request is.
fn steps(stream: &str) -> Vec<f64> {
    messages(stream).iter().filter_map(|message| message["params"]["progress"].as_f64()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_without_a_wait_goes_out_with_the_result() {
    for sent in [1, 2, 50] {
        let tool = Tool::new(move |context| async move {
            for step in 0..sent {
                tell(&context, step).await.unwrap();
            }
            done()
        });
        let mut body = begin(&mut endpoint(&tool, json()), &with_token("p")).await;
        let piece = next(&mut body).await.unwrap();
        assert_eq!(steps(&piece).len(), sent as usize, "{piece}");
        assert!(piece.contains("done"), "{piece}");
        assert_eq!(next(&mut body).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_before_a_wait_does_not_wait_for_the_result() {
    let go = Arc::new(Notify::new());
    let tool = Tool::new({
        let go = go.clone();
        move |context| {
            let go = go.clone();
            async move {
                tell(&context, 1).await.unwrap();
                tell(&context, 2).await.unwrap();
                go.notified().await;
                tell(&context, 3).await.unwrap();
                done()
            }
        }
    });
    let mut body = begin(&mut endpoint(&tool, json()), &with_token("p")).await;
    assert_eq!(steps(&next(&mut body).await.unwrap()), [1.0, 2.0]);
    assert_eq!(next(&mut body).await, None, "the handler waits");
    go.notify_one();
    let rest = rest(&mut body).await;
    assert_eq!(steps(&rest), [3.0]);
    assert!(rest.ends_with("\n\n") && rest.contains("done"), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn a_client_gets_the_token_that_it_sent() {
    let tool = Tool::new(|context| async move {
        tell(&context, 1).await.unwrap();
        done()
    });
    for token in [json!(0), json!(-1), json!(i64::MAX), json!(i64::MIN), json!(""), json!("1"), json!("größe\n")] {
        let answer = with_token(token.clone()).to(&mut endpoint(&tool, json())).await;
        assert_eq!(messages(&answer.body)[0]["params"]["progressToken"], token);
        assert_eq!(answer, with_token(token).to(&mut rmcp(&tool, json())).await);
    }
}

/// Different on purpose: rmcp's handlers get the client's token, which another client may have sent, too.
#[tokio::test(start_paused = true)]
async fn a_handler_gets_a_progress_token_that_no_other_request_has() {
    let (tokens, all) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Barrier::new(3)));
    let tool = Tool::new({
        let (tokens, all) = (tokens.clone(), all.clone());
        move |context| {
            let (tokens, all) = (tokens.clone(), all.clone());
            async move {
                let token = context.meta.get_progress_token().unwrap();
                let place = {
                    let mut tokens = tokens.lock().unwrap();
                    assert!(!tokens.contains(&token), "{token:?}");
                    tokens.push(token);
                    tokens.len() as u32
                };
                all.wait().await;
                tell(&context, place).await.unwrap();
                done()
            }
        }
    });
    let mut endpoint = endpoint(&tool, json());
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(tokio::spawn(endpoint.call(with_token(7).request())));
    }
    let mut told = Vec::new();
    for call in calls {
        let mut body = call.await.unwrap().unwrap().into_body();
        let body = rest(&mut body).await;
        assert_eq!(messages(&body)[0]["params"]["progressToken"], 7);
        told.extend(steps(&body));
    }
    told.sort_unstable_by(f64::total_cmp);
    assert_eq!(told, [1.0, 2.0, 3.0], "each client gets its own");
}

/// A peer that was kept reaches no client, even if another client has sent the same token.
#[tokio::test(start_paused = true)]
async fn progress_after_the_result_does_not_reach_another_request() {
    let (kept, go) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
    let tool = Tool::new({
        let (kept, go) = (kept.clone(), go.clone());
        move |context: RequestContext<RoleServer>| {
            let (is_first, go) = (kept.lock().unwrap().is_none(), go.clone());
            kept.lock().unwrap().get_or_insert_with(|| context.clone());
            async move {
                if !is_first {
                    tell(&context, 2).await.unwrap();
                    go.notified().await;
                }
                done()
            }
        }
    });
    let mut endpoint = endpoint(&tool, json());
    with_token(1).to(&mut endpoint).await;
    let mut body = begin(&mut endpoint, &with_token(1)).await;
    let first = kept.lock().unwrap().take().unwrap();
    tell(&first, 9).await.unwrap();
    let mut guessed = ProgressNotificationParam::new(ProgressToken(NumberOrString::Number(1)), 9.0);
    first.peer.notify_progress(guessed.clone()).await.unwrap();
    guessed.progress_token = ProgressToken(NumberOrString::String("1".into()));
    first.peer.notify_progress(guessed).await.unwrap();
    go.notify_one();
    assert_eq!(steps(&rest(&mut body).await), [2.0]);
}

/// Different on purpose: rmcp makes a stream of the response for it.
#[tokio::test(start_paused = true)]
async fn a_stray_notification_goes_nowhere() {
    let tool = Tool::new(|context| async move {
        // More than any channel on the way could hold.
        for _ in 0..5000 {
            let stray = CustomNotification::new("stray", None);
            context.peer.send_notification(ServerNotification::CustomNotification(stray)).await.unwrap();
        }
        log(&context).await;
        done()
    });
    // FastMCP's client asks for log messages with every request.
    let level = |sent: Sent| sent.putting("/params/_meta/io.modelcontextprotocol~1logLevel", json!("debug"));
    for sent in [called(), with_token(1), level(called()), level(with_token(1))] {
        let ours = sent.to(&mut endpoint(&tool, json())).await;
        assert_eq!(ours.message()["result"]["content"][0]["text"], "done");
    }
    let theirs = called().to(&mut rmcp(&tool, json())).await;
    assert!(theirs.body.contains("stray"), "{theirs:?}");
}

async fn log(context: &RequestContext<RoleServer>) {
    let level = rmcp::model::LoggingLevel::Info;
    context.peer.notify_logging_message(LoggingMessageNotificationParam::new(level, json!("logged"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_a_log_level_whatever_a_server_with_logs_sends_comes_in_order() {
    let tool = Tool::new(|context| async move {
        log(&context).await;
        tell(&context, 1).await.unwrap();
        let own = CustomNotification::new("own", None);
        context.peer.send_notification(ServerNotification::CustomNotification(own)).await.unwrap();
        log(&context).await;
        done()
    })
    .with_logs();
    let sent = with_token("p").putting("/params/_meta/io.modelcontextprotocol~1logLevel", json!("info"));
    let ours = sent.to(&mut endpoint(&tool, json())).await;
    let methods: Vec<_> = messages(&ours.body).iter().map(|message| message["method"].clone()).collect();
    let logged = "notifications/message";
    assert_eq!(methods, [json!(logged), json!("notifications/progress"), json!("own"), json!(logged), json!(null)]);
    assert_eq!(ours, sent.to(&mut rmcp(&tool, json())).await);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_notifications_that_are_sent_at_once_come_in_order() {
    for sent in [with_token(1), with_token(1).putting("/params/_meta/io.modelcontextprotocol~1logLevel", json!("info"))]
    {
        let tool = Tool::new(|context| async move {
            let mut sending: Vec<_> = (0..1000).map(|step| Box::pin(tell(&context, step))).collect();
            for told in &mut sending {
                // Each is on its way before the first has arrived.
                assert!(told.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            for told in sending {
                told.await.unwrap();
            }
            done()
        })
        .with_logs();
        let stream = rest(&mut begin(&mut endpoint(&tool, json()), &sent).await).await;
        assert_eq!(steps(&stream), (0..1000).map(f64::from).collect::<Vec<_>>());
        assert!(messages(&stream)[1000]["result"].is_object());
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_floods_is_slowed_by_a_client_that_does_not_read() {
    const FLOOD: u32 = 20_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let tool = Tool::new({
        let sent = sent.clone();
        move |context| {
            let sent = sent.clone();
            async move {
                for step in 0..FLOOD {
                    tell(&context, step).await.unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
                done()
            }
        }
    });
    let mut body = begin(&mut endpoint(&tool, json()), &with_token("p")).await;
    let mut stream = String::new();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let sent = sent.load(Ordering::SeqCst);
        let read = steps(&stream).len();
        // Each takes some hundred bytes, and 16 KiB may wait.
        assert!(sent - read < 200, "{sent} sent, {read} read");
        let piece = next(&mut body).await.unwrap();
        assert!(piece.len() < 17 << 10, "{}", piece.len());
        stream.push_str(&piece);
    }
    stream.push_str(&rest(&mut body).await);
    assert_eq!(steps(&stream), (0..FLOOD).map(f64::from).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_wait_for_what_it_sends_is_refused_in_the_end() {
    let tool = Tool::new(|context| async move {
        let mut message = ProgressNotificationParam::new(context.meta.get_progress_token().unwrap(), 1.0);
        message.message = Some("x".repeat(10_000));
        for _ in 0..1_000 {
            {
                // Dropped as soon as it is on its way.
                let mut sending = pin!(context.peer.notify_progress(message.clone()));
                let _ = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            tokio::task::yield_now().await;
        }
        let refused = context.peer.notify_progress(message.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("wait for each notification"), "{refused}");
        done()
    });
    let mut body = begin(&mut endpoint(&tool, json()), &with_token("p")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stream = rest(&mut body).await;
    assert!(stream.len() < (1 << 20) + 40_000, "{}", stream.len());
    assert!(stream.ends_with("\n\n") && stream.contains("done"));
}

/// It would hold what it has locked for as long as the client likes.
#[tokio::test(start_paused = true)]
async fn a_handler_goes_on_while_its_client_does_not_read() {
    let ended = Arc::new(Notify::new());
    let tool = Tool::new({
        let ended = ended.clone();
        move |context| {
            let ended = ended.clone();
            async move {
                tell(&context, 1).await.unwrap();
                tokio::time::sleep(Duration::from_secs(60)).await;
                ended.notify_one();
                done()
            }
        }
    });
    let mut body = begin(&mut endpoint(&tool, json()), &with_token("p")).await;
    ended.notified().await;
    assert!(rest(&mut body).await.contains("done"));
}

/// Otherwise one that computes without a pause would keep back what it has sent.
#[tokio::test(start_paused = true)]
async fn a_handler_that_has_sent_something_goes_on_in_a_task_of_its_own() {
    let tool = Tool::new(|context| async move {
        assert_eq!(tokio::task::try_id(), None, "here no task was spawned for the client");
        tell(&context, 1).await.unwrap();
        assert!(tokio::task::try_id().is_some());
        done()
    });
    let mut endpoint = endpoint(&tool, json());
    let body = endpoint.call(with_token("p").request()).await.unwrap().into_body().collect().await.unwrap();
    assert!(String::from_utf8(body.to_bytes().to_vec()).unwrap().contains("done"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_client_leaves_is_told_at_every_stage() {
    // After so many notifications, of which the client has read as many.
    for (sent, read) in [(0, 0), (1, 0), (1, 1), (500, 0), (500, 1)] {
        let (told, stage) = (CancellationToken::new(), Arc::new(Notify::new()));
        let outcome = Arc::new(Mutex::new(None));
        let tool = Tool::new({
            let (told, stage, outcome) = (told.clone(), stage.clone(), outcome.clone());
            move |context: RequestContext<RoleServer>| {
                let (told, stage, outcome) = (told.clone(), stage.clone(), outcome.clone());
                async move {
                    for step in 0..sent {
                        // The last ones wait for a client that has not read enough, and must not do so for ever.
                        if tell(&context, step).await.is_err() {
                            break;
                        }
                    }
                    stage.notify_one();
                    context.ct.cancelled().await;
                    *outcome.lock().unwrap() = Some(tell(&context, 1000).await.map_err(|error| error.to_string()));
                    told.cancel();
                    done()
                }
            }
        });
        let mut endpoint = endpoint(&tool, json());
        let mut responding = endpoint.call(with_token("p").request());
        if sent == 0 {
            tokio::select! {
                _ = &mut responding => panic!("there is no response yet"),
                () = stage.notified() => {}
            }
            drop(responding);
        } else {
            let mut body = responding.await.unwrap().into_body();
            for _ in 0..read {
                next(&mut body).await.unwrap();
            }
            drop(body);
        }
        told.cancelled().await;
        let outcome = outcome.lock().unwrap().take().unwrap();
        assert!(outcome.unwrap_err().contains("the client has closed the response"), "{sent} {read}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_middle_of_a_stream_is_answered() {
    let tool = Tool::new(|context| async move {
        tell(&context, 1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        panic!("at the desk")
    });
    let mut body = begin(&mut endpoint(&tool, json()), &with_token("p")).await;
    let stream = rest(&mut body).await;
    assert_eq!(messages(&stream)[1]["error"], json!({ "code": -32603, "message": "the handler panicked" }));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_server_stops_and_its_handler_is_told() {
    let (stop, told) = (CancellationToken::new(), CancellationToken::new());
    let tool = Tool::new({
        let told = told.clone();
        move |context: RequestContext<RoleServer>| {
            let told = told.clone();
            async move {
                tell(&context, 1).await.unwrap();
                context.ct.cancelled().await;
                told.cancel();
                pending().await
            }
        }
    });
    let config = json().with_cancellation_token(stop.clone());
    let mut body = begin(&mut endpoint(&tool, config), &with_token("p")).await;
    assert_eq!(steps(&next(&mut body).await.unwrap()), [1.0]);
    stop.cancel();
    assert!(body.frame().await.is_none());
    drop(body);
    told.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn comments_keep_a_stream_alive_that_waits() {
    let tool = Tool::new(|context| async move {
        tell(&context, 1).await.unwrap();
        tokio::time::sleep(Duration::from_secs(50)).await;
        tell(&context, 2).await.unwrap();
        tokio::time::sleep(Duration::from_secs(50)).await;
        done()
    });
    for (every, comments) in [(Some(20), 4), (Some(60), 0), (None, 0)] {
        let config = json().with_sse_keep_alive(every.map(Duration::from_secs));
        let body = begin(&mut endpoint(&tool, config), &with_token("p")).await;
        let stream = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert_eq!(stream.matches(":\n\n").count(), comments, "{every:?}: {stream}");
        assert_eq!(steps(&stream), [1.0, 2.0]);
    }
    let config = json().with_sse_keep_alive(Some(Duration::MAX));
    assert_eq!(steps(&with_token("p").to(&mut endpoint(&tool, config)).await.body), [1.0]);
}

#[tokio::test(start_paused = true)]
async fn a_linear_handler_tells_the_client_of_the_leg_in_flight() {
    let tool = Tool::new(|context| async move {
        let ask = rounds::Ask::from_context(&context)?;
        ask.progress(1.0, None, None).await;
        let _: bool = ask.confirm("On?").await?;
        ask.progress(2.0, Some(2.0), Some("nearly".to_owned())).await;
        done()
    });
    let mut endpoint = Endpoint::new(&Rounds::new(tool), json());
    let asked = with_token("first").to(&mut endpoint).await;
    let [told, asked] = messages(&asked.body).try_into().unwrap();
    assert_eq!(told["params"], json!({ "progressToken": "first", "progress": 1.0 }));
    let request = endpoint.call(with_token("first").request()).await.unwrap();
    let state = String::from_utf8(request.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let state = messages(&state)[1]["result"]["requestState"].clone();
    assert!(asked["result"]["inputRequests"].is_object());
    let mut params = json!({ "name": "it", "requestState": state });
    params["inputResponses"] = json!({ "confirm": { "action": "accept", "content": { "confirm": true } } });
    let sent = Sent::new("tools/call", params).putting("/params/_meta/progressToken", json!(2));
    let [told, result] = messages(&sent.to(&mut endpoint).await.body).try_into().unwrap();
    assert_eq!(told["params"], json!({ "progressToken": 2, "progress": 2.0, "total": 2.0, "message": "nearly" }));
    assert_eq!(result["result"]["content"][0]["text"], "done");
}

/// Events that have to be kept are rmcp's to keep.
#[tokio::test(start_paused = true)]
async fn where_events_are_kept_what_may_stream_is_left_to_rmcp() {
    struct Store;

    type Kept<'a, T> = Pin<Box<dyn Future<Output = Result<T, EventStoreError>> + Send + 'a>>;

    impl EventStore for Store {
        fn store_event<'a, 'b, 'c, 'd>(&'a self, _: &'b str, _: &'c ServerSseMessage) -> Kept<'d, EventId>
        where
            'a: 'd,
            'b: 'd,
            'c: 'd,
        {
            Box::pin(async { Ok("kept".to_owned()) })
        }

        fn replay_events_after<'a, 'b, 'c>(&'a self, _: &'b str) -> Kept<'c, EventStream>
        where
            'a: 'c,
            'b: 'c,
        {
            Box::pin(async { Err("there is none".into()) })
        }
    }

    for is_json in [true, false] {
        let desk = Desk::default();
        let sessions = Arc::new(LocalSessionManager::default().with_event_store(Arc::new(Store)));
        let (handler, config) = (desk.clone(), StreamableHttpServerConfig::default().with_json_response(is_json));
        let service = rmcp::transport::StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
        let mut endpoint = Endpoint::over(desk.clone(), service);
        let echo = Sent::new("tools/call", json!({ "name": "notify", "arguments": { "before": 1 } }));
        echo.to(&mut endpoint).await;
        assert_eq!(desk.fast(), usize::from(is_json));
        let kept = echo.putting("/params/_meta/progressToken", json!(1)).to(&mut endpoint).await;
        assert!(kept.body.contains("id: kept"), "{kept:?}");
        assert_eq!(desk.fast(), usize::from(is_json));
    }
}
