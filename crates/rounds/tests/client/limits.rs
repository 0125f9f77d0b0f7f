//! Driven calls: rounds, time, when questions are asked, and what is kept when a call stops.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::object;
use rounds::{
    Ask, FlowError,
    client::{
        AnswerError, AskedQuestion, Call, Done, DriveError, DriveLimits, DriveOutcome, Host, Pending, Progress,
        Responder, SendError, Server, Stopped, UserAnswer, concurrently, drive, observed,
    },
    test::Clock,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{Act, Raw, Units, asked, asks_units, connect, knows_units, metric, server, soon, text, units, units_form};

fn done(outcome: Result<DriveOutcome, DriveError>) -> String {
    match outcome.unwrap() {
        DriveOutcome::Done(done) => done.text(),
        other => panic!("unexpected outcome: {other:?}"),
    }
}

fn call() -> Call {
    Call::tool("x", object!({}))
}

#[tokio::test]
async fn a_call_is_driven_to_its_end() {
    let client = connect(server(units), Host::new(knows_units())).await;
    let outcome = soon(drive(&client, call(), client.service().responder(), DriveLimits::default())).await;
    assert!(matches!(&outcome, Ok(DriveOutcome::Done(Done::Tool(_)))));
    assert_eq!(done(outcome), "Metric");
}

#[tokio::test]
async fn a_drive_may_be_a_task_of_its_own() {
    let client = Arc::new(connect(server(units), Host::new(knows_units())).await);
    let mut driven = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        driven.spawn(async move {
            let responder: Arc<dyn Responder> = Arc::new(knows_units());
            done(drive(&*client, call(), &responder, DriveLimits::default()).await)
        });
    }
    assert!(soon(driven.join_all()).await.iter().all(|text| text == "Metric"));
}

#[tokio::test]
async fn a_pending_call_is_driven_on_and_asked_only_what_is_open() {
    let both = |ask: Ask| async move {
        let (one, two) = tokio::join!(
            ask.form::<Units>("One?").key("one").into_future(),
            ask.form::<Units>("Two?").key("two").into_future(),
        );
        Ok::<_, FlowError>(format!("{:?} {:?}", one?, two?))
    };
    let client = connect(server(both), Host::new(knows_units())).await;
    let mut pending = asked(call().send(&client).await.unwrap());
    pending.accept("two", object!({"two": "imperial"})).unwrap();
    let pending = Pending::from_json(&pending.to_json()).unwrap();
    let responder = rounds::client::scripted().answer("one", UserAnswer::Form(object!({"one": "metric"})));
    assert_eq!(done(soon(drive(&client, pending, &responder, DriveLimits::default())).await), "Metric Imperial");
}

#[tokio::test]
async fn a_task_is_polled_to_its_end_and_no_question_of_it_is_asked_twice() {
    let polls = Arc::new(Mutex::new(0));
    let (_raw, client) = Raw::modern(move |request| {
        let task = |status: &str, more: serde_json::Value| {
            let mut task = json!({
                "resultType": if status == "new" { "task" } else { "complete" }, "taskId": "t-1",
                "status": if status == "new" { "working" } else { status }, "ttlMs": null, "pollIntervalMs": 20,
                "createdAt": "2026-07-28T09:30:00Z", "lastUpdatedAt": "2026-07-28T09:30:00Z",
            });
            task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Act::Result(task)
        };
        let schema = json!({"type": "object", "properties": {"units": {"type": "string"}}, "required": ["units"]});
        let form = json!({"mode": "form", "message": "Which units?", "requestedSchema": schema});
        let asks = json!({"inputRequests": {"units.1": {"method": "elicitation/create", "params": form}}});
        if request["method"] == "tools/call" {
            return task("new", json!({}));
        }
        assert_eq!(request["params"]["taskId"], "t-1");
        if request["method"] == "tasks/update" {
            assert_eq!(request["params"]["inputResponses"]["units.1"]["content"], json!({"units": "metric"}));
            return Act::Result(json!({"resultType": "complete"}));
        }
        let mut polls = polls.lock().unwrap();
        *polls += 1;
        match *polls {
            1 => task("working", json!({"statusMessage": "half way"})),
            // A server may show a question for a while after it took the answer.
            2..=4 => task("input_required", asks),
            _ => task("completed", json!({"result": {"content": [{"type": "text", "text": "fine"}]}})),
        }
    })
    .await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let responder = rounds::client::scripted().answer("units", UserAnswer::Form(object!({"units": "metric"})));
    let responder = observed(responder, move |progress: &Progress<'_>| match progress {
        Progress::Later { pending, .. } => noted.lock().unwrap().push(pending.status_message().map(str::to_owned)),
        Progress::Asked(pending) => noted.lock().unwrap().push(Some(pending.questions()[0].name().to_owned())),
        _ => {}
    });
    assert_eq!(done(soon(drive(&client, call(), &responder, DriveLimits::default())).await), "fine");
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|seen| seen.clone().unwrap_or_default()).collect();
    assert_eq!(seen, ["", "half way", "units", "", ""]);
}

#[tokio::test]
async fn a_state_only_loop_is_paced_as_others_do_and_ends_after_ten_rounds() {
    let (raw, client) =
        Raw::modern(|_| Act::Result(json!({"resultType": "input_required", "requestState": "later"}))).await;
    let clock = Clock::new();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let seen = waits.clone();
    let responder = observed(knows_units(), move |progress: &Progress<'_>| {
        if let Progress::Later { wait, .. } = progress {
            seen.lock().unwrap().push(wait.as_millis());
        }
    });
    let server = Server::from(&client).clock(clock.clone());
    let limits = DriveLimits::default();
    let mut driven = std::pin::pin!(drive(server, call(), &responder, limits));
    let error = soon(async {
        let mut waited = 0;
        loop {
            tokio::select! {
                biased;
                ended = &mut driven => return ended.unwrap_err(),
                () = tokio::task::yield_now() => {}
            }
            // One more wait: nothing moves before its time.
            let told = waits.lock().unwrap().clone();
            if told.len() > waited && clock.sleepers() > 1 {
                let sent = raw.requests("tools/call").len();
                let wait = Duration::from_millis(u64::try_from(told[waited]).unwrap());
                clock.advance(wait - Duration::from_millis(1));
                for _ in 0..50 {
                    tokio::select! {
                        biased;
                        _ = &mut driven => panic!("too early"),
                        () = tokio::task::yield_now() => {}
                    }
                }
                assert_eq!(raw.requests("tools/call").len(), sent, "the leg was sent too early");
                clock.advance(Duration::from_millis(1));
                waited += 1;
            }
        }
    })
    .await;
    assert!(matches!(error.stopped(), Stopped::Rounds { most: 10 }), "{error}");
    assert_eq!(*waits.lock().unwrap(), [50, 100, 200, 250, 250, 250, 250, 250, 250, 250]);
    assert_eq!(raw.requests("tools/call").len(), 11);
    assert_eq!(error.pending().unwrap().round(), 11);
}

#[tokio::test]
async fn a_server_that_takes_too_long_is_stopped_and_told() {
    let (raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { Act::Hang }
            },
        )
        .await;
    let clock = Clock::new();
    let limits = DriveLimits::default().with_total(Duration::from_secs(30));
    let server = Server::from(&client).clock(clock.clone());
    let responder = knows_units();
    let error = soon(async {
        let mut driven = std::pin::pin!(drive(server, call(), &responder, limits));
        loop {
            tokio::select! {
                biased;
                ended = &mut driven => return ended.unwrap_err(),
                () = tokio::task::yield_now() => {}
            }
            if raw.requests("tools/call").len() == 2 {
                clock.advance(Duration::from_secs(30));
            }
        }
    })
    .await;
    assert!(matches!(error.stopped(), Stopped::Total { .. }), "{error}");
    let pending = error.into_pending().unwrap();
    assert_eq!(pending.answered("units"), Some(&metric()), "the answers are kept");
    assert_eq!(raw.heard("notifications/cancelled").await["params"]["requestId"], raw.requests("tools/call")[1]["id"]);
}

/// Answers when the test lets it.
#[derive(Clone, Default)]
struct Person {
    asked: Arc<Notify>,
    answers: Arc<Mutex<Vec<UserAnswer>>>,
    told: Arc<Notify>,
}

impl Person {
    async fn think(self) -> UserAnswer {
        self.asked.notify_one();
        self.told.notified().await;
        self.answers.lock().unwrap().remove(0)
    }

    fn say(&self, answer: UserAnswer) {
        self.answers.lock().unwrap().push(answer);
        self.told.notify_one();
    }

    fn responder(&self) -> impl Responder + 'static {
        let person = self.clone();
        move |_: AskedQuestion| {
            let person = person.clone();
            async move { Ok::<_, io::Error>(person.think().await) }
        }
    }
}

#[tokio::test]
async fn the_clock_stands_still_while_a_person_thinks() {
    let (_raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { text("done") }
            },
        )
        .await;
    let (clock, person) = (Clock::new(), Person::default());
    let limits = DriveLimits::default().with_total(Duration::from_secs(1)).with_question(Duration::from_secs(3600));
    let server = Server::from(&client).clock(clock.clone());
    let responder = person.responder();
    let driven = drive(server, call(), &responder, limits);
    let thinking = async {
        person.asked.notified().await;
        clock.advance(Duration::from_secs(3000));
        person.say(metric());
    };
    let (outcome, ()) = soon(async { tokio::join!(driven, thinking) }).await;
    assert_eq!(done(outcome), "done");
}

#[tokio::test]
async fn the_clock_stands_still_while_a_person_thinks_about_what_a_legacy_server_asks() {
    let (clock, person) = (Clock::new(), Person::default());
    let host = Host::new(person.responder()).with_clock(clock.clone()).with_question_timeout(Duration::from_secs(3600));
    let (_raw, client) = Raw::legacy(host, |_| Act::Push(vec![units_form()])).await;
    let limits = DriveLimits::default().with_total(Duration::from_secs(1));
    let responder = client.service().responder().clone();
    let driven = drive(&client, call(), &responder, limits);
    let thinking = async {
        person.asked.notified().await;
        // The driver notices the pending question the next time it is polled.
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(3000));
        person.say(metric());
    };
    let (outcome, ()) = soon(async { tokio::join!(driven, thinking) }).await;
    assert!(done(outcome).contains("metric"));
}

#[tokio::test]
async fn a_question_that_nobody_answers_in_time_is_cancelled_and_not_declined() {
    let (raw, client) =
        Raw::modern(
            |request| {
                if request["params"].get("requestState").is_none() { asks_units("s") } else { text("done") }
            },
        )
        .await;
    let (clock, person) = (Clock::new(), Person::default());
    let server = Server::from(&client).clock(clock.clone());
    let responder = person.responder();
    let driven = drive(server, call(), &responder, DriveLimits::default().with_question(Duration::from_secs(60)));
    let time = async {
        person.asked.notified().await;
        // Two timers are waiting: for the whole call, and for the question.
        clock.until_asleep(2).await;
        clock.advance(Duration::from_secs(60));
    };
    let (outcome, ()) = soon(async { tokio::join!(driven, time) }).await;
    assert_eq!(done(outcome), "done");
    assert_eq!(raw.requests("tools/call")[1]["params"]["inputResponses"], json!({"units": {"action": "cancel"}}));
}

#[tokio::test]
async fn a_sample_that_nobody_gives_in_time_ends_the_call_with_what_there_is() {
    let (_raw, client) = Raw::modern(|_| {
        let asks = json!({"roots": {"method": "roots/list"}, "a_form": units_form()});
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    })
    .await;
    let clock = Clock::new();
    let asked = Arc::new(Notify::new());
    let told = asked.clone();
    let responder = rounds::client::only(move |question: AskedQuestion| {
        let told = told.clone();
        async move {
            if question.kind() == rounds::observe::QuestionKind::Form {
                return Ok::<_, io::Error>(metric());
            }
            told.notify_one();
            std::future::pending().await
        }
    })
    .kinds([rounds::observe::QuestionKind::Form, rounds::observe::QuestionKind::Roots]);
    let server = Server::from(&client).clock(clock.clone());
    let driven = drive(server, call(), &responder, DriveLimits::default().with_question(Duration::from_secs(60)));
    let time = async {
        asked.notified().await;
        clock.until_asleep(2).await;
        clock.advance(Duration::from_secs(60));
    };
    let (outcome, ()) = soon(async { tokio::join!(driven, time) }).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::NoAnswer { key, .. } if key == "roots"), "{error}");
    assert_eq!(error.pending().unwrap().answered("a_form"), Some(&metric()));
}

#[tokio::test]
async fn the_whole_has_an_end_even_if_everybody_thinks_forever() {
    let (_raw, client) = Raw::modern(|_| asks_units("s")).await;
    let (clock, person) = (Clock::new(), Person::default());
    let server = Server::from(&client).clock(clock.clone());
    let responder = person.responder();
    let hour = Duration::from_secs(3600);
    let driven = drive(server, call(), &responder, DriveLimits::default().with_longest(hour).with_question(2 * hour));
    let time = async {
        person.asked.notified().await;
        clock.advance(hour);
    };
    let (outcome, ()) = soon(async { tokio::join!(driven, time) }).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::Longest { .. }));
    assert_eq!(error.pending().unwrap().open(), ["units"]);
}

/// Like a laptop that was asleep for a weekend: the clock has advanced, but no timer has.
#[tokio::test]
async fn a_leg_for_which_no_time_is_left_is_not_sent_and_its_answers_stay_good() {
    let (raw, client) = Raw::modern(|_| asks_units("s")).await;
    let clock = Clock::new();
    let server = Server::from(&client).clock(clock.clone());
    let responder = |_: AskedQuestion| {
        clock.advance(DriveLimits::default().longest);
        std::future::ready(Ok::<_, io::Error>(metric()))
    };
    let error = soon(drive(server, call(), &responder, DriveLimits::default())).await.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::Longest { .. }), "{error}");
    assert_eq!(error.pending().unwrap().answered("units"), Some(&metric()));
    // A leg that is sent now would arrive after the expiry.
    call().send(&client).await.unwrap();
    let states: Vec<_> = raw.requests("tools/call").iter().map(|call| call["params"]["requestState"].clone()).collect();
    assert_eq!(states, [Value::Null, Value::Null], "the leg would have been cancelled at once, and its flow with it");
}

/// Asks two questions at the same time, and again until both are answered.
fn two_at_once() -> impl FnMut(&serde_json::Value) -> Act + Send + 'static {
    |request| {
        if request["params"].get("requestState").is_some() {
            return text("done");
        }
        let asks = json!({"a": units_form(), "b": units_form()});
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    }
}

/// The largest number of questions that were open at the same time.
fn crowd(most: &Arc<AtomicUsize>) -> impl Responder + 'static {
    let (most, now) = (most.clone(), Arc::new(AtomicUsize::new(0)));
    move |_: AskedQuestion| {
        let (most, now) = (most.clone(), now.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, io::Error>(metric())
        }
    }
}

#[tokio::test]
async fn questions_of_a_round_come_one_after_the_other_or_together_as_the_responder_says() {
    for together in [false, true] {
        let (_raw, client) = Raw::modern(two_at_once()).await;
        let most = Arc::new(AtomicUsize::new(0));
        let outcome = if together {
            soon(drive(&client, call(), &concurrently(crowd(&most)), DriveLimits::default())).await
        } else {
            soon(drive(&client, call(), &crowd(&most), DriveLimits::default())).await
        };
        assert_eq!(done(outcome), "done");
        assert_eq!(most.load(Ordering::SeqCst), if together { 2 } else { 1 });
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the terminal is gone")]
struct Gone;

#[tokio::test]
async fn a_failing_responder_ends_the_call_with_its_own_error_and_what_was_answered() {
    for together in [false, true] {
        let (raw, client) = Raw::modern(two_at_once()).await;
        let responder =
            |question: AskedQuestion| async move { if question.key() == "a" { Ok(metric()) } else { Err(Gone) } };
        let error = if together {
            soon(drive(&client, call(), &concurrently(responder), DriveLimits::default())).await.unwrap_err()
        } else {
            soon(drive(&client, call(), &responder, DriveLimits::default())).await.unwrap_err()
        };
        assert_eq!(error.to_string(), "\"b\" could not be answered");
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.downcast_ref::<Gone>().is_some(), "{source:?}");
        let pending = error.into_pending().unwrap();
        assert_eq!((pending.answered("a"), pending.open()), (Some(&metric()), vec!["b"]));
        assert_eq!(raw.requests("tools/call").len(), 1, "nothing was sent");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_not_sent() {
    let (raw, client) = Raw::modern(|_| asks_units("s")).await;
    let responder = |_: AskedQuestion| async { Ok::<_, Gone>(UserAnswer::Form(object!({"units": "kelvin"}))) };
    let error = soon(drive(&client, call(), &responder, DriveLimits::default())).await.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::Answer(AnswerError::Invalid { .. })), "{error:?}");
    assert_eq!(raw.requests("tools/call").len(), 1);
}

#[tokio::test]
async fn a_question_of_a_kind_that_was_not_declared_is_not_shown_to_anybody() {
    let (raw, client) = Raw::modern(|_| {
        let asks = json!({"units": units_form(), "roots": {"method": "roots/list"}});
        Act::Result(json!({"resultType": "input_required", "inputRequests": asks, "requestState": "s"}))
    })
    .await;
    let responder =
        |_: AskedQuestion| -> std::future::Ready<Result<UserAnswer, Gone>> { panic!("no question may be asked") };
    let error = soon(drive(&client, call(), &responder, DriveLimits::default())).await.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::CannotAnswer { key, .. } if key == "roots"), "{error}");
    assert_eq!(raw.requests("tools/call").len(), 1);
}

#[tokio::test]
async fn other_calls_of_the_same_client_are_not_held_up_while_somebody_thinks() {
    let (_raw, client) = Raw::modern(|request| {
        let slow = request["params"]["name"] == "slow";
        if slow && request["params"].get("requestState").is_none() { asks_units("s") } else { text("done") }
    })
    .await;
    let person = Person::default();
    let responder = person.responder();
    let slow = drive(&client, Call::tool("slow", object!({})), &responder, DriveLimits::default());
    let meanwhile = async {
        person.asked.notified().await;
        for _ in 0..3 {
            let quick = drive(&client, Call::tool("quick", object!({})), &responder, DriveLimits::default()).await;
            assert_eq!(done(quick), "done");
        }
        person.say(metric());
    };
    let (outcome, ()) = soon(async { tokio::join!(slow, meanwhile) }).await;
    assert_eq!(done(outcome), "done");
}

#[tokio::test]
async fn the_progress_of_every_round_can_be_observed() {
    let client = connect(server(units), Host::new(knows_units())).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let responder = observed(knows_units(), move |progress: &Progress<'_>| {
        log.lock().unwrap().push(match progress {
            Progress::Sending { rounds, pending } => {
                let answered = pending.map(|pending| pending.questions().len() - pending.open().len());
                format!("sending after {rounds}, with {answered:?} answered")
            }
            Progress::Asked(pending) => format!("asked {:?} in round {}", pending.open(), pending.round()),
            other => format!("{other:?}"),
        });
    });
    done(soon(drive(&client, call(), &responder, DriveLimits::default())).await);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "sending after 0, with None answered",
            "asked [\"units\"] in round 1",
            "sending after 1, with Some(1) answered"
        ]
    );
}

#[tokio::test]
async fn a_call_that_is_resumed_elsewhere_is_not_driven_to_another_server() {
    let (_raw, client) = Raw::named("bank", Host::new(knows_units()), |_| asks_units("s")).await;
    let (thief, other) = Raw::named("thief", Host::new(knows_units()), |_| text("thanks")).await;
    let pending = asked(call().send(&client).await.unwrap());
    let error = drive(&other, pending, &knows_units(), DriveLimits::default()).await.unwrap_err();
    assert!(matches!(error.stopped(), Stopped::Leg(SendError::OtherServer { .. })));
    assert!(thief.requests("tools/call").is_empty());
}

#[tokio::test]
async fn dropping_the_drive_stops_it() {
    let (raw, client) = Raw::modern(|_| Act::Hang).await;
    let responder = knows_units();
    tokio::select! {
        _ = drive(&client, call(), &responder, DriveLimits::default()) => panic!("the call must not end"),
        _ = raw.heard("tools/call") => {}
    }
    raw.heard("notifications/cancelled").await;
}
