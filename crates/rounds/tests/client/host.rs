//! The host: one responder for the servers of both eras.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, CreateMessageResult, Implementation, ListRootsResult, LoggingLevel,
        LoggingMessageNotificationParam, ProgressNotificationParam, SamplingMessage,
    },
    object,
    service::NotificationContext,
};
use rounds::{
    Ask, Era, FlowError,
    client::{
        AskedQuestion, BadServer, Call, DriveLimits, DriveOutcome, Host, SendError, Server, UserAnswer, defaults_only,
        drive, only, scripted, unavailable,
    },
    observe::QuestionKind,
    test::Clock,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{Act, Raw, connect, knows_units, metric, old_server, said, server, soon, units, units_form};

/// The client's responses to the requests that a legacy server pushes.
async fn pushed(host: Host<impl rounds::client::Responder + 'static>, requests: Vec<Value>) -> Vec<Value> {
    let (_raw, client) = Raw::legacy(host, move |_| Act::Push(requests.clone())).await;
    let sent = soon(Call::tool("x", object!({})).send(&client)).await.unwrap();
    serde_json::from_str(&said(sent)).unwrap()
}

#[tokio::test]
async fn one_function_answers_the_servers_of_both_eras() {
    async fn ask(question: AskedQuestion) -> Result<UserAnswer, std::convert::Infallible> {
        assert_eq!(question.message(), "Which units?");
        assert_eq!(question.fields()[0].name, "units");
        assert_eq!(question.is_pushed(), question.key().is_empty());
        Ok(metric())
    }
    for (client, era, name) in [
        (connect(server(units), Host::new(ask)).await, Era::Modern, "real"),
        (connect(old_server(units), Host::new(ask)).await, Era::Legacy, "old"),
    ] {
        assert_eq!(Server::from(&client).era(), era);
        assert_eq!(Server::from(&client).origin().name.as_deref(), Some(name));
        let outcome = soon(drive(&client, Call::tool("x", object!({})), &ask, DriveLimits::default())).await.unwrap();
        assert!(matches!(outcome, DriveOutcome::Done(done) if done.text() == "Metric"));
    }
}

#[tokio::test]
async fn a_decline_reaches_a_legacy_server_as_one() {
    let client = connect(old_server(units), Host::new(scripted().answer("Which units?", UserAnswer::Decline))).await;
    let sent = soon(Call::tool("x", object!({})).send(&client)).await.unwrap();
    assert_eq!(said(sent), "The user declined: Which units?");
}

#[tokio::test]
async fn a_legacy_server_is_told_what_it_may_ask_and_asks_nothing_else() {
    let client = connect(old_server(units), Host::new(unavailable())).await;
    let error = soon(Call::tool("x", object!({})).send(&client)).await.unwrap_err();
    assert!(error.to_string().contains("-32021"), "{error}");
}

#[tokio::test]
async fn modern_only_does_not_fall_back() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let old = old_server(units);
    tokio::spawn(async move { rmcp::ServiceExt::serve(old, theirs).await.map(drop) });
    let refused = soon(Host::new(knows_units()).modern_only().connect(ours)).await;
    assert!(refused.is_err());
    let client = connect(server(units), Host::new(knows_units()).modern_only()).await;
    let outcome = drive(&client, Call::tool("x", object!({})), &knows_units(), DriveLimits::default()).await.unwrap();
    assert!(matches!(outcome, DriveOutcome::Done(done) if done.text() == "Metric"));
}

#[tokio::test]
async fn modern_only_answers_no_push() {
    let shown = Arc::new(Mutex::new(0));
    let count = shown.clone();
    let ask = move |_: AskedQuestion| {
        *count.lock().unwrap() += 1;
        async { Ok::<_, String>(metric()) }
    };
    let (_raw, client) = Raw::named("pushy", Host::new(ask).modern_only(), |_| Act::Push(vec![units_form()])).await;
    let sent = soon(Call::tool("x", object!({})).send(&client)).await.unwrap();
    let answers: Vec<Value> = serde_json::from_str(&said(sent)).unwrap();
    assert_eq!(answers[0]["error"]["code"], -32601);
    assert_eq!(*shown.lock().unwrap(), 0);
}

#[tokio::test]
async fn legacy_only_begins_with_initialize() {
    let client = connect(server(units), Host::new(knows_units()).legacy_only()).await;
    assert_eq!(Server::from(&client).era(), Era::Legacy);
    assert_eq!(said(soon(Call::tool("x", object!({})).send(&client)).await.unwrap()), "Metric");
}

#[tokio::test]
async fn a_pushed_page_without_the_retired_id_is_answered() {
    let page = |id: Option<&str>| {
        let mut params = json!({"mode": "url", "message": "Go there", "url": "https://example.com/?a=b"});
        if let Some(id) = id {
            params["elicitationId"] = json!(id);
        }
        json!({"method": "elicitation/create", "params": params})
    };
    let ask = |question: AskedQuestion| async move {
        assert_eq!(question.url(), Some("https://example.com/?a=b"));
        Ok::<_, String>(UserAnswer::Visit)
    };
    let answers = pushed(Host::new(ask), vec![page(None), page(Some("e-1"))]).await;
    assert_eq!(answers.len(), 2);
    for answer in answers {
        assert_eq!(answer["result"], json!({"action": "accept"}));
    }
}

#[tokio::test]
async fn pushed_samples_and_roots_are_answered_where_they_were_declared() {
    let message = json!({"role": "user", "content": {"type": "text", "text": "Say hello"}});
    let requests = vec![
        json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 7}}),
        json!({"method": "roots/list"}),
    ];
    let ask = |question: AskedQuestion| async move {
        Ok::<_, String>(match question.sample() {
            Some(params) => {
                assert_eq!(params.max_tokens, 7);
                let hello = CreateMessageResult::new(SamplingMessage::assistant_text("hello"), "m-1".to_owned());
                UserAnswer::Sample(Box::new(hello))
            }
            None => UserAnswer::Roots(ListRootsResult::default()),
        })
    };
    let by_id = |answers: &[Value], id: &str| answers.iter().find(|answer| answer["id"] == id).unwrap().clone();
    let answers =
        pushed(Host::new(only(ask).kinds([QuestionKind::Sample, QuestionKind::Roots])), requests.clone()).await;
    assert_eq!(by_id(&answers, "push-0")["result"]["content"]["text"], "hello");
    assert_eq!(by_id(&answers, "push-1")["result"], json!({"roots": []}));
    for answer in pushed(Host::new(ask), requests).await {
        assert_eq!(answer["error"]["code"], -32601, "a function answers forms and pages");
    }
}

#[tokio::test]
async fn what_is_pushed_and_is_no_question_is_refused() {
    let broken = |params: Value| json!({"method": "elicitation/create", "params": params});
    let requests = vec![
        broken(json!({"message": "?", "requestedSchema": 7})),
        broken(json!({"mode": "hologram", "message": "?"})),
        broken(json!({})),
        json!({"method": "elicitation/create"}),
        json!({"method": "files/delete", "params": {}}),
    ];
    let answers = pushed(Host::new(defaults_only()), requests).await;
    assert_eq!(answers.len(), 5);
    for answer in answers {
        assert!(answer["error"]["message"].as_str().unwrap().len() < 500, "{answer}");
    }
}

#[tokio::test]
async fn a_push_that_is_too_large_is_refused() {
    let mut form = units_form();
    form["params"]["message"] = json!("?".repeat(1 << 20));
    let answers = pushed(Host::new(knows_units()), vec![form]).await;
    assert_eq!(answers[0]["error"]["message"], "the question is too large: more than 262144 bytes in one question");
}

#[tokio::test]
async fn a_pending_call_does_not_begin_anew_over_a_legacy_connection() {
    let (_raw, modern) = Raw::named("old", Host::new(knows_units()), |_| crate::asks_units("s")).await;
    let (raw, legacy) = Raw::legacy(Host::new(knows_units()), |_| crate::text("begun again")).await;
    let mut pending = crate::asked(Call::tool("x", object!({})).send(&modern).await.unwrap());
    pending.answer("units", metric()).unwrap();
    assert!(matches!(pending.send(&legacy).await, Err(SendError::LegacyConnection)));
    assert!(raw.requests("tools/call").is_empty());
}

#[tokio::test]
async fn a_legacy_server_that_asks_by_its_result_is_refused() {
    let (_raw, legacy) = Raw::legacy(Host::new(knows_units()), |_| crate::asks_units("s")).await;
    let error = Call::tool("x", object!({})).send(&legacy).await.unwrap_err();
    assert!(matches!(error, SendError::BadServer(BadServer::AsksInLegacyEra)), "{error:?}");
}

#[tokio::test]
async fn an_answer_to_a_push_is_checked_before_it_is_sent() {
    let kelvin = scripted().answer("units", UserAnswer::Form(object!({"units": "kelvin"})));
    let answers = pushed(Host::new(kelvin), vec![units_form()]).await;
    assert!(answers[0]["error"]["message"].as_str().unwrap().contains("must be one of metric, imperial"));
    let failing = |_: AskedQuestion| async { Err::<UserAnswer, _>("the terminal is gone") };
    let answers = pushed(Host::new(failing), vec![units_form()]).await;
    assert_eq!(answers[0]["error"]["message"], "the question was not answered: the terminal is gone");
}

#[tokio::test]
async fn a_push_that_nobody_answers_in_time_is_cancelled_and_not_declined() {
    let clock = Clock::new();
    let never = |_: AskedQuestion| std::future::pending::<Result<UserAnswer, String>>();
    let host = Host::new(never).with_clock(clock.clone()).with_question_timeout(Duration::from_secs(60));
    let time = async {
        clock.until_asleep(1).await;
        clock.advance(Duration::from_secs(60));
    };
    let (answers, ()) = tokio::join!(pushed(host, vec![units_form()]), time);
    assert_eq!(answers[0]["result"], json!({"action": "cancel"}));
}

#[tokio::test]
async fn a_responder_that_panics_leaves_no_server_waiting() {
    let at_once = |_: AskedQuestion| -> std::future::Ready<Result<UserAnswer, String>> { panic!("no") };
    async fn later(question: AskedQuestion) -> Result<UserAnswer, String> {
        tokio::task::yield_now().await;
        assert!(question.fields().is_empty(), "no");
        Ok(UserAnswer::Cancel)
    }
    let told = "the question was not answered: the responder panicked";
    assert_eq!(pushed(Host::new(at_once), vec![units_form()]).await[0]["error"]["message"], told);
    assert_eq!(pushed(Host::new(later), vec![units_form()]).await[0]["error"]["message"], told);
}

#[tokio::test]
async fn a_push_that_is_withdrawn_is_no_longer_shown() {
    struct Shown(Arc<Notify>);
    impl Drop for Shown {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (shown, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_show, on_gone) = (shown.clone(), gone.clone());
    let ask = move |_: AskedQuestion| {
        let (on_show, shown) = (on_show.clone(), Shown(on_gone.clone()));
        async move {
            on_show.notify_one();
            let _shown = shown;
            std::future::pending::<Result<UserAnswer, String>>().await
        }
    };
    let select = |ask: Ask| async move {
        tokio::select! {
            units = ask.form::<crate::Units>("Which units?") => Ok(format!("{:?}", units?)),
            () = async { for _ in 0..1000 { tokio::task::yield_now().await } } => Ok("never mind".to_owned()),
        }
    };
    let client = connect(old_server(select), Host::new(ask)).await;
    let call = Call::tool("x", object!({}));
    let (sent, ()) = soon(async {
        tokio::join!(call.send(&client), async {
            shown.notified().await;
            gone.notified().await;
        })
    })
    .await;
    assert_eq!(said(sent.unwrap()), "never mind");
}

#[tokio::test]
async fn other_calls_go_on_while_somebody_thinks_about_a_push() {
    let (asked, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_ask, until) = (asked.clone(), told.clone());
    let ask = move |_: AskedQuestion| {
        let (on_ask, until) = (on_ask.clone(), until.clone());
        async move {
            on_ask.notify_one();
            until.notified().await;
            Ok::<_, String>(metric())
        }
    };
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let slow_or_not = move |ask: Ask| {
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        async move { if first { units(ask).await } else { Ok("quick".to_owned()) } }
    };
    let client = connect(old_server(slow_or_not), Host::new(ask)).await;
    let slow = Call::tool("slow", object!({}));
    let meanwhile = async {
        asked.notified().await;
        for _ in 0..3 {
            let quick = Call::tool("quick", object!({})).send(&client).await.unwrap();
            assert_eq!(said(quick), "quick");
        }
        told.notify_one();
    };
    let (sent, ()) = soon(async { tokio::join!(slow.send(&client), meanwhile) }).await;
    assert_eq!(said(sent.unwrap()), "Metric");
}

#[tokio::test]
async fn questions_that_are_pushed_together_are_answered_together() {
    let both = |ask: Ask| async move {
        let (one, two) = tokio::join!(
            ask.form::<crate::Units>("One?").key("one").into_future(),
            ask.form::<crate::Units>("Two?").key("two").into_future(),
        );
        Ok::<_, FlowError>(format!("{:?} {:?}", one?, two?))
    };
    let table = scripted()
        .answer("one", UserAnswer::Form(object!({"one": "metric"})))
        .answer("Two?", UserAnswer::Form(object!({"two": "imperial"})));
    let client = connect(old_server(both), Host::new(table)).await;
    assert_eq!(said(soon(Call::tool("x", object!({})).send(&client)).await.unwrap()), "Metric Imperial");
}

#[tokio::test]
async fn more_pushes_at_once_than_anybody_can_answer_are_refused() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = gate.clone();
    let ask = move |_: AskedQuestion| {
        let held = held.clone();
        async move {
            let _open = held.acquire().await;
            Ok::<_, String>(metric())
        }
    };
    let (raw, client) = Raw::legacy(Host::new(ask), |_| Act::Push(vec![units_form(); 100])).await;
    let answered = |raw: &Raw| raw.seen.lock().unwrap().iter().filter(|message| message.get("error").is_some()).count();
    let call = Call::tool("x", object!({}));
    let refused = async {
        while answered(&raw) < 36 {
            tokio::task::yield_now().await;
        }
        gate.close();
    };
    let (sent, ()) = soon(async { tokio::join!(call.send(&client), refused) }).await;
    let answers: Vec<Value> = serde_json::from_str(&said(sent.unwrap())).unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.get("result").is_some()).count(), 64);
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl ClientHandler for Listener {
    async fn on_progress(&self, params: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.0.lock().unwrap().push(format!("progress {}", params.progress));
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.0.lock().unwrap().push(format!("{:?}", params.level));
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_roots().build();
        ClientConfig::new(capabilities, Implementation::new("listener", "9"))
    }
}

#[tokio::test]
async fn notifications_and_the_name_are_another_handlers() {
    let listener = Listener::default();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let asking = server(units);
    let running = tokio::spawn(async move { rmcp::ServiceExt::serve(asking, theirs).await.unwrap() });
    let host = Host::new(knows_units()).with_handler(listener.clone()).legacy_only();
    let info = host.get_info();
    assert_eq!(info.client_info.name, "listener");
    assert_eq!(serde_json::to_value(info.capabilities).unwrap(), json!({"elicitation": {"form": {}}}));
    let client = host.connect(ours).await.unwrap();
    assert!(client.service().handler().0.lock().unwrap().is_empty());
    let server = running.await.unwrap();
    let note = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!("hello"));
    server.peer().notify_logging_message(note).await.unwrap();
    soon(async {
        while listener.0.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(*listener.0.lock().unwrap(), ["Info"]);
}
