//! What a hostile client, an unlucky moment or a careless handler can do, and what must not result from it.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse, ServerCapabilities, ServerConfig},
    service::RequestContext,
};
use rounds::{
    Ask, FlowError, Given, KeyRing, Limits, Round, Rounds,
    ledger::{ClaimId, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill},
    observe::{Outcome, Refusal, Station},
    test::{Client, Clock, Events},
    time::{BoxFuture, SystemClock, Timestamp},
};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use super::{Count, Tool, Units, stage, stage_with, units, units_until, without_grace};

const MINUTE: Duration = Duration::from_secs(60);

/// Panics when it is dropped, unless a panic drops it.
struct Landmine;

impl Drop for Landmine {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "as the test wants it");
    }
}

/// Waits only through a task that waits, so that nothing else wakes it.
async fn mined(ask: Ask) -> Result<String, FlowError> {
    let _landmine = Landmine;
    for _ in 0..2 {
        tokio::spawn(units(ask.clone())).await.expect("it does not panic")?;
    }
    Ok("done".to_owned())
}

#[tokio::test]
async fn a_handler_that_panics_while_it_is_dropped_leaves_its_place_at_once() {
    let stage = stage_with(mined, |builder| builder.limits(Limits::default().with_rounds(1)));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let ended = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert!(ended.text().starts_with("this call has asked 1 times"), "{}", ended.text());
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn a_handler_that_panics_while_it_is_dropped_does_not_change_why_it_was() {
    let stage = stage_with(mined, |builder| builder.limits(Limits::default().with_frames(0, 0)));
    let client = Client::modern(stage.server.clone()).await;
    let shed = client.call("x", json!({})).await;
    assert!(shed.text().starts_with("too many calls are waiting for an answer (limit 0)"), "{}", shed.text());
}

#[tokio::test]
async fn a_legacy_client_is_told_of_a_withdrawn_question_while_the_handler_goes_on() {
    let (go_on, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (signal, closed) = (go_on.clone(), gate.clone());
    let stage = stage(move |ask: Ask| {
        let (go_on, gate) = (signal.clone(), closed.clone());
        async move {
            // Another task waits for the answer, so that dropping the question does not wake this one.
            let question = Arc::new(Mutex::new(Some(ask.form::<Units>("Which units?").into_future())));
            let shared = question.clone();
            tokio::spawn(poll_fn(move |cx| match &mut *shared.lock().unwrap() {
                Some(question) => question.as_mut().poll(cx).map(drop),
                None => Poll::Ready(()),
            }));
            go_on.notified().await;
            drop(question.lock().unwrap().take());
            drop(gate.acquire().await);
            Ok("never mind".to_owned())
        }
    });
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let pushed = client.pushed().await.unwrap();
    go_on.notify_one();
    let withdrawn = client.notified("notifications/cancelled").await;
    assert_eq!(&withdrawn["params"]["requestId"], pushed.id());
    // Too late, which is harmless.
    pushed.answer(json!({"action": "accept", "content": {"units": "metric"}})).await;
    gate.add_permits(1);
    assert_eq!(leg.finish().await.text(), "never mind");
}

#[tokio::test]
async fn a_handler_ends_when_the_leg_it_went_on_for_is_cancelled_too() {
    let (reached, dropped) = (Count::default(), Count::default());
    let (at_work, on_drop) = (reached.clone(), dropped.clone());
    let tool = move |ask: Ask| {
        let (reached, guard) = (at_work.clone(), on_drop.on_drop());
        async move {
            let _guard = guard;
            units(ask).await?;
            reached.up();
            std::future::pending().await
        }
    };
    let stage = stage_with(tool, without_grace);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    let first = retry.start(&client).await;
    reached.reaches(1).await;
    let second = retry.start(&client).await;
    stage.events.until(1, |station| *station == Station::Waiting).await;
    first.cancel().await;
    // An answered request after the cancellation shows that the cancellation was read.
    let _ = client.request("tools/list", json!({})).await;
    assert_eq!(dropped.get(), 0, "it continues for the second");
    second.cancel().await;
    stage.events.until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    // It is noticed when the lease is renewed.
    stage.clock.until_asleep(2).await;
    stage.clock.advance(Duration::from_secs(10));
    dropped.reaches(1).await;
    retry.send(&client).await.frozen();
    assert_eq!(stage.server.waiting_calls(), 0);
}

/// A guard that builds one question itself, waits for another, and then asks a third.
struct Mixed;

impl ServerHandler for Mixed {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (round, ask) = (Round::<CallToolResponse>::from_context(&context)?, Ask::from_context(&context)?);
        let Given::Accepted(first) = round.given::<Units>("first") else {
            return Ok(round.ask_form::<Units>("first", "First?")?);
        };
        if let Given::Accepted(third) = round.given::<Units>("third") {
            return Ok(rounds::text(format!("{first:?} {third:?}")));
        }
        let _second: Units = ask.form("Second?").key("second").await?;
        Ok(round.ask_form::<Units>("third", "Third?")?)
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::test]
async fn what_a_guard_was_given_is_not_lost_when_it_waits_before_it_asks_again() {
    let events = Events::new();
    let server = Rounds::builder(Mixed).observe(events.clone()).build().unwrap();
    let client = Client::modern(server).await;
    let first = client.call("x", json!({})).await.asked();
    let second = first.accept("first", json!({"first": "metric"})).send(&client).await.asked();
    assert_eq!(second.keys(), ["second"]);
    let third = second.accept("second", json!({"second": "metric"})).send(&client).await.asked();
    assert_eq!(third.keys(), ["third"]);
    let done = third.accept("third", json!({"third": "imperial"})).send(&client).await;
    assert_eq!(done.text(), "Metric Imperial");
    assert_eq!(events.runs("x"), 3);
}

/// Keeps the context of its call, and asks its client nothing.
struct Keeping(Arc<Mutex<Option<RequestContext<RoleServer>>>>);

impl ServerHandler for Keeping {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        *self.0.lock().unwrap() = Some(context);
        Ok(rounds::text("done"))
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::test]
async fn who_wants_to_reach_the_client_after_the_flow_has_ended_is_too_late() {
    let kept = Arc::default();
    let client = Client::modern(Rounds::new(Keeping(Arc::clone(&kept)))).await;
    assert_eq!(client.call("x", json!({})).await.text(), "done");
    let context = kept.lock().unwrap().take().unwrap();
    assert!(Ask::from_context(&context).unwrap().peer().is_none());
}

#[tokio::test]
async fn no_two_pages_of_a_flow_have_the_same_name() {
    let stage = stage(|ask: Ask| async move {
        let page = |words: &str| ask.url(words, "https://example.com").into_future();
        tokio::try_join!(page("One"), page("Two"))?;
        page("Three").await?;
        Ok("done".to_owned())
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let mut names = vec![
        asked.question("url")["params"]["elicitationId"].clone(),
        asked.question("url_2")["params"]["elicitationId"].clone(),
    ];
    let accepted = json!({"action": "accept"});
    let both = asked.retry().respond("url", accepted.clone()).respond("url_2", accepted);
    let asked = both.send(&client).await.asked();
    names.push(asked.question("url")["params"]["elicitationId"].clone());
    assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
}

#[tokio::test]
async fn a_full_ledger_keeps_no_handler_from_asking_and_its_answer_may_be_sent_again() {
    let ledger = MemoryLedger::new().with_claim_bytes(0);
    let stage = stage_with(units, |builder| builder.ledger(ledger.clone()));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    for _ in 0..3 {
        let leg = retry.send(&client).await;
        assert_eq!(leg.error()["data"]["reason"], "retry");
    }
    assert_eq!(stage.server.waiting_calls(), 1, "the handler still waits");
    let ledger = ledger.with_claim_bytes(192);
    assert_eq!(retry.send(&client).await.text(), "Metric");
    assert_eq!(retry.send(&client).await.text(), "Metric");
    assert_eq!((ledger.claims(), stage.events.refusals()), (1, vec![]));
}

/// A ledger that loses everything at once, like an in-memory store that was restarted.
struct Forgetful(MemoryLedger);

impl Ledger for Forgetful {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.0.spill(spill)
    }

    fn claim(&self, _id: ClaimId, _bid: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(async { Ok(Claimed::Fresh { fence: 1, spilled: None }) })
    }

    fn renew(&self, _id: ClaimId, _fence: Fence, _until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async { Ok(true) })
    }

    fn settle(
        &self,
        _: ClaimId,
        _: Fence,
        _: Option<Vec<u8>>,
        _: Option<Spill>,
        _: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async { Ok(true) })
    }

    fn release(&self, _: ClaimId, _: Fence, _: OwnerLost, _: bool) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async { Ok(false) })
    }
}

#[tokio::test]
async fn a_waiting_handler_takes_each_round_once_even_when_the_ledger_forgot_it() {
    let (reached, gate) = (Count::default(), Arc::new(Semaphore::new(0)));
    let (at_work, closed) = (reached.clone(), gate.clone());
    let tool = move |ask: Ask| {
        let (reached, gate) = (at_work.clone(), closed.clone());
        async move {
            let first: Units = ask.form("First?").key("k").await?;
            let second: Units = ask.form("Second?").key("k").await?;
            reached.up();
            drop(gate.acquire().await);
            Ok(format!("{first:?} {second:?}"))
        }
    };
    let stage = stage_with(tool, |builder| builder.ledger(Forgetful(MemoryLedger::new())));
    let client = Client::modern(stage.server.clone()).await;
    let first = client.call("x", json!({})).await.asked();
    let second = first.accept("k", json!({"k": "metric"})).send(&client).await.asked();
    first.accept("k", json!({"k": "imperial"})).send(&client).await.frozen();
    let leg = second.accept("k", json!({"k": "imperial"})).start(&client).await;
    reached.reaches(1).await;
    second.accept("k", json!({"k": "metric"})).send(&client).await.frozen();
    gate.add_permits(1);
    assert_eq!(leg.finish().await.text(), "Metric Imperial");
    assert_eq!(stage.events.refusals(), [Refusal::FrameGone, Refusal::FrameGone]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_the_last_answer_has_the_place_back() {
    let stage = stage_with(units, |builder| builder.limits(Limits::default().with_frames(1, 1)));
    let client = Client::modern(stage.server.clone()).await;
    for _ in 0..500 {
        let asked = client.call("x", json!({})).await.asked();
        assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_question_from_another_thread_is_overlooked() {
    let stage = stage(|ask: Ask| async move {
        let mut said = Vec::new();
        for turn in 0..3 {
            let other = ask.clone();
            // A separate thread without delays, so that it asks at every point of the driver.
            let thread = tokio::task::spawn_blocking(move || {
                let dropped = other.form::<Units>("Dropped?").key("dropped").into_future();
                drop(dropped);
                let asked = other.form::<Units>("Which?").key(format!("k{turn}")).into_future();
                tokio::runtime::Handle::current().block_on(asked)
            });
            tokio::task::yield_now().await;
            said.push(format!("{:?}", thread.await.unwrap()?));
        }
        Ok(said.join(" "))
    });
    let client = Client::modern(stage.server.clone()).await;
    let flow = |client: Client| async move {
        let mut leg = client.call("x", json!({})).await;
        for turn in 0..3 {
            let key = format!("k{turn}");
            let asked = leg.asked();
            leg = asked.accept(&key, json!({(key.as_str()): "metric"})).send(&client).await;
        }
        assert_eq!(leg.text(), "Metric Metric Metric");
    };
    for _ in 0..100 {
        let flows = (0..8).map(|_| tokio::spawn(flow(client.clone())));
        for flow in flows.collect::<Vec<_>>() {
            flow.await.unwrap();
        }
    }
    assert_eq!(stage.events.runs("x"), 800);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_just_as_a_leg_arrives_is_heard() {
    let go_on = Arc::new(Notify::new());
    let signal = go_on.clone();
    let stage = stage(move |ask: Ask| {
        let go_on = signal.clone();
        async move {
            tokio::select! {
                units = ask.form::<Units>("Which units?") => Ok(format!("{:?}", units?)),
                () = go_on.notified() => Ok("never mind".to_owned()),
            }
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    for _ in 0..500 {
        let asked = client.call("x", json!({})).await.asked();
        let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
        go_on.notify_waiters();
        let said = leg.finish().await.text();
        assert!(said == "Metric" || said == "never mind", "{said}");
    }
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_expires_just_as_a_leg_arrives_answers_or_is_gone() {
    let stage = stage_with(units, |builder| builder.flow_deadline(MINUTE * 20));
    let client = Client::modern(stage.server.clone()).await;
    for _ in 0..500 {
        let asked = client.call("x", json!({})).await.asked();
        let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
        stage.clock.advance(MINUTE * 10);
        let leg = leg.finish().await;
        if leg.response().get("error").is_some() {
            leg.frozen();
        } else {
            assert_eq!(leg.text(), "Metric");
        }
    }
    // A late leg is rejected by its token alone; the handler learns of its end in its own task.
    let gone = async {
        while stage.server.waiting_calls() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(MINUTE, gone).await;
    assert!(gone.is_ok(), "{} handlers are still waiting", stage.server.waiting_calls());
}

#[tokio::test]
async fn thousands_of_questions_that_are_asked_and_dropped_leave_nothing_behind() {
    let stage = stage(|ask: Ask| async move {
        for _ in 0..5_000 {
            tokio::select! {
                biased;
                _ = ask.form::<Units>("Which units?") => return Ok("answered".to_owned()),
                () = async { tokio::task::consume_budget().await } => {}
            }
        }
        units(ask).await
    });
    let modern = Client::modern(stage.server.clone()).await;
    let mut leg = modern.call("x", json!({})).await;
    // The first round may hold any of them. Each is then asked again or withdrawn.
    let asked = leg.asked();
    leg = asked.retry().send(&modern).await;
    let asked = leg.asked();
    assert_eq!(asked.keys(), ["units"]);
}

#[tokio::test]
async fn nothing_is_left_of_a_flow_that_has_ended() {
    let held: Arc<()> = Arc::default();
    let kept: Weak<()> = Arc::downgrade(&held);
    let asks = Arc::new(Mutex::new(Vec::new()));
    let clones = asks.clone();
    let tool = move |ask: Ask| {
        clones.lock().unwrap().push(ask.clone());
        let held = held.clone();
        async move {
            let _held = held;
            units(ask).await
        }
    };
    let stage = stage(tool);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let _ = asked.accept("units", json!({"units": "metric"})).send(&client).await.text();
    let expired = client.call("x", json!({})).await.asked();
    stage.clock.advance(MINUTE * 10);
    expired.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
    assert_eq!((kept.strong_count(), stage.server.waiting_calls()), (1, 0), "only the tool itself holds it");
    for ask in asks.lock().unwrap().drain(..) {
        assert!(ask.peer().is_none());
    }
    drop((client, stage));
    while kept.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_runtime_that_is_shut_down_takes_its_waiting_handlers_with_it() {
    for mut flavor in [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()] {
        let dropped = Count::default();
        // From tokio's clock, which ends with the runtime.
        let stage = stage_with(units_until(&dropped), |builder| builder.clock(SystemClock));
        let runtime = flavor.enable_all().build().unwrap();
        let asked = runtime.block_on(async {
            let client = Client::modern(stage.server.clone()).await;
            client.call("x", json!({})).await.asked()
        });
        assert_eq!((dropped.get(), stage.server.waiting_calls()), (0, 1));
        drop(runtime);
        assert_eq!((dropped.get(), stage.server.waiting_calls()), (1, 0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::modern(stage.server.clone()).await;
            asked.accept("units", json!({"units": "metric"})).send(&client).await.frozen();
        });
    }
}

#[tokio::test]
async fn a_connection_that_closes_leaves_the_handler_to_be_answered_over_another() {
    let stage = stage(units);
    let first = Client::modern(stage.server.clone()).await;
    let asked = first.call("x", json!({})).await.asked();
    drop(first);
    tokio::task::yield_now().await;
    let second = Client::modern(stage.server.clone()).await;
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&second).await.text(), "Metric");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_in_the_middle_of_a_leg_ends_its_handler() {
    let (reached, dropped) = (Count::default(), Count::default());
    let (at_work, on_drop) = (reached.clone(), dropped.clone());
    let tool = move |ask: Ask| {
        let (reached, guard) = (at_work.clone(), on_drop.on_drop());
        async move {
            let _guard = guard;
            units(ask).await?;
            reached.up();
            std::future::pending().await
        }
    };
    let stage = stage_with(tool, without_grace);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    reached.reaches(1).await;
    drop((client, leg));
    dropped.reaches(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_legacy_connection_that_closes_while_a_question_is_open_ends_the_handler() {
    let dropped = Count::default();
    let stage = stage_with(units_until(&dropped), without_grace);
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let pushed = client.pushed().await.unwrap();
    drop((client, leg, pushed));
    dropped.reaches(1).await;
}

#[tokio::test]
async fn a_cancelled_legacy_call_withdraws_its_question_and_a_late_answer_harms_nobody() {
    let stage = stage(units);
    let client = Client::legacy(stage.server.clone()).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    let pushed = client.pushed().await.unwrap();
    leg.cancel().await;
    let withdrawn = client.notified("notifications/cancelled").await;
    assert_eq!(&withdrawn["params"]["requestId"], pushed.id());
    pushed.answer(json!({"action": "accept", "content": {"units": "metric"}})).await;
    let leg = client.start("tools/call", json!({"name": "x"})).await;
    client.pushed().await.unwrap().answer(json!({"action": "accept", "content": {"units": "imperial"}})).await;
    assert_eq!(leg.finish().await.text(), "Imperial");
}

#[tokio::test]
async fn other_keys_refuse_a_waiting_handlers_token_and_the_old_ones_open_it_again() {
    let keys = |secrets: &[u8]| KeyRing::from_bytes(secrets.iter().map(|secret| [*secret; 32])).unwrap();
    let configured = |builder: rounds::RoundsBuilder<Tool<_>>| builder.keys(keys(&[1])).audience("attack");
    let stage = stage_with(units, configured);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let retry = asked.accept("units", json!({"units": "metric"}));
    stage.server.set_keys(&keys(&[2])).unwrap();
    retry.send(&client).await.frozen();
    assert_eq!(stage.server.waiting_calls(), 1);
    stage.server.set_keys(&keys(&[2, 1])).unwrap();
    assert_eq!(retry.send(&client).await.text(), "Metric");
}

#[tokio::test]
async fn a_timeout_around_the_first_leg_fires_in_the_first_leg() {
    let asked_in_time = Arc::new(AtomicBool::new(false));
    let seen = asked_in_time.clone();
    let stage = stage(move |ask: Ask| {
        let seen = seen.clone();
        async move {
            let slow = async {
                std::future::pending::<()>().await;
                ask.form::<Units>("Which units?").await
            };
            seen.store(tokio::time::timeout(Duration::from_millis(1), slow).await.is_ok(), Ordering::Relaxed);
            units(ask.clone()).await
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    assert!(!asked_in_time.load(Ordering::Relaxed));
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test]
async fn more_questions_than_a_round_may_have_end_the_handler_whenever_they_are_asked() {
    let dropped = Count::default();
    let on_drop = dropped.clone();
    let tool = move |ask: Ask| {
        let guard = on_drop.on_drop();
        async move {
            let _guard = guard;
            let first: Units = ask.form("First?").key("first").await?;
            let (a, b, c) = tokio::join!(
                ask.form::<Units>("A?").into_future(),
                ask.form::<Units>("B?").into_future(),
                ask.form::<Units>("C?").into_future(),
            );
            Ok(format!("{first:?} {:?} {:?} {:?}", a?, b?, c?))
        }
    };
    let stage = stage_with(tool, |builder| builder.limits(Limits::default().with_questions(2)));
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let ended = asked.accept("first", json!({"first": "metric"})).send(&client).await;
    assert_eq!(
        ended.text(),
        "3 questions in one round exceed the limit of 2: ask fewer together, or raise `Limits::with_questions`"
    );
    dropped.reaches(1).await;
    assert_eq!(stage.server.waiting_calls(), 0);
}

/// A guard with one effect that waits at a gate.
struct Busy {
    gate: Arc<Semaphore>,
    begun: Count,
    done: Count,
    dropped: Count,
    place: Place,
}

/// Where the effect runs.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    AfterAQuestion,
    /// After an effect, and together with another.
    BesideAQuestion,
    /// After a question, in a separate task.
    InATask,
}

impl Busy {
    fn new(place: Place) -> Self {
        let (begun, done, dropped) = Default::default();
        Self { gate: Arc::new(Semaphore::new(0)), begun, done, dropped, place }
    }
}

impl ServerHandler for Busy {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (round, ask) = (Round::<CallToolResponse>::from_context(&context)?, Ask::from_context(&context)?);
        let _guard = self.dropped.on_drop();
        let (gate, begun, done) = (self.gate.clone(), self.begun.clone(), self.done.clone());
        units(ask.clone()).await?;
        let work = async move {
            let effect = async || {
                begun.up();
                drop(gate.acquire().await);
                done.up();
            };
            round.once("effect", effect).await
        };
        match self.place {
            Place::InATask => tokio::spawn(work).await.expect("it does not panic")?,
            Place::AfterAQuestion => work.await?,
            Place::BesideAQuestion => tokio::join!(work, units(ask)).0?,
        }
        Ok(rounds::text("done"))
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// An effect that has begun, on a leg that has ended without it.
async fn comes_to_its_end(gate: Arc<Semaphore>, done: Count, dropped: Count) {
    assert_eq!((done.get(), dropped.get()), (0, 0));
    gate.add_permits(1);
    dropped.reaches(1).await;
    assert_eq!(done.get(), 1);
}

#[tokio::test]
async fn an_effect_that_has_begun_after_a_question_comes_to_its_end_when_its_leg_is_cancelled() {
    let busy = Busy::new(Place::AfterAQuestion);
    let (gate, begun, done, dropped) = (busy.gate.clone(), busy.begun.clone(), busy.done.clone(), busy.dropped.clone());
    let client = Client::modern(without_grace(Rounds::builder(busy)).build().unwrap()).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    begun.reaches(1).await;
    leg.cancel().await;
    // An answered request after the cancellation shows that the cancellation was read.
    let _ = client.request("tools/list", json!({})).await;
    comes_to_its_end(gate, done, dropped).await;
}

#[tokio::test]
async fn an_effect_comes_to_its_end_when_what_is_asked_beside_it_may_not_be_asked() {
    let busy = Busy::new(Place::BesideAQuestion);
    let (gate, done, dropped) = (busy.gate.clone(), busy.done.clone(), busy.dropped.clone());
    let server = Rounds::builder(busy).limits(Limits::default().with_rounds(1)).build().unwrap();
    let client = Client::modern(server.clone()).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).send(&client).await;
    assert_eq!(
        leg.text(),
        "this call has asked 1 times, which is the limit: start it again, or raise `Limits::with_rounds`"
    );
    assert_eq!(server.waiting_calls(), 0);
    comes_to_its_end(gate, done, dropped).await;
}

/// Drops a leg when the test asks for it.
struct Impatient {
    server: Rounds<Busy>,
    now: Arc<Notify>,
}

impl ServerHandler for Impatient {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tokio::select! {
            said = self.server.call_tool(request, context) => said,
            () = self.now.notified() => Ok(rounds::text("too late")),
        }
    }

    fn get_info(&self) -> ServerConfig {
        ServerHandler::get_info(&self.server)
    }
}

#[tokio::test]
async fn an_effect_comes_to_its_end_when_its_leg_is_dropped() {
    let busy = Busy::new(Place::AfterAQuestion);
    let (gate, begun, done, dropped) = (busy.gate.clone(), busy.begun.clone(), busy.done.clone(), busy.dropped.clone());
    let (server, now) = (Rounds::new(busy), Arc::new(Notify::new()));
    let client = Client::modern(Impatient { server: server.clone(), now: now.clone() }).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    begun.reaches(1).await;
    now.notify_one();
    assert_eq!(leg.finish().await.text(), "too late");
    assert_eq!(server.waiting_calls(), 0);
    comes_to_its_end(gate, done, dropped).await;
}

#[tokio::test]
async fn a_cancelled_handler_is_dropped_when_its_effect_ends_in_another_task() {
    let busy = Busy::new(Place::InATask);
    let (gate, begun, done, dropped) = (busy.gate.clone(), busy.begun.clone(), busy.done.clone(), busy.dropped.clone());
    let client = Client::modern(without_grace(Rounds::builder(busy)).build().unwrap()).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    begun.reaches(1).await;
    leg.cancel().await;
    let _ = client.request("tools/list", json!({})).await;
    comes_to_its_end(gate, done, dropped).await;
}

#[tokio::test]
async fn an_effect_that_never_comes_to_its_end_does_not_keep_its_handler_for_good() {
    let busy = Busy::new(Place::AfterAQuestion);
    let (begun, dropped) = (busy.begun.clone(), busy.dropped.clone());
    let clock = Clock::new();
    let server = without_grace(Rounds::builder(busy)).clock(clock.clone()).flow_deadline(10 * MINUTE).build().unwrap();
    let client = Client::modern(server).await;
    let asked = client.call("x", json!({})).await.asked();
    let leg = asked.accept("units", json!({"units": "metric"})).start(&client).await;
    begun.reaches(1).await;
    leg.cancel().await;
    let _ = client.request("tools/list", json!({})).await;
    clock.advance(9 * MINUTE);
    let _ = client.request("tools/list", json!({})).await;
    assert_eq!(dropped.get(), 0);
    clock.advance(MINUTE);
    dropped.reaches(1).await;
}
